"""The event clock: the instructions of the Programs, in the order and with the waiting of ``run/engine.py``.

An engine follows its own list and waits only for messages that are not there yet, so each engine can be followed until
it must wait, then the next; no global order of events is needed.  What the runtime would not do is not timed either:
a backward part that no gradient reaches, an addition where there is nothing to add to.

Left out: engines that share a link or a memory bus slow each other down only by the concurrency at which the costs
were measured, not moment by moment.  Processes start to sum gradients during the backward pass; here the sum follows
it, as its work takes the same cores.
"""

from collections.abc import Callable, Generator, Sequence

import msgspec

from trine.cost.collectives import ring_bytes
from trine.cost.segments import CopyKind, Costs, Direction, Message
from trine.errors import TrineError
from trine.graph.graph import ITEM_BYTES
from trine.graph.part import volume
from trine.program.program import Instruction, Piece, Program, Transfer
from trine.trace.trace import Span, Trace

Tag = tuple[str, int, int | None]
Key = tuple[int, int | None]  # tile, micro-batch
Waiting = Generator[None, None, None]


class Deadlock(TrineError):
    """Engines that wait for messages that nobody sends."""

    def __init__(self, *, waiting: dict[int, str]) -> None:
        """``waiting``: engine → the instruction at which it stands and what it lacks."""
        self.waiting = waiting
        super().__init__(
            "No engine can go on: " + "; ".join(f"engine {rank} at {what}" for rank, what in waiting.items()) + ".",
            "Every receive needs its send, and no two engines may wait for each other.",
            "The Programs are not of one plan, or the plan has a fault: print them with Program.grid().",
        )


class Mail(msgspec.Struct, frozen=True):
    """A message under way: when it is there, and how long getting it takes."""

    arrival_s: float
    receive_s: float


class Post:
    """All messages under way, and the engines that have come to each all-reduce."""

    def __init__(self) -> None:
        self.boxes: dict[tuple[int, int, Tag], Mail] = {}
        self.meetings: dict[tuple[Tag, tuple[int, ...]], dict[int, float]] = {}
        self.changes = 0


def simulate(programs: Sequence[Program], costs: Costs, label: str = "") -> Trace:
    """One step of these Programs.  Raises Deadlock where no engine can go on, or messages are left over."""
    post = Post()
    engines = [_Engine(program, costs, post) for program in programs]
    running = {engine.program.rank: engine.run() for engine in engines}
    by_rank = {engine.program.rank: engine for engine in engines}
    while running:
        before = (len(running), post.changes)
        for rank in list(running):
            try:
                next(running[rank])
            except StopIteration:
                del running[rank]
        if running and (len(running), post.changes) == before:
            raise Deadlock(waiting={rank: by_rank[rank].standing() for rank in sorted(running)})
    left = {f"{tag} from engine {source}": target for source, target, tag in post.boxes}
    if left:
        raise Deadlock(waiting={target: f"its end, without having received {what}" for what, target in left.items()})
    spans = tuple(span for engine in engines for span in engine.spans)
    stages = tuple(program.stage for program in programs)
    return Trace(spans, "predicted", stages, label, costs.calibrated(programs))


