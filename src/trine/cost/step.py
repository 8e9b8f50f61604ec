"""Time of one training step of a transformer on many engines, in parts.

    1F1B, interleaved    m (F + B) + (p - 1)/v (F + B) + m (last stage's extra)       (Narayanan et al., 2021, 2.2)

F and B are the passes of a stage's layers for one micro-batch with the tensor ranks' collectives, which are not hidden;
p stages of v chunks, m micro-batches.  Messages between stages and the gradients' all-reduce are not hidden either.
With weights cut over the data ranks (ZeRO-2 and 3: Rajbhandari et al., 2020; FSDP: Zhao et al., 2023) each layer's
gathers run beside its computation, which they slow; what is longer sets the pace.  Left out: stragglers, clocks that
drop under load, memory that is short.
"""

from math import ceil

import msgspec

from trine.cluster.cluster import Engine
from trine.cost.analytic import Roofline, from_engine
from trine.cost.collectives import bytes_in_all
from trine.cost.links import Wires
from trine.cost.stacks import (
    ACCUMULATION_BYTES,
    OPTIMIZER_BYTES,
    OVERLAP_SLOWDOWN,
    SUSTAINED,
    Stack,
)
from trine.cost.transformer import HALF, Decoder, Operator, Recompute, Work, head, layer
from trine.errors import BadInput


