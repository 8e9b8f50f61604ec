"""Rows of memory tables: bytes of activations and of weights with their states on the fullest engine, and shares."""

from collections.abc import Sequence

from trine.cost.transformer import Decoder, Recompute, activation_bytes, layer_state_bytes, layers_in_flight
from trine.errors import BadInput
from trine.report.score import Outcome
from trine.report.tables import Line
from trine.report.training_rows import Unpredictable, attempt, need

UNITS = {"GiB": 2.0**30, "%": 0.01, "B": 1.0}
MODES: dict[str, tuple[bool, Recompute]] = {
    "none": (False, "none"),
    "no recompute, tp baseline": (False, "none"),
    "sp only": (True, "none"),
    "selective only": (False, "selective"),
    "sp+selective": (True, "selective"),
    "sequence parallel + selective recompute": (True, "selective"),
    "full recompute": (False, "full"),
}
"""What a table calls a mode (any case): sequence parallelism, recompute."""


def memory_outcomes(lines: Sequence[Line]) -> list[Outcome]:
    """Each row predicted, or the reason why not."""
    return [_outcome(line) for line in lines]


def _outcome(line: Line) -> Outcome:
    unit = line.text("unit")
    if unit not in UNITS:
        raise BadInput(
            f"{line.file}, row {line.number}, column unit: {unit!r} was found.",
            f"Possible: {', '.join(UNITS)}.",
            "Convert the value to one of these.",
        )
    value = line.number_or_none("value")
    predicted, why = attempt(value, "value is not given", lambda: _predicted(line))
    # a share of the table is of itself: the row that says 100 % is right by definition and not scored
    whole = unit == "%" and line.text("mode") == "none"
    return Outcome(
        file=line.file, row=line.number, unit=unit, measured=(value or 0.0) * UNITS[unit], predicted=predicted,
        reason=why or ("100 % by definition" if whole else ""), use=line.use,
        group=f"{line.text('source_ref').split('@')[0] or 'memory'}, {line.text('quantity').split(' (')[0]}",
        label=f"{line.text('model')}: {line.text('mode')}",
    )  # fmt: skip


def _predicted(line: Line) -> float | None:
    model = Decoder(
        hidden=need(line, "hidden"), layers=need(line, "layers"), heads=need(line, "heads"),
        ffn=line.whole_or_none("ffn") or 4 * need(line, "hidden"), seq=need(line, "seq"), vocab=0,
    )  # fmt: skip
    tensor, stages = need(line, "tp"), need(line, "pp")
    quantity, mode = line.text("quantity").lower(), line.text("mode").lower()
    if "params" in quantity:
        return layer_state_bytes(model, stages, tensor)
    if "activation" not in quantity:
        raise Unpredictable(f"the quantity {line.text('quantity')!r} is not described")
    if mode not in MODES:
        raise Unpredictable(f"the mode {line.text('mode')!r} is not described")
    batch, (sequence, recompute) = need(line, "micro_batch"), MODES[mode]
    kept = activation_bytes(model, batch, tensor, sequence=sequence, recompute=recompute)
    if line.text("unit") == "%":
        return None if mode == "none" else kept / activation_bytes(model, batch, tensor)
    return kept * layers_in_flight(model, stages, line.whole_or_none("vpp") or 1)
