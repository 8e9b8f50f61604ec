"""Where a cut by heads begins: which columns of which weights feed which heads.

Each attention is an anchor, fused or written out (a matmul of a softmax): its heads are cut by the axis's shares, and
that demand is carried backwards through views, splits and elementwise operators to the operators whose weights make
the values.  Packed query-key-value
weights get one interval from each of the three.
"""

from trine.graph.graph import Graph, Operator
from trine.graph.part import Part, even, is_partition, union
from trine.operators.family import Rule, family_of
from trine.plan.plan import Axis

Demand = tuple[int, tuple[Part, ...]]


def feature_parts(graph: Graph, axis: Axis) -> dict[str, tuple[Part, ...]]:
    """Operator name → parts of its feature range that keep every head whole on one coordinate."""
    demands: dict[str, Demand | None] = {}
    anchors = head_rules(graph)
    result: dict[str, tuple[Part, ...]] = {}
    for op in reversed(graph.operators):
        if op.name in anchors:
            head = anchors[op.name]
            _demand(op, head, even(head.length, axis.weights), demands)
            continue
        rules = family_of(op).rules(op, graph.tensors)
        wanted = demands.get(op.outputs[0] or "")
        if wanted is None:
            continue
        dim, parts = wanted
        for rule in rules:
            if (0, dim) not in rule.outputs or rule.reduce or not all(rule.accepts(part) for part in parts):
                continue
            if rule.kind == "feature":
                if is_partition(parts, rule.length):
                    result[op.name] = parts
            else:
                _demand(op, rule, parts, demands)
            break
    return result


def head_rules(graph: Graph) -> dict[str, Rule]:
    """Names of operators that finish an attention → their rule along the heads."""
    result: dict[str, Rule] = {}
    weights: set[str] = set()  # attention weights (batch, heads, rows, columns), softmaxed
    for op in graph.operators:
        rules = family_of(op).rules(op, graph.tensors)
        head = next((rule for rule in rules if rule.kind == "head"), None)
        made = op.outputs[0]
        if head is not None:
            result[op.name] = head
        elif made is None or len(graph.tensors[made].shape) != 4:
            continue
        elif op.base in ("softmax", "_softmax", "_safe_softmax"):
            weights.add(made)
        elif op.base == "matmul" and op.inputs[0] in weights:
            rule = next((rule for rule in rules if (0, 1) in rule.outputs and rule.kind == "row"), None)
            if rule is not None:
                result[op.name] = rule
        elif op.inputs and op.inputs[0] in weights and graph.tensors[made].shape == graph.tensors[op.inputs[0]].shape:
            weights.add(made)
    return result


def _demand(op: Operator, rule: Rule, parts: tuple[Part, ...], demands: dict[str, Demand | None]) -> None:
    """Ask for the inputs that make these parts; two demands along one dimension are united, others cancel."""
    for cut in rule.inputs:
        name = op.inputs[cut.position]
        new: Demand = (cut.dim, tuple(cut.relation.needs(part) for part in parts))
        if name not in demands:
            demands[name] = new
            continue
        old = demands[name]
        if old is None or old[0] != new[0]:
            demands[name] = None
        else:
            demands[name] = (old[0], tuple(union(a, b) for a, b in zip(old[1], new[1], strict=True)))
