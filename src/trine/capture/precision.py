"""The same graph in float64, in which equality is judged."""

from typing import Any

from trine.graph.graph import Graph, Operator, Tensor

_NARROW = ("float32", "float16", "bfloat16")


def to_float64(graph: Graph) -> Graph:
    """Every floating tensor and every data type in an argument as float64."""
    tensors = {
        name: Tensor(name, t.shape, "float64" if t.dtype in _NARROW else t.dtype, t.kind)
        for name, t in graph.tensors.items()
    }
    operators = tuple(
        Operator(op.name, op.target, _wide(op.args), op.outputs, op.module, op.source) for op in graph.operators
    )
    return Graph(
        graph.name, tensors, operators, graph.inputs, graph.outputs, graph.training, graph.batch_dims, graph.names
    )


def _wide(value: Any) -> Any:
    if isinstance(value, str):
        return "dtype:float64" if value.removeprefix("dtype:") in _NARROW and value.startswith("dtype:") else value
    if isinstance(value, dict):
        return {key: _wide(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_wide(item) for item in value]
    return value
