"""Canonical form of norms with state, attention with dropout, recurrent layers and losses."""

import math
from typing import Any

from trine.capture.builder import Builder
from trine.capture.canonical import Call, as_is, drop, full, permute, rule, select, slice_, to_copy
from trine.graph.graph import wide

# ---- batch norm


@rule("_native_batch_norm_legit_functional", "_native_batch_norm_legit", "native_batch_norm", "_batch_norm_with_update",
      "_batch_norm_with_update_functional", "batch_norm")  # fmt: skip
def batch_norm(b: Builder, call: Call) -> Any:
    """Outputs of the traced operator: y, mean, rstd[, reserve][, new running mean, new running variance]."""
    a = call.args
    mean, var = a.get("running_mean"), a.get("running_var")
    training = a.get("training", True)
    stats = {"running_mean": mean, "running_var": var}
    common = {"input": a["input"], "weight": a["weight"], "bias": a["bias"], **stats}
    if not training:
        return _single(call, b.one("trine.batch_norm_eval", common | {"eps": a["eps"]}, call.sort))
    if {1, 2} & set(call.users):
        raise b.fail("the batch statistics of a batch norm are used by themselves")
    if mean is not None and "functional" not in call.target:
        raise b.fail(f"{call.target} changes its running statistics where the graph cannot see it")
    news = (None, None) if mean is None else (b.sort(mean), b.sort(var))
    y, new_mean, new_var = b.emit(
        "trine.batch_norm", common | {"momentum": a["momentum"], "eps": a["eps"]}, (call.sort, *news)
    )
    if not call.listed:
        return y
    results: list[str | None] = [y] + [None] * (len(call.sorts) - 1)
    if mean is not None:
        results[-2:] = [new_mean, new_var]
    return results


@rule("_native_batch_norm_legit_no_training", "_batch_norm_no_update")
def batch_norm_eval(b: Builder, call: Call) -> Any:
    names = ("input", "weight", "bias", "running_mean", "running_var", "eps")
    return _single(call, b.one("trine.batch_norm_eval", {name: call[name] for name in names}, call.sort))


@rule("instance_norm")
def instance_norm(b: Builder, call: Call) -> Any:
    if call["running_mean"] is None:
        return as_is(b, call)
    if call["use_input_stats"]:
        raise b.fail(
            "an instance norm that tracks running statistics loses them in a graph; use the batch statistics only"
        )
    names = ("input", "weight", "bias", "running_mean", "running_var", "eps")
    return b.one("trine.batch_norm_eval", {name: call[name] for name in names}, call.sort)


def _single(call: Call, ref: str) -> Any:
    """The first result where the traced operator gives several."""
    return [ref] + [None] * (len(call.sorts) - 1) if call.listed else ref


# ---- attention


@rule("scaled_dot_product_attention")
def attention(b: Builder, call: Call) -> Any:
    """With dropout: its parts, as torch's own composed form runs them; else the operator itself."""
    if call["dropout_p"] == 0.0:
        return as_is(b, call)
    query, key, value, mask = call["query"], call["key"], call["value"], call["attn_mask"]
    if call["enable_gqa"]:
        heads = b.shape(query)[-3]
        key, value = _repeat_heads(b, key, heads), _repeat_heads(b, value, heads)
    shape, dtype = b.sort(query)
    wanted = call["scale"] if call["scale"] is not None else 1.0 / math.sqrt(shape[-1])
    scale = math.sqrt(abs(wanted))
    keys, n = b.sort(key), len(b.shape(key))
    swapped = [*range(n - 2), n - 1, n - 2]
    turned = b.one("aten.permute.default", {"self": key, "dims": swapped}, (tuple(keys[0][d] for d in swapped), dtype))
    left = b.one("aten.mul.Tensor", {"self": query, "other": math.copysign(scale, wanted)}, (shape, dtype))
    right = b.one("aten.mul.Tensor", {"self": turned, "other": scale}, b.sort(turned))
    rows, columns = shape[-2], keys[0][-2]
    sort = ((*call.shape[:-2], rows, columns), dtype)
    scores = b.one("aten.matmul.default", {"self": left, "other": right}, sort)
    if call["is_causal"]:
        future = _future(b, rows, columns)
        scores = b.one("aten.masked_fill.Scalar", {"self": scores, "mask": future, "value": "float:-inf"}, sort)
    elif mask is not None:
        scores = _masked(b, scores, mask)
    if call["is_causal"] or mask is None:
        weights = b.one("aten.softmax.int", {"self": scores, "dim": len(sort[0]) - 1, "dtype": None}, sort)
    else:
        weights = b.one("aten._safe_softmax.default", {"self": scores, "dim": len(sort[0]) - 1, "dtype": None}, sort)
    dropped = drop(b, weights, call["dropout_p"])
    return b.one("aten.matmul.default", {"self": dropped, "other": value}, call.sort)


def _future(b: Builder, rows: int, columns: int) -> str:
    """True where a key comes after the query; shape (rows, columns)."""
    sort = ((rows, columns), "bool")
    return b.one("aten.triu.default", {"self": full(b, True, sort), "diagonal": 1}, sort)


def _masked(b: Builder, scores: str, mask: str) -> str:
    """Scores with a mask: added if floating, else minus infinity where it is false."""
    sort, (shape, dtype) = b.sort(scores), b.sort(mask)
    if dtype != "bool":
        return b.one("aten.add.Tensor", {"self": scores, "other": mask, "alpha": 1}, sort)
    away = b.one("aten.logical_not.default", {"self": mask}, (shape, "bool"))
    return b.one("aten.masked_fill.Scalar", {"self": scores, "mask": away, "value": "float:-inf"}, sort)


