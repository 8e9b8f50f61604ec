"""Samples of what goes over space: convolutions, pools, resampling, with awkward sizes."""

from typing import Any

from tests.laws.draw import Sample, index, ints, reals, sample


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


def spread(weight: tuple[int, ...], here: tuple[int, ...], bias: bool = True, groups: int = 1, **args: Any) -> Sample:
    num = len(weight) - 2
    given: dict[str, Any] = {"input": ints(*here), "weight": ints(*weight), "groups": groups}
    given |= {"bias": ints(weight[1] * groups)} if bias else {}
    return sample(f"conv_transpose{num}d" + ("" if num == 1 else ".input"), **given, **args)


TRANSPOSED = [
    spread((4, 5, 2, 2), (2, 4, 5, 6), stride=[2, 2], rules=5),
    spread((4, 5, 3, 3), (2, 4, 5, 6), stride=[2, 2], padding=[1, 1], output_padding=[1, 1]),
    spread((4, 5, 4, 4), (2, 4, 5, 6), stride=[2, 2], padding=[1, 1], bias=False),
    spread((4, 5, 3, 2), (2, 4, 6, 5), stride=[1, 3], padding=[2, 0], dilation=[2, 1]),
    spread((4, 5, 2, 3), (2, 4, 5, 6), stride=[4, 3], output_padding=[2, 1]),
    spread((4, 3, 3, 3), (2, 4, 5, 6), stride=[2, 1], padding=[1, 1], groups=2, rules=4),
    spread((6, 1, 3, 3), (2, 6, 5, 6), stride=[2, 2], groups=6, bias=False),
    spread((4, 5, 5), (2, 4, 7), stride=[3], padding=[2], dilation=[2]),
    spread((3, 2, 2, 3, 2), (2, 3, 4, 5, 3), stride=[2, 2, 1], padding=[0, 1, 0]),
    spread((4, 5, 3, 3), (4, 5, 6), stride=[2, 2], padding=[1, 0]),
]

UNFOLDINGS = [
    sample("im2col", self=ints(2, 3, 7, 6), kernel_size=[3, 2], dilation=[1, 2], padding=[1, 1], stride=[2, 1],
           rules=3),
    sample("im2col", self=ints(2, 3, 5, 4), kernel_size=[2, 2], dilation=[1, 1], padding=[0, 0], stride=[1, 1]),
    sample("col2im", self=ints(2, 18, 12), output_size=[8, 7], kernel_size=[3, 2], dilation=[1, 1], padding=[1, 0],
           stride=[2, 2], rules=3),
    sample("col2im", self=ints(2, 4, 9), output_size=[6, 4], kernel_size=[2, 2], dilation=[1, 1], padding=[0, 0],
           stride=[2, 1]),
    sample("unfold", self=ints(3, 11, 4), dimension=1, size=3, step=2, rules=3),
    sample("unfold", self=ints(3, 12), dimension=-1, size=2, step=4, rules=2),
]  # fmt: skip

POOLS = [
    sample("adaptive_max_pool2d", self=reals(2, 3, 9, 8), output_size=[4, 6], rules=4, unused=(1,)),
    sample("adaptive_max_pool2d", self=ints(2, 3, 9, 8), output_size=[1, 3], unused=(1,)),
    sample("adaptive_max_pool2d", self=reals(2, 3, 9, 8), output_size=[4, 6], rules=2),
    sample("adaptive_max_pool1d", self=reals(2, 3, 5), output_size=[7], unused=(1,)),
    sample("max_pool2d", self=reals(2, 3, 12, 11), kernel_size=[3, 3], stride=[2, 2], padding=[1, 1], rules=4),
    sample("max_pool2d", self=reals(2, 3, 12, 11), kernel_size=[2, 2], stride=[2, 2]),
    sample("max_pool2d", self=reals(2, 3, 12, 11), kernel_size=[3, 2], stride=[2, 3], padding=[1, 0], ceil_mode=True),
    sample("max_pool2d", self=reals(2, 3, 12, 11), kernel_size=[3, 3], stride=[1, 2], padding=[1, 1], dilation=[2, 1]),
    sample("max_pool2d", self=reals(3, 9, 9), kernel_size=[3, 3], stride=[4, 4], ceil_mode=True),
    sample("max_pool2d_with_indices", self=reals(2, 3, 8, 8), kernel_size=[3, 3], rules=4),
    sample("max_pool2d_with_indices", self=ints(2, 3, 9, 7), kernel_size=[3, 4], stride=[2, 3], padding=[1, 2],
           ceil_mode=True, rules=4),
    sample("max_pool2d_with_indices", self=reals(2, 3, 12, 11), kernel_size=[3, 2], stride=[1, 2], padding=[1, 1],
           dilation=[2, 1]),
    sample("max_pool3d_with_indices", self=reals(2, 3, 6, 7, 5), kernel_size=[3, 2, 3], stride=[2, 2, 1],
           padding=[1, 1, 1]),
    sample("max_unpool2d", self=reals(2, 3, 2, 2), indices=index(16, 2, 3, 2, 2), output_size=[4, 4], rules=2),
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

RESAMPLINGS = [
    sample("upsample_nearest2d", self=ints(2, 3, 4, 5), output_size=[7, 10], rules=4),
    sample("upsample_nearest2d.vec", input=ints(2, 3, 4, 5), output_size=None, scale_factors=[2.0, 3.0]),
    sample("_upsample_nearest_exact1d", self=ints(2, 3, 7), output_size=[5]),
    sample("upsample_bilinear2d", self=ints(2, 3, 4, 5), output_size=[7, 9], align_corners=False, nan=False,
           exact=False, rules=4),
    sample("upsample_bilinear2d", self=ints(2, 3, 4, 5), output_size=[7, 9], align_corners=True, nan=False,
           exact=False),
    sample("upsample_bilinear2d.vec", input=ints(2, 3, 9, 5), output_size=[4, 15], align_corners=False,
           scale_factors=None, nan=False, exact=False),
    sample("upsample_linear1d", self=ints(2, 3, 7), output_size=[17], align_corners=False, nan=False, exact=False),
    sample("upsample_bicubic2d", self=ints(2, 3, 5, 6), output_size=[9, 13], align_corners=False, nan=False,
           exact=False, rules=4),
    sample("upsample_bicubic2d", self=ints(2, 3, 5, 6), output_size=[9, 3], align_corners=True, nan=False,
           exact=False),
    sample("upsample_bicubic2d.vec", input=ints(2, 3, 5, 6), output_size=None, align_corners=False,
           scale_factors=[1.7, 2.0], nan=False, exact=False),
    sample("_upsample_bilinear2d_aa", self=ints(2, 3, 12, 9), output_size=[5, 12], align_corners=False, nan=False,
           exact=False, rules=4),
    sample("_upsample_bicubic2d_aa", self=ints(2, 3, 12, 9), output_size=[5, 12], align_corners=False, nan=False,
           exact=False),
    sample("pixel_shuffle", self=ints(2, 12, 3, 4), upscale_factor=2, rules=4),
    sample("pixel_unshuffle", self=ints(2, 3, 6, 9), downscale_factor=3, rules=4),
]  # fmt: skip
