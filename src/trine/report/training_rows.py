"""Rows of training tables: the time of a step of a transformer, predicted from sizes, split, engine and software."""

import re
from collections.abc import Callable, Iterable
from functools import lru_cache

import msgspec

from trine.cluster.presets import PRESETS, Preset
from trine.cost.links import wires
from trine.cost.stacks import STACKS, Stack
from trine.cost.step import Machine, Parallelism, bytes_sent, machine, step
from trine.cost.transformer import Decoder, Recompute
from trine.errors import BadInput
from trine.report.score import Outcome
from trine.report.tables import Line

HARDWARE = (
    (r"a100.*?80", "a100-80gb"),
    (r"a100.*?40", "a100-40gb"),
    (r"a100", "a100-80gb"),
    (r"h100", "h100-80gb"),
    (r"v100", "v100-32gb"),
    (r"tpu.?v5e", "tpu-v5e"),
    (r"\bl4\b", "l4"),
)
"""What a table calls an engine (any case), and the preset that is meant; a preset's own name is understood as it is."""

FRAMEWORKS = (
    (r"fsdp", "fsdp"),
    (r"zero-3", "deepspeed-zero3"),
    (r"megatron-deepspeed", "megatron-deepspeed"),
    (r"megatron.*(2020|2021|ptd-p)", "megatron-2021"),
    (r"megatron.*2022", "megatron-2022"),
    (r"megatron|nemo|neox|nanotron|transformer.?engine", "megatron-core"),
    (r"pytorch|torchtitan|accelerate|transformers", "fsdp"),
)
"""What a table calls the software (any case), and the stack of ``cost/stacks.py``."""

GATED = r"llama|mistral|mixtral|qwen|gemma|palm|yi-|deepseek|internlm|baichuan|falcon-?3|smollm"
"""Models (any case) whose feed-forward part is gated, where the column ``mlp`` does not say "gated" or "plain"."""

DTYPES = (("fp8", "float8"), ("float8", "float8"), ("bf", "bfloat16"), ("16", "float16"))
"""What a table's precision holds (any case), and the type of the matrix products; blank is float16."""
DEFAULT_VOCAB = 51200
"""Where a table gives none: GPT-2's 50,257 padded to a multiple of 128 on 8 tensor ranks, as Megatron does."""


class Unpredictable(Exception):
    """A row that cannot be predicted; the text is the reason."""


def attempt(measured: float | None, missing: str, predict: Callable[[], float | None]) -> tuple[float | None, str]:
    """The prediction of a row, or the reason why there is none; ``missing`` is that of a row without a measurement."""
    if measured is None:
        return None, missing
    try:
        return predict(), ""
    except Unpredictable as reason:
        return None, str(reason)


class Case(msgspec.Struct, frozen=True):
    """A row as the cost model takes it."""

    model: Decoder
    split: Parallelism
    machine: Machine


def preset_of(hardware: str) -> Preset:
    """The preset of an engine as tables call it."""
    if hardware in PRESETS:
        return PRESETS[hardware]
    said = hardware.lower()
    name = next((name for pattern, name in HARDWARE if re.search(pattern, said)), None)
    if name is None or "pcie" in said:
        raise Unpredictable(f"there is no preset for the hardware {hardware!r}")
    return PRESETS[name]


def measured_s(line: Line) -> float:
    """Seconds of one step: as measured, or from tokens or samples a second."""
    direct = line.number_or_none("step_time_s") or line.number_or_none("step_time_s_derived")
    if direct is not None:
        return direct
    batch = need(line, "global_batch")
    tokens, samples = line.number_or_none("tokens_per_s"), line.number_or_none("samples_per_s")
    each = line.number_or_none("tokens_per_s_per_gpu")
    if tokens is None and each is not None:
        tokens = each * need(line, "gpus")
    if tokens is not None:
        return batch * need(line, "seq") / tokens
    if samples is not None:
        return batch / samples
    raise Unpredictable("nothing is measured in seconds or tokens a second")


def need(line: Line, column: str) -> int:
    """A whole number that the prediction needs."""
    value = line.whole_or_none(column)
    if value is None:
        raise Unpredictable(f"{column} is not given")
    return value


def case(line: Line) -> Case:
    """The row's sizes, split and machine.  Raises Unpredictable with what is missing."""
    hidden, heads = need(line, "hidden"), need(line, "heads")
    for column, what in (("cp", "context parallelism"), ("ep", "expert parallelism")):
        if (line.whole_or_none(column) or 1) > 1:
            raise Unpredictable(f"{what} is not described")
    if line.text("status") not in ("", "ok"):
        raise Unpredictable(f"it did not run: {line.text('status')}")
    model = Decoder(
        hidden=hidden,
        layers=need(line, "layers"),
        heads=heads,
        ffn=line.whole_or_none("ffn") or 4 * hidden,
        seq=need(line, "seq"),
        vocab=line.whole_or_none("vocab") or DEFAULT_VOCAB,
        kv_heads=line.whole_or_none("kv_heads"),
        gated=_gated(line),
    )
    gpus, split = need(line, "gpus"), _split(line)
    if split.num_engines != gpus:
        raise Unpredictable("dp x pp x tp is not the number of GPUs")
    stack = stack_of(line.text("framework"), split.zero)
    preset = preset_of(line.text("hardware"))
    said = line.text("precision")
    dtype = next((name for word, name in DTYPES if word in (said or "fp16").lower()), None)
    if dtype is None:
        raise Unpredictable(f"the precision {said!r} is not described")
    if dtype not in preset.engine.peak_flops_per_s:
        raise Unpredictable(f"{preset.engine.name} has no rate for {dtype}")
    node_size = line.whole_or_none("gpus_per_node")
    return Case(model, split, _machine(preset.engine.name, stack.name, dtype, node_size))


