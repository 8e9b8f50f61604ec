"""Laws of footprints on PyTorch's own operator database: the worker that judges operators by name.

Every sample is traced to its aten operators, a few of which a capture writes as others; each that trine says it can
cut is cut along every rule into random uneven parts.  Pieces put together must be the whole (bit for bit on small
integers where arithmetic on them is exact, else to 1e-12); those that are no partial sums may read nothing outside
their needs; both ends of what is needed along a cut must matter, but for operators of ``WIDER``; and gradients must add
up.

    python -m bench.op_db_cells nn.functional.conv2d cumsum
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any

import torch
from bench.op_db_samples import OpCell, samples
from bench.workers import serve
from tests.laws.pieces import Case, Piece, assemble, build, partition, pieces, places, run, run_piece, take
from torch.fx import GraphModule, Interpreter, Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

from trine.graph.graph import Operator
from trine.graph.part import volume
from trine.operators.family import family_of
from trine.operators.rearrange import Rearrangement
from trine.run.integer import EXACT

TOLERANCE = 1e-12
DRAWS = 2  # of parts, for each rule
TRIES = 200  # of values at one end of what is needed, fewer for large tensors
RUBBISH = (float("nan"), 1e3, 0.25)  # where one spreads by itself or is refused, the next
WIDER = {
    "embedding": "which words are read depends on the indices",
    "col2im": "a tap may lie outside the plane or the piece for all windows at its border",
    "scaled_dot_product_attention": "a masked key is not read, and one key alone has weight one",
    "slice_scatter": "what is overwritten is asked for beside what overwrites it",
    "select_scatter": "what is overwritten is asked for beside what overwrites it",
    "index_copy": "what is overwritten is asked for beside what overwrites it",
}
"""Operators whose needs are knowingly wider than what is read, and why."""


class Collector(Interpreter):
    """Runs a traced sample and keeps every operator with its arguments."""

    def __init__(self, traced: GraphModule) -> None:
        super().__init__(traced)
        self.found: list[tuple[str, dict[str, Any]]] = []

    def run_node(self, n: Node) -> Any:
        result = super().run_node(n)
        if isinstance(n.target, torch._ops.OpOverload) and n.target.namespace == "aten":
            args, kwargs = self.fetch_args_kwargs_from_env(n)
            names = [argument.name for argument in n.target._schema.arguments]
            self.found.append((str(n.target), {**dict(zip(names, args, strict=False)), **kwargs}))
        return result


def operators(call: Callable[..., Any], tensors: list[torch.Tensor]) -> list[Case]:
    """The operators of a sample that trine can cut, with values."""
    traced = make_fx(call, pre_dispatch=True)(*tensors)
    collector = Collector(traced)
    collector.run(*tensors)
    result = []
    for target, args in collector.found:
        case = made(target, args)
        if case is not None and family_of(case.op).rules(case.op, case.tensors):
            result.append(case)
    return result


def made(target: str, args: dict[str, Any]) -> Case | None:
    """A case of an operator; None for one without tensors or with what a graph does not carry: memory as it was found,
    draws that nobody can repeat, gradients that depend on the whole batch."""
    base = target.split(".")[1]
    if base.startswith(("empty", "new_empty")) or "dropout" in base:
        return None
    if args.get("sparse") or args.get("scale_grad_by_freq"):
        return None
    if target.endswith("_.default") or "out" in args or not any(torch.is_tensor(v) for v in pytree.tree_leaves(args)):
        return None
    clean = {k: v.detach() if torch.is_tensor(v) else encoded(v) for k, v in args.items()}
    case = build(target, clean)
    if not any(t.numel() for t in case.outputs.values()) or any(
        t.is_complex() for t in (*case.inputs.values(), *case.outputs.values())
    ):
        return None
    return case


def encoded(value: Any) -> Any:
    """An argument as a graph has it."""
    if isinstance(value, torch.dtype):
        return "dtype:" + str(value).removeprefix("torch.")
    if isinstance(value, float) and value in (float("inf"), float("-inf")):
        return f"float:{value}"
    if isinstance(value, (list, tuple)):
        return [encoded(item) for item in value]
    return None if isinstance(value, (torch.device, torch.layout, torch.memory_format)) else value


def whole_numbers(case: Case) -> Case:
    """The same operator on small integers."""
    values = {n: v.mul(2).round().clamp(-3, 3) if v.is_floating_point() else v for n, v in case.inputs.items()}
    return Case(case.op, case.tensors, values, run(case.op, values))


def is_exact(op: Operator) -> bool:
    """Whether integers stay integers."""
    scalars = [v for v in pytree.tree_leaves(op.args) if isinstance(v, float)]
    whole = all(v == int(v) for v in scalars if abs(v) < 1e15)
    return whole and (op.base in EXACT or isinstance(family_of(op), Rearrangement))


def cuts(case: Case, random: Random) -> Iterator[list[Piece]]:
    """Every rule alone and some pairs, each with random parts."""
    rules = family_of(case.op).rules(case.op, case.tensors)
    chosen = [[rule] for rule in rules for _ in range(DRAWS)]
    chosen += [random.sample(rules, 2) for _ in range(min(3, len(rules) - 1))]
    for some in chosen:
        parts = [partition(rule, random) for rule in some]
        if all(part is not None for part in parts):
            cut = pieces(case, list(zip(some, parts, strict=True)), narrow=random.random() < 0.5)
            if cut:
                yield cut


def close(a: torch.Tensor, b: torch.Tensor, exact: bool) -> bool:
    """Equal bit for bit, or to TOLERANCE · max(largest of |b|, 1); a NaN equals a NaN."""
    if exact or not a.is_floating_point():
        return torch.equal(a, b) or torch.equal(a.nan_to_num(0.5), b.nan_to_num(0.5))
    a, b = a.nan_to_num(0.5), b.nan_to_num(0.5)
    return not a.numel() or float((a - b).abs().max()) <= TOLERANCE * max(float(b.abs().max()), 1.0)


def broken(case: Case, random: Random) -> str:
    """The law that an operator breaks, or nothing."""
    exact = is_exact(case.op)
    case = whole_numbers(case) if exact else case
    for cut in cuts(case, random):
        done = [(piece, run_piece(case, piece, case.inputs)) for piece in cut]
        whole = assemble(case, done)
        if not all(close(whole[n], case.outputs[n], exact) for n in case.names):
            return "slice"
        for piece in random.sample(cut, min(len(cut), 2)):
            if not (piece.reduces or any(reads_no_more(case, piece, rubbish) for rubbish in RUBBISH)):
                return "outside"
        if case.op.base not in WIDER and not all(is_tight(case, piece, random) for piece in random.sample(cut, 1)):
            return "tightness"
        if not gradients_add_up(case, cut):
            return "gradient"
    return ""


def reads_no_more(case: Case, piece: Piece, rubbish: float) -> bool:
    """Whether rubbish outside a piece's needs changes nothing of it."""
    values = {}
    for name, value in case.inputs.items():
        spoiled = torch.full_like(value, rubbish) if value.is_floating_point() else value.clone()
        for position in (i for i, other in enumerate(case.op.inputs) if other == name):
            where = places(piece.local.in_boxes[position])
            spoiled[where] = value[where]
        values[name] = spoiled
    try:
        outputs = run(case.op, values)
    except RuntimeError:  # the operator takes no such values
        return False
    for name, found in outputs.items():
        box = piece.local.out_boxes[case.op.outputs.index(name)]
        if not close(take(found, box), take(case.outputs[name], box), False):
            return False
    return True


