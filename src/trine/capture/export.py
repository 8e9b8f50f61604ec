"""Capture: a module, its example inputs and its loss → Graph, through ``torch.export``.

The traps that this file knows are listed in ``docs/decisions/capture.md``; what an operator becomes is in
``canonical.py``.
"""

import logging
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import torch
from torch import nn
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind
from torch.utils import _pytree as pytree

from trine.capture.builder import Builder, encode, module_of, schema_args, short, source_of
from trine.capture.canonical import Call, canonical
from trine.capture.inputs import Inputs, slice_batch
from trine.capture.mode import in_mode
from trine.capture.model import Model
from trine.errors import BadInput, CaptureFailed, TrineError
from trine.graph.graph import Graph, Output, check

from trine.capture import canonical_loss  # noqa: F401  isort: skip  (it fills the table)


@dataclass(frozen=True)
class Captured:
    """A graph and what connects it to the module that it came from.

    parameters: tensor of the graph → names of the parameter or buffer in the module, several if tied.
    constants: tensor of the graph → its data, for tensors that are neither parameters nor buffers.
    leaves: input of the graph → its number among the leaves of (args, kwargs, targets).
    results: for each leaf of the module's own output, the tensor of the graph or a plain value.
    spec: structure of the module's own output.
    """

    graph: Graph
    parameters: dict[str, tuple[str, ...]]
    constants: dict[str, torch.Tensor]
    leaves: dict[str, int]
    results: tuple[Any, ...]
    spec: pytree.TreeSpec

    def flatten(self, inputs: Inputs) -> dict[str, torch.Tensor]:
        """Tensors of the graph's inputs, from inputs of the same structure as the example."""
        values = pytree.tree_leaves(_structure(inputs, self.graph.loss is not None))
        return {name: values[number] for name, number in self.leaves.items()}

    def state(self, module: nn.Module) -> dict[str, torch.Tensor]:
        """Tensors of the graph's parameters, buffers and constants, from a module with the same names."""
        own = dict(module.named_parameters(remove_duplicate=False))
        own |= dict(module.named_buffers(remove_duplicate=False))
        return {tensor: own[names[0]] for tensor, names in self.parameters.items()} | self.constants

    def unflatten(self, values: dict[str, Any]) -> Any:
        """The module's own output, from the values of the graph's tensors."""
        leaves = [values[r.tensor] if isinstance(r, Output) else r for r in self.results]
        return pytree.tree_unflatten(leaves, self.spec)


class _Whole(nn.Module):
    """The model and its loss in one module."""

    def __init__(self, model: Model, with_loss: bool) -> None:
        super().__init__()
        self.model = model.module
        self.loss = model.loss
        self.with_loss = with_loss

    def forward(self, args: tuple[Any, ...], kwargs: dict[str, Any], targets: Any) -> Any:
        if not self.with_loss:
            return None, self.model(*args, **kwargs)
        if self.loss is not None:
            output = self.model(*args, **kwargs)
            return self.loss(output, targets), output
        output = self.model(*args, **kwargs, **(targets or {}))
        loss = output.get("loss") if isinstance(output, dict) else getattr(output, "loss", None)
        if loss is None:
            raise BadInput(
                "The model has no loss: none was given, and its output has no attribute loss.",
                "Training needs one.",
                "Give loss=(output, targets) -> tensor.",
            )
        return loss, output


def capture(model: Model, *, training: bool, with_loss: bool, batch: int | None = None) -> Captured:
    """The graph of the model, with its loss if asked for, at the size of its example inputs or of a smaller batch."""
    inputs = model.inputs if batch is None else slice_batch(model.inputs, 0, batch)
    program = _export(model, inputs, training, with_loss)
    captured = _convert(program, model, inputs, training, with_loss)
    check(captured.graph)
    return captured


def _structure(inputs: Inputs, with_loss: bool) -> tuple[Any, ...]:
    return inputs.args, inputs.kwargs, inputs.targets if with_loss else None


# ---- torch.export and its traps


