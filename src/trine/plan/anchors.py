"""Where a cut of features begins: which columns of which weights feed which heads, or which rows of later weights.

Each attention is an anchor, fused or written out (a matmul of a softmax): its heads are cut by the axis's shares.  So
is each operator with weights that sums over features: what it sums over is cut by the shares.  The demand is carried
backwards through views, splits and elementwise operators to the operators whose weights make the values.  Packed
query-key-value weights get one interval from each of the three, packed gates one from each half.
"""

from trine.graph.graph import Graph, Operator
from trine.graph.part import Part, even, is_partition, shift, size, span, subtract, union
from trine.operators.family import Rule, rules_of
from trine.plan.plan import Axis

Demand = tuple[int, tuple[Part, ...]]


def feature_parts(graph: Graph, axis: Axis) -> dict[str, tuple[Part, ...]]:
    """Operator name → parts of its feature range that keep every head whole on one coordinate, and what is packed
    together."""
    demands: dict[str, Demand | None] = {}
    anchors = head_rules(graph)
    of_heads: set[str] = set()  # tensors that heads ask for
    result: dict[str, tuple[Part, ...]] = {}
    for op in reversed(graph.operators):
        if op.name in anchors:
            head = anchors[op.name]
            _demand(op, head, even(head.length, axis.weights), demands)
            of_heads.update(op.inputs)
            continue
        rules = rules_of(op, graph.tensors)
        summing = next((rule for rule in rules if rule.kind == "contraction" and rule.reduce), None)
        weighted = any(graph.tensors[name].kind == "parameter" for name in op.inputs)
        if summing is not None and weighted and any(rule.kind == "feature" for rule in rules):
            inner = even(summing.length, axis.weights)
            if all(summing.accepts(part) for part in inner):
                _demand(op, summing, inner, demands)
        made = op.outputs[0] or ""
        wanted = demands.get(made)
        if wanted is None:
            continue
        if made in of_heads:
            of_heads.update(op.inputs)
        dim, parts = wanted
        for rule in rules:
            if (0, dim) not in rule.outputs or rule.reduce or not all(rule.accepts(part) for part in parts):
                continue
            if rule.kind == "feature":
                parts = _filled(parts, rule.length, axis)
                fair = even(rule.length, axis.weights)
                if is_partition(parts, rule.length) and (made in of_heads or _alike(parts, fair)):
                    result[op.name] = parts
            else:
                _demand(op, rule, parts, demands)
            break
    return result


def _filled(parts: tuple[Part, ...], length: int, axis: Axis) -> tuple[Part, ...]:
    """The parts, with what nobody asked for cut by the shares too."""
    result = list(parts)
    for low, high in subtract(span(0, length), union(*parts)):
        for number, more in enumerate(even(high - low, axis.weights)):
            result[number] = union(result[number], shift(more, low))
    return tuple(result)


def _alike(parts: tuple[Part, ...], fair: tuple[Part, ...]) -> bool:
    """Whether parts are about as large as the shares say: each interval is rounded by itself."""
    return all(abs(size(part) - size(other)) <= len(part) for part, other in zip(parts, fair, strict=True))


def head_rules(graph: Graph) -> dict[str, Rule]:
    """Names of operators that finish an attention → their rule along the heads."""
    return graph.once("head_rules", lambda: _head_rules(graph))


def _head_rules(graph: Graph) -> dict[str, Rule]:
    result: dict[str, Rule] = {}
    weights: set[str] = set()  # attention weights (batch, heads, rows, columns), softmaxed
    for op in graph.operators:
        rules = rules_of(op, graph.tensors)
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