def is_tight(case: Case, piece: Piece, random: Random) -> bool:
    """Whether both ends of what is needed along each cut can change the piece, if anything can."""
    if any(volume(box) == 0 for box in piece.local.in_boxes):  # made of padding alone
        return True
    if not any(matters(case, piece, (position, None, 0), random) for position in range(len(case.op.inputs))):
        return True  # a constant: the place of the largest of one element
    for position, dim in piece.cut_faces:
        part = piece.local.in_boxes[position][dim]
        if not all(matters(case, piece, (position, dim, end), random) for end in {part[0][0], part[-1][1] - 1}):
            return False
    return True


def matters(case: Case, piece: Piece, face: tuple[int, int | None, int], random: Random) -> bool:
    """Whether some values at one index of a dimension of an input (None: of all that is needed) change the outputs of
    the piece."""
    position, dim, end = face
    name, box = case.op.inputs[position], list(piece.local.in_boxes[position])
    if dim is not None:
        box[dim] = ((end, end + 1),)
    where = places(tuple(box))
    large = sum(value.numel() for value in case.inputs.values()) > 2000
    for attempt in range(TRIES // 4 if large else TRIES):
        values = {n: redrawn(v, random) for n, v in case.inputs.items()} if attempt % 3 == 2 else dict(case.inputs)
        changed = values[name].clone()
        changed[where] = redrawn(values[name], random)[where]
        try:
            before, after = run(case.op, values), run(case.op, {**values, name: changed})
        except RuntimeError:  # the operator takes no such values
            continue
        for output in case.names:
            out = piece.local.out_boxes[case.op.outputs.index(output)]
            if not close(take(after[output], out), take(before[output], out), True):
                return True
    return False


def redrawn(value: torch.Tensor, random: Random) -> torch.Tensor:
    """Other values of the same type: real ones at some scale, few that are often equal or zero, from 0 to 1, one alone,
    with some that are infinite or none; whole numbers that are there already, or 0 and 1."""
    if value.dtype == torch.bool:
        return torch.rand(value.shape) < random.choice((0.0, random.random(), 1.0))
    if not value.is_floating_point():
        pool = torch.cat([value.flatten(), torch.tensor([0, 1], dtype=value.dtype)])
        return (
            pool[torch.randint(0, len(pool), value.shape if random.random() < 0.5 else ())].expand(value.shape).clone()
        )
    kind = random.randrange(6)
    if kind == 0:
        return random.choice((0.3, 1.0, 9.0, 1e4)) * torch.randn_like(value) + random.choice((0.0, 0.0, 1.0, 20.0))
    if kind == 1:
        return torch.randint(-2, 3, value.shape).to(value.dtype)
    if kind == 2:
        return torch.rand_like(value)
    if kind in (3, 4):
        return torch.full_like(value, random.choice((0.0, 0.0, 1.0, float("nan"))))
    odd = torch.tensor([float("inf"), float("-inf"), float("nan"), 0.0], dtype=value.dtype)
    return torch.where(torch.rand(value.shape) < 0.3, odd[torch.randint(0, 4, value.shape)], torch.randn_like(value))


def gradients_add_up(case: Case, cut: list[Piece]) -> bool:
    """Whether the gradients of the pieces add up to that of the whole."""
    leaves = {k: v.clone().requires_grad_() for k, v in case.inputs.items() if v.is_floating_point()}
    values = {**case.inputs, **leaves}
    try:
        whole = {k: v for k, v in run(case.op, values).items() if v.requires_grad}
        seeds = {name: torch.randint(-3, 4, made.shape).to(made.dtype) for name, made in whole.items()}
        if not leaves or not whole:
            return True
        total = sum((whole[n] * seeds[n]).sum() for n in whole)
        expected = torch.autograd.grad(total, list(leaves.values()), allow_unused=True)
    except RuntimeError:  # it has no derivative
        return True
    mine = torch.zeros((), dtype=torch.float64, requires_grad=True)
    for piece in cut:
        found = run_piece(case, piece, values)
        for name in whole:
            mine = mine + (found[name] * take(seeds[name], piece.local.out_boxes[case.op.outputs.index(name)])).sum()
    got = torch.autograd.grad(mine, list(leaves.values()), allow_unused=True)
    return all(
        close(torch.zeros_like(leaf) if a is None else a, torch.zeros_like(leaf) if b is None else b, False)
        for a, b, leaf in zip(got, expected, leaves.values(), strict=True)
    )


def judged(name: str) -> dict[str, Any]:
    """The record of one operator: samples, those with something that is cut, and what broke."""
    record: dict[str, Any] = {"key": name, "samples": 0, "cut": 0, "right": 0, "untraced": 0, "operators": []}
    failed: list[str] = []
    names: set[str] = set()
    for number, (call, tensors) in enumerate(samples(name)):
        record["samples"] += 1
        try:
            found = operators(call, tensors)
        except Exception:  # noqa: BLE001  the database has samples that cannot be traced
            record["untraced"] += 1
            continue
        record["cut"] += bool(found)
        laws = []
        for case in found:
            names.add(case.op.base)
            try:
                with torch.random.fork_rng():  # samples are drawn as they come
                    torch.manual_seed(number)
                    law = broken(case, Random(number))
            except Exception as error:  # noqa: BLE001  whatever it raises is the result
                law = f"{type(error).__name__}: {error}"[:200]
            if law:
                laws.append(f"sample {number}, {case.op.target} {[t.shape for t in case.tensors.values()]}: {law}")
        record["right"] += bool(found) and not laws
        failed += laws
    record["operators"] = sorted(names)
    return record | {
        "equal": not failed,
        "worst": "; ".join(failed[:3]) or f"{record['cut']} samples cut",
        "num": len(failed),
    }


def records(cells: Sequence[OpCell]) -> Iterator[dict[str, Any]]:
    """The records of operators, each begun."""
    for cell in cells:
        yield {"begin": cell.key}
        yield judged(cell.key)


def main(names: list[str]) -> None:
    """Judge the operators that are given."""
    torch.set_num_threads(1)
    serve([OpCell(name) for name in names], records)


if __name__ == "__main__":
    main(sys.argv[1:])
