"""Operators that treat every element alone, with broadcasting: one row rule for each dimension of the output."""

from trine.graph.graph import Operator
from trine.operators.arguments import aligned, output
from trine.operators.family import Family, Rule, Tensors, register

KEEPS_OUTPUT = (
    "relu", "sigmoid", "tanh", "exp", "expm1", "sqrt", "rsqrt", "reciprocal", "tan",
)  # fmt: skip
KEEPS_NOTHING = (
    "add", "sub", "rsub", "neg", "detach", "clone", "alias", "_to_copy", "to", "type_as", "contiguous", "positive",
    "lift_fresh_copy", "zero", "copy", "eq", "ne", "lt", "gt", "le", "ge", "logical_and", "logical_or", "logical_xor",
    "logical_not", "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not", "__and__", "__or__", "__xor__", "isnan",
    "isinf", "isfinite", "floor", "ceil", "round", "trunc", "sign", "floor_divide", "fmod", "remainder", "signbit",
    "bitwise_left_shift", "bitwise_right_shift", "__lshift__", "__rshift__", "nan_to_num",
)  # fmt: skip
KEEPS_INPUTS = (
    "mul", "div", "pow", "log", "log2", "log10", "log1p", "abs", "cos", "sin", "erf", "erfc", "erfinv", "square",
    "gelu", "silu", "mish", "hardtanh", "relu6", "hardswish", "hardsigmoid", "leaky_relu", "elu", "selu", "celu",
    "softplus", "log_sigmoid", "logit", "clamp", "clamp_min", "clamp_max", "maximum", "minimum", "fmax",
    "fmin", "where", "masked_fill", "addcmul", "addcdiv", "lerp", "atan", "atan2", "asin", "acos", "sinh", "cosh",
    "threshold", "hardshrink", "softshrink", "exp2", "xlogy", "sgn", "frac", "hypot", "sinc",
    "digamma", "lgamma", "logaddexp", "true_divide",
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
class ElementLoss(Elementwise):
    """A loss of each element; a reduced one runs whole."""

    names = (
        "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "soft_margin_loss", "binary_cross_entropy",
        "binary_cross_entropy_with_logits", "kl_div",
    )  # fmt: skip

    def rules(self, op: Operator, tensors: Tensors) -> tuple[Rule, ...]:
        return super().rules(op, tensors) if op.args.get("reduction") == 0 else ()

    def saved(self, op: Operator) -> tuple[str, ...]:
        return op.inputs
