"""Laws of a training step's time: closed forms, what more of anything may not do, and what one engine does not do."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trine.cluster.presets import preset
from trine.cost.links import wires
from trine.cost.stacks import STACKS
from trine.cost.step import Machine, Parallelism, bytes_sent, machine, step
from trine.cost.transformer import Decoder
from trine.errors import BadInput

MODEL = Decoder(hidden=4096, layers=32, heads=32, ffn=16384, seq=2048, vocab=51200)


def on(stack: str = "megatron-2022", name: str = "a100-80gb", dtype: str = "float16") -> Machine:
    known = preset(name)
    return machine(known.engine, wires(known), STACKS[stack], dtype=dtype)


splits = st.builds(
    lambda data, stages, tensor, rounds, micro, sequence, zero, recompute: Parallelism(
        global_batch=data * micro * rounds, micro_batch=micro, data=data, stages=1 if zero > 1 else stages,
        tensor=tensor, sequence=sequence, zero=zero, recompute=recompute,
    ),
    data=st.sampled_from([1, 2, 8, 64]),
    stages=st.sampled_from([1, 2, 4, 8]),
    tensor=st.sampled_from([1, 2, 8]),
    rounds=st.sampled_from([1, 4, 16]),
    micro=st.sampled_from([1, 4]),
    sequence=st.booleans(),
    zero=st.sampled_from([0, 1, 2, 3]),
    recompute=st.sampled_from(["none", "selective", "full"]),
)  # fmt: skip
stacks = st.sampled_from(sorted(STACKS))


@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_one_engine_talks_to_nobody(stack: str, zero: int):
    alone = Parallelism(global_batch=8, micro_batch=2, zero=zero, recompute="full")
    found = step(MODEL, alone, on(stack))
    assert (found.tensor_s, found.bubble_s, found.pipeline_s, found.data_s) == (0, 0, 0, 0)
    assert bytes_sent(MODEL, alone) == 0
    assert found.time_s == found.compute_s + found.optimizer_s


@given(st.sampled_from([2, 4, 8, 16]), st.sampled_from([8, 16, 64]), st.sampled_from([1, 2]))
def test_the_bubble_is_the_closed_form(stages: int, micro_batches: int, chunks: int):
    """(p - 1)/(v m) of a stage's layers (Narayanan et al., 2021, 2.2.1 and 2.2.2); p - 1 times these are what one
    engine, which has the same head, has more to do than a stage."""
    split = Parallelism(global_batch=micro_batches, micro_batch=1, stages=stages, tensor=8, chunks=chunks)
    one = step(MODEL, Parallelism(global_batch=micro_batches, micro_batch=1, tensor=8), on())
    found = step(MODEL, split, on())
    saved = one.compute_s + one.tensor_s - found.compute_s - found.tensor_s
    assert found.bubble_s == pytest.approx(saved / (chunks * micro_batches))


@given(splits, stacks)
@pytest.mark.parametrize("what", ["inside", "adapter", "memory", "peak"])
def test_twice_the_rate_is_never_slower(what: str, split: Parallelism, stack: str):
    slow = on(stack)
    if what in ("inside", "adapter"):
        link = getattr(slow.wires, what)
        faster = msgspec.structs.replace(link, bandwidth_bytes_per_s=2 * link.bandwidth_bytes_per_s)
        fast = msgspec.structs.replace(slow, wires=msgspec.structs.replace(slow.wires, **{what: faster}))
    else:
        field = "bandwidth_bytes_per_s" if what == "memory" else "peak_flops_per_s"
        twice = {field: 2 * getattr(slow.roofline, field)}
        roofline = msgspec.structs.replace(slow.roofline, **twice)
        fast = msgspec.structs.replace(slow, roofline=roofline, matmul=roofline)
    assert step(MODEL, split, fast).time_s <= step(MODEL, split, slow).time_s * (1 + 1e-9)


@given(splits, st.sampled_from(["data", "stages", "tensor"]))
def test_more_engines_at_one_global_batch_never_send_fewer_bytes(split: Parallelism, what: str):
    if what == "stages" and split.zero > 1:
        return
    if what == "data" and split.global_batch % (2 * split.data * split.micro_batch):
        return
    more = msgspec.structs.replace(split, **{what: 2 * getattr(split, what)})
    assert more.num_engines == 2 * split.num_engines
    assert bytes_sent(MODEL, more) >= bytes_sent(MODEL, split)


@given(splits, stacks)
def test_recompute_costs_time_and_stopping_early_costs_less(split: Parallelism, stack: str):
    def time_s(how: str, *, early: bool = False) -> float:
        known = on(stack)
        known = msgspec.structs.replace(known, stack=msgspec.structs.replace(known.stack, stops_early=early))
        return step(MODEL, msgspec.structs.replace(split, recompute=how), known).time_s

    assert time_s("none") <= time_s("selective") <= time_s("full") * (1 + 1e-9)
    assert time_s("full", early=True) <= time_s("full")


@given(splits, stacks)
def test_the_parts_add_up_and_none_is_negative(split: Parallelism, stack: str):
    found = step(MODEL, split, on(stack))
    parts = msgspec.structs.astuple(found)
    assert min(parts) >= 0
    assert found.time_s == pytest.approx(sum(parts))


def test_a_small_model_waits_for_its_host():
    small = Decoder(hidden=256, layers=12, heads=4, ffn=1024, seq=128, vocab=1000)
    split = Parallelism(global_batch=1, micro_batch=1)
    floor = STACKS["megatron-deepspeed"].floor
    assert floor is not None
    free, bound = (step(small, split, on(stack)).compute_s for stack in ("megatron-2021", "megatron-deepspeed"))
    assert free < 12 * (floor.forward_s + floor.backward_s) < bound


def test_float8_speeds_products_up_and_nothing_else():
    split = Parallelism(global_batch=8, micro_batch=8)
    half, eight = (step(MODEL, split, on("fsdp", "h100-80gb", dtype)) for dtype in ("bfloat16", "float8"))
    assert half.time_s / 2 < eight.time_s < half.time_s


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"global_batch": 9, "micro_batch": 2, "data": 2}, "must divide"),
        ({"global_batch": 8, "micro_batch": 1, "stages": 2, "zero": 3}, "ZeRO-3 over 2 stages"),
        ({"global_batch": 8, "micro_batch": 1, "chunks": 2}, "Chunks need"),
    ],
)
def test_what_does_not_go_together_is_refused(said: dict[str, int], words: str):
    with pytest.raises(BadInput, match=words):
        Parallelism(**said)
