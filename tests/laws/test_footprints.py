"""Laws of footprints: a piece is a slice of the whole, reads nothing else, needs all that it asks for, and its gradient
adds up."""

from itertools import combinations
from random import Random

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from tests.laws.draw import Sample
from tests.laws.pieces import Case, Piece, assemble, partition, pieces, places, run, run_piece, take
from tests.laws.samples import SAMPLES, WIDER

from trine.operators.family import family_of

every_sample = pytest.mark.parametrize("sample", SAMPLES, ids=str)
some_seeds = given(seed=st.integers(0, 2**32 - 1))
few = settings(max_examples=3, deadline=None, phases=[Phase.reuse, Phase.generate])  # a seed cannot be shrunk


def cuts(case: Case, random: Random) -> list[list[Piece]]:
    """Every rule alone and some pairs of rules, each with random parts."""
    rules = family_of(case.op).rules(case.op, case.tensors)
    pairs = list(combinations(rules, 2))
    chosen = [[rule] for rule in rules] + [list(pair) for pair in random.sample(pairs, min(3, len(pairs)))]
    result = []
    for some in chosen:
        parts = [partition(rule, random) for rule in some]
        if all(part is not None for part in parts):
            result.append(pieces(case, list(zip(some, parts, strict=True)), narrow=random.random() < 0.5))
    return result


def close(a: torch.Tensor, b: torch.Tensor, exact: bool) -> None:
    if exact or not a.is_floating_point():
        assert torch.equal(a, b), (a - b).abs().max() if a.is_floating_point() else "differ"
    else:
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10, equal_nan=True)


@every_sample
def test_every_family_is_cut(sample: Sample) -> None:
    case = sample.case(Random(0))
    rules = family_of(case.op).rules(case.op, case.tensors)
    assert len(rules) == sample.num_rules if sample.num_rules is not None else rules
    for rule in rules:
        found = [partition(rule, Random(seed)) for seed in range(20)]
        assert any(parts is not None for parts in found), f"no partition is accepted by {rule}"


@every_sample
@some_seeds
@few
def test_pieces_are_slices_of_the_whole(sample: Sample, seed: int) -> None:
    random = Random(seed)
    case = sample.case(random)
    for cut in cuts(case, random):
        whole = assemble(case, [(piece, run_piece(case, piece, case.inputs)) for piece in cut])
        for name in case.names:
            close(whole[name], case.outputs[name], sample.exact)


@every_sample
@some_seeds
@few
def test_nothing_outside_is_read(sample: Sample, seed: int) -> None:
    random = Random(seed)
    case = sample.case(random)
    for cut in cuts(case, random):
        for piece in random.sample(cut, min(len(cut), 3)):
            if piece.reduces:
                continue
            values = {name: spoiled(case, piece, name, sample.nan) for name in case.inputs}
            for name, made in run(case.op, values).items():
                box = piece.local.out_boxes[case.op.outputs.index(name)]
                close(take(made, box), take(case.outputs[name], box), sample.exact)


def spoiled(case: Case, piece: Piece, name: str, nan: bool) -> torch.Tensor:
    """An input with rubbish wherever the piece does not read it."""
    value = case.inputs[name]
    rubbish = value.clone()
    if value.is_floating_point():
        rubbish = torch.full_like(value, float("nan")) if nan else value + 100
    for position in (i for i, other in enumerate(case.op.inputs) if other == name):
        box = piece.local.in_boxes[position]
        where = places(box)
        rubbish[where] = value[where]
    return rubbish


@every_sample
@some_seeds
@few
def test_every_face_is_read(sample: Sample, seed: int) -> None:
    random = Random(seed)
    case = sample.case(random)
    for cut in cuts(case, random):
        for piece in random.sample(cut, min(len(cut), 2)):
            if any(applies(sample, piece) for _, applies in WIDER):
                continue
            for position, dim in piece.cut_faces:
                part = piece.local.in_boxes[position][dim]
                for index in {part[0][0], part[-1][1] - 1}:
                    assert reads(sample, case, piece, position, dim, index, random), (
                        f"{piece.local}: input {position} is needed at {index} of dimension {dim}, but changes nothing"
                    )


def reads(sample: Sample, case: Case, piece: Piece, position: int, dim: int, index: int, random: Random) -> bool:
    """Whether some change of one face of a needed box changes the piece's outputs."""
    name, box = case.op.inputs[position], list(piece.local.in_boxes[position])
    box[dim] = ((index, index + 1),)
    where = places(box)
    drawn = case
    for attempt in range(60):
        if attempt % 3 == 2:
            drawn = sample.case(random)
        changed = dict(drawn.inputs)
        value = changed[name].clone()
        if value.is_floating_point():
            scale = random.choice((0.1, 1, 9, 50)) if attempt % 2 else 0
            noise = scale * torch.randn_like(value[where]) if scale else torch.randint_like(value[where], -3, 4)
            value[where] += noise
        elif value.dtype == torch.bool and attempt % 2:
            value[where] = random.random() < 0.5
        else:
            value[where] = sample.case(random).inputs[name][where]
        changed[name] = value
        made = run(case.op, changed)
        for name_out in case.names:
            number = case.op.outputs.index(name_out)
            out = piece.local.out_boxes[number]
            if not torch.equal(take(made[name_out], out), take(drawn.outputs[name_out], out)):
                return True
    return False


@every_sample
@some_seeds
@few
def test_gradients_add_up(sample: Sample, seed: int) -> None:
    random = Random(seed)
    case = sample.case(random)
    frozen = {case.op.args[name][1:] for name in sample.frozen}
    leaves = {
        k: v.clone().requires_grad_() for k, v in case.inputs.items() if v.is_floating_point() and k not in frozen
    }
    values = {**case.inputs, **leaves}
    whole = {k: v for k, v in run(case.op, values).items() if v.requires_grad}
    if not leaves or not whole:
        return
    seeds = {name: torch.randint(-3, 4, made.shape).to(made.dtype) for name, made in whole.items()}
    loss = sum((whole[name] * seeds[name]).sum() for name in whole)
    expected = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
    for cut in cuts(case, random):
        total = torch.zeros((), dtype=torch.float64, requires_grad=True)
        for piece in cut:
            made = run_piece(case, piece, values)
            for name in whole:
                box = piece.local.out_boxes[case.op.outputs.index(name)]
                total = total + (made[name] * take(seeds[name], box)).sum()
        found = torch.autograd.grad(total, list(leaves.values()), allow_unused=True)
        for a, b in zip(found, expected, strict=True):
            if a is not None or b is not None:
                close(torch.zeros_like(b) if a is None else a, torch.zeros_like(a) if b is None else b, False)
