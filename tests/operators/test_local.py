"""What a piece runs: the operator's own padding where it can say it, nothing where the tile is the answer."""

from random import Random

import pytest
from tests.laws.draw import Sample, ints, reals, sample
from tests.laws.pieces import Piece, pieces

from trine.graph.part import Part, span
from trine.operators.family import family_of


def cut(sample: Sample, number: int, *parts: Part) -> list[Piece]:
    case = sample.case(Random(0))
    return pieces(case, [(family_of(case.op).rules(case.op, case.tensors)[number], parts)], narrow=True)


def targets(piece: Piece) -> list[str]:
    return [op.target.split(".")[1] for op in family_of(piece.local.op).local(piece.local)]


HEIGHT = 1  # number of the rule that cuts the height of a convolution


def conv(kernel: int, stride: int, pad: int, size: int) -> Sample:
    args = {"stride": [stride, stride], "padding": [pad, pad]}
    return sample("conv2d", input=ints(2, 3, size, size), weight=ints(4, 3, kernel, kernel), **args)


def test_a_strided_convolution_never_copies_to_pad() -> None:
    for kernel, stride, pad in ((3, 2, 1), (5, 4, 1), (1, 2, 0)):
        made = [targets(piece) for piece in cut(conv(kernel, stride, pad, 32), HEIGHT, span(0, 4), span(4, 8))]
        assert made == [["conv2d"], ["conv2d"]]


def test_a_piece_inside_is_not_padded() -> None:
    made = [targets(piece) for piece in cut(conv(3, 1, 1, 16), HEIGHT, span(0, 5), span(5, 11), span(11, 16))]
    assert made == [["constant_pad_nd", "conv2d"], ["conv2d"], ["constant_pad_nd", "conv2d"]]


def test_a_cut_width_leaves_the_height_its_own_padding() -> None:
    made = cut(conv(3, 1, 1, 16), HEIGHT + 1, span(0, 8), span(8, 16))
    operators = family_of(made[0].local.op).local(made[0].local)
    assert operators[0].args["pad"] == [1, 0, 0, 0]
    assert operators[1].args["padding"] == [1, 0]


def test_a_slice_of_the_right_tile_is_nothing() -> None:
    case = sample("slice.Tensor", self=ints(3, 9), dim=1, start=2, end=8)
    assert [targets(piece) for piece in cut(case, 1, span(0, 3), span(3, 6))] == [["alias"], ["alias"]]


def test_only_the_first_piece_of_a_contraction_adds_the_bias() -> None:
    case = sample("linear", input=ints(5, 6), weight=ints(7, 6), bias=ints(7))
    made = cut(case, 2, span(0, 2), span(2, 6))
    biases = [family_of(piece.local.op).local(piece.local)[-1].args["bias"] for piece in made]
    assert biases[0] is not None
    assert biases[1] is None


@pytest.mark.parametrize("number", range(5))
def test_the_work_of_the_pieces_is_the_work_of_the_whole(number: int) -> None:
    for some in (
        sample("conv2d", input=ints(2, 4, 9, 8), weight=ints(6, 4, 3, 3), bias=ints(6), padding=[1, 1]),
        sample("matmul", self=ints(2, 3, 6, 4), other=ints(2, 3, 4, 5)),
        sample("einsum", equation="bhid,bhjd->bhij", tensors=[ints(2, 3, 5, 4), ints(2, 3, 6, 4)]),
    ):
        case = some.case(Random(0))
        family = family_of(case.op)
        rule = family.rules(case.op, case.tensors)[number]
        middle = rule.length // 2
        whole = pieces(case, [(rule, (span(0, rule.length),))], narrow=False)
        made = pieces(case, [(rule, (span(0, middle), span(middle, rule.length)))], narrow=False)
        work = [sum(family.flops(case.op, p.local.in_boxes, p.local.out_boxes) for p in some) for some in (whole, made)]
        assert work[0] == work[1]


def test_causal_rows_need_the_keys_before_them() -> None:
    query, key, value = (reals(1, 2, 8, 4) for _ in range(3))
    case = sample("scaled_dot_product_attention", query=query, key=key, value=value, is_causal=True)
    made = cut(case, 1, span(0, 3), span(3, 8))
    assert [piece.local.in_boxes[1][2] for piece in made] == [span(0, 3), span(0, 8)]
    assert targets(made[0]) == ["causal_mask", "scaled_dot_product_attention"]
