"""Programs are data: to JSON and back, equal in every process; one engine does not talk."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.program.small import programs
from tests.run.nets import BATCH, NAMES, job, plan

from trine.graph.graph import Graph
from trine.plan.build import build
from trine.plan.plan import Plan
from trine.program.compile import Compiled, batches
from trine.program.program import Program

MODELS = ["net", "language"]
NUMBER = """
import hashlib, sys, msgspec
from trine.graph.graph import Graph
from trine.plan.plan import Plan
from trine.program.compile import Compiled
graphs, plan = (msgspec.json.decode(open(name, "rb").read(), type=kind) for name, kind in
                ((sys.argv[1], dict[int, Graph]), (sys.argv[2], Plan)))
made = Compiled(graphs.__getitem__, plan, int(sys.argv[3])).programs()
print(hashlib.sha256(msgspec.json.encode(made)).hexdigest(), "torch" in sys.modules)
"""


@pytest.mark.parametrize("model", MODELS)
def test_one_engine_does_not_talk(model: str) -> None:
    (only,) = programs(model, "one engine")
    assert not only.transfers
    assert not only.combines
    assert {step.kind for step in only.instructions} == {"forward", "backward", "loss", "optimize", "update_buffers"}


@pytest.mark.parametrize("model", MODELS)
def test_graphs_go_to_json_and_back(model: str) -> None:
    graph = job(model).graph()
    again = msgspec.json.decode(msgspec.json.encode(graph), type=Graph)
    assert msgspec.json.encode(again) == msgspec.json.encode(graph)
    assert again.fingerprint() == graph.fingerprint()


@pytest.mark.parametrize(("model", "name"), NAMES, ids=[" ".join(pair) for pair in NAMES])
def test_plans_and_programs_go_to_json_and_back(model: str, name: str) -> None:
    assert msgspec.json.decode(msgspec.json.encode(plan(model, name)), type=Plan) == plan(model, name)
    for program in programs(model, name):
        text = msgspec.json.encode(program)
        assert msgspec.json.encode(msgspec.json.decode(text, type=Program)) == text


@pytest.mark.parametrize(("model", "name"), [("net", "tiles x features"), ("language", "stages x features")])
def test_every_process_compiles_alike_and_without_torch(model: str, name: str, tmp_path: Path) -> None:
    made, found = job(model), plan(model, name)
    sizes = {high - low for low, high in batches(BATCH, found.micro_batches)}
    (tmp_path / "graphs").write_bytes(msgspec.json.encode({rows: made.graph(rows) for rows in sizes}))
    (tmp_path / "plan").write_bytes(msgspec.json.encode(found))
    here = hashlib.sha256(msgspec.json.encode(programs(model, name))).hexdigest()
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", NUMBER, tmp_path / "graphs", tmp_path / "plan", str(BATCH)],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert done.stdout.split() == [here, "False"]


@settings(derandomize=True, deadline=None)
@given(st.integers(1, 40), st.data())
def test_micro_batches_are_a_partition_of_the_batch(batch: int, data: st.DataObject) -> None:
    rows = batches(batch, data.draw(st.integers(1, batch)))
    assert [low for low, _ in rows] == [0, *(high for _, high in rows[:-1])]
    assert rows[-1][1] == batch
    sizes = [high - low for low, high in rows]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] - sizes[-1] <= 1


@pytest.mark.parametrize(("model", "name"), NAMES, ids=[" ".join(pair) for pair in NAMES])
def test_each_gradient_is_combined_where_its_parameter_is_whole(model: str, name: str) -> None:
    """A parameter that rests in several tiles that overlap is in one combine with all that hold them."""
    made = programs(model, name)
    holders: dict[tuple[str, object], set[int]] = {}
    for program in made:
        for tile, parameter in program.parameters.items():
            if program.tiles[tile].active:
                holders.setdefault((parameter, program.tiles[tile].box), set()).add(program.rank)
    for program in made:
        listed = [parameter for combine in program.combines.values() for parameter in combine.parameters]
        assert len(listed) == len(set(listed))
        groups = {parameter: set(c.group) for c in program.combines.values() for parameter in c.parameters}
        for tile, parameter in program.parameters.items():
            if program.tiles[tile].active:
                ranks = holders[parameter, program.tiles[tile].box]
                assert groups.get(parameter, {program.rank}) == ranks


@pytest.mark.parametrize(("model", "name"), NAMES, ids=[" ".join(pair) for pair in NAMES])
def test_a_group_combines_once(model: str, name: str) -> None:
    """Sums start as gradients are made; only inside one combine is their order the same on every engine."""
    for program in programs(model, name):
        groups = [combine.group for combine in program.combines.values()]
        assert len(set(groups)) == len(groups)


def test_a_stage_starts_where_the_plan_says() -> None:
    graph = job("net").graph_for(2)
    made = Compiled(job("net").graph, build(graph, stages=2, micro_batches=2, batch=BATCH), BATCH)
    starts = made.plan.stage_starts[0]
    names = [
        item.placed.op.name
        for stage, _, item in next(iter(made.flows.values())).items
        if stage == 1 and hasattr(item, "placed")
    ]
    assert starts in names