@lru_cache(maxsize=256)
def _machine(preset: str, stack: str, dtype: str, node_size: int | None) -> Machine:
    found = PRESETS[preset]
    return machine(found.engine, wires(found, node_size=node_size), STACKS[stack], dtype=dtype)


def _gated(line: Line) -> bool:
    said = line.text("mlp")
    if said not in ("", "gated", "plain"):
        raise BadInput(
            f"{line.file}, row {line.number}, column mlp: {said!r} was found.",
            "It takes gated (two matrices up, one down) or plain.",
            "Leave it blank to go by the model's name.",
        )
    return said == "gated" or (not said and re.search(GATED, line.text("model").lower()) is not None)


def stack_of(framework: str, zero: int) -> Stack:
    """The software that is meant; where none is known, FSDP for cut weights and Megatron Core for all else."""
    if framework in STACKS:
        return STACKS[framework]
    found = next((name for pattern, name in FRAMEWORKS if re.search(pattern, framework.lower())), None)
    return STACKS[found or ("fsdp" if zero >= 2 else "megatron-core")]


def _split(line: Line) -> Parallelism:
    recompute = line.text("recompute").split(" ")[0] or "none"
    if recompute not in ("none", "selective", "full"):
        raise Unpredictable(f"the recompute {recompute!r} is not described")
    said: Recompute = recompute  # type: ignore[assignment]
    zero = line.text("zero_stage") or "0"
    if zero not in ("0", "1", "2", "3"):
        raise BadInput(
            f"{line.file}, row {line.number}, column zero_stage: {zero!r} was found.",
            "It takes 0, 1, 2 or 3.",
            "Leave it blank for 0.",
        )
    # FSDP in its default precision and with "amp" adds gradients up in float32
    gradients = 4 if "mp_mode=DEFAULT" in line.text("framework") else 2
    stages, tensor = line.whole_or_none("pp") or 1, line.whole_or_none("tp") or 1
    data = line.whole_or_none("dp") or need(line, "gpus") // (stages * tensor)
    if not data:
        raise Unpredictable("pp x tp is more than the number of GPUs")
    batch, accumulated = need(line, "global_batch"), line.whole_or_none("grad_accum")
    micro = line.whole_or_none("micro_batch") or (accumulated and batch // (data * accumulated))
    if not micro:
        raise Unpredictable("micro_batch is not given")
    try:
        return Parallelism(
            global_batch=batch,
            micro_batch=micro,
            data=data,
            stages=stages,
            tensor=tensor,
            chunks=line.whole_or_none("vpp") or 1,
            sequence=(line.whole_or_none("sp") or 1) > 1,
            zero=int(zero),
            recompute=said,
            gradient_bytes=gradients,
        )
    except BadInput as error:
        raise Unpredictable(str(error)) from error


def training_outcomes(lines: Iterable[Line]) -> list[Outcome]:
    """Each row predicted, or the reason why not."""
    return [_outcome(line) for line in lines]


def _outcome(line: Line) -> Outcome:
    group = group_of(line)
    try:
        measured = measured_s(line)
    except Unpredictable as why:
        return _failed(line, group, 0.0, str(why))
    try:
        known = case(line)
        predicted = step(known.model, known.split, known.machine)
    except Unpredictable as why:
        return _failed(line, group, measured, str(why))
    return Outcome(
        file=line.file, row=line.number, group=group, unit="s", measured=measured, predicted=predicted.time_s,
        use=line.use, label=plan_label(line), choice=_choice(line),
        parts={**msgspec.structs.asdict(predicted), "bytes_sent": float(bytes_sent(known.model, known.split))},
    )  # fmt: skip


def _failed(line: Line, group: str, measured: float, why: str) -> Outcome:
    return Outcome(file=line.file, row=line.number, group=group, unit="s", measured=measured, reason=why, use=line.use)


def group_of(line: Line) -> str:
    """Rows that are judged together: of one source, engine, kind of recompute where both occur, and ZeRO-3 apart."""
    source = line.text("source") or line.text("source_ref").partition("@")[0] or line.text("framework")
    words = [source.split(" (")[0], preset_or_text(line.text("hardware"))]
    if "Korthikanti" in source:
        words.append(line.text("recompute").split(" ")[0])
    if line.text("zero_stage") == "3" and "FSDP" not in line.text("framework"):
        words.append("ZeRO-3")
    return ", ".join(word for word in words if word)


def preset_or_text(hardware: str) -> str:
    """The preset's name if there is one."""
    try:
        return preset_of(hardware).engine.name
    except Unpredictable:
        return hardware


def plan_label(line: Line) -> str:
    """The model and the plan in words."""
    named = {"dp": "data", "pp": "stages", "tp": "tensor", "vpp": "chunks", "micro_batch": "micro-batch"}
    said = [f"{word} {line.text(column)}" for column, word in named.items() if line.text(column)]
    model = [line.text("model")] if line.text("model") else []
    return ", ".join(
        [*model, *said, f"recompute {line.text('recompute') or 'none'}", f"zero {line.text('zero_stage') or '0'}"]
    )


def _choice(line: Line) -> str:
    same = ("hardware", "gpus", "model", "hidden", "layers", "seq", "global_batch", "source")
    return "|".join(line.text(column) for column in same)
