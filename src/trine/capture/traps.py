"""What torch.export does without a word, and what it prints: the traps of a capture."""

import copy
import logging
import re
import sys
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
from torch import nn
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.nn.modules.module import register_module_buffer_registration_hook
from torch.utils.checkpoint import CheckpointFunction

from trine.capture.builder import short, source_of
from trine.errors import BadInput, CaptureFailed

LOGGERS = (
    "torch.fx.experimental.symbolic_shapes", "torch._export", "torch.export._trace", "torch._subclasses.fake_tensor",
)  # fmt: skip
OWN = str(Path(__file__).parents[1])  # the folder of this package
AS_BUFFER = "Register it as a buffer (self.register_buffer)"  # a way out
PLAIN = (bool, int, float, str, type(None))
MOST_ITEMS = 1000  # of a container that is looked into


@contextmanager
def quiet() -> Iterator[list[str]]:
    """Without the advice that torch.export prints for its own developers; gives plain attributes that were assigned.

    Warnings of the model's own code are passed on.
    """
    loggers = [logging.getLogger(name) for name in LOGGERS]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    assigned: list[str] = []
    silent = patch("torch.export._trace.print", lambda *args, **kwargs: None, create=True)  # the graph until a failure
    try:
        with warnings.catch_warnings(record=True) as caught, silent:
            warnings.filterwarnings("ignore", module=r"torch\.")
            warnings.filterwarnings("ignore", category=torch.jit.TracerWarning)
            warnings.filterwarnings("always", message="The tensor attribute")
            yield assigned
            assigned += [name for item in caught for name in _ATTRIBUTE.findall(str(item.message))]
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
    for item in caught:
        if not str(item.message).startswith("The tensor attribute"):
            warnings.warn_explicit(item.message, item.category, item.filename, item.lineno)


_ATTRIBUTE = re.compile(r"\bself\.([\w.]+)")


def refuse_state(program: ExportedProgram, assigned: list[str], model: str) -> None:
    """A plain attribute that forward both reads and assigns carries state, which a graph would lose."""
    for spec in program.graph_signature.input_specs:
        if spec.kind is InputKind.CONSTANT_TENSOR and spec.target in assigned:
            name = (spec.target or "").removeprefix("model.")
            why = f"forward changes {name}, which must be a registered buffer"
            raise CaptureFailed(model=model, line="", why=why, change=AS_BUFFER)


@contextmanager
def assigned_buffers(module: nn.Module, model: str) -> Iterator[None]:
    """A buffer that forward assigns (``self.mean = …``) gets its last value in place at the end: torch.export sees what
    is done in place, and assignments to its root module only."""
    parts = {id(part): path for path, part in module.named_modules()}
    kept: dict[tuple[int, str], tuple[nn.Module, torch.Tensor, torch.Tensor]] = {}

    def note(part: nn.Module, name: str, value: Any) -> Any:
        before = part._buffers.get(name)
        if id(part) in parts and isinstance(before, torch.Tensor):
            original = kept[id(part), name][1] if (id(part), name) in kept else before
            kept[id(part), name] = (part, original, value)
        return value

    handle = register_module_buffer_registration_hook(note)
    try:
        yield
    finally:
        handle.remove()
        for (_, name), (part, original, _) in kept.items():
            part._buffers[name] = original
    changes: list[tuple[torch.Tensor, torch.Tensor]] = []
    for (number, name), (_, original, value) in kept.items():
        if not isinstance(value, torch.Tensor) or (value.shape, value.dtype) != (original.shape, original.dtype):
            path = f"{parts[number]}.{name}".removeprefix("model.")
            why = f"forward assigns to the buffer {path} what is of another shape or type, which a graph cannot keep"
            raise CaptureFailed(model=model, line="", why=why, change="Keep its shape and type")
        changes.append((original, value.detach().clone()))  # a value may be another buffer
    for original, value in changes:
        original.copy_(value)


@contextmanager
def without_counters(module: nn.Module, model: str) -> Iterator[None]:
    """A plain number or text of a module that forward changes is state too: refused, and put back."""
    before = [(path, part, _own_state(part)) for path, part in module.named_modules()]
    changed: list[str] = []
    try:
        yield
    finally:
        for path, part, values in before:
            for key, now in _own_state(part).items():
                if key in values and not (now == values[key] or now != now):
                    changed.append(f"{path}.{key}".removeprefix("model."))
                    setattr(part, key, values[key])
    if changed:
        why = f"forward changes {changed[0]}, a plain value, which a graph would keep as it was"
        raise CaptureFailed(model=model, line="", why=why, change=AS_BUFFER)


