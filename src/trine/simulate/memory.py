"""Predicted peak of live tensor bytes on one engine, by walking through its Program.

Counted: parameters, gradients, optimizer states; tiles until the instruction that frees them; what autograd keeps of
each operator (``Family.saved``, ``kept_bytes``) from forward to backward, released operator by operator; gradients on
their way; what lives inside a segment between its operators; the flat copy in which gradients are combined.  Views
share the memory of what they are views of.  Left out: workspaces inside an operator but for those that families name,
fragmentation, the runtime's own objects.
"""

from collections.abc import Iterable, Sequence
from itertools import groupby

import msgspec

from trine.cost.keys import VIEWS
from trine.cost.segments import trained_bytes
from trine.graph.graph import Operator
from trine.graph.part import volume
from trine.operators.family import family_of
from trine.program.program import Instruction, Program, Segment
from trine.simulate.simulate import combined_bytes
from trine.trace.trace import Trace

Key = tuple[int | str, int | None]  # tile number (or name of a tensor without a tile), micro-batch


class MemoryEstimate(msgspec.Struct, frozen=True):
    """Bytes.  ``total`` is the peak of their sum over the step, which is at most the sum of their peaks."""

    parameters: int
    gradients: int
    optimizer: int
    activations_peak: int
    total: int


def memory(program: Program, optimizer_states_per_parameter: float = 1.0, *, shared: bool = False) -> MemoryEstimate:
    """The estimate for one engine.  States per parameter: 1 for SGD with momentum, 2 for Adam, 0 for plain SGD.

    ``shared``: engines share memory, in which only the first engine of a group makes the sum of gradients.
    """
    return _estimate(program, optimizer_states_per_parameter, shared)[0]


def peak_together(programs: Sequence[Program], trace: Trace, optimizer_states_per_parameter: float = 1.0) -> int:
    """The peak of the bytes of all engines that share memory, while they go through their instructions as in a trace of
    them.  An engine that waits holds what its instruction will at most hold."""
    changes: list[tuple[float, int, int]] = []
    for program in programs:
        during = _estimate(program, optimizer_states_per_parameter, True)[1]
        starts = [span.start_s for span in trace.spans if span.engine == program.rank]
        known = 0
        for start_s, peak in zip([-1.0, *starts], [during[0], *during], strict=True):
            changes.append((start_s, peak - known, len(changes)))
            known = peak
    now = most = 0
    for _, group in groupby(sorted(changes), key=lambda change: change[0]):
        now += sum(change for _, change, _ in group)
        most = max(most, now)
    return most


def _estimate(program: Program, states: float, shared: bool) -> tuple[MemoryEstimate, list[int]]:
    """The estimate, and the peak during each instruction."""
    resting = {**program.parameters, **program.stored}
    parameters = sum({name: program.tiles[tile].num_bytes for tile, name in resting.items()}.values())
    trained = sum(trained_bytes(program)) if program.training else 0
    walk, during = _Walk(program, shared), []
    optimizer = round(trained * states)
    peak = 0
    for instruction in program.instructions:
        walk.peak = 0
        walk.step(instruction)
        peak = max(peak, walk.peak)
        during.append(parameters + optimizer + walk.peak)
    estimate = MemoryEstimate(
        parameters=parameters, gradients=trained, optimizer=optimizer, activations_peak=walk.peak_activations,
        total=parameters + optimizer + peak,
    )  # fmt: skip
    return estimate, during


