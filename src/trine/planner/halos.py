"""Which halos of a plan are computed rather than exchanged, run by run of operators.

A run costs one exchange at its start, and the work of its tiles beyond what they own, which grows with its length.
The runs are those of least sum, found by dynamic programming over the operators that read beyond a tile, as Zhou et al.
(AOFL, 2019) fuse layers.  Work is taken in proportion to FLOPs here; whoever asks predicts the plans that come out.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from trine.graph.graph import Graph
from trine.graph.part import size
from trine.plan.build import operator_flops
from trine.plan.layout import Split, narrows
from trine.plan.plan import FOLLOWED, SPACE, Plan
from trine.program.halos import widened
from trine.program.place import Placement, place
from trine.program.program import Program
from trine.trace.trace import COMMUNICATION, Trace

LONGEST = 12  # operators with a halo in one run: wider tiles than that do not pay


def halo_choices(plan: Plan, graph: Graph, programs: Sequence[Program], trace: Trace) -> Iterator[Plan]:
    """Other ways to treat the halos of a plan that exchanges them, of which ``trace`` is the prediction: borders first,
    and the best runs that recompute.  Nothing where it has no halos."""
    halos = [(p.rank, n) for p in programs for n, t in p.transfers.items() if t.kind == "exchange"]
    if not halos or plan.recomputed_halos or plan.border_first:
        return
    yield replace(plan, border_first=True)
    known, spent = set(halos), [0.0] * len(programs)
    for span in trace.spans:
        if span.kind in ("move", "move_back") and (span.engine, span.id) in known:
            spent[span.engine] += span.duration_s
    counts = [sum(rank == program.rank for rank, _ in halos) for program in programs]
    exchange_s = max(s / n for s, n in zip(spent, counts, strict=True) if n)
    compute_s = max(sum(s.busy_s for s in own if s.kind not in COMMUNICATION) for own in trace.by_engine())
    runs = best_runs(place(graph, plan), compute_s, exchange_s)
    if runs:
        yield replace(plan, recomputed_halos=runs)


def best_runs(placement: Placement, compute_s: float, exchange_s: float) -> tuple[tuple[str, str], ...]:
    """The runs of more than one halo in the division of least cost.  ``compute_s``: of the busiest engine in a step;
    ``exchange_s``: of one exchange, there and back."""
    names = [op.name for op in placement.graph.operators]
    reach = [names.index(name) for name in dict.fromkeys(reaching(placement)) if name in names]
    flops = {op.name: operator_flops(placement.graph, number) for number, op in enumerate(placement.graph.operators)}
    own = max(_work(placement, placement.chosen, flops)) or 1.0
    best: list[tuple[float, tuple[tuple[str, str], ...]]] = [(0.0, ())]
    for j in range(1, len(reach) + 1):
        ways = []
        last = names[reach[j] - 1] if j < len(reach) else names[-1]
        for i in range(max(0, j - LONGEST), j):
            before, runs = best[i]
            run = (names[reach[i]], last)
            extra = 0.0
            if j - i > 1:
                plan = replace(placement.plan, recomputed_halos=(run,))
                wide = widened(dataclasses.replace(placement, plan=plan))
                extra = (max(_work(placement, wide, flops)) - own) / own * compute_s
                runs = (*runs, run)
            ways.append((before + exchange_s + extra, runs))
        best.append(min(ways, key=lambda way: way[0]))
    return best[-1][1]


def reaching(placement: Placement) -> Iterator[str]:
    """Operators that read beyond what is cut by the engines' own tiles, in order."""
    for placed in placement.placed:
        for name, need in zip(placed.op.inputs, placed.needs, strict=True):
            made = placement.made.get((name, placed.stage), placement.feeds.get(name))
            for axis, want, have in zip(placement.plan.axes, need, made or (), strict=False):
                if axis.cut not in FOLLOWED or not isinstance(want, Split) or not isinstance(have, Split):
                    continue
                if want.dim == have.dim and not narrows(have, want):
                    yield placed.op.name


def _work(placement: Placement, chosen: Mapping[tuple[str, int], object], flops: Mapping[str, float]) -> list[float]:
    """FLOPs of the engine at each coordinate of the first axis that has halos, for these parts."""
    number = next(n for n, axis in enumerate(placement.plan.axes) if axis.cut in SPACE)
    result = [0.0] * placement.plan.axes[number].size
    for placed in placement.placed:
        found = chosen.get((placed.op.name, number))
        for coord in range(len(result)):
            share = 1.0 if found is None else size(found[1][coord]) / found[0].length  # type: ignore[index]
            result[coord] += share * flops.get(placed.op.name, 0.0)
    return result
