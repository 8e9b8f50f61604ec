"""From wishes (degrees, cuts, shares) to a Plan for one graph, and the rules that every plan must pass."""

from collections.abc import Sequence
from typing import get_args

from trine.errors import BadInput, CannotCut, PlanMismatch, UnknownName, listing
from trine.graph.graph import Graph
from trine.graph.part import full
from trine.operators.family import family_of, rules_of
from trine.plan.anchors import head_rules
from trine.plan.plan import CUTS, FEATURES, SPACE, Attention, Axis, BatchNorm, Halo, Plan, Schedule

IMAGE_CUTS = ("height", "width", "depth")
LEAST = 1e-6  # the smallest share; one over it is the largest


def cut_sizes(graph: Graph) -> dict[str, int]:
    """What can be cut in a graph, with its size: the dimensions of the inputs by name, channels, heads."""
    return graph.once("cut_sizes", lambda: _cut_sizes(graph))


def _cut_sizes(graph: Graph) -> dict[str, int]:
    result: dict[str, int] = {}
    for name in graph.inputs:
        tensor = graph.tensors[name]
        shape, rank = tensor.shape, len(tensor.shape)
        dim = graph.batch_dims.get(name, -1)
        if 0 <= dim < rank:
            result.setdefault("batch", shape[dim])
        if tensor.is_floating and rank >= 4:
            for cut, position in zip(IMAGE_CUTS, (-2, -1, -3), strict=True):
                if rank + position >= 2:
                    result.setdefault(cut, shape[position])
        elif rank == 3 and tensor.is_floating:
            result.setdefault("length", shape[2])
            result.setdefault("sequence", shape[1])
        elif rank == 2 and not tensor.is_floating:
            result.setdefault("sequence", shape[1])
    for op in graph.operators:
        for rule in rules_of(op, graph.tensors):
            if rule.kind == "feature":
                result["channel"] = max(result.get("channel", 0), rule.length)
    for rule in head_rules(graph).values():
        result["heads"] = max(result.get("heads", 0), rule.length)
    if "sequence" in result and "height" in result:
        del result["sequence"]
    return result


def build(
    graph: Graph, *, data: int = 1, stages: int = 1, tensor: Sequence[int] = (), cuts: Sequence[str] = (),
    shares: Sequence[float] = (), micro_batches: int = 1, schedule: Schedule = "1f1b",
    batch_norm: BatchNorm = "synced", batch: int | None = None, halo: Halo = "exchange",
    attention: Attention = "gather", zero: int = 0,
) -> Plan:  # fmt: skip
    """A plan by degrees.  Shares belong to the axis that has as many coordinates, the tensor axis first.

    The graph may be that of a micro-batch; ``batch`` is the whole.  halo: ``exchange``, ``overlap`` (exchange, borders
    first), or ``recompute`` in one run over the whole model.  attention: ``gather`` or ``ring``, for axes that
    cut query rows.  zero: see ``Plan``.
    """
    for what, given, kind in (
        ("schedule", schedule, Schedule), ("batch norm", batch_norm, BatchNorm), ("way to treat halos", halo, Halo),
        ("attention", attention, Attention),
    ):  # fmt: skip
        if given not in get_args(kind):
            raise UnknownName(what, given, get_args(kind))
    split = tensor_cuts(graph, tensor, tuple(cut for cut in cuts if cut != "batch"))
    names = ("tensor",) if len(split) < 2 else tuple(f"tensor{i}" for i in range(len(split)))
    wanted = [("data", data, "batch")] if data > 1 else []
    wanted += [(name, n, cut) for name, (n, cut) in zip(names, split, strict=False)]
    axes, left = [], tuple(shares)
    for name, n, cut in reversed(wanted):
        mine = left if len(left) == n else ()
        left = () if mine else left
        axes.append(Axis(name, n, cut, mine))
    if left:
        raise BadInput(
            f"--shares {':'.join(f'{s:g}' for s in shares)} names {len(shares)} shares.",
            f"The axes of this plan have {', '.join(str(n) for _, n, _ in wanted) or 'one'} coordinates.",
            "Give as many shares as one axis has coordinates: --data 2 --shares 3:1.",
        )
    plan = Plan(
        graph.name, {}, graph.fingerprint(), {name: graph.tensors[name].shape for name in graph.inputs},
        batch or 0, tuple(reversed(axes)), balanced(graph, stages), micro_batches, schedule,
        batch_norm, attention,
        ((graph.operators[0].name, graph.operators[-1].name),) if halo == "recompute" else (),
        halo == "overlap", zero,
    )  # fmt: skip
    check(plan, graph, batch)
    return plan


