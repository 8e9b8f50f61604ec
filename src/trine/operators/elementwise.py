"""Operators that treat every element alone, with broadcasting: one row rule for each dimension of the output."""

from collections.abc import Sequence
from math import prod

from trine.graph.graph import Operator
from trine.graph.part import Box, volume
from trine.operators.arguments import aligned, changed, cut, is_whole, output, shape
from trine.operators.family import Family, Local, Rule, Tensors, register

NONE, MEAN = 0, 1  # reductions of losses, as aten counts them; the third is the sum

KEEPS_OUTPUT = (
    "relu", "sigmoid", "tanh", "exp", "expm1", "sqrt", "rsqrt", "reciprocal", "tan",
)  # fmt: skip
KEEPS_NOTHING = (
    "add", "sub", "rsub", "neg", "detach", "clone", "alias", "_to_copy", "to", "type_as", "contiguous", "positive",
    "lift_fresh_copy", "zero", "copy", "eq", "ne", "lt", "gt", "le", "ge", "logical_and", "logical_or", "logical_xor",
    "logical_not", "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not", "__and__", "__or__", "__xor__", "isnan",
    "isinf", "isfinite", "floor", "ceil", "round", "trunc", "sign", "floor_divide", "fmod", "remainder", "signbit",
    "bitwise_left_shift", "bitwise_right_shift", "__lshift__", "__rshift__", "nan_to_num", "deg2rad", "rad2deg",
    "heaviside", "isposinf", "isneginf", "isreal", "fix", "gcd", "lcm", "nextafter", "greater", "greater_equal", "less",
    "less_equal", "not_equal", "subtract", "negative", "isclose", "conj", "resolve_conj", "resolve_neg", "real",
)  # fmt: skip
KEEPS_INPUTS = (
    "mul", "div", "pow", "log", "log2", "log10", "log1p", "abs", "cos", "sin", "erf", "erfc", "erfinv", "square",
    "gelu", "silu", "mish", "hardtanh", "relu6", "hardswish", "hardsigmoid", "leaky_relu", "elu", "selu", "celu",
    "softplus", "log_sigmoid", "logit", "clamp", "clamp_min", "clamp_max", "maximum", "minimum", "fmax",
    "fmin", "where", "masked_fill", "addcmul", "addcdiv", "lerp", "atan", "atan2", "asin", "acos", "sinh", "cosh",
    "threshold", "hardshrink", "softshrink", "exp2", "xlogy", "sgn", "frac", "hypot", "sinc",
    "digamma", "lgamma", "logaddexp", "true_divide", "logaddexp2", "acosh", "asinh", "atanh", "arccos", "arcsin",
    "arctan", "arctan2", "arccosh", "arcsinh", "arctanh", "absolute", "clip", "multiply", "divide", "copysign", "i0",
    "igamma", "igammac", "polygamma", "float_power", "ldexp", "special_i0e", "special_i1", "special_i1e",
    "special_ndtri", "special_log_ndtr", "special_entr", "special_erfcx", "special_xlog1py", "special_ndtr",
    "special_zeta", "special_bessel_j0", "special_bessel_j1", "special_expit", "special_logit", "special_psi",
    "special_gammaln", "special_digamma", "special_erf", "special_erfc", "special_erfinv", "special_exp2",
    "special_expm1", "special_i0", "special_log1p", "special_round", "special_sinc", "special_xlogy",
)  # fmt: skip
KEEPS_FACTORS = ("mul", "div", "true_divide")
KEEPS_CHOICE = {"where": 0, "masked_fill": 1}  # of the inputs only the condition


@register
class Elementwise(Family):
    """Every dimension is a row; an input of size one along it is needed whole."""

    names: tuple[str, ...] = KEEPS_OUTPUT + KEEPS_NOTHING + KEEPS_INPUTS

    def rules(self, op: Operator, tensors: Tensors) -> tuple[Rule, ...]:
        made = output(op, tensors)
        positions = range(len(op.inputs))
        return tuple(
            Rule("row", made[d], aligned(op, tensors, positions, made, d), ((0, d),))
            for d in range(len(made))
            if made[d] > 1
        )

    def saved(self, op: Operator) -> tuple[str, ...]:
        if op.base in KEEPS_OUTPUT:
            return tuple(name for name in op.outputs if name is not None)
        if op.base in KEEPS_FACTORS and len(op.inputs) == 1:  # by a number, or by itself
            return op.inputs if op.args["self"] == op.args.get("other") else ()
        if op.base in KEEPS_CHOICE:
            return op.inputs[KEEPS_CHOICE[op.base] :][:1]
        return op.inputs if op.base in KEEPS_INPUTS else ()


@register
class ParametricRectifier(Elementwise):
    """self [rows, channels, …], weight [channels] or [1]."""

    names = ("prelu",)

    def rules(self, op: Operator, tensors: Tensors) -> tuple[Rule, ...]:
        here, weight = shape(op, tensors, "self"), shape(op, tensors, "weight")
        own = cut(op, "weight", 0) if weight not in ((), (1,)) else ()
        return tuple(
            Rule("row", n, (*cut(op, "self", d), *(own if d == 1 else ())), ((0, d),))
            for d, n in enumerate(here)
            if n > 1
        )

    def saved(self, op: Operator) -> tuple[str, ...]:
        return op.inputs


@register
class ElementLoss(Elementwise):
    """A loss of each element; their sum or mean is a partial sum along every dimension.  A mean divides by the count of
    the whole."""

    names = (
        "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "soft_margin_loss", "binary_cross_entropy",
        "binary_cross_entropy_with_logits", "kl_div",
    )  # fmt: skip

    def rules(self, op: Operator, tensors: Tensors) -> tuple[Rule, ...]:
        if op.args.get("reduction") == NONE:
            return super().rules(op, tensors)
        here = shape(op, tensors, "self")
        if here != shape(op, tensors, "target"):
            return ()
        every = range(len(op.inputs))
        return tuple(
            Rule("contraction", n, aligned(op, tensors, every, here, d), (), "sum") for d, n in enumerate(here) if n > 1
        )

    def local(self, piece: Local) -> tuple[Operator, ...]:
        op = piece.op
        if op.args.get("reduction") != MEAN or is_whole(piece):
            return (op,)
        name, here = op.name + ".each", shape(op, piece.tensors, "self")
        each = Operator(name, op.target, {**op.args, "reduction": NONE}, (name,), op.module, op.source)
        args = {"input": "%" + name, "dims": list(range(len(here))), "keepdim": False, "count": prod(here)}
        return each, changed(op, "trine.mean_part", args)

    def flops(self, op: Operator, in_boxes: Sequence[Box], out_boxes: Sequence[Box]) -> float:
        return 3.0 * volume(in_boxes[0])

    def saved(self, op: Operator) -> tuple[str, ...]:
        return op.inputs
