"""Samples of every operator family: small, awkward shapes; integers wherever arithmetic on them is exact."""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import torch

from tests.laws.pieces import Case, build


@dataclass(frozen=True)
class Values:
    """A tensor to draw."""

    draw: Callable[[torch.Generator], torch.Tensor]


def ints(*shape: int) -> Values:
    """Small integers as float64."""
    return Values(lambda g: torch.randint(-3, 4, shape, generator=g).double())


def reals(*shape: int) -> Values:
    return Values(lambda g: torch.randn(shape, generator=g, dtype=torch.float64))


def positive(*shape: int) -> Values:
    return Values(lambda g: torch.rand(shape, generator=g, dtype=torch.float64) + 0.1)


def index(high: int, *shape: int) -> Values:
    return Values(lambda g: torch.randint(0, high, shape, generator=g))


def bools(*shape: int) -> Values:
    return Values(lambda g: torch.randint(0, 2, shape, generator=g).bool())


@dataclass(frozen=True)
class Sample:
    """exact: pieces are bit-equal.  nan: rubbish outside may be NaN.  num_rules: how many are expected; None: some."""

    target: str
    args: dict[str, Any] = field(default_factory=dict)
    exact: bool = True
    nan: bool = True
    num_rules: int | None = None
    unused: tuple[int, ...] = ()

    def case(self, random: Random) -> Case:
        """The sample with drawn values."""
        generator = torch.Generator().manual_seed(random.getrandbits(62))

        def draw(item: Any) -> Any:
            if isinstance(item, Values):
                return item.draw(generator)
            return [draw(each) for each in item] if isinstance(item, list) else item

        return build(self.target, {name: draw(item) for name, item in self.args.items()}, self.unused)

    def __str__(self) -> str:
        shown = [
            f"{name}={item}" for name, item in self.args.items() if not isinstance(item, (Values, list)) or name in SHOWN
        ]
        return " ".join([self.target.replace(".default", ""), *shown]).replace("aten.", "").replace(" ", "_")


SHOWN = ("stride", "padding", "dilation", "kernel_size", "pad", "dim", "size", "dims", "output_size")


def sample(
    name: str, /, *, exact: bool = True, nan: bool = True, rules: int | None = None, unused: tuple[int, ...] = (), **args: Any
) -> Sample:
    """A sample by its short name: ``linear``, ``add.Tensor`` or ``trine.addmm``."""
    full = name if name.startswith("trine.") else f"aten.{name}" if "." in name else f"aten.{name}.default"
    return Sample(full, args, exact, nan, rules, unused)


def conv(weight: tuple[int, ...], here: tuple[int, ...], bias: bool = True, **args: Any) -> Sample:
    kind = f"conv{len(weight) - 2}d"
    kind += ".padding" if isinstance(args.get("padding"), str) else ""
    given: dict[str, Any] = {"input": ints(*here), "weight": ints(*weight)}
    return sample(kind, **given, **({"bias": ints(weight[0])} if bias else {}), **args)


CONVOLUTIONS = [
    conv((5, 4, 3, 3), (2, 4, 9, 8), padding=[1, 1], rules=5),
    conv((5, 4, 7, 7), (2, 4, 13, 12), stride=[2, 2], padding=[3, 3]),
    conv((5, 4, 1, 1), (2, 4, 9, 8), stride=[2, 2]),
    conv((4, 3, 4, 2), (2, 3, 9, 10), stride=[3, 1], padding=[2, 1], bias=False),
    conv((4, 3, 3, 3), (2, 3, 11, 9), padding=[2, 4], dilation=[2, 3]),
    conv((4, 3, 3, 2), (2, 3, 11, 9), padding=[0, 0], dilation=[2, 5], stride=[2, 3]),
    conv((4, 3, 4, 3), (2, 3, 7, 8), padding="same"),
    conv((4, 3, 2, 4), (2, 3, 7, 8), padding="same", dilation=[3, 1]),
    conv((4, 3, 3, 3), (2, 3, 7, 8), padding="valid"),
    conv((6, 1, 3, 3), (2, 6, 7, 8), padding=[1, 1], groups=6, rules=4),
    conv((12, 1, 3, 3), (2, 6, 7, 8), padding=[1, 1], groups=6),
    conv((6, 2, 3, 3), (2, 4, 7, 8), padding=[1, 1], stride=[2, 2], groups=2),
    conv((9, 4, 2, 3), (1, 12, 7, 8), padding=[1, 0], groups=3),
    conv((4, 3, 5, 5), (2, 3, 3, 3), padding=[4, 4]),
    conv((4, 3, 1, 1), (2, 3, 4, 4), padding=[2, 2]),
    conv((4, 3, 3, 3), (3, 7, 8), padding=[1, 1]),
    conv((4, 3, 3), (2, 3, 11), stride=[2], padding=[1]),
    conv((4, 3, 4), (2, 3, 11), dilation=[2], padding=[3]),
    conv((4, 3, 3, 2, 3), (2, 3, 5, 6, 5), padding=[1, 1, 0], stride=[1, 2, 1]),
    sample(
        "convolution", input=ints(2, 4, 9, 8), weight=ints(5, 4, 3, 3), bias=ints(5), stride=[2, 1], padding=[1, 1],
        dilation=[1, 1], transposed=False, output_padding=[0, 0], groups=1,
    ),
]  # fmt: skip