class _Engine:
    """One engine's clock and the gradients that it holds."""

    def __init__(self, program: Program, costs: Costs, post: Post) -> None:
        self.program, self.costs, self.post = program, costs, post
        self.now_s = self.link_free_s = self.wait_s = 0.0
        self.sent = 0
        self.lacks = ""
        self.at: Instruction | None = None
        self.grads: set[Key] = set()
        self.spans: list[Span] = []
        self.actions: dict[str, Callable[[Instruction], Waiting | None]] = {
            "forward": self.forward, "backward": self.backward, "move": self.move, "move_back": self.move_back,
            "combine": self.combine, "optimize": self.optimize, "update_buffers": self.nothing, "loss": self.seed_loss,
        }  # fmt: skip

    def run(self) -> Waiting:
        """All instructions in order."""
        rank = self.program.rank
        for instruction in self.program.instructions:
            self.at, start_s, self.wait_s, self.sent = instruction, self.now_s, 0.0, 0
            waiting = self.actions[instruction.kind](instruction)
            if waiting is not None:
                yield from waiting
            self.spans.append(
                Span(
                    rank, instruction.kind, instruction.id, instruction.micro_batch, start_s, self.now_s, self.wait_s,
                    self.sent,
                )
            )  # fmt: skip

    def standing(self) -> str:
        """Where the engine stands and what it lacks."""
        at = self.at
        assert at is not None
        batch = "" if at.micro_batch is None else f" of micro-batch {at.micro_batch}"
        return f"{at.kind} {at.id}{batch}, which lacks {self.lacks}"

    def nothing(self, instruction: Instruction) -> None:
        """Bookkeeping that takes no time worth a number."""

    def forward(self, instruction: Instruction) -> None:
        self.now_s += self.costs.segment_s(self.program, instruction.id, "forward")

    def seed_loss(self, instruction: Instruction) -> None:
        self.grads.update(self.program.key(tile, instruction.micro_batch) for tile in self.program.seeds)

    def backward(self, instruction: Instruction) -> None:
        """Nothing happens where no gradient arrives; gradients that are there already are added to."""
        segment, m = self.program.segments[instruction.id], instruction.micro_batch
        tiles = self.program.tiles
        wanted = {self.program.key(t, m) for t in segment.outputs if tiles[t].active} & self.grads
        if not wanted:
            return
        self.grads -= wanted
        self.now_s += self.costs.segment_s(self.program, instruction.id, "backward")
        for tile in segment.inputs:
            if tiles[tile].active:
                self.accumulate(tile, m)

    def accumulate(self, tile: int, micro_batch: int | None) -> None:
        key = self.program.key(tile, micro_batch)
        if key in self.grads:
            self.copy("add", self.program.tiles[tile].num_bytes, "backward")
        self.grads.add(key)

    def move(self, instruction: Instruction) -> Waiting:
        transfer, m = self.program.transfers[instruction.id], instruction.micro_batch
        tag: Tag = ("f", transfer.number, m)
        yield from self.exchange(
            transfer, transfer.source, transfer.target, transfer.sends, transfer.receives, tag, transfer.add
        )

    def move_back(self, instruction: Instruction) -> Waiting:
        transfer, m = self.program.transfers[instruction.id], instruction.micro_batch
        if transfer.target is not None:
            key = self.program.key(transfer.target, m)
            if key not in self.grads:
                self.copy("zero", self.program.tiles[transfer.target].num_bytes, "backward")
            self.grads.discard(key)
        tag: Tag = ("b", transfer.number, m)
        yield from self.exchange(
            transfer, transfer.target, transfer.source, transfer.receives, transfer.sends, tag, True
        )
        if transfer.source is not None:
            self.accumulate(transfer.source, m)

    def exchange(
        self, transfer: Transfer, source: int | None, target: int | None, sends: tuple[Piece, ...],
        receives: tuple[Piece, ...], tag: Tag, add: bool,
    ) -> Waiting:  # fmt: skip
        """Messages out, messages in, assembly: both directions use it."""
        tiles = self.program.tiles
        direction: Direction = "forward" if tag[0] == "f" else "backward"
        if transfer.kind == "all_reduce":
            assert source is not None
            num_bytes = tiles[source].num_bytes
            yield from self.meet(tag, transfer.group, num_bytes)
            self.now_s += self.costs.all_reduce_s(self.program, transfer.group, num_bytes)
            return
        for piece in sends:
            assert source is not None
            num_bytes = volume(piece.where) * ITEM_BYTES[tiles[source].dtype]
            if any(len(part) > 1 for part in piece.where):  # a box of several intervals is packed first
                self.copy("copy", num_bytes, direction)
            self.send(piece.peer, tag, num_bytes)
        if target is None:
            return
        made = tiles[target]
        alone = len(receives) == 1 and volume(receives[0].where) == volume(made.box)
        for number, piece in enumerate(receives):
            yield from self.receive(piece.peer, tag)
            if not alone:
                if number == 0 and (add or sum(volume(p.where) for p in receives) != volume(made.box)):
                    self.copy("zero", made.num_bytes, direction)
                self.copy("add" if add else "copy", volume(piece.where) * ITEM_BYTES[made.dtype], direction)
        if not receives:
            self.copy("zero", made.num_bytes, direction)

    def copy(self, kind: CopyKind, num_bytes: int, direction: Direction) -> None:
        self.now_s += self.costs.copy_s(self.program, kind, num_bytes, direction)

    def send(self, peer: int, tag: Tag, num_bytes: int) -> None:
        """A message leaves; one's own piece goes through the same code, but over no link."""
        cost: Message = self.costs.transfer_s(self.program, peer, num_bytes)
        self.now_s += cost.send_s
        arrival_s = self.now_s
        if peer != self.program.rank:
            self.link_free_s = max(self.link_free_s, self.now_s) + cost.wire_s
            arrival_s = self.link_free_s + cost.latency_s
            self.sent += num_bytes
        self.post.boxes[self.program.rank, peer, tag] = Mail(arrival_s, cost.receive_s)
        self.post.changes += 1

    def receive(self, peer: int, tag: Tag) -> Waiting:
        box = (peer, self.program.rank, tag)
        while box not in self.post.boxes:
            self.lacks = f"transfer {tag[1]} from engine {peer}"
            yield
        mail = self.post.boxes.pop(box)
        self.post.changes += 1
        self.wait(mail.arrival_s)
        self.now_s += mail.receive_s

    def wait(self, until_s: float) -> None:
        self.wait_s += max(until_s - self.now_s, 0.0)
        self.now_s = max(until_s, self.now_s)

    def meet(self, tag: Tag, group: tuple[int, ...], num_bytes: int) -> Waiting:
        """All wait for the last; what a ring sends for a sum is counted."""
        came = self.post.meetings.setdefault((tag, group), {})
        came[self.program.rank] = self.now_s
        self.post.changes += 1
        self.sent += ring_bytes(len(group), num_bytes)
        while len(came) < len(group):
            missing = next(rank for rank in group if rank not in came)
            self.lacks = f"engine {missing} in the all-reduce of engines {', '.join(map(str, group))}"
            yield
        self.wait(max(came.values()))

    def combine(self, instruction: Instruction) -> Waiting:
        combine = self.program.combines[instruction.id]
        if len(combine.group) < 2:
            return
        num_bytes = combined_bytes(self.program, combine.parameters)
        yield from self.meet(("c", instruction.id, None), combine.group, num_bytes)
        self.now_s += self.costs.combine_s(self.program, combine.group, num_bytes)

    def optimize(self, instruction: Instruction) -> None:
        self.now_s += self.costs.optimize_s(self.program)


def combined_bytes(program: Program, parameters: Sequence[str]) -> int:
    """Bytes of these parameters' tiles."""
    tiles = {name: program.tiles[tile] for tile, name in program.parameters.items()}
    return sum(tiles[name].num_bytes for name in parameters)