def _export(model: Model, inputs: Inputs, training: bool, with_loss: bool) -> ExportedProgram:
    """The functional program, with every block without gradients closed by a detach."""
    device = next((p.device for p in model.module.parameters()), torch.device("cpu"))
    example = pytree.tree_map_only(torch.Tensor, lambda t: t.clone().to(device), _structure(inputs, with_loss))
    whole = _Whole(model, with_loss)
    with in_mode(model.module, training), _quiet(), _guarded(model.name, training):
        try:
            program = torch.export.export(whole, example, strict=False)
            if training:
                _close_no_grad(program, model.name)
            return program.run_decompositions({})
        except TrineError:
            raise
        except Exception as error:  # whatever the model's own code raises
            raise CaptureFailed(model=model.name, line=_line(error), why=_why(error)) from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the advice that torch.export prints for its own developers."""
    loggers = [logging.getLogger(name) for name in ("torch.fx.experimental.symbolic_shapes", "torch._export")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module=r"torch\.")
            warnings.filterwarnings("ignore", category=torch.jit.TracerWarning)
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


@contextmanager
def _guarded(model: str, training: bool) -> Iterator[None]:
    """In training, refuses what torch.export drops without a word: own backward functions and inference mode."""
    if not training:
        yield
        return
    apply: Any = next(kind.__dict__["apply"] for kind in torch.autograd.Function.__mro__ if "apply" in kind.__dict__)
    enter = torch.inference_mode.__enter__

    def checked_apply(cls: type, *args: Any, **kwargs: Any) -> Any:
        if not cls.__module__.startswith("torch."):
            why = f"{cls.__name__} is a torch.autograd.Function with a backward of its own, which a graph would lose"
            raise CaptureFailed(model=model, line=_stack_line(), why=why)
        return apply.__get__(None, cls)(*args, **kwargs)

    def checked_enter(self: torch.inference_mode) -> None:
        if self.mode and _stack_line():
            why = "torch.inference_mode is lost in a graph; write torch.no_grad"
            raise CaptureFailed(model=model, line=_stack_line(), why=why)
        return enter(self)

    with patch.object(torch.autograd.Function, "apply", classmethod(checked_apply)):
        with patch.object(torch.inference_mode, "__enter__", checked_enter):
            yield


def _close_no_grad(program: ExportedProgram, model: str) -> None:
    """Detach what leaves a ``no_grad`` block: decomposition inlines the block as if it had gradients."""
    graph = program.graph_module.graph
    for node in list(graph.nodes):
        if getattr(node.target, "__name__", str(node.target)) != "wrap_with_set_grad_enabled" or node.args[0]:
            continue
        _refuse_hidden_mutation(program, node, model)
        for item in list(node.users):
            value = item.meta.get("val")
            if not isinstance(value, torch.Tensor) or not value.is_floating_point():
                continue
            with graph.inserting_after(item):
                cut = graph.call_function(torch.ops.aten.detach.default, (item,))
            cut.meta = dict(item.meta)
            item.replace_all_uses_with(cut, delete_user_cb=lambda user, cut=cut: user is not cut)
            for spec in program.graph_signature.output_specs:
                if getattr(spec.arg, "name", None) == item.name:
                    spec.arg.name = cut.name  # type: ignore[union-attr]
    program.graph_module.recompile()


def _refuse_hidden_mutation(program: ExportedProgram, node: torch.fx.Node, model: str) -> None:
    """An in-place operator inside ``no_grad`` on a value from outside keeps that value's gradient in eager mode."""
    block = getattr(program.graph_module, node.args[1].target)  # type: ignore[union-attr, arg-type]
    outside = dict(zip([n for n in block.graph.nodes if n.op == "placeholder"], node.args[2:], strict=True))
    state = program.graph_signature.inputs_to_buffers
    for inner in block.graph.nodes:
        schema = getattr(inner.target, "_schema", None)
        if schema is None or not schema.is_mutable or not inner.args:
            continue
        changed = outside.get(inner.args[0])
        if isinstance(changed, torch.fx.Node) and changed.name not in state:
            value = changed.meta.get("val")
            if isinstance(value, torch.Tensor) and value.is_floating_point():
                why = f"{inner.target} changes {changed.name} in place under no_grad, whose gradient a graph would lose"
                raise CaptureFailed(model=model, line=source_of(inner, __file__), why=why)


def _is_theirs(path: str) -> bool:
    return "/torch/" not in path and path != __file__ and not path.startswith("<") and "/unittest/" not in path


def _stack_line() -> str:
    """The line of the model that runs now, as ``file:line: text``."""
    inside = False
    for frame in reversed(traceback.extract_stack()):
        inside = inside or _is_theirs(frame.filename)
        if inside:
            return f"{short(frame.filename)}:{frame.lineno}: {frame.line}"
    return ""


