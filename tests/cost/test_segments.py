"""Keys of local operators, and costs that are put together from them."""

import msgspec
import pytest
from tests.simulate.small import programs_of

from trine.cluster.cluster import Cluster, Engine, Link, Tier
from trine.cost.keys import distinct_keys, operator_keys, parse
from trine.cost.memory_tables import (
    COPY_KINDS,
    LARGE_BYTES,
    LARGE_TENSORS,
    MANY_BYTES,
    MANY_TENSORS,
    SIZES_BYTES,
    copy_key,
    optimizer_cost,
    optimizer_key,
)
from trine.cost.profile import Profile, Timing
from trine.cost.segments import AnalyticCosts, MeasuredCosts
from trine.errors import UnknownName
from trine.graph.graph import Operator
from trine.program.program import Program


def timing(forward_s: float, backward_s: float = 0.0, concurrency: int = 1) -> Timing:
    return Timing(concurrency=concurrency, forward_s=forward_s, backward_s=backward_s, saved_bytes=0)


@pytest.fixture
def one() -> Program:
    return programs_of(num_layers=2)[0]


@pytest.fixture
def complete(profile: Profile, one: Program) -> Profile:
    """A profile that knows every operator of ``one``: 1 s forward, 2 s backward."""
    table = {"p2p": profile.links["processes"]["p2p"], "all_reduce": profile.links["processes"]["all_reduce"]}
    times = {key: timing(1.0, 2.0) for key in distinct_keys(one)}
    times |= {copy_key(kind, size): timing(size * 2e-9, size * 1e-9) for kind in COPY_KINDS for size in SIZES_BYTES}
    times[optimizer_key("sgd", MANY_TENSORS)] = timing(MANY_TENSORS * 1e-5 + MANY_BYTES * 1e-9)
    times[optimizer_key("sgd", LARGE_TENSORS)] = timing(LARGE_TENSORS * 1e-5 + LARGE_BYTES * 1e-9)
    return msgspec.structs.replace(profile, links={**profile.links, "threads": table}).with_timings(times)


def test_key_says_shapes_types_and_gradients(one: Program) -> None:
    segment = one.segments[0]
    first, relu, second, *_ = (parse(key) for key in operator_keys(one, segment))
    assert first["args"] == {"input": "%float32[8,16]", "weight": "%float32[16,16]*@", "bias": None}
    assert second["args"]["input"] == "%float32[8,16]*"
    assert relu == {"target": "aten.relu.default", "args": {"self": "%float32[8,16]*"}, "outputs": [2]}


def test_equal_operators_have_one_key(one: Program) -> None:
    keys = operator_keys(one, one.segments[0])
    assert keys[1] == keys[3]
    assert len(list(distinct_keys(one))) == len(keys) - 1


def test_equal_engines_have_equal_keys() -> None:
    left, right = programs_of(data=2)
    assert list(distinct_keys(left)) == list(distinct_keys(right)) != list(distinct_keys(programs_of()[0]))


def test_views_are_nested_and_draws_have_no_number(one: Program) -> None:
    segment = one.segments[0]
    name = segment.operators[1].outputs[0]
    view = Operator("v", "aten.permute.default", {"self": f"%{name}", "dims": [1, 0]}, ("v.view",))
    drop = Operator("d", "trine.dropout", {"input": "%v.view", "p": 0.1, "index": 7}, ("d.out",))
    more = msgspec.structs.replace(segment, operators=(*segment.operators, view, drop))
    described = parse(operator_keys(one, more)[-1])
    assert described["args"]["index"] == 0
    assert described["outputs"] == [2]
    nested = described["args"]["input"]
    assert nested == {"made": parse(operator_keys(one, more)[-2]), "output": 0}
    assert nested["made"]["args"]["self"] == "%float32[8,16]*"


def test_segment_is_the_sum_of_its_operators(one: Program, complete: Profile) -> None:
    costs = MeasuredCosts(complete, 1, optimizer="sgd")
    half_s, count = complete.launch(1).segment_s / 2, len(one.segments[0].operators)
    assert costs.segment_s(one, 0, "forward") == pytest.approx(count * 1.0 + half_s)
    assert costs.segment_s(one, 0, "backward") == pytest.approx(count * 2.0 + half_s)
    assert costs.calibrated([one])


def test_operator_without_a_time_gets_the_roofline(one: Program, complete: Profile) -> None:
    lost = {key: value for key, value in complete.operators.items() if "linear" not in key}
    costs = MeasuredCosts(msgspec.structs.replace(complete, operators=lost), 1, optimizer="sgd")
    assert not costs.calibrated([one])
    assert 0 < costs.segment_s(one, 0, "forward") < len(one.segments[0].operators)


def test_times_of_another_concurrency_are_not_taken(one: Program, complete: Profile) -> None:
    assert not MeasuredCosts(complete, 2, optimizer="sgd").calibrated([one])


