"""Samples of every operator family: small, awkward shapes; integers wherever arithmetic on them is exact."""

from collections.abc import Callable
from typing import Any

from tests.laws.draw import Sample, Values, bools, distinct, index, ints, positive, reals, sample
from tests.laws.pieces import Piece
from tests.laws.samples_space import CONVOLUTIONS, POOLS, RESAMPLINGS, TRANSPOSED, UNFOLDINGS

from trine.graph.part import volume

PRODUCTS = [
    sample("linear", input=ints(3, 5, 6), weight=ints(7, 6), bias=ints(7), rules=4),
    sample("linear", input=ints(5, 6), weight=ints(7, 6)),
    sample("trine.addmm", bias=ints(7), input=ints(5, 6), weight=ints(6, 7), rules=3),
    sample("addmm", self=ints(5, 7), mat1=ints(5, 6), mat2=ints(6, 7), beta=1, alpha=2),
    sample("addmm", self=ints(1, 7), mat1=ints(5, 6), mat2=ints(6, 7)),
    sample("matmul", self=ints(2, 3, 5, 4), other=ints(2, 3, 4, 6), rules=5),
    sample("matmul", self=ints(3, 5, 4), other=ints(4, 6), rules=4),
    sample("matmul", self=ints(2, 1, 5, 4), other=ints(3, 4, 6), rules=5),
    sample("matmul", self=ints(5, 4), other=ints(3, 4, 6)),
    sample("matmul", self=ints(5), other=ints(5), rules=1),
    sample("matmul", self=ints(5), other=ints(3, 5, 4)),
    sample("matmul", self=ints(3, 4, 5), other=ints(5)),
    sample("mm", self=ints(5, 4), mat2=ints(4, 6)),
    sample("bmm", self=ints(3, 5, 4), mat2=ints(3, 4, 6)),
    sample("einsum", equation="B G H I D, B G H J D -> B G H I J", tensors=[ints(2, 3, 2, 5, 4), ints(2, 3, 2, 6, 4)],
           rules=6),
    sample("einsum", equation="ij,jk", tensors=[ints(5, 4), ints(4, 3)], rules=3),
    sample("mv", self=ints(5, 4), vec=ints(4), rules=2), sample("dot", self=ints(5), tensor=ints(5), rules=1),
    sample("outer", self=ints(5), vec2=ints(4), rules=2),
    sample("baddbmm", self=ints(3, 5, 6), batch1=ints(3, 5, 4), batch2=ints(3, 4, 6), alpha=2, rules=4),
    sample("baddbmm", self=ints(1, 6), batch1=ints(3, 5, 4), batch2=ints(3, 4, 6), rules=4),
]  # fmt: skip


def attention(query: tuple[int, ...], key: tuple[int, ...], mask: Values | None = None, **args: Any) -> Sample:
    given = {"query": reals(*query), "key": reals(*key), "value": reals(*key[:-1], 4)}
    if mask is not None:
        given["attn_mask"] = mask
    return sample(
        "scaled_dot_product_attention", exact=False, nan="is_causal" not in args and mask is None, **given, **args
    )


ATTENTIONS = [
    attention((2, 4, 5, 6), (2, 4, 7, 6), rules=4),
    attention((2, 4, 7, 6), (2, 4, 7, 6), is_causal=True, rules=4),
    attention((2, 4, 5, 6), (2, 4, 7, 6), is_causal=True),
    attention((2, 4, 7, 6), (2, 4, 5, 6), is_causal=True, scale=0.3),
    attention((2, 6, 5, 4), (2, 2, 7, 4), enable_gqa=True, rules=4),
    attention((2, 4, 5, 6), (2, 4, 7, 6), reals(2, 4, 5, 7)),
    attention((2, 4, 5, 6), (2, 4, 7, 6), reals(2, 1, 1, 7)),
    attention((2, 4, 5, 6), (2, 4, 7, 6), reals(5, 7)),
    attention((3, 5, 6), (3, 7, 6), rules=3),
]


