"""Operators over tiles: an engine's tensors are named after their slots."""

from collections.abc import Mapping, Sequence

from trine.graph.graph import Operator, Tensor


def renamed(
    op: Operator, inputs: Sequence[int], outputs: tuple[str | None, ...], known: Mapping[str, Tensor]
) -> tuple[Operator, dict[str, Tensor]]:
    """The operator over tile names, one name for each position even where one tensor is read in two layouts."""
    count = 0

    def visit(value: object) -> object:
        nonlocal count
        if isinstance(value, str) and value.startswith("%"):
            count += 1
            return f"%t{inputs[count - 1]}"
        if isinstance(value, (list, tuple)):
            return [visit(item) for item in value]
        return value

    args = {key: visit(value) for key, value in op.args.items()}
    tensors = {f"t{slot}": known[name] for slot, name in zip(inputs, op.inputs, strict=True)}
    tensors |= {new: known[old] for new, old in zip(outputs, op.outputs, strict=True) if new and old}
    return Operator(outputs[0] or op.name, op.target, args, outputs, op.module, op.source), tensors
