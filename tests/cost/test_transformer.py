"""Laws of a transformer's operators and of its activations' memory."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trine.cost.transformer import (
    Decoder,
    Kernels,
    activation_bytes,
    layer,
    layer_state_bytes,
    layers_in_flight,
    step_flops,
)
from trine.errors import BadInput

decoders = st.builds(
    lambda heads, width, layers, seq, vocab: Decoder(
        hidden=heads * width, layers=layers, heads=heads, ffn=4 * heads * width, seq=seq, vocab=vocab
    ),
    heads=st.sampled_from([8, 16, 32, 64]),
    width=st.sampled_from([64, 128]),
    layers=st.integers(1, 100),
    seq=st.sampled_from([512, 2048]),
    vocab=st.integers(1000, 60_000),
)
ranks = st.sampled_from([1, 2, 4, 8])


@given(decoders, st.integers(1, 4096))
def test_flops_of_a_step_are_those_that_were_published(model: Decoder, batch: int):
    """Narayanan et al., 2021, equation 3; without recompute 72 in place of 96 for the layers."""
    h, s = model.hidden, model.seq
    layers, logits = 1 + s / (6 * h), model.vocab / (16 * model.layers * h)
    whole = 96 * batch * s * model.layers * h**2
    assert step_flops(model, batch, full_recompute=True) == pytest.approx(whole * (layers + logits))
    assert step_flops(model, batch, full_recompute=False) == pytest.approx(whole * (0.75 * layers + logits))


@given(decoders, st.integers(1, 16), ranks)
def test_the_ranks_of_a_layer_share_its_flops(model: Decoder, batch: int, tensor: int):
    one = sum(operator.flops for operator in layer(model, batch))
    assert tensor * sum(operator.flops for operator in layer(model, batch, tensor)) == pytest.approx(one)


@given(decoders, st.integers(1, 16), ranks)
def test_backward_is_twice_the_products_of_forward(model: Decoder, batch: int, tensor: int):
    for operator in layer(model, batch, tensor):
        assert sum(work.flops for work in operator.backward) == pytest.approx(2 * operator.flops)


@given(decoders, st.integers(1, 16), ranks)
def test_a_layer_cut_by_position_moves_no_more(model: Decoder, batch: int, tensor: int):
    def moved(sequence: bool) -> float:
        return sum(work.num_bytes for o in layer(model, batch, tensor, sequence=sequence) for work in o.forward)

    assert moved(True) <= moved(False)
    assert (moved(True) < moved(False)) == (tensor > 1)


def test_one_kernel_for_attention_skips_what_the_mask_hides():
    model = Decoder(hidden=1024, layers=1, heads=16, ffn=4096, seq=1024, vocab=1000)
    passes = sum(o.flops for o in layer(model, 1) if o.core)
    fused = sum(o.flops for o in layer(model, 1, kernels=Kernels(fused_attention=True)) if o.core)
    assert fused == passes / 2


def test_a_gate_is_a_third_matrix_and_shared_keys_are_fewer():
    plain = Decoder(hidden=4096, layers=32, heads=32, ffn=11008, seq=2048, vocab=32000)
    gated = msgspec.structs.replace(plain, gated=True)
    shared = msgspec.structs.replace(gated, kv_heads=8)
    assert gated.matrix_params - plain.matrix_params == 4096 * 11008
    assert gated.matrix_params - shared.matrix_params == 2 * 4096 * 4096 * 3 // 4
    flops = [sum(o.flops for o in layer(model, 1) if not o.core) for model in (plain, gated, shared)]
    assert flops == [2 * 2048 * model.matrix_params for model in (plain, gated, shared)]
    with pytest.raises(BadInput, match="plain layer"):
        activation_bytes(shared, 1)


@given(decoders, st.integers(1, 16), ranks)
def test_activations_are_those_that_were_published(model: Decoder, batch: int, tensor: int):
    """Korthikanti et al., 2022, table 2, and what its rows have to do with each other."""
    unit = model.seq * batch * model.hidden
    scores = 5 * model.heads * model.seq / model.hidden * unit
    assert activation_bytes(model, batch) == pytest.approx(34 * unit + scores)
    assert tensor * activation_bytes(model, batch, tensor, sequence=True) == pytest.approx(34 * unit + scores)
    whole = activation_bytes(model, batch, tensor) - activation_bytes(model, batch, tensor, sequence=True)
    assert whole == pytest.approx(10 * unit * (1 - 1 / tensor))
    dropped = activation_bytes(model, batch, tensor) - activation_bytes(model, batch, tensor, recompute="selective")
    assert dropped == pytest.approx(scores / tensor)
    assert activation_bytes(model, batch, tensor, recompute="full") == 2 * unit


def test_more_chunks_keep_more_layers_in_flight_than_one_and_fewer_than_two():
    model = Decoder(hidden=1024, layers=96, heads=16, ffn=4096, seq=1024, vocab=1000)
    assert layers_in_flight(model, 8) == 96
    kept = [layers_in_flight(model, 8, chunks) for chunks in (2, 3, 6)]
    assert kept == sorted(kept, reverse=True)
    assert all(96 < layers < 2 * 96 for layers in kept)
    assert layer_state_bytes(model, 8, 8) * 64 == layer_state_bytes(model, 1, 1)