def _own_state(part: nn.Module) -> dict[str, Any]:
    """A module's plain values, and copies of its lists, dictionaries and namespaces of such, by name."""
    found = plain_values(part)
    for key, value in vars(part).items():
        inner = vars(value) if isinstance(value, SimpleNamespace) else value
        items = inner.values() if isinstance(inner, dict) else inner
        if type(inner) in (dict, list, set) and len(items) <= MOST_ITEMS and all(type(i) in PLAIN for i in items):
            found[key] = copy.copy(value)
    return found


def plain_values(part: nn.Module) -> dict[str, Any]:
    """A module's own numbers and texts, by name."""
    return {key: value for key, value in vars(part).items() if type(value) in PLAIN and key != "training"}


_WHOLE = {  # options of an embedding with gradients that no engine can have for its part alone
    "sparse": "its gradients are sparse, and engines exchange dense ones",
    "scale_grad_by_freq": "its gradients depend on how often a word is in the whole batch, which no engine sees",
}


def refuse_embeddings(module: nn.Module, model: str) -> None:
    """BadInput, for replicas of the module would have wrong gradients too."""
    for path, part in module.named_modules():
        for option, why in _WHOLE.items():
            if isinstance(part, (nn.Embedding, nn.EmbeddingBag)) and getattr(part, option):
                kind = type(part).__name__
                place = f"Module {path} of {model}" if path else model
                raise BadInput(f"{place} is {kind}({option}=True): {why}.", "", f"Write {kind}({option}=False).")


def refuse_lookups(program: ExportedProgram, model: str) -> None:
    """The same of calls of ``functional.embedding``."""
    for node in program.graph.nodes:
        schema = getattr(node.target, "_schema", None)
        for position, argument in enumerate(schema.arguments if schema is not None else ()):
            given = node.args[position] if position < len(node.args) else node.kwargs.get(argument.name)
            if given is True and argument.name in _WHOLE and "embedding" in schema.name:
                raise BadInput(
                    f"{source_of(node, __file__)} of {model} is an embedding with {argument.name}=True:"
                    f" {_WHOLE[argument.name]}.", "", f"Write {argument.name}=False.",
                )  # fmt: skip


@contextmanager
def guarded(model: str, differentiable: bool) -> Iterator[None]:
    """Where gradients will flow, refuses what torch.export drops without a word: own backward functions and
    inference mode."""
    if not differentiable:
        yield
        return
    apply: Any = next(kind.__dict__["apply"] for kind in torch.autograd.Function.__mro__ if "apply" in kind.__dict__)
    enter = torch.inference_mode.__enter__

    def checked_apply(cls: type, *args: Any, **kwargs: Any) -> Any:
        if cls is CheckpointFunction:
            why, change = "a reentrant checkpoint has no gradients in a graph", "Write use_reentrant=False"
            raise CaptureFailed(model=model, line=_stack_line(), why=why, change=change)
        if not cls.__module__.startswith("torch."):
            why = f"{cls.__name__} is a torch.autograd.Function with a backward of its own, which a graph would lose"
            raise CaptureFailed(model=model, line=_stack_line(), why=why)
        return apply.__get__(None, cls)(*args, **kwargs)

    def checked_enter(self: torch.inference_mode) -> None:
        if self.mode and _stack_line():
            why = "torch.inference_mode is lost in a graph; write torch.no_grad"
            raise CaptureFailed(model=model, line=_stack_line(), why=why)
        return enter(self)

    def checked_hook(self: torch.Tensor, hook: Any) -> Any:
        if _is_theirs(sys._getframe(1).f_code.co_filename):
            why = "forward registers a hook on a tensor, which a graph would lose"
            raise CaptureFailed(model=model, line=_stack_line(), why=why)
        return register(self, hook)

    register, no_grad = torch.Tensor.register_hook, torch.no_grad.__enter__
    casting = [0]  # blocks of autocast that are open

    def cast(self: torch.autocast) -> Any:
        casting[0] += 1
        return begin(self)

    def uncast(self: torch.autocast, *error: Any) -> Any:
        casting[0] -= 1
        return end(self, *error)

    def checked_no_grad(self: torch.no_grad) -> None:
        if casting[0] and torch.is_grad_enabled() and _stack_line():
            why, change = "torch.no_grad inside autocast is lost in a graph", "Open it around the autocast, or detach"
            raise CaptureFailed(model=model, line=_stack_line(), why=why, change=change)
        return no_grad(self)

    begin, end = torch.autocast.__enter__, torch.autocast.__exit__
    with (
        patch.object(torch.autocast, "__enter__", cast),
        patch.object(torch.autocast, "__exit__", uncast),
        patch.object(torch.no_grad, "__enter__", checked_no_grad),
        patch.object(torch.autograd.Function, "apply", classmethod(checked_apply)),
        patch.object(torch.inference_mode, "__enter__", checked_enter),
        patch.object(torch.Tensor, "register_hook", checked_hook),
        torch.enable_grad(),
    ):
        yield