def unary(name: str, values: Values | None = None, **args: Any) -> Sample:
    return sample(name, self=values or reals(3, 1, 5), exact=False, **args)


def binary(name: str, **args: Any) -> list[Sample]:
    return [
        sample(name, self=ints(3, 4, 5), other=ints(4, 1), **args),
        sample(name, self=ints(3, 1, 5), other=ints(2, 1, 4, 1), **args),
    ]


ELEMENTWISE = [
    *(unary(name) for name in (
        "neg", "exp", "tanh", "sigmoid", "relu", "gelu", "silu", "hardtanh", "relu6", "hardswish", "hardsigmoid",
        "leaky_relu", "elu", "abs", "cos", "sin", "erf", "detach", "clone", "alias", "square", "softplus", "mish",
        "sign", "floor", "log_sigmoid")),
    *(unary(name, positive(3, 1, 5)) for name in ("log", "sqrt", "rsqrt", "reciprocal")),
    unary("pow.Tensor_Scalar", exponent=3.0), unary("clamp", min=-0.5, max=None), unary("clamp_min", min=0.0),
    unary("_to_copy", dtype=None), unary("add.Scalar", other=2.0), unary("eq.Scalar", ints(3, 1, 5), other=1),
    *binary("add.Tensor", alpha=2), *binary("sub.Tensor"), *binary("mul.Tensor"), *binary("maximum"),
    *binary("minimum"), *binary("eq.Tensor"), *binary("lt.Tensor"), *binary("ge.Tensor"),
    sample("div.Tensor", self=ints(3, 4, 5), other=positive(4, 1), exact=False),
    sample("where.self", condition=bools(3, 1, 5), self=ints(4, 5), other=ints(3, 4, 1)),
    sample("masked_fill.Scalar", self=ints(3, 4, 5), mask=bools(4, 5), value=-100.0),
    sample("logical_and", self=bools(3, 5), other=bools(3, 1)), sample("logical_not", self=bools(3, 5)),
    sample("bitwise_and.Tensor", self=bools(3, 5), other=bools(5)),
    sample("__and__.Tensor", self=bools(3, 5), other=bools(5)),
    sample("addcmul", self=ints(3, 5), tensor1=ints(3, 1), tensor2=ints(5)),
    sample("smooth_l1_loss", self=reals(3, 5), target=reals(3, 5), reduction=0, exact=False),
    sample("huber_loss", self=reals(3, 5), target=reals(3, 5), reduction=1, exact=False, rules=2),
    sample("mse_loss", self=ints(3, 5), target=ints(3, 5), reduction=2, rules=2),
    sample("binary_cross_entropy_with_logits", self=reals(3, 5), target=positive(3, 5), pos_weight=positive(5),
           reduction=1, exact=False, rules=2, frozen=("target", "pos_weight")),
    sample("prelu", self=reals(3, 4, 5), weight=reals(4), rules=3),
    sample("prelu", self=reals(3, 4, 5), weight=reals(1), rules=3),
]  # fmt: skip


def view(here: tuple[int, ...], *made: int, rules: int | None = None) -> Sample:
    return sample("view", self=ints(*here), size=list(made), rules=rules)


REARRANGEMENTS = [
    view((2, 3, 4, 5), 2, 60, rules=4), view((2, 12, 5), 2, 3, 4, 5, rules=4), view((4, 6), 6, 4, rules=4),
    view((2, 3, 1, 1), 2, 3, rules=2), view((2, 3), 2, 1, 3, 1), view((6, 4, 5), 2, 3, 20, rules=4),
    view((3, 18, 1, 8), 3, 18, 2, 4), view((24,), 2, 3, 4), view((2, 3, 4), 24),
    sample("reshape", self=ints(4, 6), shape=[2, 12]), sample("unsqueeze", self=ints(4, 6), dim=1),
    sample("squeeze.dim", self=ints(4, 1, 6), dim=1),
    sample("permute", self=ints(2, 3, 4, 5), dims=[0, -1, 1, 2], rules=4),
    sample("transpose.int", self=ints(2, 3, 4), dim0=-1, dim1=1), sample("t", self=ints(3, 4)),
    sample("movedim.intlist", self=ints(2, 3, 4, 5), source=[3, 0], destination=[0, 2]),
    sample("expand", self=ints(3, 1), size=[2, 3, 4], rules=3), sample("expand", self=ints(), size=[3, 4]),
]  # fmt: skip