def test_copies_are_fresh_forward_and_reused_backward(one: Program, complete: Profile) -> None:
    costs = MeasuredCosts(complete, 1)
    assert costs.copy_s(one, "copy", 2**20, "forward") == pytest.approx(2**20 * 2e-9)
    assert costs.copy_s(one, "copy", 2**20, "backward") == pytest.approx(2**20 * 1e-9)
    assert costs.copy_s(one, "add", 0, "forward") == 0.0
    assert costs.all_reduce_s(one, (0, 1, 2), 2**20) == pytest.approx(2 * 2**20 * 1e-9, rel=0.05)


def test_threads_share_the_sum_of_gradients(one: Program, complete: Profile) -> None:
    """Each of three engines adds two others over a third of the elements; processes sum all of them, and copy first."""
    threads, processes = MeasuredCosts(complete, 1), MeasuredCosts(complete, 1, "processes")
    assert threads.combine_s(one, (0, 1, 2), 3 * 2**20) == pytest.approx(2 * 2**20 * 1e-9, rel=0.05)
    rest_s = processes.all_reduce_s(one, (0, 1, 2), 3 * 2**20)
    assert processes.combine_s(one, (0, 1, 2), 3 * 2**20) == pytest.approx(rest_s + 3 * 2**20 * 1e-9)


def test_optimizer_by_tensors_and_bytes(one: Program, complete: Profile) -> None:
    cost = optimizer_cost(complete, "sgd", 1)
    assert cost is not None
    assert (cost.per_tensor_s, cost.per_byte_s) == pytest.approx((1e-5, 1e-9), rel=0.15)
    assert MeasuredCosts(complete, 1, optimizer="sgd").optimize_s(one) == pytest.approx(cost.time_s(2, 2 * 1024))
    assert optimizer_cost(complete, "adam", 1) is None


def test_messages_of_threads_and_processes(one: Program, complete: Profile) -> None:
    time_s = complete.table("processes", "p2p").time_s(10_000)
    threads = MeasuredCosts(complete, 1).transfer_s(one, 1, 10_000)
    assert threads.latency_s == time_s
    assert threads.wire_s == 0
    processes = MeasuredCosts(complete, 1, "processes").transfer_s(one, 1, 10_000)
    assert processes.send_s + processes.receive_s == pytest.approx(time_s)
    assert processes.latency_s == 0


def engine(bandwidth_bytes_per_s: float = 1e9, **peaks: float) -> Engine:
    return Engine(
        name="x", kind="gpu", peak_flops_per_s=peaks, memory_bytes=2**30,
        memory_bandwidth_bytes_per_s=bandwidth_bytes_per_s,
    )  # fmt: skip


def analytic(*engines: Engine) -> AnalyticCosts:
    tier = Tier(name="all", size=2, link=Link(latency_s=1e-3, bandwidth_bytes_per_s=1e6))
    return AnalyticCosts(Cluster(name="two", engines=engines, tiers=(tier,)))


@pytest.mark.parametrize("slow", [engine(float32=1e8), engine(1e8, float32=1e9)], ids=["arithmetic", "memory"])
def test_engines_of_one_name_keep_their_own_rates(slow: Engine) -> None:
    left, right = programs_of(data=2)
    mixed, equal = analytic(engine(float32=1e9), slow), analytic(slow, slow)
    assert mixed.segment_s(right, 0, "forward") == equal.segment_s(right, 0, "forward")
    assert mixed.segment_s(left, 0, "forward") < equal.segment_s(left, 0, "forward")


def test_a_floating_type_takes_no_other_rate(one: Program, complete: Profile) -> None:
    costs = analytic(engine(float64=1e9, int8=1e9))
    with pytest.raises(UnknownName, match="'float32'"):
        costs.segment_s(one, 0, "forward")
    assert costs.roofline(0, "int64") == costs.roofline(0, "bool") == costs.roofline(0, "float64")
    assert costs.copy_s(one, "copy", 2**20, "forward") > 0
    assert costs.optimize_s(one) > 0
    peaks = {"float64": 1e9}
    rates = tuple(msgspec.structs.replace(r, matmul_flops_per_s=peaks) for r in complete.rates)
    with pytest.raises(UnknownName, match="'float32'"):
        MeasuredCosts(msgspec.structs.replace(complete, rates=rates, operators={}), 1).segment_s(one, 0, "forward")


def test_analytic_costs_follow_the_data_sheet() -> None:
    programs = programs_of(data=2)
    costs = analytic(engine(float32=1e9), engine(float32=1e9))
    message = costs.transfer_s(programs[0], 1, 1000)
    assert (message.wire_s, message.latency_s) == pytest.approx((1e-3, 1e-3))
    assert costs.transfer_s(programs[0], 0, 1000).wire_s == 0.0
    backward_s, forward_s = (costs.segment_s(programs[0], 0, d) for d in ("backward", "forward"))  # type: ignore[arg-type]
    assert backward_s == pytest.approx(2 * forward_s)
    assert not costs.calibrated(programs)
