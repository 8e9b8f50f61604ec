"""The captured graph gives the plain module's outputs, loss, gradients and buffers, dropout included."""

from dataclasses import dataclass

import pytest
from tests.capture.equality import difference

from trine.capture.specification import load_model
from trine.capture.wishes import Wishes


@dataclass(frozen=True)
class Set:
    key: str
    value: str


SMALL = {"hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 64, "num_hidden_layers": 1, "vocab_size": 99}
GPT2 = {"n_layer": 2, "n_embd": 32, "n_head": 2, "vocab_size": 99}
VIT_HF = {key: value for key, value in SMALL.items() if key != "vocab_size"}
VIT_HF |= {"image_size": 32, "attention_probs_dropout_prob": 0.1}
LLAMA = SMALL | {"num_key_value_heads": 1, "attention_dropout": 0.1}
VIT = {"dropout": 0.1, "attention_dropout": 0.2}
QUICK = [
    ("torchvision:resnet18", {"size": 64}, {}, 0),
    ("hf:gpt2", {"seq": 32}, GPT2, 7),
    ("hf:llama", {"seq": 16}, LLAMA, 1),
    ("hf:bert", {"seq": 16}, SMALL, 4),
    ("hf:vit", {}, VIT_HF, 1),
]
SLOW = [
    ("torchvision:mobilenet_v2", {"size": 64}, {}, 1),
    ("torchvision:efficientnet_b0", {"size": 64}, {}, 10),
    ("torchvision:densenet121", {"size": 64}, {"drop_rate": 0.1}, 58),
    ("torchvision:vgg16_bn", {"size": 64}, {}, 2),
    ("torchvision:vit_b_16", {"size": 64}, VIT, 49),
    ("torchvision:convnext_tiny", {"size": 64}, {}, 17),
    ("torchvision:fcn_resnet50", {"size": 64}, {"aux_loss": True}, 2),
    ("torchvision:googlenet", {"size": 64}, {}, 3),
    ("torchvision:swin_t", {"size": 64}, {}, 22),
    ("timm:vit_tiny_patch16_224", {}, {"drop_path_rate": 0.2}, 22),
    ("hf:t5", {"seq": 16}, {"num_layers": 2, "d_model": 32, "num_heads": 2, "d_kv": 16, "vocab_size": 99}, 24),
    ("hf:mixtral", {"seq": 16}, SMALL | {"num_key_value_heads": 1, "num_local_experts": 4}, 0),
]


def _check(spec: str, shapes: dict, settings: dict, num_draws: int, training: bool) -> None:
    wishes = Wishes(set=tuple(Set(key, str(value)) for key, value in settings.items()), **shapes)
    found = difference(load_model(spec, wishes), training)
    assert found.outputs <= 1e-12
    assert found.loss <= 1e-12
    assert found.gradients <= 1e-12
    assert found.buffers <= 1e-12
    assert found.num_draws == (num_draws if training else 0)


@pytest.mark.parametrize("training", [True, False], ids=["training", "inference"])
@pytest.mark.parametrize(("spec", "shapes", "settings", "num_draws"), QUICK, ids=[case[0] for case in QUICK])
def test_small_models(spec: str, shapes: dict, settings: dict, num_draws: int, training: bool) -> None:
    _check(spec, shapes, settings, num_draws, training)


@pytest.mark.slow
@pytest.mark.parametrize("training", [True, False], ids=["training", "inference"])
@pytest.mark.parametrize(("spec", "shapes", "settings", "num_draws"), SLOW, ids=[case[0] for case in SLOW])
def test_models(spec: str, shapes: dict, settings: dict, num_draws: int, training: bool) -> None:
    _check(spec, shapes, settings, num_draws, training)