def refuse_hooks(module: nn.Module, model: str) -> None:
    """Hooks on gradients are no part of a graph."""
    for path, part in module.named_modules():
        if part._backward_hooks or part._backward_pre_hooks:
            why = f"module {path or model} has a backward hook, which a graph would lose"
            raise CaptureFailed(model=model, line="", why=why, change="Remove it")


def separate_copies(program: ExportedProgram) -> None:
    """One value that is copied into several buffers is one for each: decomposition mixes them up."""
    graph, seen = program.graph_module.graph, set[Any]()
    for node in list(graph.nodes):
        if node.target is not torch.ops.aten.copy_.default:
            continue
        source = node.args[1]
        if source in seen:
            with graph.inserting_before(node):
                own = graph.call_function(torch.ops.aten.clone.default, (source,))
            own.meta = dict(source.meta)
            node.update_arg(1, own)
        seen.add(source)
    program.graph_module.recompile()


def close_no_grad(program: ExportedProgram, model: str) -> None:
    """Detach what leaves a ``no_grad`` block: decomposition inlines the block as if it had gradients.  Blocks may lie
    in others (autocast)."""
    for part in program.graph_module.modules():
        if isinstance(part, torch.fx.GraphModule):
            _close(program, part, model)


def _close(program: ExportedProgram, part: torch.fx.GraphModule, model: str) -> None:
    graph, top = part.graph, part is program.graph_module
    for node in list(graph.nodes):
        if getattr(node.target, "__name__", str(node.target)) != "wrap_with_set_grad_enabled" or node.args[0]:
            continue
        _refuse_hidden_mutation(program, part, node, model)
        for item in list(node.users):
            value = item.meta.get("val")
            if not isinstance(value, torch.Tensor) or not value.is_floating_point():
                continue
            with graph.inserting_after(item):
                cut = graph.call_function(torch.ops.aten.detach.default, (item,))
            cut.meta = dict(item.meta)
            item.replace_all_uses_with(cut, delete_user_cb=lambda user, cut=cut: user is not cut)
            for spec in program.graph_signature.output_specs if top else ():
                if getattr(spec.arg, "name", None) == item.name:
                    spec.arg.name = cut.name  # type: ignore[union-attr]
    part.recompile()


def _refuse_hidden_mutation(
    program: ExportedProgram, part: torch.fx.GraphModule, node: torch.fx.Node, model: str
) -> None:
    """An in-place operator inside ``no_grad`` on a value from outside, or a view of one, keeps that value's gradient in
    eager mode."""
    block = getattr(part, node.args[1].target)  # type: ignore[union-attr, arg-type]
    inputs = [n for n in block.graph.nodes if n.op == "placeholder"]
    roots: dict[Any, Any] = dict(zip(inputs, node.args[2:], strict=True))
    whole = set(inputs)  # not views of a part
    state = program.graph_signature.inputs_to_buffers if part is program.graph_module else {}
    for inner in block.graph.nodes:
        schema = getattr(inner.target, "_schema", None)
        if schema is None or not inner.args:
            continue
        changed = roots.get(inner.args[0])
        if changed is None or schema.arguments[0].alias_info is None:
            continue
        roots[inner] = changed  # a view of it, or itself
        if schema.is_mutable and inner.args[0] in whole:
            whole.add(inner)
        own = isinstance(changed, torch.fx.Node) and changed.name in state and inner.args[0] in whole
        if schema.is_mutable and isinstance(changed, torch.fx.Node) and not own:  # of a buffer, the whole is followed
            value = changed.meta.get("val")
            if isinstance(value, torch.Tensor) and value.is_floating_point():
                why = (
                    f"{inner.target} changes {changed.name} in place under no_grad, which a graph would not keep apart"
                )
                change = "Write what is detached, without no_grad"
                raise CaptureFailed(model=model, line=source_of(inner, __file__), why=why, change=change)


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


def line_of(error: BaseException) -> str:
    """The line of the model that raised the error, as ``file:line: text``."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if _is_theirs(f.filename)]
    frames = [f for f in frames if not f.filename.startswith(OWN)]
    return f"{short(frames[-1].filename)}:{frames[-1].lineno}: {frames[-1].line}" if frames else ""


def is_by_values(error: BaseException) -> bool:
    """Whether tracing failed because Python looks at the values of a tensor."""
    return "DataDependent" in type(error).__name__


def why(error: BaseException) -> str:
    """One sentence from an error of torch.export."""
    name = type(error).__name__
    if is_by_values(error):
        return "a Python decision depends on the values of a tensor"
    text = str(error).strip().splitlines()
    return f"{name}: {text[0]}" if text else name
