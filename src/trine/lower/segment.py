"""A segment of a Program as a ``torch.fx.GraphModule``: ordinary torch code that can be printed and read."""

from collections.abc import Callable
from operator import getitem
from typing import Any, get_origin, get_type_hints

import torch
from torch import fx

from trine.lower.inplace import overwriting
from trine.lower.targets import decode, resolve
from trine.program.program import Segment


def lower(segment: Segment) -> fx.GraphModule:
    """The segment's code: takes its input tiles in order, returns a tuple of its output tiles."""
    graph = fx.Graph()
    nodes: dict[str, Any] = {f"t{tile}": graph.placeholder(f"t{tile}") for tile in segment.inputs}
    into = overwriting(segment)
    for op in segment.operators:
        kwargs = {key: decode(value, nodes) for key, value in op.args.items()}
        node = graph.call_function(into.get(op.name) or resolve(op.target), (), kwargs)
        many = _returns_many(op.target)
        for number, name in enumerate(op.outputs):
            if name is not None:
                nodes[name] = graph.call_function(getitem, (node, number)) if many else node
    graph.output(tuple(nodes[f"t{tile}"] for tile in segment.outputs))
    graph.eliminate_dead_code()
    return fx.GraphModule(torch.nn.Module(), graph)


def _returns_many(target: str) -> bool:
    """Whether the function returns several tensors, even where one is wanted."""
    function: Any = resolve(target)
    schema = getattr(function, "_schema", None)
    if schema is not None:
        return len(schema.returns) != 1 or isinstance(schema.returns[0].type, torch.ListType)
    return get_origin(get_type_hints(function)["return"]) is tuple


class Library:
    """Lowered segments, shared by engines whose segments are equal."""

    def __init__(self) -> None:
        self.by_text: dict[str, Callable[..., tuple[torch.Tensor, ...]]] = {}

    def code(self, segment: Segment) -> Callable[..., tuple[torch.Tensor, ...]]:
        """The function of a segment."""
        key = repr((segment.inputs, segment.outputs, segment.operators))
        if key not in self.by_text:
            self.by_text[key] = lower(segment).forward
        return self.by_text[key]
