"""A batch norm of one tile is one operator."""

from trine.graph.graph import Operator
from trine.program.fuse import fused

STATE = Operator("n.state", "trine.batch_norm_state", {"input": "%t0", "num_lead": 1}, ("t1",))


def apply(*counts: int) -> Operator:
    args = {"input": "%t0", "state": "%t1", "weight": "%t2", "bias": "%t3", "running_mean": "%t4", "running_var": "%t5"}
    args |= {"momentum": 0.1, "eps": 1e-5, "counts": list(counts), "local_dims": [], "num_lead": 1}
    return Operator("n", "trine.batch_norm_apply", args, ("t6", "t7", "t8"))


def test_state_and_apply_of_one_tile_are_one() -> None:
    (op,) = fused([STATE, apply(32)], ["t6", "t7", "t8"])
    assert (op.target, op.outputs) == ("trine.batch_norm", ("t6", "t7", "t8"))
    assert "state" not in op.args
    assert op.args["running_var"] == "%t5"


def test_states_to_merge_stay() -> None:
    assert fused([STATE, apply(16, 16)], ["t6"]) == [STATE, apply(16, 16)]


def test_a_state_that_others_read_stays() -> None:
    assert fused([STATE, apply(32)], ["t6", "t1"]) == [STATE, apply(32)]


def test_a_state_from_elsewhere_stays() -> None:
    assert fused([apply(32)], ["t6"]) == [apply(32)]


def test_a_single_value_has_no_variance_to_fuse() -> None:
    assert len(fused([STATE, apply(1)], ["t6"])) == 2
