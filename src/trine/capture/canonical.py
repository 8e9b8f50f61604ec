"""The canonical form: one table from traced operators to those that trine knows.

A rule takes the builder, the call and gives the references of its results: one, or a list for several.  What is not
in the table stays as it is.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import torch

from trine.capture.builder import Builder, Sort

Rule = Callable[[Builder, "Call"], Any]
RULES: dict[str, Rule] = {}


@dataclass(frozen=True)
class Call:
    """A traced operator: its target, its arguments by the schema's names, and the sorts of its results."""

    target: str
    args: dict[str, Any]
    sorts: tuple[Sort | None, ...]
    users: tuple[int, ...] = ()  # numbers of the results that somebody reads
    listed: bool = False  # whether the results come as a list or tuple

    def __getitem__(self, name: str) -> Any:
        return self.args[name]

    @property
    def sort(self) -> Sort:
        """Shape and data type of the first result."""
        assert self.sorts[0] is not None
        return self.sorts[0]

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the first result."""
        return self.sort[0]


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Decorator: enter a rule under base names (``aten.`` is left out)."""

    def enter(function: Rule) -> Rule:
        for name in names:
            RULES[name] = function
        return function

    return enter


def canonical(b: Builder, call: Call, tags: list[Any]) -> Any:
    """Results of the call in canonical form."""
    namespace, base, _ = call.target.split(".")
    if namespace == "aten" and base in RULES:
        return RULES[base](b, call)
    draws = torch.Tag.nondeterministic_seeded in tags
    if draws and call.args.get("dropout_p", 1.0) != 0.0 and call.args.get("training", True):
        change = "Leave this randomness out, or draw it outside of the model and make it an input"
        raise b.fail(f"{call.target} draws random numbers that cannot be repeated on tiles", change)
    return as_is(b, call)


def as_is(b: Builder, call: Call) -> Any:
    """The operator itself, with the data type written out where it would depend on a default."""
    args = dict(call.args)
    if args.get("dtype", "") is None and not any(True for _ in _tensors(args)):
        args["dtype"] = "dtype:" + call.sort[1]
    results = b.emit(call.target, args, call.sorts)
    return results if call.listed else results[0]


def _tensors(args: dict[str, Any]) -> Any:
    return (v for v in args.values() if isinstance(v, str) and v.startswith("%"))


# ---- names for the same tensor


@rule("clone", "contiguous", "alias", "lift_fresh_copy", "lift", "positive")
def identity(b: Builder, call: Call) -> Any:
    return call.args.get("self", call.args.get("input"))


@rule("as_strided", "as_strided_copy")
def as_strided(b: Builder, call: Call) -> Any:
    change = "Write it with unfold, view or an index"
    raise b.fail("as_strided reads memory by how a tensor lies in it, which tiles do not keep", change)


@rule("detach", "detach_")
def detach(b: Builder, call: Call) -> Any:
    if "float" not in call.sort[1]:
        return call["self"]
    return b.one("aten.detach.default", {"self": call["self"]}, call.sort)


@rule("_to_copy", "to")
def to_copy(b: Builder, call: Call) -> Any:
    if b.sort(call["self"]) == call.sort:
        return call["self"]
    args = {"self": call["self"], "dtype": "dtype:" + call.sort[1]}
    rest = {"layout": None, "device": None, "pin_memory": None, "non_blocking": False, "memory_format": None}
    return b.one("aten._to_copy.default", args | rest, call.sort)


@rule("dropout")
def plain_dropout(b: Builder, call: Call) -> Any:
    return drop(b, call["input"], call["p"]) if call["train"] else call["input"]


# ---- shapes


def view(b: Builder, ref: str, shape: tuple[int, ...]) -> str:
    """The tensor in another shape."""
    if b.shape(ref) == tuple(shape):
        return ref
    return b.one("aten.view.default", {"self": ref, "size": list(shape)}, (tuple(shape), b.sort(ref)[1]))