def _repeat_heads(b: Builder, ref: str, heads: int) -> str:
    """Key or value of grouped heads, (…, groups, rows, features), each repeated for its heads."""
    shape, dtype = b.sort(ref)
    if shape[-3] == heads:
        return ref
    args = {"self": ref, "repeats": heads // shape[-3], "dim": len(shape) - 3, "output_size": None}
    return b.one("aten.repeat_interleave.self_int", args, ((*shape[:-3], heads, *shape[-2:]), dtype))


# ---- recurrent layers: one operator a layer, so that dropout between layers is an operator too


@rule("lstm", "gru", "rnn_tanh", "rnn_relu")
def recurrent(b: Builder, call: Call) -> Any:
    a = call.args
    if "input" not in a:
        raise b.fail(f"{call.target} takes packed sequences, which are not supported")
    if a["num_layers"] == 1:
        return as_is(b, call)
    sides = 2 if a["bidirectional"] else 1
    weights = len(a["params"]) // a["num_layers"]
    states = a["hx"] if isinstance(a["hx"], list) else [a["hx"]]
    output, news = a["input"], [[] for _ in states]  # type: ignore[var-annotated]
    for layer in range(a["num_layers"]):
        if layer and a["train"] and a["dropout"]:
            output = _between(b, output, a["dropout"], a["batch_first"])
        own = [slice_(b, state, 0, layer * sides, (layer + 1) * sides) for state in states]
        sorts = (call.sort, *(b.sort(state) for state in own))
        args = dict(a) | {"input": output, "num_layers": 1, "dropout": 0.0}
        args |= {"hx": own if isinstance(a["hx"], list) else own[0]}
        args |= {"params": a["params"][layer * weights : (layer + 1) * weights]}
        output, *last = b.emit(call.target, args, sorts)
        for new, ref in zip(news, last, strict=True):
            new.append(ref)
    ends = [
        b.one("aten.cat.default", {"tensors": new, "dim": 0}, b.sort(state))
        for new, state in zip(news, states, strict=True)
    ]
    return [output, *ends]


def _between(b: Builder, ref: str, p: float, batch_first: bool) -> str:
    """Dropout between layers, which torch draws for the steps first."""
    swapped = [1, 0, *range(2, len(b.shape(ref)))] if batch_first else list(range(len(b.shape(ref))))
    return permute(b, drop(b, permute(b, ref, swapped), p), swapped)


# ---- losses

MEAN, SUM = 1, 2


@rule("cross_entropy_loss")
def cross_entropy(b: Builder, call: Call) -> Any:
    if call["reduction"] not in (MEAN, SUM):
        return as_is(b, call)
    names = ("weight", "ignore_index", "label_smoothing")
    args = {"input": call["self"], "target": call["target"], **{name: call[name] for name in names}}
    return _reduced(b, args, call)


@rule("nll_loss_nd", "nll_loss", "nll_loss2d", "nll_loss_forward", "nll_loss2d_forward")
def nll_loss(b: Builder, call: Call) -> Any:
    """Negative log likelihood of a log softmax over the classes is cross-entropy."""
    if call["reduction"] not in (MEAN, SUM) or 1 in call.users:
        return as_is(b, call)
    name, classes = call["self"][1:], 0 if len(b.shape(call["self"])) == 1 else 1
    maker = next(op for op in [*b.operators, None] if op is None or name in op.outputs)
    if maker is None or maker.base not in ("log_softmax", "_log_softmax"):
        return as_is(b, call)
    shape, dtype = b.sort(maker.args["self"])
    if maker.args["dim"] % len(shape) != classes or dtype != b.sort(call["self"])[1]:
        return as_is(b, call)
    args = {"input": maker.args["self"], "target": call["target"], "weight": call["weight"]}
    loss = _reduced(b, args | {"ignore_index": call["ignore_index"], "label_smoothing": 0.0}, call)
    return [loss, None] if call.listed else loss


def _reduced(b: Builder, args: dict[str, Any], call: Call) -> str:
    """Cross-entropy as a state (sum of losses, sum of weights) and what is made of it."""
    dtype = wide(call.sort[1])
    state = b.one("trine.cross_entropy", args, ((2,), dtype))
    sort = (call.sort[0], dtype)
    loss = select(b, state, 0, 0) if call["reduction"] == SUM else b.one("trine.ratio", {"state": state}, sort)
    return to_copy(b, Call("aten._to_copy.default", {"self": loss}, (call.sort,)))


@rule("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy", "soft_margin_loss",
      "binary_cross_entropy_with_logits", "kl_div")  # fmt: skip
def elementwise_loss(b: Builder, call: Call) -> Any:
    """The loss of each element, then its mean or sum."""
    left, right = call["self"], call["target"]
    shapes = [b.shape(left), b.shape(right)]
    if shapes[0] != shapes[1]:
        return as_is(b, call)
    sort = (shapes[0], call.sort[1])
    base = call.target.split(".")[1]
    if base in ("mse_loss", "l1_loss"):
        each = b.one("aten.sub.Tensor", {"self": left, "other": right, "alpha": 1}, sort)
        if base == "mse_loss":
            each = b.one("aten.mul.Tensor", {"self": each, "other": each}, sort)
        else:
            each = b.one("aten.abs.default", {"self": each}, sort)
    elif call["reduction"] == 0:
        return as_is(b, call)
    else:
        each = b.one(call.target, dict(call.args) | {"reduction": 0}, sort)
    if call["reduction"] == 0:
        return each
    name = "mean" if call["reduction"] == MEAN else "sum"
    return b.one(f"aten.{name}.default", {"self": each, "dtype": None}, call.sort)
