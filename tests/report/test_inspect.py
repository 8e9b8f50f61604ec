"""What is said of a model: sums that are known, what can be cut, sequential points by kind, and no graph."""

import io
import json

import pytest
import torch
from rich.console import Console
from tests.run.small import images, language, net, words
from torch import Tensor, nn
from torch.nn import functional

from trine.cli import main
from trine.report.inspect import Inspection, inspect, show, write_json

X, Y = images(4)


@pytest.fixture(scope="module")
def trained() -> Inspection:
    return inspect(net(), inputs=X, targets=Y, loss=functional.cross_entropy)


def printed(found: Inspection, width: int = 140, **more: bool) -> str:
    file = io.StringIO()
    show(found, Console(file=file, width=width, highlight=False), **more)
    return file.getvalue()


def test_sums_are_those_of_the_module(trained: Inspection):
    own = sum(p.numel() for p in net().parameters())
    assert trained.num_parameters == own == sum(layer.num_parameters for layer in trained.layers)
    assert trained.flops == pytest.approx(sum(layer.flops for layer in trained.layers))
    assert trained.activation_bytes == sum(layer.activation_bytes for layer in trained.layers)
    stem = next(layer for layer in trained.layers if layer.name == "stem")
    assert (stem.shape, stem.operators, stem.num_parameters) == ((4, 4, 6, 6), ("conv2d",), 4 * 3 * 9)
    assert stem.flops == 2 * 4 * 4 * 6 * 6 * 3 * 9
    assert stem.activation_bytes == 4 * 4 * 6 * 6 * 8


def test_sequential_points_come_from_footprints(trained: Inspection):
    kinds = {(point.operator, point.how): point.along for point in trained.points}
    assert set(kinds["batch_norm", "merged"]) == {"batch", "height", "width"}
    assert set(kinds["mean", "summed"]) == {"height", "width"}
    assert not any(point.operator in ("conv2d", "linear", "relu") for point in trained.points)
    assert sum(point.operator == "batch_norm" for point in trained.points) == 2
    spoken = {point.operator: point for point in inspect(language(), inputs=words(2)).points}
    assert (spoken["layer_norm"].how, spoken["layer_norm"].along) == ("whole", ("channel",))


def test_evaluation_has_no_statistics_to_merge():
    found = inspect(net().eval(), inputs=X)
    assert not found.training
    assert {point.operator for point in found.points} == {"mean"}


def test_cuts_have_sizes_and_shares(trained: Inspection):
    sizes = {cut.cut: cut.size for cut in trained.cuts}
    assert (sizes["batch"], sizes["height"], sizes["width"]) == (4, 12, 12)
    assert all(0 < cut.of_all <= cut.of_having <= 1 for cut in trained.cuts)
    by_name = {cut.cut: cut for cut in trained.cuts}
    assert by_name["batch"].of_all > by_name["height"].of_all  # the last layer has no height


def test_operators_say_why_they_run_whole(trained: Inspection):
    """The last layer has no pixels, a row's norm needs all of its features, and some operators nobody described."""
    by_name = {layer.operators[0]: dict(layer.whole) for layer in trained.operators}
    assert by_name["linear"]["height"] == "no input of it is cut"
    assert by_name["conv2d"] == {}
    spoken = {layer.operators[0]: dict(layer.whole) for layer in inspect(language(), inputs=words(2)).operators}
    assert spoken["layer_norm"]["channel"] == "needs all of it"
    unknown = inspect(Spectrum(), inputs=torch.randn(2, 3, 8, 8)).operators
    assert next(dict(o.whole)["height"] for o in unknown if "cdist" in o.operators[0]).startswith("no family describes")
    assert "needs all of it" in printed(inspect(language(), inputs=words(2)), verbose=True)


class Spectrum(nn.Module):
    """Distances, which have no family."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.cdist(x, x)


def test_it_prints_on_any_width(trained: Inspection):
    assert "can be cut by" in printed(trained)
    narrow = printed(trained, width=50)
    assert max(map(len, narrow.splitlines()[2:])) <= 80
    assert "operators" not in narrow.splitlines()[2]
    assert "conv2d" in printed(trained, verbose=True)
    assert "stem" not in printed(trained, quiet=True)
    assert "\x1b" not in printed(trained)


def test_rows_are_modules_around_modules_where_there_are_many():
    deep = nn.Sequential(*(nn.Sequential(nn.Linear(4, 4), nn.ReLU()) for _ in range(30)))
    found = inspect(deep, inputs=torch.randn(2, 4))
    assert [layer.name for layer in found.layers] == [str(number) for number in range(30)]
    assert found.layers[0].operators == ("linear", "relu")


class Decides(nn.Module):
    """Has no graph."""

    def forward(self, x: Tensor) -> Tensor:
        return x + 1 if x.sum() > 0 else x


def test_without_a_graph_there_is_data_parallelism():
    found = inspect(Decides(), inputs=X)
    assert "if x.sum() > 0" in found.failure
    assert "Data parallelism only" in printed(found)


def test_the_verb_writes_json(tmp_path, capsys):
    file = tmp_path / "model.py"
    file.write_text(
        "import torch\n\n"
        "def make():\n    return torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3)), torch.randn(2, 3, 8, 8)\n"
    )
    status = main(["inspect", f"{file}:make", "--scenario", "device,training", "--json", str(tmp_path / "out.json")])
    assert status == 0
    assert "evaluation" in capsys.readouterr().out
    modes = json.loads((tmp_path / "out.json").read_text())
    assert [mode["training"] for mode in modes] == [True, False]
    write_json([inspect(net(), inputs=X)], tmp_path / "again.json")