POOLS = [
    sample("max_pool2d", self=reals(2, 3, 12, 11), kernel_size=[3, 3], stride=[2, 2], padding=[1, 1], rules=4),
    sample("max_pool2d", self=reals(2, 3, 12, 11), kernel_size=[2, 2], stride=[2, 2]),
    sample("max_pool2d", self=reals(2, 3, 12, 11), kernel_size=[3, 2], stride=[2, 3], padding=[1, 0], ceil_mode=True),
    sample("max_pool2d", self=reals(2, 3, 12, 11), kernel_size=[3, 3], stride=[1, 2], padding=[1, 1], dilation=[2, 1]),
    sample("max_pool2d", self=reals(3, 9, 9), kernel_size=[3, 3], stride=[4, 4], ceil_mode=True),
    sample("max_pool2d_with_indices", self=reals(2, 3, 8, 8), kernel_size=[3, 3], rules=2),
    sample("max_pool2d_with_indices", self=reals(2, 3, 8, 8), kernel_size=[3, 3], stride=[2, 2], rules=4, unused=(1,)),
    sample("max_pool1d", self=reals(2, 3, 11), kernel_size=[4], stride=[2], padding=[2]),
    sample("max_pool3d", self=reals(2, 3, 6, 7, 5), kernel_size=[3, 2, 3], stride=[2, 2, 1], padding=[1, 1, 1]),
    sample("avg_pool2d", self=ints(2, 3, 12, 11), kernel_size=[2, 2], stride=[2, 2], rules=4),
    sample("avg_pool2d", self=ints(2, 3, 12, 11), kernel_size=[3, 3], stride=[1, 1], padding=[1, 1], exact=False),
    sample("avg_pool2d", self=ints(2, 3, 12, 11), kernel_size=[3, 4], stride=[2, 3], padding=[1, 2], ceil_mode=True,
           exact=False),
    sample("avg_pool2d", self=ints(2, 3, 12, 11), kernel_size=[3, 4], stride=[2, 3], padding=[1, 2], ceil_mode=True,
           count_include_pad=False, exact=False),
    sample("avg_pool2d", self=ints(2, 3, 12, 11), kernel_size=[3, 3], stride=[2, 2], padding=[1, 1],
           divisor_override=5, exact=False),
    sample("avg_pool1d", self=ints(2, 3, 11), kernel_size=[3], stride=[2], padding=[1], count_include_pad=False,
           exact=False),
    sample("avg_pool3d", self=ints(2, 3, 6, 7, 5), kernel_size=[3, 2, 3], stride=[2, 2, 1], padding=[1, 1, 1],
           exact=False),
    sample("adaptive_avg_pool2d", self=ints(2, 3, 7, 5), output_size=[1, 1], exact=False, rules=4),
    sample("adaptive_avg_pool2d", self=ints(2, 3, 7, 7), output_size=[7, 7], rules=4),
    sample("adaptive_avg_pool2d", self=ints(2, 3, 9, 8), output_size=[4, 6], exact=False, rules=4),
    sample("adaptive_avg_pool2d", self=ints(2, 3, 3, 2), output_size=[7, 7], exact=False),
    sample("adaptive_avg_pool2d", self=ints(2, 3, 9, 8), output_size=[1, 8], exact=False, rules=4),
    sample("adaptive_avg_pool1d", self=ints(2, 3, 9), output_size=[4], exact=False),
]  # fmt: skip

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
]  # fmt: skip


def attention(query: tuple[int, ...], key: tuple[int, ...], mask: Values | None = None, **args: Any) -> Sample:
    given = {"query": reals(*query), "key": reals(*key), "value": reals(*key[:-1], 4)}
    if mask is not None:
        given["attn_mask"] = mask
    return sample("scaled_dot_product_attention", exact=False, nan="is_causal" not in args and mask is None, **given, **args)


ATTENTIONS = [
    attention((2, 4, 5, 6), (2, 4, 7, 6), rules=5),
    attention((2, 4, 7, 6), (2, 4, 7, 6), is_causal=True, rules=5),
    attention((2, 4, 5, 6), (2, 4, 7, 6), is_causal=True),
    attention((2, 4, 7, 6), (2, 4, 5, 6), is_causal=True, scale=0.3),
    attention((2, 6, 5, 4), (2, 2, 7, 4), enable_gqa=True, rules=5),
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
    sample("bitwise_and.Tensor", self=bools(3, 5), other=bools(5)), sample("__and__.Tensor", self=bools(3, 5), other=bools(5)),
    sample("addcmul", self=ints(3, 5), tensor1=ints(3, 1), tensor2=ints(5)),
    sample("smooth_l1_loss", self=reals(3, 5), target=reals(3, 5), reduction=0, exact=False),
    sample("huber_loss", self=reals(3, 5), target=reals(3, 5), reduction=1, rules=0),
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
]

