"""What the parent and its engines tell each other: values through a pipe, large tensors through files that both map."""

import io
import os
import pickle
from collections.abc import Callable, Mapping, Sequence
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
LARGE_BYTES = 1 << 20
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
    """Tensors as their own bytes: without the storage around them, and without torch's sharing of file descriptors.

    shelf: a file for large ones, of which only the place is told."""

    def __init__(self, file: io.BytesIO, shelf: Path | None) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self.shelf, self.end, self.large = shelf, 0, list[tuple[int, Tensor]]()

    def persistent_id(self, obj: Any) -> Any:
        if self.shelf is None or not isinstance(obj, Tensor) or obj.nbytes < LARGE_BYTES:
            return None
        start = self.end
        self.large.append((start, obj.detach()))
        self.end += aligned(obj.nbytes)
        return str(self.shelf), start, obj.dtype, tuple(obj.shape)

    def reducer_override(self, obj: Any) -> Any:
        if not isinstance(obj, Tensor):
            return NotImplemented
        flat = obj.detach().cpu().contiguous().reshape(-1)
        return _tensor, (flat.view(torch.uint8).numpy().tobytes(), obj.dtype, tuple(obj.shape))


def _tensor(data: bytes, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
    if not data:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(bytearray(data), dtype=dtype).reshape(shape)


class _Unpickler(pickle.Unpickler):
    """Maps the files of large tensors; these are gone from the folder then, and stay while their tensors do."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self.shelves: dict[str, Tensor] = {}

    def persistent_load(self, pid: Any) -> Tensor:
        path, start, dtype, shape = pid
        if path not in self.shelves:
            self.shelves[path] = mapped(path, Path(path).stat().st_size)
            Path(path).unlink()
        flat = self.shelves[path][start : start + shape_bytes(shape, dtype)]
        return flat.view(dtype).reshape(shape)


def pack(value: object, shelf: Path | None = None) -> bytes:
    """The value as bytes; large tensors in the file ``shelf`` where one is given, which :func:`unpack` removes."""
    file = io.BytesIO()
    pickler = _Pickler(file, shelf)
    pickler.dump(value)
    if shelf is not None and pickler.large and not _shelve(shelf, pickler.large, pickler.end):
        return pack(value)
    return file.getvalue()


def _shelve(path: Path, tensors: Sequence[tuple[int, Tensor]], num_bytes: int) -> bool:
    """Write tensors into a new file; False where there is no room for it."""
    try:
        with path.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, num_bytes)
    except OSError:
        path.unlink(missing_ok=True)
        return False
    memory = mapped(str(path), num_bytes)
    for start, tensor in tensors:
        memory[start : start + tensor.nbytes].view(tensor.dtype).reshape(tensor.shape).copy_(tensor)
    return True


def unpack(data: bytes) -> Any:
    """The inverse of :func:`pack`."""
    return _Unpickler(io.BytesIO(data)).load()


def aligned(num_bytes: int) -> int:
    """Rounded up, so that what follows may be of any type."""
    return -(-num_bytes // _ALIGNED_BYTES) * _ALIGNED_BYTES


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
            end += aligned(tensor.nbytes)
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
