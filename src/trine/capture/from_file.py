"""Models from a file of the user: ``file.py:callable`` and ``model.pt2``.  Both are code and run here."""

import inspect
import sys
import traceback
from collections.abc import Callable
from dataclasses import replace
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any
from zipfile import is_zipfile

import torch
from torch import nn

from trine.capture.inputs import random_tensor
from trine.capture.losses import assumed_loss, assumed_targets
from trine.capture.model import Model, make_model
from trine.capture.wishes import Wishes
from trine.errors import BadInput, TrineError, UnknownKey, UnknownName

LOADED_AS = "trine_model_"  # and the file's name: the module as which a user's file is loaded
KEYS = ("module", "inputs", "targets", "loss", "optimizer", "batch_dims")


def python_model(path: Path, name: str, wishes: Wishes) -> Model:
    """``file.py:callable``: the callable gets the settings and gives a module, a pair or a dictionary."""
    wishes.refuse(f"{path.name}:{name}", size="Say --input, or make the inputs in the file.", seq="Say --input.")
    if not path.is_file():
        raise BadInput(f"There is no file {path}.", "A model is given as file.py:callable.", "Correct the path.")
    seed = wishes.seed or 0
    with torch.random.fork_rng(devices=[]), wishes.device():
        torch.manual_seed(seed)
        loaded = _guarded(path, lambda: load_file(path, LOADED_AS + path.stem))
        function = getattr(loaded, name, None)
        if not callable(function):
            known = [n for n, v in vars(loaded).items() if callable(v) and not n.startswith("_")]
            raise UnknownName(f"callable in {path.name}", name, known)
        _check_settings(function, wishes.settings, f"{path.name}:{name}")
        made = _guarded(path, lambda: function(**wishes.settings))
    given = _as_dictionary(made, f"{path.name}:{name}")
    dtype = wishes.torch_dtype()
    module: nn.Module = given.pop("module")
    module = module.to(dtype) if dtype else module
    inputs = given.pop("inputs", None)
    if wishes.input:
        inputs = tuple(_example(module, shape, wishes, i) for i, shape in enumerate(wishes.input))
    if inputs is None:
        raise BadInput(
            f"{path.name}:{name} returns a module without example inputs.",
            "Their shapes are needed.",
            "For example: --input 3x224x224, or return (module, inputs).",
        )
    return _guarded(path, lambda: _complete(module, _cast(inputs, dtype), given, f"{path.name}:{name}", seed))


def _check_settings(function: Callable[..., Any], settings: dict[str, Any], where: str) -> None:
    """Raise UnknownKey for a ``--set`` that the callable does not take."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # a callable without a signature says itself what is wrong
        return
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return
    known = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    for key in settings:
        if key not in known:
            raise UnknownKey(where=where, key=key, known=known)


def exported_model(path: Path, wishes: Wishes) -> Model:
    """``model.pt2``, an exported program with the inputs that it was exported with."""
    why = "An exported program is fixed."
    wishes.refuse(path.name, size=why, seq=why, input=why, dtype=why, set=why)
    if not path.is_file():
        raise BadInput(f"There is no file {path}.", "", "Correct the path.")
    try:
        if not is_zipfile(path):
            raise ValueError("it is no zip archive")
        program = torch.export.load(path)
    except Exception as error:  # whatever the loader meets
        why = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise BadInput(
            f"{path.name} could not be read: {why.rstrip('.')}.",
            "A .pt2 file is one that torch.export.save wrote.", "Save it again.",
        ) from error  # fmt: skip
    args, kwargs = program.example_inputs or ((), {})
    if not args and not kwargs:
        raise BadInput(
            f"{path.name} was saved without its example inputs.", "", "Save it with torch.export.save again."
        )
    inputs: Any = kwargs if kwargs else args
    if args and kwargs:
        raise BadInput(
            f"{path.name} was exported with positional and keyword arguments.", "One kind is possible.",
            "Export it again with either.",
        )  # fmt: skip
    return replace(_complete(program.module(), inputs, {}, path.name, wishes.seed or 0), fixed=True)


def _complete(module: nn.Module, inputs: Any, given: dict[str, Any], name: str, seed: int) -> Model:
    """With the assumed loss where none was given and the module does not compute it."""
    if given.get("loss") is None and "targets" not in given:
        dims = {key: dim for key, dim in (given.get("batch_dims") or {}).items() if key != "targets"}
        model = make_model(module, inputs, {}, batch_dims=dims, name=name, seed=seed)
        targets = assumed_targets(module, model.inputs.args, model.inputs.kwargs, seed + 1)
        given = given | {"targets": targets, "loss": assumed_loss}
    return make_model(module, inputs, name=name, seed=seed, weights="from the file", **given)


def load_file(path: Path, name: str) -> Any:
    """The user's file as a module of this name."""
    spec = spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[name] = module  # classes of the file must be found by name
    sys.path.insert(0, str(path.parent))  # as python itself does for a script
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(path.parent))
    return module


def _guarded(path: Path, run: Callable[[], Any]) -> Any:
    """What the user's code gives; an error of it names its line."""
    try:
        return run()
    except TrineError:
        raise
    except (Exception, SystemExit) as error:  # whatever the user's code raises
        own = path.resolve()
        frames = [f for f in traceback.extract_tb(error.__traceback__) if Path(f.filename).resolve() == own]
        line = error.lineno if isinstance(error, SyntaxError) else frames[-1].lineno if frames else None
        place = f"{path.name}:{line}" if line else path.name
        text = str(error).strip().rstrip(".")
        what = f"{type(error).__name__}: {text}" if text else type(error).__name__
        raise BadInput(f"{place} raised {what}.", "", "Correct the file.") from error


def _as_dictionary(made: Any, where: str) -> dict[str, Any]:
    if isinstance(made, nn.Module):
        return {"module": made}
    if isinstance(made, (tuple, list)) and len(made) == 2 and isinstance(made[0], nn.Module):
        return {"module": made[0], "inputs": made[1]}
    if isinstance(made, dict) and isinstance(made.get("module"), nn.Module):
        for key in made:
            if key not in KEYS:
                raise UnknownKey(where=where, key=key, known=KEYS)
        return dict(made)
    raise BadInput(
        f"{where} returns a {type(made).__name__}.",
        f"It may return a module, (module, inputs), or a dictionary with {', '.join(KEYS)}.",
    )


def _example(module: nn.Module, shape: Any, wishes: Wishes, number: int) -> torch.Tensor:
    """One random input; integers are below the size of the module's smallest embedding."""
    dtype = getattr(torch, shape.dtype, None)
    if not isinstance(dtype, torch.dtype):
        raise UnknownName(
            "data type", shape.dtype, ("float32", "float64", "float16", "bfloat16", "int64", "int32", "bool")
        )
    words = [part.num_embeddings for part in module.modules() if isinstance(part, nn.Embedding)]
    seed = (wishes.seed or 0) + 100 + number
    return random_tensor((wishes.batch, *shape.shape), dtype, 0, min([*words] or [2]), seed)


def _cast(inputs: Any, dtype: torch.dtype | None) -> Any:
    """Floating inputs in the type of the weights."""
    if dtype is None:
        return inputs
    return torch.utils._pytree.tree_map_only(
        torch.Tensor, lambda t: t.to(dtype) if t.is_floating_point() else t, inputs
    )