RESAMPLINGS = [
    sample("upsample_nearest2d", self=ints(2, 3, 4, 5), output_size=[7, 10], rules=4),
    sample("upsample_nearest2d.vec", input=ints(2, 3, 4, 5), output_size=None, scale_factors=[2.0, 3.0]),
    sample("_upsample_nearest_exact1d", self=ints(2, 3, 7), output_size=[5]),
    sample("upsample_bilinear2d", self=ints(2, 3, 4, 5), output_size=[7, 9], align_corners=False, exact=False, rules=4),
    sample("upsample_bilinear2d", self=ints(2, 3, 4, 5), output_size=[7, 9], align_corners=True, exact=False),
    sample("upsample_bilinear2d.vec", input=ints(2, 3, 9, 5), output_size=[4, 15], align_corners=False,
           scale_factors=None, exact=False),
    sample("upsample_linear1d", self=ints(2, 3, 7), output_size=[17], align_corners=False, exact=False),
    sample("pixel_shuffle", self=ints(2, 12, 3, 4), upscale_factor=2, rules=4),
]  # fmt: skip

NORMS = [
    sample("layer_norm", input=reals(3, 4, 6), normalized_shape=[6], weight=reals(6), bias=reals(6), exact=False, rules=2),
    sample("layer_norm", input=reals(3, 4, 6), normalized_shape=[4, 6], exact=False, rules=1),
    sample("native_layer_norm", input=reals(3, 4, 6), normalized_shape=[6], weight=reals(6), bias=reals(6), eps=1e-5, exact=False),
    sample("rms_norm", input=reals(3, 4, 6), normalized_shape=[6], weight=reals(6), exact=False, rules=2),
    sample("group_norm", input=reals(3, 6, 4), num_groups=3, weight=reals(6), bias=reals(6), exact=False, rules=2),
    sample("native_group_norm", input=reals(3, 6, 4), weight=reals(6), bias=reals(6), N=3, C=6, HxW=4, group=2, eps=1e-5,
           exact=False, rules=1),
    sample("native_group_norm", input=reals(3, 6, 4), weight=None, bias=None, N=3, C=6, HxW=4, group=2, eps=1e-5,
           exact=False, rules=2, unused=(1, 2)),
    sample("instance_norm", input=reals(3, 4, 5), weight=reals(4), bias=reals(4), running_mean=None, running_var=None,
           use_input_stats=True, momentum=0.1, eps=1e-5, cudnn_enabled=False, exact=False, rules=2),
    sample("trine.batch_norm_eval", input=reals(3, 4, 5, 2), weight=reals(4), bias=reals(4), running_mean=reals(4),
           running_var=positive(4), eps=1e-5, exact=False, rules=4),
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
    sample("amax", self=reals(3, 4, 5), dim=[1], keepdim=True, rules=2), sample("amin", self=reals(3, 4, 5), dim=[1], rules=2),
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
           label_smoothing=0.1, exact=False, rules=3),
    sample("trine.cross_entropy", input=reals(3, 5, 4), target=positive(3, 5, 4), exact=False, rules=2),
    sample("trine.cross_entropy", input=reals(5), target=index(5), exact=False, rules=0),
]  # fmt: skip

FACTORIES = [
    sample("full", size=[3, 4], fill_value=2.0, dtype=None, rules=2), sample("zeros", size=[3, 4], rules=2),
    sample("new_ones", self=ints(2, 2), size=[3, 4], rules=2), sample("full_like", self=ints(3, 4), fill_value=2.0, rules=2),
    sample("zeros_like", self=ints(3, 4), rules=2), sample("arange", end=5, rules=0),
]  # fmt: skip

RECURRENT = [
    sample("lstm.input", input=reals(3, 4, 5), hx=[reals(1, 4, 2), reals(1, 4, 2)],
           params=[reals(8, 5), reals(8, 2), reals(8), reals(8)], has_biases=True, num_layers=1, dropout=0.0, train=True,
           bidirectional=False, batch_first=False, exact=False, rules=1),
]  # fmt: skip

SAMPLES = [
    *CONVOLUTIONS, *POOLS, *PRODUCTS, *ATTENTIONS, *ELEMENTWISE, *REARRANGEMENTS, *JOININGS, *RESAMPLINGS, *NORMS,
    *REDUCTIONS, *LOOKUPS, *LOSSES, *FACTORIES, *RECURRENT,
]  # fmt: skip

# Footprints that are knowingly wider than what is read, and why.
WIDER = {
    "aten.embedding.default": "which words are read depends on the indices",
}
