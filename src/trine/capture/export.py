"""Capture: a module, its example inputs and its loss → Graph, through ``torch.export``.

What torch.export does without a word is in ``traps.py``; what an operator becomes is in ``canonical.py``.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind
from torch.utils import _pytree as pytree

from trine.capture.builder import BY_VALUES, Builder, module_of, schema_args, source_of
from trine.capture.canonical import Call, canonical
from trine.capture.inputs import Inputs, slice_batch
from trine.capture.mode import in_mode
from trine.capture.model import Model, called
from trine.capture.own_error import refuse_own_error
from trine.capture.traps import (
    assigned_buffers,
    close_no_grad,
    guarded,
    is_by_values,
    line_of,
    quiet,
    refuse_embeddings,
    refuse_hooks,
    refuse_lookups,
    refuse_state,
    separate_copies,
    why,
    without_counters,
)
from trine.errors import BadInput, CaptureFailed, TrineError
from trine.graph.graph import Graph, Kind, Output, check

from trine.capture import canonical_loss  # noqa: F401  isort: skip  (it fills the table)


@dataclass(frozen=True)
class Captured:
    """A graph and what connects it to the module that it came from.

    parameters: tensor of the graph → names of the parameter or buffer in the module, several if tied.
    constants: tensor of the graph → its data, for tensors that are neither parameters nor buffers.
    leaves: input of the graph → its number among the leaves of (args, kwargs, targets).
    results: for each leaf of the module's own output, the tensor of the graph or a plain value.
    spec: structure of the module's own output.
    frozen: parameters that do not learn.
    """

    graph: Graph
    parameters: dict[str, tuple[str, ...]]
    constants: dict[str, torch.Tensor]
    leaves: dict[str, int]
    results: tuple[Any, ...]
    spec: pytree.TreeSpec
    frozen: frozenset[str] = frozenset()

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
        self.named = model.name

    def forward(self, args: tuple[Any, ...], kwargs: dict[str, Any], targets: Any) -> Any:
        with without_counters(self, self.named), assigned_buffers(self, self.named):
            return called(self.model, self.loss, Inputs(args, kwargs, targets), training=self.with_loss)


def capture(
    model: Model, *, training: bool, with_loss: bool, batch: int | None = None, differentiable: bool | None = None
) -> Captured:
    """The graph of the model, with its loss if asked for, at the size of its example inputs or of a smaller batch.

    differentiable: gradients will flow through the graph; by default in training only.
    """
    inputs = model.inputs if batch is None else slice_batch(model.inputs, 0, batch)
    program = _export(model, inputs, training, with_loss, training if differentiable is None else differentiable)
    captured = _convert(program, model, inputs, training, with_loss)
    check(captured.graph)
    return captured


def _structure(inputs: Inputs, with_loss: bool) -> tuple[Any, ...]:
    return inputs.args, inputs.kwargs, inputs.targets if with_loss else None


# ---- torch.export and its traps


def _export(model: Model, inputs: Inputs, training: bool, with_loss: bool, differentiable: bool) -> ExportedProgram:
    """The functional program, with every block without gradients closed by a detach."""
    device = next((p.device for p in model.module.parameters()), torch.device("cpu"))
    example = pytree.tree_map_only(torch.Tensor, lambda t: t.clone().to(device), _structure(inputs, with_loss))
    whole = _Whole(model, with_loss)
    if differentiable:
        refuse_embeddings(model.module, model.name)
        refuse_hooks(model.module, model.name)
    with in_mode(model.module, training), quiet() as assigned, guarded(model.name, differentiable):
        try:
            program = torch.export.export(whole, example, strict=False)
            if differentiable:
                close_no_grad(program, model.name)
            separate_copies(program)
            program = program.run_decompositions({})
        except (TrineError, MemoryError):
            raise
        except Exception as error:  # whatever the model's own code raises
            change = BY_VALUES if is_by_values(error) else ""
            failed = CaptureFailed(model=model.name, line=line_of(error), why=why(error), change=change)
            if not is_by_values(error):
                refuse_own_error(whole, example, model.name)
            raise failed from error
    refuse_state(program, assigned, model.name)
    if differentiable:
        refuse_lookups(program, model.name)
    return program


# ---- from the functional program to the graph


def _convert(program: ExportedProgram, model: Model, inputs: Inputs, training: bool, with_loss: bool) -> Captured:
    parameters = _aliases(model.module)
    builder = Builder(model.name, {*parameters.values()} | {name.split(".")[0] for name in parameters})
    env: dict[str, Any] = {}
    leaves, constants = _placeholders(program, builder, env, parameters, inputs.names(with_loss))
    _operators(program, builder, env)
    outputs, results = _outputs(program, builder, env, parameters, with_loss)
    names = _names(parameters, builder)
    dims = inputs.leaf_dims(with_loss)
    batch_dims = {name: dim for name, leaf in leaves.items() if (dim := dims[leaf]) is not None}
    graph = builder.graph(tuple(leaves), outputs, training=training, batch_dims=batch_dims, names=names)
    learning = {name for name, value in model.module.named_parameters() if value.requires_grad}
    frozen = frozenset(t.name for t in graph.by_kind("parameter") if t.name not in learning)
    return Captured(graph, names, constants, leaves, results, program.call_spec.out_spec.child(1), frozen)


def _placeholders(
    program: ExportedProgram, builder: Builder, env: dict[str, Any], parameters: dict[str, str], leaf_names: list[str]
) -> tuple[dict[str, int], dict[str, torch.Tensor]]:
    """Enter what the operators start from; gives the leaf behind each graph input, and the data of constants."""
    leaves: dict[str, int] = {}
    constants: dict[str, torch.Tensor] = {}
    values = {node.name: node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder"}
    number = 0
    for spec in program.graph_signature.input_specs:
        name, target = spec.arg.name, spec.target or ""
        if spec.kind is InputKind.USER_INPUT:
            if isinstance(spec.arg, ConstantArgument):
                env[name] = spec.arg.value
            else:
                own = builder.fresh(leaf_names[number])
                leaves[own] = number
                env[name] = builder.add_tensor(own, values[name], "input")
            number += 1
        elif target.startswith("model.") and target[6:] in parameters:
            kind: Kind = "parameter" if spec.kind is InputKind.PARAMETER else "buffer"
            env[name] = builder.add_tensor(parameters[target[6:]], values[name], kind)
        elif spec.kind in (InputKind.CONSTANT_TENSOR, InputKind.BUFFER):  # the loss has buffers too
            own = builder.fresh(target.removeprefix("model.").replace(".", "_"))
            constants[own] = program.constants.get(target, program.state_dict.get(target)).detach()
            env[name] = builder.add_tensor(own, values[name], "constant")
        else:
            raise builder.fail(f"there is a {spec.kind.name.lower()} {target} outside the model")
    return leaves, constants


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
                raise builder.fail("a shape depends on data", BY_VALUES)
            raise builder.fail(f"it contains {name}, which is no operator on tensors")
        if _is_assert(node.target):
            continue
        value = node.meta.get("val")
        listed = isinstance(value, (list, tuple))
        values = value if listed else (value,)
        if any(isinstance(v, (torch.SymInt, torch.SymBool, torch.SymFloat)) for v in values):
            raise builder.fail("a shape or a number depends on data", BY_VALUES)
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
            target = parameters.get((spec.target or "").removeprefix("model."))
            if target is None:
                raise builder.fail(f"the loss changes its buffer {spec.target}")
            if builder.tensors[ref[1:]].kind != "activation" or any(ref[1:] == output.tensor for output in outputs):
                ref = _copied(builder, ref)  # each buffer has a value of its own
            outputs.append(Output("buffer", ref[1:], target))
        elif spec.kind in (OutputKind.USER_OUTPUT, OutputKind.LOSS_OUTPUT):
            leaves.append(ref)
        elif spec.kind is not OutputKind.USER_INPUT_MUTATION:  # callers keep their own copy of an input
            raise builder.fail(f"the model has an output of kind {spec.kind.name} ({spec.target})")
    loss, *rest = leaves
    if with_loss:
        is_tensor = isinstance(loss, str) and loss.startswith("%")
        if not is_tensor or builder.shape(loss) != ():
            what = f"a tensor of shape {builder.shape(loss)}" if is_tensor else "no tensor"
            raise BadInput(
                f"The loss of {builder.model} is not one number: it is {what}.", "",
                "Return a scalar, such as its mean.",
            )  # fmt: skip
        outputs.append(Output("loss", loss[1:]))
    results: list[Any] = []
    changed = {output.target for output in outputs if output.kind == "buffer"}
    for number, ref in enumerate(rest):
        is_tensor = isinstance(ref, str) and ref.startswith("%")
        if is_tensor and ref[1:] in changed:  # a buffer as it was before
            ref = _copied(builder, ref)
        results.append(Output("user", ref[1:], str(number)) if is_tensor else ref)
    outputs += [result for result in results if isinstance(result, Output)]
    return outputs, tuple(results)


def _copied(builder: Builder, ref: str) -> str:
    return builder.one("aten.clone.default", {"self": ref, "memory_format": None}, builder.sort(ref))
