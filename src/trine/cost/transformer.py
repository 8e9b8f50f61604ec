"""A decoder-only transformer as operators: FLOPs and bytes of each, on one of ``tensor`` ranks that share a layer.

Shapes after Shoeybi et al., "Megatron-LM" (2019): queries, keys, values and the first feed-forward matrix are cut by
columns, the other two by rows; what lies between them is cut by heads and by features, the rest is whole on every rank
or, with sequence parallelism (Korthikanti et al., 2022), cut by position.  All numbers in two bytes each.

    FLOPs of a step with full recompute  96 B s L h^2 (1 + s/6h + V/16Lh)     (Narayanan et al., 2021, equation 3)

Queries may share keys and values (``kv_heads``), and the feed-forward part may be gated (two matrices up).  Left out:
embedding look-ups, biases' additions where they are fused, experts.
"""

from typing import Literal

import msgspec

from trine.errors import BadInput

HALF = 2
"""Bytes of a number in float16 and bfloat16."""

WINDOW = 0.5
"""Share of a fused attention's products that lie under the causal mask: the kernel skips the others."""

Kind = Literal["matmul", "norm", "activation", "add", "softmax", "copy", "attention"]


class Work(msgspec.Struct, frozen=True):
    """One kernel: floating-point operations, bytes to and from memory, and how many of these go in (of a product)."""

    flops: float
    num_bytes: float
    input_bytes: float = 0.0


class Operator(msgspec.Struct, frozen=True, kw_only=True):
    """One operator of a layer.  ``core``: it belongs to the attention that selective recompute does again."""

    name: str
    kind: Kind
    forward: tuple[Work, ...]
    backward: tuple[Work, ...]
    core: bool = False

    @property
    def flops(self) -> float:
        """Of the forward pass."""
        return sum(work.flops for work in self.forward)