@rule("view", "reshape", "_unsafe_view", "flatten", "squeeze", "unsqueeze", "unflatten", "_reshape_alias", "view_as",
      "reshape_as", "ravel", "squeeze_copy", "unsqueeze_copy", "view_copy", "atleast_1d", "atleast_2d",
      "atleast_3d")  # fmt: skip
def reshape(b: Builder, call: Call) -> Any:
    if "dtype" in call.args or "self" not in call.args:  # view.dtype reads the bits of another type
        return as_is(b, call)
    return view(b, call["self"], call.shape)


def permute(b: Builder, ref: str, dims: list[int]) -> str:
    """The tensor with its dimensions in another order."""
    shape, dtype = b.sort(ref)
    dims = [d % len(shape) for d in dims]
    if dims == sorted(dims):
        return ref
    return b.one("aten.permute.default", {"self": ref, "dims": dims}, (tuple(shape[d] for d in dims), dtype))


@rule("permute")
def permute_rule(b: Builder, call: Call) -> Any:
    return permute(b, call["self"], call["dims"])


@rule("transpose", "t", "numpy_T", "mT", "swapaxes", "swapdims")
def transpose(b: Builder, call: Call) -> Any:
    n = len(call.shape)
    dims = list(range(n))
    if call.target.startswith("aten.numpy_T"):
        return permute(b, call["self"], dims[::-1])
    default = (0, 1) if call.target.startswith("aten.t.") else (-2, -1)
    first = call.args.get("dim0", call.args.get("axis0", default[0]))
    second = call.args.get("dim1", call.args.get("axis1", default[1]))
    if n < 2:
        return call["self"]
    dims[first], dims[second] = dims[second], dims[first]
    return permute(b, call["self"], dims)


@rule("movedim", "moveaxis")
def movedim(b: Builder, call: Call) -> Any:
    n = len(call.shape)
    source, destination = call["source"], call["destination"]
    source = [d % n for d in (source if isinstance(source, list) else [source])]
    destination = [d % n for d in (destination if isinstance(destination, list) else [destination])]
    dims = [d for d in range(n) if d not in source]
    for to, come in sorted(zip(destination, source, strict=True)):
        dims.insert(to, come)
    return permute(b, call["self"], dims)


@rule("expand", "expand_as", "broadcast_to", "expand_copy")
def expand(b: Builder, call: Call) -> Any:
    return broadcast(b, call["self"], call.shape)


def broadcast(b: Builder, ref: str, shape: tuple[int, ...]) -> str:
    """The tensor repeated along its dimensions of size one, up to the shape."""
    if b.shape(ref) == shape:
        return ref
    args = {"self": ref, "size": list(shape), "implicit": False}
    return b.one("aten.expand.default", args, (shape, b.sort(ref)[1]))


@rule("broadcast_tensors")
def broadcast_tensors(b: Builder, call: Call) -> Any:
    return [broadcast(b, ref, call.shape) for ref in call["tensors"]]


@rule("copy")
def copy(b: Builder, call: Call) -> Any:
    ref = call["src"]
    if b.sort(ref)[1] != call.sort[1]:
        ref = to_copy(b, Call("aten._to_copy.default", {"self": ref}, ((b.shape(ref), call.sort[1]),)))
    return broadcast(b, ref, call.shape)


# ---- slices