def _line(error: BaseException) -> str:
    """The line of the model that raised the error, as ``file:line: text``."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if _is_theirs(f.filename)]
    return f"{short(frames[-1].filename)}:{frames[-1].lineno}: {frames[-1].line}" if frames else ""


def _why(error: BaseException) -> str:
    """One sentence from an error of torch.export."""
    name = type(error).__name__
    if "DataDependent" in name:
        return "a Python decision depends on the values of a tensor"
    text = str(error).strip().splitlines()
    return f"{name}: {text[0]}" if text else name


# ---- from the functional program to the graph


def _convert(program: ExportedProgram, model: Model, inputs: Inputs, training: bool, with_loss: bool) -> Captured:
    parameters = _aliases(model.module)
    reserved = {*parameters.values()} | {name.split(".")[0] for name in parameters}
    builder = Builder(model.name, reserved)
    env: dict[str, Any] = {}
    constants: dict[str, torch.Tensor] = {}
    leaves: dict[str, int] = {}
    number = 0
    leaf_names = inputs.names(with_loss)
    values = {n.name: n.meta.get("val") for n in program.graph.nodes if n.op == "placeholder"}
    for spec in program.graph_signature.input_specs:
        name, target = spec.arg.name, (spec.target or "").removeprefix("model.")
        if spec.kind is InputKind.USER_INPUT:
            if isinstance(spec.arg, ConstantArgument):
                env[name] = spec.arg.value
            else:
                own = builder.fresh(leaf_names[number])
                leaves[own] = number
                env[name] = builder.add_tensor(own, values[name], "input")
            number += 1
        elif spec.kind in (InputKind.PARAMETER, InputKind.BUFFER) and target in parameters:
            kind = "parameter" if spec.kind is InputKind.PARAMETER else "buffer"
            env[name] = builder.add_tensor(parameters[target], values[name], kind)  # type: ignore[arg-type]
        elif spec.kind in (InputKind.CONSTANT_TENSOR, InputKind.BUFFER, InputKind.PARAMETER):
            own = builder.fresh(target.replace(".", "_"))
            source = program.constants if spec.target in program.constants else program.state_dict
            constants[own] = source[spec.target or ""].detach()
            env[name] = builder.add_tensor(own, values[name], "constant")
        else:
            raise builder.fail(f"the model has an input of kind {spec.kind.name}")
    _operators(program, builder, env)
    outputs, results = _outputs(program, builder, env, parameters, with_loss)
    names = _names(parameters, builder)
    graph = builder.graph(
        tuple(leaves), outputs, training=training, batch_dims=inputs.graph_batch_dims(leaves), names=names
    )
    spec = program.call_spec.out_spec.child(1) if hasattr(program.call_spec.out_spec, "child") else None
    return Captured(graph, names, constants, leaves, results, spec)


def _aliases(module: nn.Module) -> dict[str, str]:
    """Name of each parameter and buffer → the first name of the same tensor."""
    first: dict[int, str] = {}
    named = [*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)]
    return {name: first.setdefault(id(value), name) for name, value in named}


def _names(parameters: dict[str, str], builder: Builder) -> dict[str, tuple[str, ...]]:
    result: dict[str, list[str]] = {}
    for name, first in parameters.items():
        if first in builder.tensors:
            result.setdefault(first, []).append(name)
    return {first: tuple(names) for first, names in result.items()}


def _operators(program: ExportedProgram, builder: Builder, env: dict[str, Any]) -> None:
    """Enter every operator of the program in canonical form."""
    for node in program.graph.nodes:
        if node.op != "call_function":
            continue
        builder.module, builder.source = module_of(node), source_of(node, __file__)
        name = getattr(node.target, "__name__", str(node.target))
        if name == "getitem":
            env[node.name] = env[node.args[0].name][node.args[1]]
            continue
        if not isinstance(node.target, torch._ops.OpOverload):
            if isinstance(node.meta.get("val"), (torch.SymInt, torch.SymBool, torch.SymFloat)):
                raise builder.fail("a shape depends on data")
            raise builder.fail(f"it contains {name}, which is no operator on tensors")
        if _is_assert(node.target):
            continue
        value = node.meta.get("val")
        listed = isinstance(value, (list, tuple))
        values = value if listed else (value,)
        if any(isinstance(v, (torch.SymInt, torch.SymBool, torch.SymFloat)) for v in values):
            raise builder.fail("a shape or a number depends on data")
        sorts = tuple(builder.sort_of(v) if isinstance(v, torch.Tensor) else None for v in values)
        users = tuple(u.args[1] for u in node.users) if listed else ()
        call = Call(str(node.target), schema_args(node, env, builder), sorts, users, listed)  # type: ignore[arg-type]
        env[node.name] = canonical(builder, call, node.target.tags)


def _is_assert(target: torch._ops.OpOverload) -> bool:
    base = str(target).split(".")[1]
    return base.startswith(("_assert", "sym_constrain_range"))


def _outputs(
    program: ExportedProgram, builder: Builder, env: dict[str, Any], parameters: dict[str, str], with_loss: bool
) -> tuple[list[Output], tuple[Any, ...]]:
    """Outputs of the graph, and for each leaf of the module's own output its Output or plain value."""
    outputs: list[Output] = []
    leaves: list[Any] = []
    for spec in program.graph_signature.output_specs:
        ref = spec.arg.value if isinstance(spec.arg, ConstantArgument) else env[spec.arg.name]
        if spec.kind is OutputKind.BUFFER_MUTATION:
            target = parameters[(spec.target or "").removeprefix("model.")]
            outputs.append(Output("buffer", ref[1:], target))
        elif spec.kind in (OutputKind.USER_OUTPUT, OutputKind.LOSS_OUTPUT):
            leaves.append(ref)
        elif spec.kind is not OutputKind.USER_INPUT_MUTATION:  # callers keep their own copy of an input
            raise builder.fail(f"the model has an output of kind {spec.kind.name} ({spec.target})")
    loss, *rest = leaves
    if with_loss:
        if not isinstance(loss, str) or builder.shape(loss) != ():
            raise builder.fail("the loss is not one number")
        outputs.append(Output("loss", loss[1:]))
    results: list[Any] = []
    for number, ref in enumerate(rest):
        is_tensor = isinstance(ref, str) and ref.startswith("%")
        results.append(Output("user", ref[1:], str(number)) if is_tensor else ref)
    outputs += [result for result in results if isinstance(result, Output)]
    return outputs, tuple(results)