JOININGS = [
    sample("cat", tensors=[ints(2, 3, 4), ints(2, 1, 4), ints(2, 5, 4)], dim=1, rules=3),
    sample("cat", tensors=[ints(2, 3), ints(2, 3)], dim=-1),
    sample("stack", tensors=[ints(2, 3), ints(2, 3)], dim=-2, rules=2),
    sample("split.Tensor", self=ints(3, 12, 2), split_size=4, dim=1, rules=3),
    sample("split.Tensor", self=ints(3, 11, 2), split_size=4, dim=1, rules=2),
    sample("split.Tensor", self=ints(3, 12, 2), split_size=4, dim=1, unused=(1,)),
    sample("split_with_sizes", self=ints(3, 7), split_sizes=[2, 5], dim=-1, rules=1),
    sample("unbind.int", self=ints(2, 3, 4), dim=1, rules=2),
    sample("slice.Tensor", self=ints(3, 9, 4), dim=1, start=2, end=8, rules=3),
    sample("slice.Tensor", self=ints(3, 9), dim=-1, start=-7, end=9223372036854775807, step=2, rules=2),
    sample("select.int", self=ints(3, 5, 4), dim=1, index=-2, rules=2),
    sample("constant_pad_nd", self=ints(2, 3, 5), pad=[2, 1, 0, 1], value=1.0, rules=3),
    sample("constant_pad_nd", self=ints(2, 6, 7), pad=[-1, 2, 1, -2], rules=3),
    sample("pad", self=ints(2, 3, 5), pad=[0, 0, 0, 2], rules=3),
    sample("pad", self=ints(2, 3, 5), pad=[1, 2], mode="reflect", rules=2),
    sample("flip", self=ints(2, 5, 4), dims=[1, -1], rules=3),
    sample("roll", self=ints(2, 7, 5), shifts=[-3, 2], dims=[1, 2], rules=3),
    sample("repeat", self=ints(2, 3), repeats=[2, 3], rules=2),
    sample("repeat_interleave.self_int", self=ints(2, 3, 4), repeats=3, dim=1, rules=3),
    sample("reflection_pad2d", self=ints(2, 3, 5, 6), padding=[1, 2, 3, 0], rules=4),
    sample("replication_pad1d", self=ints(2, 3, 5), padding=[2, 3], rules=3),
    sample("slice_scatter", self=ints(4, 7), src=ints(4, 3), dim=1, start=2, end=5, rules=1),
    sample("select_scatter", self=ints(4, 7, 3), src=ints(4, 3), dim=1, index=-2, rules=2),
    sample("scatter.src", self=ints(4, 7), dim=1, index=distinct(7, 4, 3), src=ints(4, 3), rules=1),
    sample("scatter.value", self=ints(4, 7), dim=1, index=index(7, 4, 3), value=2.0, rules=1),
    sample("scatter_add", self=ints(4, 7), dim=0, index=index(4, 5, 7), src=ints(5, 7), rules=1),
    sample("index_add", self=ints(4, 7, 2), dim=1, index=index(7, 3), source=ints(4, 3, 2), rules=2),
    sample("index_fill.int_Scalar", self=ints(4, 7), dim=1, index=index(7, 3), value=2, rules=1),
]

