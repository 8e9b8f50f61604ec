"""Software stacks: what the training programs that people measured do differently on the same engines.

Each field is one habit of the program, known from its documentation or code, or measured apart from any row that is
scored; see docs/validate.md.
"""

import msgspec

from trine.cost.transformer import Kernels, Kind

US, MS = 1e-6, 1e-3

EAGER: dict[Kind, float] = {"norm": 2.0, "activation": 1.55, "add": 0.83}
"""Time of kernels of their own over the roofline's, which was fitted on matrix products, both less the launch: the
medians of Vidur's norms, activations and additions (MIT) above 20 us, on A100 and H100."""

FLASH, FLASH_2 = (0.40, 0.30), (0.60, 0.50)
"""Shares of the peak that fused attention reaches, forward and backward: the middle of the 30 to 50 % and 25 to 35 % of
FlashAttention on A100, and of the 50 to 73 % of FlashAttention-2, whose backward pass reaches up to 63 % (Dao,
"FlashAttention-2", 2023, sections 1 and 4).  On H100 FlashAttention-2 and Triton reach what the first did on A100: 0.37
to 0.40 forward (Shah et al., "FlashAttention-3", 2024, figure 5)."""

SUSTAINED = {"h100": 0.677}
"""Share of the speed of single products, on which the rooflines were fitted, that an engine keeps in a long run, by the
first part of its name: an H100 lowers its clock under load.  Such that the ten rows of llm-foundry that are marked on
H100 are as far off as the ten on A100 of 80 GB: ``python -m bench.validate.fit``."""

OVERLAP_SLOWDOWN = 0.15
"""Share of its speed that computation loses while a collective runs beside it (Calculon, Isaev et al., 2023)."""

ACCUMULATION_BYTES = 6
"""Bytes moved per parameter and micro-batch where gradients are added up by a pass of their own: two read, one written,
two bytes each."""

OPTIMIZER_BYTES = 42
"""Bytes moved per parameter by the step of Adam in mixed precision: gradient, weight, main weight and two moments read
and written (30), and unscaling, clipping and zeroing of the gradient before it (12)."""


class Floor(msgspec.Struct, frozen=True, kw_only=True):
    """What the host needs to launch a layer, one more collective in it, and a micro-batch on a stage: a small model
    waits for that, not for its engine."""

    forward_s: float
    backward_s: float
    collective_s: float
    micro_batch_s: float


class Stack(msgspec.Struct, frozen=True, kw_only=True):
    """``accumulates``: gradients of micro-batches are added by a pass of their own.  ``stops_early``: recompute ends
    when the last saved tensor is there, before the layer's last matrix product (PyTorch's ``checkpoint`` does so).
    ``attention``: shares of the peak, where attention is one kernel.  ``network_share``: of what the adapters reach in
    other programs.  ``slower``: time of a kind of pass over the roofline's."""

    name: str
    about: str
    kernels: Kernels = Kernels()
    accumulates: bool = True
    stops_early: bool = False
    attention: tuple[float, float] = FLASH
    network_share: float = 1.0
    slower: dict[Kind, float] = {}
    floor: Floor | None = None


DEEPSPEED_FLOOR = Floor(
    forward_s=1.10 * MS,
    backward_s=0.861 * MS,
    collective_s=48.8 * US,
    micro_batch_s=1.92 * MS,
)
"""Fitted on the 360 rows of vTrain's table that are marked so, drawn by seed 0: ``python -m bench.validate.fit``."""

DEEPSPEED_GATHER_SHARE = 0.0938
"""Share of what the adapters reach in other collectives that DeepSpeed's ZeRO-3 of 2021 reached: fitted on the three
175B rows of Narayanan et al., Table 2, which are marked so; ``python -m bench.validate.fit``."""

_STACKS = (
    Stack(name="megatron-2021", about="Megatron-LM until 2021: fused passes, gradients added up apart"),
    Stack(name="megatron-2022", about="Megatron-LM of 2022: gradients added up inside the products", accumulates=False),
    Stack(
        name="megatron-core",
        about="Megatron Core and what is built on it: attention in one kernel, no dropout",
        kernels=Kernels(fused_attention=True, dropout=False),
        accumulates=False,
        attention=FLASH_2,
    ),
    Stack(name="megatron-deepspeed", about="Megatron in DeepSpeed's pipeline engine", floor=DEEPSPEED_FLOOR),
    Stack(
        name="deepspeed-zero3",
        about="Megatron's model in DeepSpeed's ZeRO-3 of 2021",
        network_share=DEEPSPEED_GATHER_SHARE,
    ),
    Stack(
        name="fsdp",
        about="PyTorch's fully sharded data parallelism, PyTorch's own kernels, attention in one kernel, no dropout",
        kernels=Kernels(fused_attention=True, dropout=False),
        accumulates=False,
        stops_early=True,
        slower=EAGER,
    ),
)
STACKS = {stack.name: stack for stack in _STACKS}
