"""From MODEL and its options to a model, and from a mistake to a sentence."""

import tomllib
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch

from trine.capture.export import capture
from trine.capture.specification import load_model, load_weights
from trine.capture.wishes import Wishes, literal
from trine.capture.zoo import EXTRAS, zoo_package
from trine.errors import BadInput, TrineError, UnknownKey, UnknownName


@dataclass(frozen=True)
class Set:
    key: str
    value: str


@dataclass(frozen=True)
class Shape:
    shape: tuple[int, ...]
    dtype: str = "float32"


FILE = """
import torch
from torch import nn

def plain(width=4):
    return nn.Sequential(nn.Linear(width, 3))

def pair():
    return plain(), (torch.randn(5, 4),)

def whole():
    return {"module": plain(), "inputs": torch.zeros(5, 4), "targets": torch.zeros(5, 3),
            "loss": lambda output, targets: (output - targets).abs().sum(),
            "optimizer": lambda parameters: torch.optim.Adam(parameters, lr=0.5)}

def broken():
    return nn.Linear(2)

def odd():
    return {"module": plain(), "input": 3}
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "mine.py"
    path.write_text(FILE)
    return str(path)


def test_torchvision_is_the_same_for_a_seed_and_leaves_the_global_state() -> None:
    before = torch.get_rng_state()
    wishes = Wishes(size=32, set=(Set("num_classes", "7"),), seed=3)
    one, two = (load_model("torchvision:squeezenet1_1", wishes, batch=3) for _ in range(2))
    assert torch.equal(torch.get_rng_state(), before)
    for a, b in zip(one.module.parameters(), two.module.parameters(), strict=True):
        assert torch.equal(a, b)
    assert torch.equal(one.inputs.args[0], two.inputs.args[0])
    assert one.inputs.args[0].shape == (3, 3, 32, 32)
    assert one.targets.max() < 7
    assert one.weights == "random, seed 3"


def test_timm_takes_its_own_size() -> None:
    model = load_model("timm:vit_tiny_patch16_224", Wishes(size=32, dtype="bfloat16"))
    assert model.inputs.args[0].shape == (2, 3, 32, 32)
    assert model.inputs.args[0].dtype == torch.bfloat16


def test_transformers_take_nested_settings_a_folder_and_a_length(tmp_path: Path) -> None:
    small = (Set("hidden_size", "8"), Set("num_attention_heads", "2"), Set("intermediate_size", "8"))
    model = load_model("hf:bert", Wishes(seq=9, set=small))
    assert model.inputs.kwargs["input_ids"].shape == (2, 9)
    assert torch.equal(model.targets["labels"], model.inputs.kwargs["input_ids"])
    model.module.config.save_pretrained(tmp_path)
    again = load_model(str(tmp_path), Wishes(seq=9))
    assert again.module.config.hidden_size == 8
    resnet = load_model("hf:resnet", Wishes(size=32), meta=True)
    assert resnet.inputs.kwargs["pixel_values"].shape == (2, 3, 32, 32)
    clip = load_model("hf:clip", Wishes(seq=4, set=(Set("text_config.num_hidden_layers", "1"),)))
    assert clip.module.config.text_config.num_hidden_layers == 1


def test_a_model_larger_than_the_memory_is_captured_without_data() -> None:
    wide = Wishes(seq=8, set=(Set("n_layer", "2"), Set("n_embd", "12288"), Set("n_head", "96")))
    model = load_model("hf:gpt2", wide, meta=True)
    graph = capture(model, training=True, with_loss=True).graph
    assert sum(t.num_elements for t in graph.by_kind("parameter")) > 4_000_000_000
    image = load_model("torchvision:resnet18", Wishes(size=32), meta=True)
    real = load_model("torchvision:resnet18", Wishes(size=32))
    graphs = [capture(m, training=True, with_loss=True).graph for m in (image, real)]
    assert graphs[0].fingerprint() == graphs[1].fingerprint()


def test_files_give_a_module_a_pair_or_everything(file: str) -> None:
    wishes = Wishes(input=(Shape((6,)),), set=(Set("width", "6"),))
    assert load_model(f"{file}:plain", wishes, batch=7).inputs.args[0].shape == (7, 6)
    pair = load_model(f"{file}:pair")
    assert pair.inputs.batch == 5
    assert pair.targets.shape == (5,)
    whole = load_model(f"{file}:whole")
    assert whole.optimizer(whole.module.parameters()).defaults["lr"] == 0.5
    graph = capture(whole, training=True, with_loss=True).graph
    assert [op.base for op in graph.operators] == ["linear", "sub", "abs", "sum"]


def test_inputs_of_a_file_take_the_batch_that_is_asked_for(file: str) -> None:
    assert load_model(f"{file}:pair", default_batch=7).inputs.batch == 5
    model = load_model(f"{file}:whole", batch=7)
    assert (model.inputs.args[0].shape, model.targets.shape) == ((7, 4), (7, 3))
    assert load_model(f"{file}:pair", batch=7, meta=True).inputs.batch == 7


def test_an_exported_program(tmp_path: Path) -> None:
    program = torch.export.export(torch.nn.Linear(4, 3).eval(), (torch.randn(2, 4),))
    torch.export.save(program, tmp_path / "model.pt2")
    model = load_model(str(tmp_path / "model.pt2"))
    for training in (False, True):
        graph = capture(model, training=training, with_loss=False).graph
        assert [op.base for op in graph.operators] == ["linear"]
    assert load_model(str(tmp_path / "model.pt2"), batch=2).inputs.batch == 2
    assert load_model(str(tmp_path / "model.pt2"), default_batch=8).inputs.batch == 2
    with pytest.raises(BadInput, match=r"batch of 8 was asked for, and model\.pt2 was exported with a batch of 2"):
        load_model(str(tmp_path / "model.pt2"), batch=8)


def test_weights_are_loaded_and_checked(tmp_path: Path) -> None:
    module, other = torch.nn.Linear(2, 3), torch.nn.Linear(2, 3)
    torch.save({"state_dict": module.state_dict()}, tmp_path / "good.pt")
    load_weights(other, tmp_path / "good.pt")
    assert torch.equal(module.weight, other.weight)
    torch.save(torch.nn.Linear(2, 4).state_dict(), tmp_path / "other.pt")
    with pytest.raises(BadInput, match="size mismatch for weight"):
        load_weights(other, tmp_path / "other.pt")
    torch.save(module, tmp_path / "code.pt")
    with pytest.raises(BadInput, match="could not be read"):
        load_weights(other, tmp_path / "code.pt")


@pytest.mark.parametrize(
    ("spec", "kind", "words"),
    [
        ("torchvision:resnet81", UnknownName, "resnet18"),
        ("timm:resnet81", UnknownName, "resnet18"),
        ("hf:gtp2", UnknownName, "gpt2"),
        ("torchvisoin:resnet18", UnknownName, "torchvision"),
        ("resnet18", BadInput, "torchvision:resnet18"),
        ("torchvision:fasterrcnn_resnet50_fpn", BadInput, "backbone"),
        ("none.py:f", BadInput, "no file"),
        ("none.pt2", BadInput, "no file"),
        ("none.py", BadInput, "callable"),
    ],
)
def test_a_wrong_name_teaches(spec: str, kind: type[TrineError], words: str) -> None:
    with pytest.raises(kind, match=words):
        load_model(spec)


@pytest.mark.parametrize(
    ("name", "kind", "words"),
    [
        ("plain", BadInput, "--input"),
        ("broken", BadInput, r"mine\.py:17 raised TypeError"),
        ("odd", UnknownKey, "'inputs'"),
        ("wole", UnknownName, "whole"),
    ],
)
def test_a_wrong_file_teaches(file: str, name: str, kind: type[TrineError], words: str) -> None:
    with pytest.raises(kind, match=words):
        load_model(f"{file}:{name}")


@pytest.mark.parametrize(
    ("spec", "wishes", "words"),
    [
        ("torchvision:resnet18", Wishes(seq=3), "--seq"),
        ("hf:gpt2", Wishes(size=3), "--size"),
        ("hf:gpt2", Wishes(set=(Set("n_layr", "2"),)), "n_layer"),
        ("torchvision:resnet18", Wishes(set=(Set("classes", "2"),)), "--set"),
        ("torchvision:resnet18", Wishes(input=(Shape((3, 64, 64), "float64"),)), "float64"),
    ],
)
def test_an_option_that_cannot_be_honoured_is_an_error(spec: str, wishes: Wishes, words: str) -> None:
    with pytest.raises(TrineError, match=words):
        load_model(spec, wishes)


def test_images_may_have_the_type_of_the_weights() -> None:
    wishes = Wishes(input=(Shape((3, 64, 64), "float64"),), dtype="float64")
    assert load_model("torchvision:squeezenet1_1", wishes, meta=True).inputs.args[0].dtype == torch.float64


@pytest.mark.parametrize("package", EXTRAS)
def test_a_missing_package_is_in_the_extra_that_is_named(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trine.capture.zoo.import_module", Mock(side_effect=ImportError))
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    with pytest.raises(BadInput, match=rf"trine\[{EXTRAS[package]}\]"):
        zoo_package(f"{package}.models")
    assert any(need.startswith(package.replace("_", "-")) for need in project["optional-dependencies"][EXTRAS[package]])


@pytest.mark.parametrize(
    ("text", "value"), [("3", 3), ("0.5", 0.5), ("true", True), ("None", None), ("[1, 2]", [1, 2]), ("gelu", "gelu")]
)
def test_settings_are_typed(text: str, value: object) -> None:
    assert literal(text) == value