NORMS = [
    sample("layer_norm", input=reals(3, 4, 6), normalized_shape=[6], weight=reals(6), bias=reals(6), exact=False,
           rules=2),
    sample("layer_norm", input=reals(3, 4, 6), normalized_shape=[4, 6], exact=False, rules=1),
    sample("native_layer_norm", input=reals(3, 4, 6), normalized_shape=[6], weight=reals(6), bias=reals(6), eps=1e-5,
           exact=False),
    sample("rms_norm", input=reals(3, 4, 6), normalized_shape=[6], weight=reals(6), exact=False, rules=2),
    sample("group_norm", input=reals(3, 6, 4), num_groups=3, weight=reals(6), bias=reals(6), exact=False, rules=2),
    sample("native_group_norm", input=reals(3, 6, 4), weight=reals(6), bias=reals(6), N=3, C=6, HxW=4, group=2,
           eps=1e-5, exact=False, rules=1),
    sample("native_group_norm", input=reals(3, 6, 4), weight=None, bias=None, N=3, C=6, HxW=4, group=2, eps=1e-5,
           exact=False, rules=2, unused=(1, 2)),
    sample("instance_norm", input=reals(3, 4, 5), weight=reals(4), bias=reals(4), running_mean=None, running_var=None,
           use_input_stats=True, momentum=0.1, eps=1e-5, cudnn_enabled=False, exact=False, rules=2),
    sample("trine.batch_norm_eval", input=reals(3, 4, 5, 2), weight=reals(4), bias=reals(4), running_mean=reals(4),
           running_var=positive(4), eps=1e-5, exact=False, rules=4, frozen=("running_mean", "running_var")),
    sample("softmax.int", self=reals(3, 4, 5), dim=-1, exact=False, rules=2),
    sample("_softmax", self=reals(3, 4, 5), dim=1, half_to_float=False, exact=False, rules=2),
    sample("log_softmax.int", self=reals(3, 4, 5), dim=0, exact=False, rules=2),
    sample("_safe_softmax", self=reals(3, 4, 5), dim=-1, exact=False, rules=2),
]  # fmt: skip

REDUCTIONS = [
    sample("mean.dim", self=ints(3, 4, 5), dim=[1, 2], exact=False, rules=3),
    sample("mean.dim", self=ints(3, 4, 5), dim=[-2], keepdim=True, exact=False, rules=3),
    sample("mean", self=ints(3, 4, 5), exact=False, rules=3), sample("sum", self=ints(3, 4), rules=2),
    sample("sum.dim_IntList", self=ints(3, 4, 5), dim=[0], rules=3),
    sample("amax", self=reals(3, 4, 5), dim=[1], keepdim=True, rules=2),
    sample("amin", self=reals(3, 4, 5), dim=[1], rules=2),
    sample("max.dim", self=reals(3, 4, 5), dim=1, rules=2), sample("argmax", self=reals(3, 4, 5), dim=0, rules=2),
    sample("max.dim", self=reals(3, 4, 5), dim=1, keepdim=True, unused=(0,)), sample("max", self=reals(3, 4), rules=0),
    sample("var.correction", self=reals(3, 4, 5), dim=[1], exact=False, rules=2),
    sample("linalg_vector_norm", self=reals(3, 4, 5), dim=[-1], keepdim=True, exact=False, rules=2),
    sample("any.dim", self=bools(3, 4), dim=1), sample("logsumexp", self=reals(3, 4), dim=[1], exact=False),
    sample("cumsum", self=ints(3, 4), dim=-1, rules=1), sample("sort", self=reals(3, 4), dim=0, rules=1),
    sample("topk", self=reals(3, 6), k=2, rules=1), sample("glu", self=reals(3, 6), dim=1, exact=False, rules=1),
]  # fmt: skip

