"""A plan that cannot be is refused with what can."""

from typing import Any

import pytest
from msgspec.structs import replace
from tests.simulate.small import mlp

from trine.errors import BadInput, CannotCut, PlanMismatch, UnknownName
from trine.graph.graph import Graph, Operator, Output, Tensor
from trine.plan.build import balanced, build, check, cut_sizes
from trine.plan.plan import Axis, Plan


def image_net() -> Graph:
    """One convolution over (4, 3, 6, 5) images, made by hand."""
    tensors = {
        "x": Tensor("x", (4, 3, 6, 5), "float32", "input"),
        "w": Tensor("w", (8, 3, 3, 3), "float32", "parameter"),
        "y": Tensor("y", (4, 8, 6, 5), "float32"),
    }
    args: dict[str, Any] = {
        "input": "%x", "weight": "%w", "bias": None, "groups": 1,
        "stride": [1, 1], "padding": [1, 1], "dilation": [1, 1],
    }  # fmt: skip
    op = Operator("y", "aten.conv2d.default", args, ("y",), "conv")
    return Graph("image", tensors, (op,), ("x",), (Output("user", "y", "0"),), False, {"x": 0}, {"w": ("conv.weight",)})


def test_what_can_be_cut() -> None:
    assert cut_sizes(image_net()) == {"batch": 4, "height": 6, "width": 5, "channel": 8}


@pytest.mark.parametrize(
    ("wishes", "possible"),
    [
        ({"data": 5}, range(1, 5)),
        ({"tensor": (7,), "cuts": ("height",)}, range(1, 7)),
        ({"tensor": (9,), "cuts": ("channel",)}, range(1, 9)),
        ({"micro_batches": 5}, range(1, 5)),
        ({"stages": 2}, range(1, 2)),
    ],
    ids=["data", "height", "channel", "micro-batches", "stages"],
)
def test_a_degree_that_is_too_large_names_those_that_are_not(wishes: dict[str, Any], possible: range) -> None:
    with pytest.raises(CannotCut) as caught:
        build(image_net(), batch=4, **wishes)
    assert caught.value.possible == tuple(possible)


@pytest.mark.parametrize(
    ("wishes", "words"),
    [
        ({"tensor": (2,), "cuts": ("depth",)}, "depth, which this model does not have"),
        ({"tensor": (2, 2), "cuts": ("height",)}, "--cut names 1"),
        ({"tensor": (1, 2), "cuts": ("height",)}, "--cut names 1"),
        ({"tensor": (2,), "cuts": ("height", "width")}, "--cut names 2"),
        ({"cuts": ("height",)}, "--cut names 1"),
        ({"tensor": (2,), "shares": (1, 1, 1)}, "names 3 shares"),
        ({"tensor": (2,), "cuts": ("rows",)}, "rows"),
    ],
    ids=["missing", "too few cuts", "one cut for two", "too many cuts", "no tensor axis", "shares", "unknown"],
)
def test_wishes_that_do_not_fit(wishes: dict[str, Any], words: str) -> None:
    with pytest.raises((BadInput, UnknownName), match=words):
        build(image_net(), batch=4, **wishes)


@pytest.mark.parametrize("degrees", [(1, 2), (2, 1), (2, 3), (1, 1)])
def test_a_cut_belongs_to_the_degree_in_its_place(degrees: tuple[int, int]) -> None:
    plan = build(image_net(), tensor=degrees, cuts=("height", "width"), batch=4)
    pairs = zip(degrees, ("height", "width"), strict=True)
    assert [(axis.size, axis.cut) for axis in plan.axes] == [pair for pair in pairs if pair[0] > 1]


def test_one_dimension_is_cut_by_one_axis() -> None:
    plan = Plan(axes=(Axis("a", 2, "height"), Axis("b", 2, "height")))
    with pytest.raises(BadInput, match="Two axes of the plan cut height"):
        check(plan, image_net(), 4)


@pytest.mark.parametrize("shares", [(1.0,), (1.0, 0.0), (1.0, -1.0)])
def test_shares_of_an_axis_are_positive_and_complete(shares: tuple[float, ...]) -> None:
    with pytest.raises(BadInput, match="shares"):
        check(Plan(axes=(Axis("a", 2, "height", shares),)), image_net(), 4)


def test_stages_start_at_operators_that_exist_in_order() -> None:
    graph = mlp(8, 4)
    with pytest.raises(UnknownName, match="linear1"):
        check(Plan(stage_starts=("linear11",)), graph, 8)
    for starts in (("linear2", "linear1"), ("linear1", "linear1"), ("linear0",)):
        with pytest.raises(BadInput, match="order"):
            check(Plan(stage_starts=starts), graph, 8)


def test_another_graph_is_refused_with_what_changed() -> None:
    plan = build(mlp(8, 4), data=2, batch=8)
    with pytest.raises(PlanMismatch, match=r"input x was \(8, 16\), is \(4, 16\)"):
        check(plan, mlp(4, 4), 4)
    with pytest.raises(PlanMismatch, match="operators"):
        check(plan, mlp(8, 5), 8)


@pytest.mark.parametrize("stages", [2, 3, 4])
def test_stages_have_equal_work(stages: int) -> None:
    graph = mlp(8, 12)
    starts = balanced(graph, stages)
    names = [op.name for op in graph.operators if op.base == "linear"]
    borders = [next(i for i, name in enumerate(names) if int(name[6:]) >= int(s.strip("linearu"))) for s in starts]
    assert borders == [12 * s // stages for s in range(1, stages)]


def test_ranks_count_the_last_axis_fastest() -> None:
    plan = Plan(axes=(Axis("data", 2, "batch"), Axis("tensor", 3, "height")), stage_starts=("a",))
    assert [plan.rank(1, c) for c in plan.coordinates()] == list(range(6, 12))
    assert plan.group(1, (1, 2), 0) == (8, 11)
    assert plan.group(0, (1, 2), 1) == (3, 4, 5)


@pytest.mark.parametrize("at", [0, 1, 2])
def test_stages_may_count_faster_than_axes(at: int) -> None:
    plan = Plan(
        axes=(Axis("data", 2, "batch"), Axis("tensor", 3, "height")), stage_starts=("a", "b", "c"), stages_at=at
    )
    places = [plan.place(rank) for rank in range(24)]
    assert [plan.rank(*place) for place in places] == list(range(24))
    assert sorted(places) == [(s, c) for s in range(4) for c in plan.coordinates()]
    stride = (6, 3, 1)[at]
    assert plan.rank(1, (0, 0)) == stride
    assert plan.group(2, (1, 1), 0)[0] == 2 * stride + (1, 1, 4)[at]


def test_stages_count_among_the_axes_that_there_are() -> None:
    graph = mlp(8, 4)
    plan = replace(build(graph, data=2, stages=2, batch=8), stages_at=2)
    with pytest.raises(BadInput, match="The plan has 1 axes"):
        check(plan, graph, 8)


def test_weights_rest_cut_only_over_a_batch_axis() -> None:
    graph = mlp(8, 4)
    assert build(graph, data=2, zero=1, batch=8).describe().endswith("ZeRO-1")
    for wishes in ({"data": 2, "zero": 2}, {"stages": 2, "zero": 1}):
        with pytest.raises(BadInput, match="ZeRO"):
            build(graph, batch=8, **wishes)
