"""Two operators of a segment that are faster as the one from which they came.

A batch norm is written as state and apply so that one form serves every plan.  Where no other tile has a state to
merge (an uncut reduction, local batch norm), they are one operator again, whose backward pass reads its input once.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

from trine.graph.graph import Operator, refs

ARGUMENTS = ("input", "weight", "bias", "running_mean", "running_var", "momentum", "eps")


def fused(operators: Sequence[Operator], outputs: Iterable[str]) -> list[Operator]:
    """The operators with each batch norm of one tile whole; ``outputs`` are what others read of the segment."""
    uses = Counter(outputs)
    uses.update(name for op in operators for name in refs(op.args))
    states = {op.outputs[0]: op for op in operators if op.target == "trine.batch_norm_state"}
    result, gone = [], set[str]()
    for op in operators:
        state = states.get(str(op.args.get("state", ""))[1:]) if op.target == "trine.batch_norm_apply" else None
        alone = state is not None and len(op.args["counts"]) == 1 and op.args["counts"][0] > 1
        if state is None or not alone or uses[state.outputs[0] or ""] > 1 or state.args["input"] != op.args["input"]:
            result.append(op)
            continue
        gone.add(state.name)
        args = {key: op.args[key] for key in ARGUMENTS}
        result.append(Operator(op.name, "trine.batch_norm", args, op.outputs, op.module, op.source))
    return [op for op in result if op.name not in gone]