class Parallelism(msgspec.Struct, frozen=True, kw_only=True):
    """How the step is split: ``data`` x ``stages`` x ``tensor`` engines, each stage in ``chunks`` (1: not interleaved).

    ``zero``: what is cut over the data ranks (0 nothing, 1 optimizer states, 2 and gradients, 3 and weights);
    ``gradient_bytes`` of one gradient in a collective.  Raises BadInput if the numbers do not go together.
    """

    global_batch: int
    micro_batch: int
    data: int = 1
    stages: int = 1
    tensor: int = 1
    chunks: int = 1
    sequence: bool = False
    zero: int = 0
    recompute: Recompute = "none"
    gradient_bytes: int = HALF

    def __post_init__(self) -> None:
        if self.global_batch % (self.data * self.micro_batch):
            raise BadInput(
                f"A batch of {self.global_batch} was to be cut into micro-batches of {self.micro_batch} on {self.data} "
                "data ranks.",
                "It must divide.",
                "Choose a micro-batch that divides the share of one data rank.",
            )
        if self.zero >= 2 and self.stages > 1:
            raise BadInput(
                f"ZeRO-{self.zero} over {self.stages} stages was asked for.",
                "Stages take ZeRO-0 and 1 only.",
                "Use one stage, or ZeRO-1.",
            )
        if self.chunks > 1 and self.stages == 1:
            raise BadInput(
                f"One stage of {self.chunks} chunks was asked for.", "Chunks need 2 stages or more.", "Use 1 chunk."
            )

    @property
    def num_engines(self) -> int:
        return self.data * self.stages * self.tensor

    @property
    def micro_batches(self) -> int:
        return self.global_batch // (self.data * self.micro_batch)


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds of one step, in parts: computation (with the launches that it waits for), tensor ranks' collectives,
    filling and draining the pipeline, messages between stages, data ranks' collectives that nothing hides, optimizer.
    """

    compute_s: float
    tensor_s: float
    bubble_s: float
    pipeline_s: float
    data_s: float
    optimizer_s: float

    @property
    def time_s(self) -> float:
        return self.compute_s + self.tensor_s + self.bubble_s + self.pipeline_s + self.data_s + self.optimizer_s


class _Passes(msgspec.Struct, frozen=True):
    """Seconds of one layer for one micro-batch: computation forward, backward and again, and the tensor collectives."""

    forward_s: float
    backward_s: float
    forward_tensor_s: float
    backward_tensor_s: float


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """Equal engines of one data type with their links and the software on them.

    ``matmul`` is the roofline of matrix products, which in float8 is faster than that of the rest; ``sustained`` is the
    share of the speed of single products that is left under load.
    """

    roofline: Roofline
    matmul: Roofline
    wires: Wires
    stack: Stack
    casts: bool = False
    sustained: float = 1.0

    def seconds(self, operator: Operator, *, backward: bool) -> float:
        """Time of one operator."""
        work = operator.backward if backward else operator.forward
        if operator.kind == "attention":
            share = self.stack.attention[1 if backward else 0] * self.sustained
            fused = msgspec.structs.replace(self.roofline, compute_efficiency=share)
            return sum(fused.time_s(one.flops, one.num_bytes) for one in work)
        if operator.kind == "matmul":
            return sum(self._product_s(one) for one in work)
        slower = self.stack.slower.get(operator.kind, 1.0)
        return sum(self.roofline.time_s(one.flops, slower * one.num_bytes) for one in work)

    def _product_s(self, work: Work) -> float:
        time_s = self.matmul.time_s(work.flops, work.num_bytes)
        # to float8: of what goes in, two bytes are read and one is written
        return time_s + self.roofline.time_s(0, 1.5 * work.input_bytes) if self.casts else time_s


def machine(
    engine: Engine, wires: Wires, stack: Stack, *, dtype: str = "float16", sustained: float | None = None
) -> Machine:
    """``dtype`` of the matrix products; the rest stays in two bytes.  ``sustained`` (None: by the engine's family)."""
    half = "bfloat16" if dtype == "float8" else dtype
    rate = wires.adapter.bandwidth_bytes_per_s * stack.network_share
    adapter = msgspec.structs.replace(wires.adapter, bandwidth_bytes_per_s=rate)
    left = SUSTAINED.get(engine.name.split("-")[0], 1.0) if sustained is None else sustained

    def under_load(kind: str) -> Roofline:
        single = from_engine(engine, kind)
        return msgspec.structs.replace(single, compute_efficiency=left * single.compute_efficiency)

    return Machine(
        roofline=under_load(half),
        matmul=under_load(dtype),
        wires=msgspec.structs.replace(wires, adapter=adapter),
        stack=stack,
        casts=dtype == "float8",
        sustained=left,
    )


def step(model: Decoder, split: Parallelism, on: Machine) -> Step:
    """Predict one training step."""
    passes = _layer(model, split, on)
    if split.zero >= 2:
        return _sharded(model, split, on, passes)
    m, p = split.micro_batches, split.stages
    per_stage = model.layers / p
    floor = on.stack.floor.micro_batch_s if on.stack.floor else 0.0
    compute = per_stage * (passes.forward_s + passes.backward_s) + floor
    tensor = per_stage * (passes.forward_tensor_s + passes.backward_tensor_s)
    last = _head_s(model, split, on)
    params = model.num_params_of_a_stage(p) / split.tensor
    added = ACCUMULATION_BYTES * params if on.stack.accumulates and m > 1 else 0.0
    return Step(
        compute_s=m * (compute + last) + m * _streamed_s(on, added),
        tensor_s=m * (tensor + _reduce_hidden_s(model, split, on)),
        bubble_s=(p - 1) / split.chunks * (compute + tensor),
        pipeline_s=2 * (m * split.chunks + p - 1) * _message_s(model, split, on) if p > 1 else 0.0,
        data_s=_combine_s(split, on, params),
        optimizer_s=_streamed_s(on, OPTIMIZER_BYTES * params / (split.data if split.zero else 1)),
    )


def _layer(model: Decoder, split: Parallelism, on: Machine) -> _Passes:
    operators = layer(model, split.micro_batch, split.tensor, sequence=split.sequence, kernels=on.stack.kernels)
    forwards = {operator.name: on.seconds(operator, backward=False) for operator in operators}
    forward, full = sum(forwards.values()), split.recompute == "full"
    backward = sum(on.seconds(operator, backward=True) for operator in operators)
    again = 0.0
    if full:
        skipped = ("down", "add 2") if on.stack.stops_early else ()
        again = sum(time_s for name, time_s in forwards.items() if name not in skipped)
    elif split.recompute == "selective":
        again = sum(forwards[operator.name] for operator in operators if operator.core)
    once = 2 * _reduce_hidden_s(model, split, on)
    # what sequence parallelism cut is gathered once more in the backward pass (Korthikanti et al., 2022, section 4.2.2)
    gathered = once / 2 if split.sequence and split.tensor > 1 else 0.0
    if on.stack.floor is not None:
        floor = on.stack.floor
        launched = 2 * floor.collective_s - once if split.tensor > 1 else 0.0
        forward = max(forward, floor.forward_s + launched)
        backward = max(backward, floor.backward_s + launched)
        again = max(again, floor.forward_s + launched) if full else again
    return _Passes(forward, backward + again, once, once + gathered + (once if full else 0.0))


def _head_s(model: Decoder, split: Parallelism, on: Machine) -> float:
    operators = head(model, split.micro_batch, split.tensor)
    return sum(on.seconds(operator, backward=back) for operator in operators for back in (False, True))


def _reduce_hidden_s(model: Decoder, split: Parallelism, on: Machine) -> float:
    """One all-reduce of the hidden state over the tensor ranks, which fill nodes first."""
    return on.wires.all_reduce_s(_hidden_bytes(model, split), *_nodes(split.tensor, on.wires.node_size))


def _nodes(ranks: int, node_size: int) -> tuple[int, int]:
    """How many of so many ranks lie in one node, and in how many nodes they lie."""
    within = max(1, min(ranks, node_size))
    return within, ceil(ranks / within)


def _hidden_bytes(model: Decoder, split: Parallelism) -> float:
    return HALF * split.micro_batch * model.seq * model.hidden


def _streamed_s(on: Machine, num_bytes: float) -> float:
    return on.roofline.time_s(0, num_bytes) - on.roofline.launch_s


def _message_s(model: Decoder, split: Parallelism, on: Machine) -> float:
    """One hidden state to the next stage: each tensor rank sends its share, which they then gather unless it stays cut
    by position (scatter-gather of Narayanan et al., 2021, 4.1).  Stages lie the furthest apart of all ranks.
    """
    size, t = _hidden_bytes(model, split), split.tensor
    inside = split.num_engines <= on.wires.node_size
    sent = on.wires.send_s(size / t, inside=inside)
    return sent if split.sequence else sent + on.wires.gather_s(size, *_nodes(t, on.wires.node_size))


def _spread(split: Parallelism, on: Machine) -> tuple[int, int]:
    """Data ranks of one group inside a node, and over how many nodes they lie; the tensor ranks lie next to each
    other."""
    return _nodes(split.data, on.wires.node_size // split.tensor)


def _combine_s(split: Parallelism, on: Machine, params: float) -> float:
    """The gradients' all-reduce, or their reduce-scatter and the weights' all-gather (ZeRO-1), after the last pass."""
    return on.wires.all_reduce_s(split.gradient_bytes * params, *_spread(split, on))


def _sharded(model: Decoder, split: Parallelism, on: Machine, passes: _Passes) -> Step:
    """ZeRO-2 and 3: weights are gathered for each micro-batch forward (ZeRO-3: and backward), gradients scattered."""
    within, across = _spread(split, on)
    t, m, layers = split.tensor, split.micro_batches, model.layers

    def gathered_s(params: int, size: int) -> float:
        return on.wires.gather_s(size * params / t, within, across)

    gather = gathered_s(model.layer_params, HALF)
    scatter = gathered_s(model.layer_params, split.gradient_bytes)
    forward = passes.forward_s + passes.forward_tensor_s
    backward = passes.backward_s + passes.backward_tensor_s
    hidden = _beside_s(forward, gather) + _beside_s(backward, scatter + (gather if split.zero == 3 else 0.0))
    ends = gathered_s(model.embedding_params, HALF) + gathered_s(model.embedding_params, split.gradient_bytes)
    params = model.num_params_of_a_stage(1) / t
    return Step(
        compute_s=m * (layers * (passes.forward_s + passes.backward_s) + _head_s(model, split, on)),
        tensor_s=m * layers * (passes.forward_tensor_s + passes.backward_tensor_s),
        bubble_s=0.0,
        pipeline_s=0.0,
        data_s=m * (layers * hidden + ends),
        optimizer_s=_streamed_s(on, OPTIMIZER_BYTES * params / split.data),
    )


def bytes_sent(model: Decoder, split: Parallelism) -> int:
    """Bytes that all engines send in one step, added up: by the collectives and messages above, counted as rings."""
    t, d, p, m = split.tensor, split.data, split.stages, split.micro_batches
    hidden = int(_hidden_bytes(model, split))
    passes = 4 + (2 if split.recompute == "full" else 0) + (1 if split.sequence and t > 1 else 0)
    tensor = d * m * (model.layers * passes + 1) * bytes_in_all("all_reduce", t, hidden)
    borders = p * split.chunks - 1
    pipeline = 2 * d * m * borders * (hidden + (0 if split.sequence else bytes_in_all("all_gather", t, hidden)))
    params = model.layers * model.layer_params + p * model.embedding_params
    if split.zero < 2:
        return tensor + pipeline + bytes_in_all("all_reduce", d, split.gradient_bytes * params)
    gathers = HALF * (2 if split.zero == 3 else 1) + split.gradient_bytes
    return tensor + m * bytes_in_all("all_gather", d, gathers * params)


def _beside_s(compute_s: float, collective_s: float) -> float:
    """What a collective that runs beside computation adds to it."""
    slowed = OVERLAP_SLOWDOWN * min(compute_s, collective_s)
    return max(0.0, collective_s - compute_s) + slowed