def tensor_cuts(graph: Graph, degrees: Sequence[int], cuts: Sequence[str]) -> list[tuple[int, str]]:
    """Parts and dimension of each tensor axis that has parts; a cut belongs to the degree in its place."""
    if not cuts:
        degrees = [n for n in degrees if n > 1]
        cuts = default_cuts(graph, len(degrees))
    if len(cuts) != len(degrees):
        raise BadInput(
            f"--tensor {'x'.join(map(str, degrees))} has {len(degrees)} axes, --cut names {len(cuts)} for them.",
            f"This model can be cut by {', '.join(cut_sizes(graph))}.",
            "Name one dimension for each axis: --tensor 2x2 --cut height,width.",
        )
    return [(n, cut) for n, cut in zip(degrees, cuts, strict=True) if n > 1]


def default_cuts(graph: Graph, count: int) -> list[str]:
    """The dimensions that are cut if nobody says which: height and width of images, else heads."""
    sizes = cut_sizes(graph)
    order: list[str] = [cut for cut in ("height", "width", "heads", "channel", "sequence", "length") if cut in sizes]
    return order[:count]


def balanced(graph: Graph, stages: int) -> tuple[str, ...]:
    """Operators at which stages begin, so that stages have equal shares of the work; of boundaries that do almost
    equally well, the one over which the least has to be sent."""
    if stages == 1:
        return ()
    work = [operator_flops(graph, number) for number in range(len(graph.operators))]
    if stages > sum(1 for n in work if n > 0):
        possible = range(1, sum(1 for n in work if n > 0) + 1)
        raise CannotCut(axis="stages", degree=stages, dim="operators", size=len(work), possible=tuple(possible))
    running, total = [0.0], sum(work)
    for n in work:
        running.append(running[-1] + n)
    crossing, starts, low = crossing_bytes(graph), list[int](), 1
    for stage in range(1, stages):
        target, high = total * stage / stages, len(work) - (stages - stage)
        best = min(range(low, high + 1), key=lambda i: abs(running[i] - target))
        near = [i for i in range(low, high + 1) if abs(running[i] - running[best]) <= 0.04 * total / stages]
        starts.append(min(near, key=lambda i: (crossing[i], abs(i - best))))
        low = starts[-1] + 1
    return tuple(graph.operators[i].name for i in starts)


def operator_flops(graph: Graph, number: int) -> float:
    """Floating-point operations of one whole operator, forward."""
    op = graph.operators[number]
    outputs = [full(graph.tensors[name].shape) for name in op.outputs if name is not None]
    return family_of(op).flops(op, [full(shape) for shape in graph.shapes(op)], outputs)


def crossing_bytes(graph: Graph) -> list[int]:
    """Bytes of activations that are made before operator i and read by it or later, for each i."""
    made = {name: i for i, op in enumerate(graph.operators) for name in op.outputs if name is not None}
    last = {name: i for i, op in enumerate(graph.operators) for name in op.inputs}
    change = [0] * (len(graph.operators) + 2)
    for name, i in made.items():
        if last.get(name, i) > i:
            change[i + 1] += graph.tensors[name].num_bytes
            change[last[name] + 1] -= graph.tensors[name].num_bytes
    result, now = [], 0
    for step in change:
        now += step
        result.append(now)
    return result


def same_batch(plan: Plan, batch: int, name: str = "") -> None:
    """Raise PlanMismatch for a plan that was made for another batch."""
    if plan.batch and plan.batch != batch:
        raise PlanMismatch(plan=name or plan.describe(), changed=[f"the batch was {plan.batch}, is {batch}"])


