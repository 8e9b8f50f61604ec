"""What a plan gives, by prediction: time, memory, bytes, and the reason in a sentence."""

from collections.abc import Sequence

import msgspec

from trine.cost.segments import Costs
from trine.plan.plan import Plan
from trine.program.program import Program
from trine.simulate.memory import memory
from trine.simulate.simulate import simulate
from trine.simulate.volume import bytes_sent
from trine.trace.trace import Trace
from trine.units import BYTES


class Prediction(msgspec.Struct, frozen=True):
    """Of one step: seconds, bytes of tensors on the fullest engine, bytes that the busiest engine sends.

    calibrated: every operator in it was timed; reason: what costs most, in a sentence; needs_bytes: of each engine.
    """

    time_s: float
    memory_bytes: int
    bytes_sent: int
    calibrated: bool
    reason: str
    needs_bytes: tuple[int, ...] = ()


def predict(
    plan: Plan, programs: Sequence[Program], costs: Costs, one_engine_s: float | None = None,
    optimizer_states: float = 1.0,
) -> tuple[Prediction, Trace]:  # fmt: skip
    """Simulate the Programs of a plan.  ``one_engine_s``: for the reason."""
    trace = simulate(programs, costs, plan.describe())
    sent = max(bytes_sent(program) for program in programs)
    needs = tuple(memory(program, optimizer_states).total for program in programs)
    reason = explain(plan, programs, trace, sent, one_engine_s)
    return Prediction(trace.makespan_s, max(needs), sent, trace.calibrated, reason, needs), trace


def explain(plan: Plan, programs: Sequence[Program], trace: Trace, sent: int, one_engine_s: float | None) -> str:
    """One sentence on where the time goes."""
    if plan.num_engines == 1:
        return "One engine does all the work; nothing is sent."
    total = trace.makespan_s * trace.num_engines
    waiting = sum(trace.waiting_s()) / total if total else 0.0
    talking = sum(trace.communication_s()) / total if total else 0.0
    moves = sum(1 for program in programs[:1] for step in program.instructions if step.kind in ("move", "move_back"))
    amount = BYTES.format(sent)
    if plan.num_stages > 1:
        busy = trace.busy_s()
        slowest = trace.slowest_stage
        stage = [s for s, program in zip(busy, programs, strict=True) if program.stage == slowest]
        share = max(stage) / trace.makespan_s if stage and trace.makespan_s else 0.0
        text = f"Stage {slowest} is the slowest, busy {share:.0%} of the time; {trace.bubble_share:.0%} is bubble"
        if plan.micro_batches == 1:
            return text + ": without micro-batches only one stage works at a time."
        return text + f" with {plan.micro_batches} micro-batches; an engine sends at most {amount}."
    halo = sum(1 for t in programs[0].transfers.values() if t.kind == "exchange" and t.target is not None)
    points = sum(1 for t in programs[0].transfers.values() if t.kind in ("all_reduce", "all_gather", "reduce_scatter"))
    words = []
    if halo:
        words.append(f"{halo} halo exchange{'s' * (halo > 1)}")
    if points:
        words.append(f"{points} sequential point{'s' * (points > 1)} (statistics, sums, gathers)")
    if programs[0].combines:
        words.append(f"the gradients of {summed(programs[0])} are summed")
    what = ", ".join(words) or "nothing is exchanged"
    text = f"{what[0].upper()}{what[1:]}: {moves} moves, {amount} sent by an engine, {talking:.0%} of the time"
    if one_engine_s is not None and trace.makespan_s > 0:
        work = sum(trace.busy_s()) / one_engine_s
        if work > 1.15:
            text += f"; all engines together work {work:.2f} × as long as one alone (smaller pieces, shared memory)"
    return text + (f", {waiting:.0%} waiting." if waiting >= 0.01 else ".")


def summed(program: Program) -> str:
    """Of how many parameters of an engine the gradients are summed over others."""
    own = {name for tile, name in program.parameters.items() if program.tiles[tile].active}
    count = len({name for combine in program.combines.values() for name in combine.parameters})
    return f"all {count} parameters" if count == len(own) else f"{count} of {len(own)} parameters"