class _Record(msgspec.Struct, frozen=True):
    """One operator that autograd recorded: the memory that it keeps, and between which tensors its gradient flows."""

    saved: tuple[Key, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    passing_bytes: int


class _Walk:
    """What is alive while the instructions go by.  A *root* is a tensor, in a micro-batch, that owns its memory."""

    def __init__(self, program: Program, shared: bool) -> None:
        self.program, self.shared = program, shared
        self.roots: dict[Key, Key] = {}  # value in flight → its root
        self.grads: set[Key] = set()
        self.tape: dict[Key, list[_Record]] = {}  # (segment, micro-batch) → what autograd recorded
        self.counts: dict[Key, int] = {}
        self.between: dict[str, int] = {}  # bytes of tensors without a tile
        self.live = self.parameter_grads = self.peak = self.peak_activations = 0
        self.resting = {*program.parameters, *program.stored, *program.feeds}

    def size_of(self, name: str) -> int:
        """Bytes of a tensor by its name in a segment."""
        return self.program.tiles[int(name[1:])].num_bytes if name[1:].isdigit() else self.between.get(name, 0)

    def num_elements(self, name: str) -> int:
        """Elements of a tensor by its name in a segment; one without a tile is of the type of its operator's input."""
        tile = self.program.tiles[int(name[1:])] if name[1:].isdigit() else None
        return self.between.get(name, 0) // 4 if tile is None else volume(tile.box)

    def hold(self, root: Key) -> None:
        self.counts[root] = self.counts.get(root, 0) + 1
        if self.counts[root] == 1:
            self.live += self._size(root)

    def release(self, root: Key) -> None:
        self.counts[root] -= 1
        if self.counts[root] == 0:
            self.live -= self._size(root)

    def _size(self, root: Key) -> int:
        if isinstance(root[0], str):
            return self.between[root[0]]
        return 0 if root[0] in self.resting else self.program.tiles[root[0]].num_bytes

    def look(self, more: int = 0) -> None:
        """Note the peak, with ``more`` bytes that live for a moment."""
        self.peak_activations = max(self.peak_activations, self.live + more)
        self.peak = max(self.peak, self.live + more + self.parameter_grads)

    def value(self, key: Key, root: Key) -> None:
        """A tile gets its value."""
        if key not in self.roots:
            self.roots[key] = root
            self.hold(root)

    def drop(self, key: Key) -> None:
        """A tile's value is not needed any more."""
        if key in self.roots:
            self.release(self.roots.pop(key))

    def grad(self, tile: int, micro_batch: int | None) -> None:
        """A gradient arrives; added to one that is there, both live for a moment."""
        key, size = self.program.key(tile, micro_batch), self.program.tiles[tile].num_bytes
        if key in self.grads:
            self.look(size)
            return
        self.grads.add(key)
        if tile in self.program.parameters:
            self.parameter_grads += size
        else:
            self.live += size

    def drop_grad(self, tile: int, micro_batch: int | None) -> bool:
        """A gradient is taken; whether there was one."""
        key = self.program.key(tile, micro_batch)
        if key not in self.grads:
            return False
        self.grads.remove(key)
        if tile not in self.program.parameters:
            self.live -= self.program.tiles[tile].num_bytes
        return True

    def step(self, instruction: Instruction) -> None:
        """Follow one instruction."""
        m = instruction.micro_batch
        if instruction.kind == "forward":
            self.forward(instruction.id, m)
        elif instruction.kind == "backward":
            self.backward(instruction.id, m)
        elif instruction.kind in ("move", "move_back"):
            self.move(instruction)
        elif instruction.kind == "loss":
            for tile in self.program.seeds:
                self.grad(tile, m)
        elif instruction.kind == "update_buffers":
            for tile in self.program.updates:
                self.drop((tile, m))
        elif instruction.kind == "combine":
            combine = self.program.combines[instruction.id]
            copies = 2 if not self.shared else int(combine.group[0] == self.program.rank)
            self.look(copies * combined_bytes(self.program, combine.parameters))
        for tile in instruction.free:
            self.drop((tile, m))
        self.look()

    def move(self, instruction: Instruction) -> None:
        transfer, m = self.program.transfers[instruction.id], instruction.micro_batch
        if instruction.kind == "move":
            if transfer.target is not None:
                made, receives = self.program.tiles[transfer.target], transfer.receives
                whole = len(receives) == 1 and volume(receives[0].where) == volume(made.box)
                if self.shared and made.per_step and whole:  # a weight that rests elsewhere in the same memory
                    self.resting.add(transfer.target)
                key = self.program.key(transfer.target, m)
                self.value(key, key)
            return
        if transfer.source is not None:
            self.grad(transfer.source, m)
            self.look()
        if transfer.target is not None:
            self.drop_grad(transfer.target, m)

    def forward(self, number: int, m: int | None) -> None:
        segment, tiles = self.program.segments[number], self.program.tiles
        recording = self.program.training and any(tiles[t].active for t in segment.inputs)
        inside = _Inside(self, segment, m)
        for op in segment.operators:
            inside.run(op, recording=recording)
        self.tape[number, m] = inside.records
        for tile in segment.outputs:
            self.value(self.program.key(tile, m), inside.root(f"t{tile}"))
        for root in inside.held.values():
            self.release(root)

    def backward(self, number: int, m: int | None) -> None:
        """Operators in reverse: gradients of inputs arise while those of outputs and what was kept still live.  Those
        that are added to a gradient of an earlier micro-batch all live until the segment's end, when that is done."""
        segment, inner = self.program.segments[number], set[str]()
        known = {tile for tile in segment.inputs if self.program.key(tile, m) in self.grads}
        added: dict[int, int] = {}
        for tile in segment.outputs:
            if self.program.tiles[tile].active and self.drop_grad(tile, m):
                inner.add(f"t{tile}")
                self.live += self.program.tiles[tile].num_bytes
        leaves = {f"t{tile}": tile for tile in segment.inputs}
        for record in reversed(self.tape.pop((number, m))):
            if not inner.isdisjoint(record.outputs):
                for name in record.inputs:
                    leaf = leaves.get(name)
                    if leaf in known and leaf not in added:
                        added[leaf] = self.program.tiles[leaf].num_bytes
                        self.live += added[leaf]
                    elif leaf is not None:
                        self.grad(leaf, m)
                    elif name not in inner:
                        inner.add(name)
                        self.live += self.size_of(name)
                self.look(record.passing_bytes)
            for name in inner.intersection(record.outputs):
                inner.remove(name)
                self.live -= self.size_of(name)
            for root in record.saved:
                self.release(root)
        self.look(max(added.values(), default=0))
        self.live -= sum(added.values())


class _Inside:
    """Tensors inside a segment while its operators run forward."""

    def __init__(self, walk: _Walk, segment: Segment, micro_batch: int | None) -> None:
        self.walk, self.segment, self.m = walk, segment, micro_batch
        self.made: dict[str, Key] = {}
        self.held: dict[str, Key] = {}
        self.records: list[_Record] = []
        self.active: set[str] = set()
        self.left: dict[str, int] = {}
        for op in segment.operators:
            for name in op.inputs:
                self.left[name] = self.left.get(name, 0) + 1

    def root(self, name: str) -> Key:
        if name in self.made:
            return self.made[name]
        key = self.walk.program.key(int(name[1:]), self.m)
        return self.walk.roots.get(key, key)

    def is_active(self, name: str) -> bool:
        """A tile says so itself; a tensor without one is active if an input of its operator is."""
        return self.walk.program.tiles[int(name[1:])].active if name[1:].isdigit() else name in self.active

    def run(self, op: Operator, *, recording: bool) -> None:
        """Outputs come to life, what autograd keeps is held, inputs that are read for the last time are dropped."""
        outputs = tuple(name for name in op.outputs if name is not None)
        for name in outputs:
            if not name[1:].isdigit():  # a padded input, say: about as large as what it is made of
                self.walk.between[name] = self.walk.size_of(op.inputs[0]) if op.inputs else 0
                if any(self.is_active(source) for source in op.inputs):
                    self.active.add(name)
            shares = op.base in VIEWS and bool(op.inputs)
            own: Key = (int(name[1:]) if name[1:].isdigit() else name, self.m)
            self.made[name] = self.held[name] = self.root(op.inputs[0]) if shares else own
            self.walk.hold(self.made[name])
        if recording and any(self.is_active(name) for name in outputs):
            self.record(op, outputs)
        self.walk.look()
        self.forget(op.inputs)

    def record(self, op: Operator, outputs: tuple[str, ...]) -> None:
        saved = tuple(dict.fromkeys(self.root(name) for name in family_of(op).saved(op)))
        kept, passing = (f(op, self.walk.num_elements) for f in (family_of(op).kept_bytes, family_of(op).passing_bytes))
        if kept:
            own: Key = (f"kept by {op.name}", self.m)
            self.walk.between[f"kept by {op.name}"] = kept
            saved = (*saved, own)
        for root in saved:
            self.walk.hold(root)
        self.records.append(_Record(saved, tuple(name for name in op.inputs if self.is_active(name)), outputs, passing))

    def forget(self, names: Iterable[str]) -> None:
        """Drop what is read no more inside the segment and does not leave it."""
        for name in names:
            self.left[name] -= 1
            leaves = name[1:].isdigit() and int(name[1:]) in self.segment.outputs
            if self.left[name] == 0 and name in self.held and not leaves:
                self.walk.release(self.held.pop(name))
