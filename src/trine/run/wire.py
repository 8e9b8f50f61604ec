"""What the parent and its engines tell each other: values through a pipe, whole-batch inputs through a shared file."""

import io
import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from trine.program.program import Program
from trine.run.collect import Report
from trine.run.engine import Step
from trine.run.memory import Usage
from trine.run.routes import Route
from trine.trace.trace import Span

Optimizer = Callable[[list[Tensor]], torch.optim.Optimizer]
Mapped = dict[str, tuple[int, tuple[int, ...], tuple[int, ...], torch.dtype]]  # first byte, shape, strides, type
_ALIGNED_BYTES = 64
GO, END = b"go", b"end"  # the two messages to an engine that are not a packed Job


@dataclass(frozen=True)
class Setup:
    """What one engine is told at the start; ``optimizer`` is pickled by itself so that its failure is named; watched:
    its live tensors are counted, which takes time."""

    program: Program
    route: Route
    groups: tuple[tuple[int, ...], ...]
    optimizer: bytes
    num_engines: int
    timeout_s: float
    intra_op_threads: int
    watched: bool = False


@dataclass(frozen=True)
class Ready:
    """An engine is there.  What it may use of memory, and the file in which the system counts killed processes."""

    memory_limit_bytes: int | None
    kills_file: str
    used_bytes: int = 0


@dataclass(frozen=True)
class Job:
    """One step; its inputs are in the file ``board``; afresh: the highest resident size counts from here."""

    step: Step
    tensors: bool
    board: str
    mapped: Mapped
    recorded: bool = False
    afresh: bool = False


@dataclass(frozen=True)
class Answer:
    """What a step left on an engine; usage: what it had at most, no tensors unless it is watched."""

    report: Report
    bytes_received: int
    spans: tuple[Span, ...] = ()
    usage: Usage = field(default_factory=lambda: Usage(0, None))


@dataclass(frozen=True)
class Failure:
    """An engine's end.  ``lost``: it only saw that another one was gone; ``at_s``: by the clock that all share."""

    kind: Literal["error", "lost", "memory"]
    trace: str
    at_s: float
    needed_bytes: int = 0
    limit_bytes: int = 0


class _Pickler(pickle.Pickler):
    """Tensors as their own bytes: without the storage around them, and without torch's sharing of file descriptors."""

    def reducer_override(self, obj: Any) -> Any:
        if not isinstance(obj, Tensor):
            return NotImplemented
        flat = obj.detach().cpu().contiguous().reshape(-1)
        return _tensor, (flat.view(torch.uint8).numpy().tobytes(), obj.dtype, tuple(obj.shape))


def _tensor(data: bytes, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
    if not data:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(bytearray(data), dtype=dtype).reshape(shape)


def pack(value: object) -> bytes:
    """The value as bytes."""
    file = io.BytesIO()
    _Pickler(file, pickle.HIGHEST_PROTOCOL).dump(value)
    return file.getvalue()


def unpack(data: bytes) -> Any:
    """The inverse of :func:`pack`."""
    return pickle.loads(data)


def mapped(path: str, num_bytes: int) -> Tensor:
    """A file as a tensor of bytes that all processes share."""
    return torch.from_file(path, shared=True, size=num_bytes, dtype=torch.uint8)


class Board:
    """The parent's side of the shared file: inputs are written once, each engine reads only its tiles of them."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.memory, self.number = directory, torch.empty(0, dtype=torch.uint8), 0

    @property
    def path(self) -> str:
        return str(self.directory / f"inputs{self.number}")

    def write(self, tensors: Mapping[str, Tensor]) -> Mapped:
        """Write tensors from the start of the file; a file that is too small is replaced."""
        where: Mapped = {}
        end = 0
        for name, tensor in tensors.items():
            strides = torch.empty_like(tensor, device="meta").stride()  # dense, in the tensor's memory format
            where[name] = (end, tuple(tensor.shape), strides, tensor.dtype)
            end += -(-tensor.nbytes // _ALIGNED_BYTES) * _ALIGNED_BYTES
        if end > self.memory.numel():
            Path(self.path).unlink(missing_ok=True)
            self.number += 1
            self.memory = mapped(self.path, end)
        for name, target in read(self.memory, where).items():
            target.copy_(tensors[name])
        return where


def read(memory: Tensor, where: Mapped) -> dict[str, Tensor]:
    """The tensors in a shared file, as views."""
    result = {}
    for name, (start, shape, strides, dtype) in where.items():
        num_bytes = shape_bytes(shape, dtype)
        flat = memory[start : start + num_bytes].view(dtype)
        result[name] = flat.as_strided(shape, strides) if num_bytes else torch.empty(shape, dtype=dtype)
    return result


def shape_bytes(shape: tuple[int, ...], dtype: torch.dtype) -> int:
    """Bytes of a dense tensor."""
    return torch.empty(shape, dtype=dtype, device="meta").nbytes