class Decoder(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes of the model: ``ffn`` is the width of the feed-forward part, ``seq`` the length of a sequence, ``kv_heads``
    the heads of keys and values (None: as many as queries)."""

    hidden: int
    layers: int
    heads: int
    ffn: int
    seq: int
    vocab: int
    kv_heads: int | None = None
    gated: bool = False

    @property
    def kv_share(self) -> float:
        """Keys, or values, over queries."""
        return (self.kv_heads or self.heads) / self.heads

    @property
    def matrix_params(self) -> int:
        """Parameters of a layer's matrices: 4 h^2 and 2 h f where nothing is shared or gated."""
        attention = 2 * self.hidden**2 + round(2 * self.kv_share * self.hidden**2)
        return attention + (3 if self.gated else 2) * self.hidden * self.ffn

    @property
    def layer_params(self) -> int:
        """Parameters of a layer: its matrices, biases and two norms."""
        return self.matrix_params + 9 * self.hidden + self.ffn

    @property
    def embedding_params(self) -> int:
        """Parameters of the token embedding (tied to the head) and of the positions."""
        return (self.vocab + self.seq) * self.hidden

    def num_params_of_a_stage(self, stages: int) -> float:
        """Parameters of the fullest of ``stages``: its layers and the embedding."""
        return self.layers / stages * self.layer_params + self.embedding_params


class Kernels(msgspec.Struct, frozen=True, kw_only=True):
    """Which kernels a software stack has for a layer: attention in one kernel or in four passes, dropout or none."""

    fused_attention: bool = False
    dropout: bool = True


def matmul(name: str, m: float, n: float, k: float, *, batch: float = 1.0, core: bool = False) -> Operator:
    """``batch`` products of (m, k) with (k, n); its backward pass is two more of the same FLOPs."""

    def product(rows: float, columns: float, depth: float) -> Work:
        read = HALF * batch * (columns * depth + rows * depth)
        return Work(2 * batch * rows * columns * depth, read + HALF * batch * rows * columns, read)

    backward = (product(m, k, n), product(k, n, m))
    return Operator(name=name, kind="matmul", forward=(product(m, n, k),), backward=backward, core=core)


def _pass(name: str, kind: Kind, num_bytes: float, backward_bytes: float | None = None, core: bool = False) -> Operator:
    """A pass over memory; backward it moves half as much again, for the incoming gradient, unless given."""
    back = 1.5 * num_bytes if backward_bytes is None else backward_bytes
    return Operator(name=name, kind=kind, forward=(Work(0, num_bytes),), backward=(Work(0, back),), core=core)


def layer(
    model: Decoder, micro_batch: int, tensor: int = 1, *, sequence: bool = False, kernels: Kernels | None = None
) -> tuple[Operator, ...]:
    """The operators of one layer in order, on one of ``tensor`` ranks."""
    kernels = kernels or Kernels()
    h, f, t = model.hidden, model.ffn, tensor
    rows = micro_batch * model.seq
    whole = HALF * rows * h / (t if sequence else 1)  # bytes of the hidden state where no head or feature cuts it
    added = 3.5 if kernels.dropout else 3.0  # read two, write one, and half a number's bytes of mask
    return (
        _pass("norm 1", "norm", 2 * whole),
        matmul("query, key, value", rows, (1 + 2 * model.kv_share) * h / t, h),
        *_attention(model, micro_batch, tensor, kernels),
        matmul("projection", rows, h, h / t),
        _pass("add 1", "add", added * whole),
        _pass("norm 2", "norm", 2 * whole),
        matmul("up", rows, (2 if model.gated else 1) * f / t, h),
        _pass("activation", "activation", (3 if model.gated else 2) * HALF * rows * f / t),
        matmul("down", rows, h, f / t),
        _pass("add 2", "add", added * whole),
    )


def _attention(model: Decoder, micro_batch: int, tensor: int, kernels: Kernels) -> tuple[Operator, ...]:
    """Attention of the rank's heads: fused into one kernel, or scores, softmax, dropout and context in passes."""
    b, s, h, heads = micro_batch, model.seq, model.hidden, model.heads / tensor
    width = h / model.heads
    hidden = HALF * b * s * h / tensor  # bytes of the queries of this rank
    if kernels.fused_attention:
        flops = 4 * b * s * s * (h / tensor) * WINDOW
        # backward the scores are computed again: five products for the forward pass's two
        forward, backward = Work(flops, 4 * hidden), Work(2.5 * flops, 8 * hidden)
        return (Operator(name="attention", kind="attention", forward=(forward,), backward=(backward,), core=True),)
    scores = b * heads * s * s  # how many
    core = (
        _pass("transpose", "copy", 6 * hidden),
        matmul("scores", s, s, width, batch=b * heads, core=True),
        _pass("softmax", "softmax", 2 * HALF * scores, 3 * HALF * scores, core=True),
        _pass("dropout", "softmax", (2 * HALF + 1) * scores, (2 * HALF + 1) * scores, core=True),
        matmul("context", s, width, s, batch=b * heads, core=True),
    )
    return tuple(operator for operator in core if kernels.dropout or operator.name != "dropout")


def head(model: Decoder, micro_batch: int, tensor: int = 1) -> tuple[Operator, ...]:
    """The last stage's own work: logits over a share of the vocabulary, and their cross-entropy in float32."""
    rows, share = micro_batch * model.seq, model.vocab / tensor
    return (
        matmul("logits", rows, share, model.hidden),
        _pass("cross-entropy", "softmax", 4 * 4 * rows * share, 2 * 4 * rows * share),
    )


def step_flops(model: Decoder, global_batch: int, *, full_recompute: bool) -> float:
    """FLOPs of all engines in one step: once forward and twice backward, with recompute the layers forward again."""
    layers = model.layers * sum(operator.flops for operator in layer(model, global_batch))
    logits = head(model, global_batch)[0].flops
    return (4 if full_recompute else 3) * layers + 3 * logits


# ---- memory of activations (Korthikanti et al., 2022, section 4 and table 2)

Recompute = Literal["none", "selective", "full"]


def activation_bytes(
    model: Decoder, micro_batch: int, tensor: int = 1, *, sequence: bool = False, recompute: Recompute = "none"
) -> float:
    """Bytes that a layer keeps of one micro-batch on each of ``tensor`` ranks.

    s b h times: 10 + 24/t + 5as/ht; with sequence parallelism 34/t + 5as/ht; selective recompute drops the last term,
    full recompute keeps the layer's input only: 2.  Raises BadInput for shared keys or a gated feed-forward part, which
    the formulas are not for.
    """
    if tensor < 1:
        raise BadInput(f"{tensor} tensor ranks were asked for.", "A layer is cut over 1 or more.", "For example: 8.")
    if model.gated or model.kv_share != 1 or model.ffn != 4 * model.hidden:
        raise BadInput(
            "Activations of a layer with shared keys, a gate or a width other than 4 h were asked for.",
            "The formulas are for a plain layer.",
            "Leave gated and kv_heads out, with ffn = 4 hidden.",
        )
    if recompute == "full":
        terms = 2.0
    else:
        terms = (34 / tensor) if sequence else (10 + 24 / tensor)
        if recompute == "none":
            terms += 5 * model.heads * model.seq / (model.hidden * tensor)
    return terms * model.seq * micro_batch * model.hidden


def layers_in_flight(model: Decoder, stages: int, chunks: int = 1) -> float:
    """Layers whose activations the first stage keeps at once under 1F1B: L, interleaved L (1 + (p-1)/(p v))."""
    return model.layers * (1 + (stages - 1) / (stages * chunks)) if chunks > 1 else float(model.layers)


def layer_state_bytes(model: Decoder, stages: int, tensor: int) -> float:
    """Bytes of a rank's layer weights, gradients and Adam states in mixed precision: 18 each, matrices only."""
    return 18 * model.matrix_params * model.layers / (stages * tensor)