def slice_(b: Builder, ref: str, dim: int, start: int, end: int, step: int = 1) -> str:
    """Indices ``start, start + step, …`` below ``end`` of one dimension."""
    shape, dtype = b.sort(ref)
    size = max(0, -(-(end - start) // step))
    if size == shape[dim] and step == 1:
        return ref
    args = {"self": ref, "dim": dim, "start": start, "end": end, "step": step}
    return b.one("aten.slice.Tensor", args, ((*shape[:dim], size, *shape[dim + 1 :]), dtype))


def select(b: Builder, ref: str, dim: int, index: int) -> str:
    """One index of a dimension, which goes away."""
    shape, dtype = b.sort(ref)
    args = {"self": ref, "dim": dim, "index": index}
    return b.one("aten.select.int", args, ((*shape[:dim], *shape[dim + 1 :]), dtype))


@rule("slice", "slice_copy")
def slice_rule(b: Builder, call: Call) -> Any:
    dim, start, end = _interval(b, call)
    return slice_(b, call["self"], dim, start, end, call["step"])


@rule("slice_scatter")
def slice_scatter(b: Builder, call: Call) -> Any:
    dim, start, end = _interval(b, call)
    if (start, end, call["step"]) == (0, call.shape[dim], 1):
        return call["src"]
    args = dict(call.args) | {"dim": dim, "start": start, "end": end}
    return b.one(call.target, args, call.sort)


def _interval(b: Builder, call: Call) -> tuple[int, int, int]:
    """Dimension, start and end of a slice, all counted from zero and inside the tensor."""
    shape = b.shape(call["self"])
    dim = call["dim"] % len(shape)
    start, end, _ = slice(call["start"], call["end"]).indices(shape[dim])
    return dim, start, max(start, end)


@rule("narrow")
def narrow(b: Builder, call: Call) -> Any:
    dim = call["dim"] % len(call.shape)
    start = call["start"] % max(1, b.shape(call["self"])[dim])
    return slice_(b, call["self"], dim, start, start + call["length"])


@rule("select", "select_copy")
def select_rule(b: Builder, call: Call) -> Any:
    shape = b.shape(call["self"])
    dim = call["dim"] % len(shape)
    return select(b, call["self"], dim, call["index"] % shape[dim])


@rule("split", "split_with_sizes", "chunk", "tensor_split", "unsafe_split", "unsafe_chunk", "unsafe_split_with_sizes",
      "hsplit", "vsplit", "dsplit", "split_copy", "split_with_sizes_copy")  # fmt: skip
def split(b: Builder, call: Call) -> Any:
    ref = call["self"]
    shape = b.shape(ref)
    named = {"aten.hsplit": 1 if len(shape) > 1 else 0, "aten.vsplit": 0, "aten.dsplit": 2}
    dim = call.args.get("dim", named.get(call.target.rsplit(".", 1)[0], 0)) % len(shape)
    sizes = [sort[0][dim] for sort in call.sorts if sort is not None]
    starts = [sum(sizes[:number]) for number in range(len(sizes))]
    if isinstance(call.args.get("indices"), list):  # of tensor_split: each where it is said, in any order
        starts = [0, *(slice(index, None).indices(shape[dim])[0] for index in call["indices"])]
    return [
        slice_(b, ref, dim, start, start + size) if number in call.users else None
        for number, (start, size) in enumerate(zip(starts, sizes, strict=True))
    ]


@rule("unbind", "unbind_copy")
def unbind(b: Builder, call: Call) -> Any:
    dim = call["dim"] % len(b.shape(call["self"]))
    return [select(b, call["self"], dim, i) if i in call.users else None for i in range(len(call.sorts))]


# ---- tensors made from nothing


def full(b: Builder, value: Any, sort: Sort) -> str:
    """A tensor of one value."""
    args = {"size": list(sort[0]), "fill_value": value, "dtype": "dtype:" + sort[1]}
    return b.one("aten.full.default", args | {"layout": None, "device": None, "pin_memory": None}, sort)


@rule("zeros", "zeros_like", "new_zeros", "zero", "empty", "empty_like", "new_empty", "empty_strided",
      "new_empty_strided", "empty_permuted", "_efficientzerotensor")  # fmt: skip
def zeros(b: Builder, call: Call) -> Any:
    return full(b, False if call.sort[1] == "bool" else 0, call.sort)


@rule("ones", "ones_like", "new_ones")
def ones(b: Builder, call: Call) -> Any:
    return full(b, True if call.sort[1] == "bool" else 1, call.sort)


@rule("full", "full_like", "new_full", "scalar_tensor", "fill")
def full_rule(b: Builder, call: Call) -> Any:
    for name in ("fill_value", "s", "value"):
        if name in call.args:
            value = call[name]
            return copy(b, Call("", {"src": value}, call.sorts)) if _is_ref(value) else full(b, value, call.sort)
    raise b.fail(f"{call.target} has no value")


def _is_ref(value: Any) -> bool:
    return isinstance(value, str) and value.startswith("%")


@rule("arange")
def arange(b: Builder, call: Call) -> Any:
    args = {"start": call.args.get("start", 0), "end": call["end"], "step": call.args.get("step", 1)}
    args |= {"dtype": "dtype:" + call.sort[1], "layout": None, "device": None, "pin_memory": None}
    return b.one("aten.arange.start_step", args, call.sort)


# ---- random numbers


def drop(b: Builder, ref: str, p: float) -> str:
    """Dropout; a probability of one draws nothing, as in torch."""
    sort = b.sort(ref)
    if p == 0.0 or prod(sort[0]) == 0:
        return ref
    if p == 1.0:
        return b.one("aten.mul.Tensor", {"self": ref, "other": 0.0}, sort)
    return b.one("trine.dropout", {"input": ref, "p": p, "index": b.draw()}, sort)


@rule("native_dropout")
def native_dropout(b: Builder, call: Call) -> Any:
    if 1 in call.users:
        raise b.fail("the mask of a dropout is used by itself")
    return [call["input"] if call["train"] is False else drop(b, call["input"], call["p"]), None]


@rule("bernoulli")
def bernoulli(b: Builder, call: Call) -> Any:
    if not isinstance(call.args.get("p"), float):
        raise b.fail(
            "bernoulli draws with a probability for each element, which is not supported",
            "Draw with one probability for all, or outside of the model",
        )
    shape, dtype = call.sort
    args = {"shape": list(shape), "p": call["p"], "index": b.draw(), "dtype": "dtype:" + dtype}
    return b.one("trine.bernoulli", args, call.sort)


# ---- products


@rule("mm", "bmm", "matmul", "mv", "dot", "linalg_matmul")
def matmul(b: Builder, call: Call) -> Any:
    other = next(call.args[name] for name in ("other", "mat2", "vec", "tensor") if name in call.args)
    return b.one(
        "aten.matmul.default", {"self": call.args.get("self", call.args.get("input")), "other": other}, call.sort
    )


@rule("addmm")
def addmm(b: Builder, call: Call) -> Any:
    bias, weight = call["self"], call["mat2"]
    if call["beta"] == 1 and call["alpha"] == 1 and b.shape(bias) == call.shape[-1:]:
        return b.one("trine.addmm", {"bias": bias, "input": call["mat1"], "weight": weight}, call.sort)
    return _scaled_add(b, call, call["mat1"], weight)


@rule("baddbmm")
def baddbmm(b: Builder, call: Call) -> Any:
    return _scaled_add(b, call, call["batch1"], call["batch2"])


def _scaled_add(b: Builder, call: Call, left: str, right: str) -> str:
    """``beta · self + alpha · left @ right``."""
    product = b.one("aten.matmul.default", {"self": left, "other": right}, call.sort)
    if call["alpha"] != 1:
        product = b.one("aten.mul.Tensor", {"self": product, "other": call["alpha"]}, call.sort)
    if call["beta"] == 0:
        return product
    return b.one("aten.add.Tensor", {"self": product, "other": call["self"], "alpha": call["beta"]}, call.sort)


@rule("max_pool2d_with_indices")
def max_pool(b: Builder, call: Call) -> Any:
    if 1 in call.users:
        return as_is(b, call)
    return [b.one("aten.max_pool2d.default", call.args, call.sort), None]
