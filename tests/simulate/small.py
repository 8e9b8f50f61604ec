"""A small graph made by hand, its Programs under a plan, and costs with round numbers."""

from collections.abc import Sequence

from trine.cost.segments import Message
from trine.graph.graph import Graph, Operator, Output, Tensor
from trine.plan.build import build
from trine.program.compile import Compiled
from trine.program.program import Program

WIDTH, CLASSES = 16, 4


def mlp(batch: int, num_layers: int) -> Graph:
    """``num_layers`` times linear and relu, then cross-entropy."""
    tensors = {
        "x": Tensor("x", (batch, WIDTH), "float32", "input"),
        "y": Tensor("y", (batch,), "int64", "input"),
    }
    operators: list[Operator] = []

    def add(name: str, target: str, shape: tuple[int, ...], args: dict[str, object]) -> str:
        tensors[name] = Tensor(name, shape, "float32")
        operators.append(Operator(name, target, args, (name,)))
        return "%" + name

    now = "%x"
    for i in range(num_layers):
        tensors[f"w{i}"] = Tensor(f"w{i}", (WIDTH, WIDTH), "float32", "parameter")
        args = {"input": now, "weight": f"%w{i}", "bias": None}
        now = add(f"linear{i}", "aten.linear.default", (batch, WIDTH), args)
        now = add(f"relu{i}", "aten.relu.default", (batch, WIDTH), {"self": now})
    args = {"input": now, "target": "%y", "weight": None, "ignore_index": -100, "label_smoothing": 0.0}
    now = add("state", "trine.cross_entropy", (2,), args)
    add("loss", "trine.ratio", (), {"state": now})
    names = {name: (name,) for name in tensors if name.startswith("w")}
    dims = {"x": 0, "y": 0}
    outputs = (Output("loss", "loss"),)
    return Graph("mlp", tensors, tuple(operators), ("x", "y"), outputs, True, dims, names)


def programs_of(batch: int = 8, num_layers: int = 4, micro_batches: int = 1, **wishes: object) -> tuple[Program, ...]:
    """The Programs of the graph under a plan by degrees."""
    graph = mlp(batch // micro_batches, num_layers)
    plan = build(graph, micro_batches=micro_batches, batch=batch, **wishes)  # type: ignore[arg-type]
    return Compiled(lambda rows: mlp(rows, num_layers), plan, batch).programs()


class EqualStages:
    """A stage takes ``forward_s`` and ``backward_s`` for a micro-batch, a message ``latency_s``, all else nothing."""

    def __init__(self, forward_s: float, backward_s: float, latency_s: float = 0.0) -> None:
        self.forward_s, self.backward_s, self.latency_s = forward_s, backward_s, latency_s

    def segment_s(self, program: Program, segment_id: int, direction: str) -> float:
        whole = self.forward_s if direction == "forward" else self.backward_s
        kind = [i for i in program.instructions if i.kind == direction and i.micro_batch == 0]
        return whole / len(kind)

    def transfer_s(self, program: Program, peer: int, num_bytes: int) -> Message:
        return Message(latency_s=self.latency_s if peer != program.rank else 0.0)

    def all_reduce_s(self, program: Program, group: Sequence[int], num_bytes: int) -> float:
        return 0.0

    def combine_s(self, program: Program, group: Sequence[int], num_bytes: int) -> float:
        return 0.0

    def copy_s(self, program: Program, kind: str, num_bytes: int, direction: str) -> float:
        return 0.0

    def optimize_s(self, program: Program) -> float:
        return 0.0

    def calibrated(self, programs: Sequence[Program]) -> bool:
        return False