LOOKUPS = [
    sample("embedding", weight=ints(7, 5), indices=index(7, 3, 4), rules=4),
    sample("embedding", weight=ints(7, 5), indices=index(7, 3, 4), padding_idx=2, rules=4),
    sample("gather", self=ints(3, 6, 5), dim=1, index=index(6, 3, 4, 2), rules=3),
    sample("index_select", self=ints(3, 6), dim=1, index=index(6, 4), rules=2),
    sample("index.Tensor", self=ints(7, 5), indices=[index(7, 4)], rules=2),
    sample("index.Tensor", self=ints(4, 7, 6, 5), indices=[None, index(7, 3, 1), index(6, 2)], rules=4),
    sample("index.Tensor", self=ints(4, 7, 6), indices=[index(4, 3), None, index(6, 3)], rules=0),
]

LOSSES = [
    sample("trine.cross_entropy", input=reals(6, 5), target=index(5, 6), exact=False, rules=1),
    sample("trine.cross_entropy", input=reals(3, 5, 4, 2), target=index(5, 3, 4, 2), weight=positive(5), ignore_index=1,
           label_smoothing=0.1, exact=False, rules=3, frozen=("weight",)),
    sample("trine.cross_entropy", input=reals(3, 5, 4), target=positive(3, 5, 4), exact=False, rules=2),
    sample("trine.cross_entropy", input=reals(5), target=index(5), exact=False, rules=0),
]  # fmt: skip

FACTORIES = [
    sample("full", size=[3, 4], fill_value=2.0, dtype=None, rules=2), sample("zeros", size=[3, 4], rules=2),
    sample("new_ones", self=ints(2, 2), size=[3, 4], rules=2),
    sample("full_like", self=ints(3, 4), fill_value=2.0, rules=2),
    sample("zeros_like", self=ints(3, 4), rules=2), sample("arange", end=5, rules=0),
]  # fmt: skip

RANDOM = [
    sample("trine.dropout", input=reals(3, 4, 5), p=0.3, index=2, rules=3),
    sample("trine.bernoulli", shape=[5, 1, 4], p=0.6, index=3, dtype="dtype:float64", rules=2),
]

RECURRENT = [
    sample("lstm.input", input=reals(3, 4, 5), hx=[reals(1, 4, 2), reals(1, 4, 2)],
           params=[reals(8, 5), reals(8, 2), reals(8), reals(8)], has_biases=True, num_layers=1, dropout=0.0,
           train=True, bidirectional=False, batch_first=False, exact=False, rules=1),
]  # fmt: skip

SAMPLES = [
    *CONVOLUTIONS, *TRANSPOSED, *UNFOLDINGS,
    *POOLS, *PRODUCTS, *ATTENTIONS, *ELEMENTWISE, *REARRANGEMENTS, *JOININGS, *RESAMPLINGS, *NORMS,
    *REDUCTIONS, *LOOKUPS, *LOSSES, *FACTORIES, *RANDOM, *RECURRENT,
]  # fmt: skip


def _reads_only_padding(sample: Sample, piece: Piece) -> bool:
    return any(volume(box) == 0 for box in piece.local.in_boxes)


def _reads_words(sample: Sample, piece: Piece) -> bool:
    return sample.target == "aten.embedding.default"


def _drops(sample: Sample, piece: Piece) -> bool:
    return sample.target == "trine.dropout"


def _folds(sample: Sample, piece: Piece) -> bool:
    return sample.target == "aten.col2im.default"


def _reads_one_key(sample: Sample, piece: Piece) -> bool:
    return bool(sample.args.get("is_causal")) and piece.local.out_boxes[0][-2][0][0] == 0


# Footprints that are knowingly wider than what is read, and why.
WIDER: tuple[tuple[str, Callable[[Sample, Piece], bool]], ...] = (
    ("an output that lies wholly in padding reads no weight", _reads_only_padding),
    ("which words are read depends on the indices", _reads_words),
    ("a dropped element is not read", _drops),
    ("a tap may lie outside the plane or the piece for all windows at its border", _folds),
    ("the first query row of causal attention sees one key, whose weight is one", _reads_one_key),
)