def check(plan: Plan, graph: Graph, batch: int | None = None) -> None:
    """Raise the error that says which rule a plan breaks; none means that it can be compiled."""
    if plan.fingerprint and plan.fingerprint != graph.fingerprint():
        raise PlanMismatch(plan=plan.describe(), changed=changes(plan, graph))
    sizes, seen, named = cut_sizes(graph), set[str](), set[str]()
    for axis in plan.axes:
        _check_axis(axis, sizes)
        if not axis.name.isidentifier() or axis.name in named:
            raise BadInput(
                f"An axis of the plan has the name {axis.name[:40]!r}.",
                "A name is a word of letters and digits, and each axis has its own.", "Rename the axis.",
            )  # fmt: skip
        named.add(axis.name)
        if axis.cut in seen:
            raise BadInput(
                f"Two axes of the plan cut {axis.cut}.", "A dimension is cut by one axis.",
                f"Cut {axis.cut} into {axis.size} times as many parts on one axis, or name another dimension.",
            )  # fmt: skip
        seen.add(axis.cut)
    names = [op.name for op in graph.operators]
    places = [names.index(name) if name in names else None for name in plan.stage_starts]
    for name, place in zip(plan.stage_starts, places, strict=True):
        if place is None:
            raise UnknownName("operator for a stage to start at", name, names)
    known = [place for place in places if place is not None]
    if sorted(set(known)) != known or (known and known[0] == 0):
        raise BadInput(
            f"The stages start at {listing(plan.stage_starts)}, which is not their order in the model.",
            "Each stage starts after the one before it, and none at the first operator.",
        )
    if plan.zero and (plan.zero != 1 or all(axis.cut != "batch" for axis in plan.axes)):
        raise BadInput(
            f"Weights are to rest cut over the data axis (ZeRO-{plan.zero}), and the plan {plan.describe()} cannot.",
            "It takes ZeRO-0, and ZeRO-1 where an axis cuts the batch.", "Add --data 2, or leave --zero out.",
        )  # fmt: skip
    if not 0 <= plan.stages_at <= len(plan.axes):
        raise BadInput(
            f"{plan.stages_at} axes are to count slower than the stages.", f"The plan has {len(plan.axes)} axes.",
            "Let stages_at be 0, where engines are numbered stage by stage.",
        )  # fmt: skip
    _check_runs(plan, names)
    rows = batch if batch is not None else sizes.get("batch", 1)
    if not 1 <= plan.micro_batches <= rows:
        raise CannotCut(
            axis="micro-batch", degree=plan.micro_batches, dim="batch", size=rows, possible=tuple(range(1, rows + 1))
        )


def _check_runs(plan: Plan, names: Sequence[str]) -> None:
    for run in plan.recomputed_halos:
        for name in run:
            if name not in names:
                raise UnknownName("operator for a run of recomputed halos", name, names)
    places = [names.index(name) for run in plan.recomputed_halos for name in run]
    firsts = places[2::2]
    if sorted(places) != places or any(first == last for first, last in zip(firsts, places[1::2], strict=False)):
        raise BadInput(
            f"The runs of recomputed halos are {listing(' to '.join(run) for run in plan.recomputed_halos)}.",
            "Each goes from an operator to a later one, and the next starts behind it.", "Put them in order.",
        )  # fmt: skip
    if plan.cuts_space:
        return
    if plan.attention == "ring":
        raise BadInput(
            "Attention is to go round as a ring, and no axis of the plan cuts rows of queries.",
            f"Rows are cut by {listing(SPACE)}.", "Cut one of these, or let attention gather its keys.",
        )  # fmt: skip
    if plan.recomputed_halos or plan.border_first:
        raise BadInput(
            "Halos are to be recomputed or overlapped, and no axis of the plan has any.",
            f"Halos are at the edges of {listing(SPACE)}.", "Cut one of these, or leave --halo out.",
        )  # fmt: skip


def _check_axis(axis: Axis, sizes: dict[str, int]) -> None:
    if axis.cut not in CUTS:
        raise UnknownName("dimension to cut", axis.cut, CUTS)
    fair = not axis.shares or (len(axis.shares) == axis.size and all(LEAST <= s <= 1 / LEAST for s in axis.shares))
    if axis.size < 1 or not fair:
        raise BadInput(
            f"The axis {axis.name} has {axis.size} coordinates and the shares {listing(axis.shares) or 'none'}.",
            f"It needs at least one coordinate, and either no shares or one for each, from {LEAST:g} to {1 / LEAST:g}.",
        )
    key = axis.cut if axis.cut in sizes else {"heads": "channel", "channel": "heads"}.get(axis.cut, axis.cut)
    if key not in sizes or (axis.cut not in FEATURES and axis.cut not in sizes):
        raise BadInput(
            f"The axis {axis.name} cuts {axis.cut}, which this model does not have.",
            f"It can be cut by {', '.join(f'{cut} ({n})' for cut, n in sizes.items())}.",
            f"Choose one of these: --cut {next(iter(sizes), 'batch')}.",
        )
    if axis.size > sizes[key]:
        possible = tuple(range(1, sizes[key] + 1))
        raise CannotCut(axis=axis.name, degree=axis.size, dim=key, size=sizes[key], possible=possible)


def changes(plan: Plan, graph: Graph) -> list[str]:
    """What differs between the graph that a plan was made for and this one."""
    result = []
    if plan.model != graph.name:
        result.append(f"the model was {plan.model}, is {graph.name}")
    shapes = {name: graph.tensors[name].shape for name in graph.inputs}
    for name in sorted(set(shapes) | set(plan.input_shapes)):
        was, now = plan.input_shapes.get(name), shapes.get(name)
        if was != now:
            result.append(f"input {name} was {was}, is {now}")
    return result or ["the operators, parameters or their order changed"]
