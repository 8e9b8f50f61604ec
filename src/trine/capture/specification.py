"""From the MODEL of the command line to a :class:`Model`."""

import pickle
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import nn

from trine.capture.dense import diffusers_model, segmentation_model
from trine.capture.from_file import exported_model, python_model
from trine.capture.language import transformers_model
from trine.capture.model import Model, resized
from trine.capture.wishes import Options, Wishes
from trine.capture.zoo import timm_model, torchvision_model
from trine.errors import BadInput, UnknownName

FORMS: dict[str, Callable[[str, Wishes], Model]] = {
    "torchvision": torchvision_model,
    "timm": timm_model,
    "hf": transformers_model,
    "diffusers": diffusers_model,
    "smp": segmentation_model,
}
SHAPES = (
    "torchvision:NAME, timm:NAME, hf:MODEL_TYPE, diffusers:CLASS, smp:ARCHITECTURE/ENCODER, "
    "a local folder or config.json, file.py:callable or model.pt2"
)


def load_model(
    spec: str, options: Options | None = None, batch: int | None = None, *, default_batch: int = 2, meta: bool = False
) -> Model:
    """The model that a specification names, with that batch; if none is said, the inputs that a model brings stay as
    they are and others get ``default_batch``.

    ``meta``: its weights have no data, so a model of any size can be captured and planned, but not run.
    """
    wishes = Wishes.of(options or Wishes(), batch or default_batch, meta)
    model = _built(spec, wishes)
    model = model if batch is None else resized(model, batch)
    if wishes.load is None or meta:
        return model
    load_weights(model.module, wishes.load)
    return replace(model, weights=f"from {wishes.load.name}")


def _built(spec: str, wishes: Wishes) -> Model:
    form, colon, name = spec.partition(":")
    if form in FORMS and colon:
        return FORMS[form](name, wishes)
    file, colon, name = spec.rpartition(":")
    if colon and file.endswith(".py"):
        return python_model(Path(file), name, wishes)
    path = Path(spec)
    if path.suffix == ".pt2":
        return exported_model(path, wishes)
    if path.suffix == ".py":
        raise BadInput(f"{spec} names a file without a callable.", "", f"For example: {spec}:make_model")
    if path.is_dir() or (path.suffix == ".json" and path.is_file()):
        return transformers_model(spec, wishes)
    if colon:
        raise UnknownName("form of a model", form, FORMS, change=f"A model is {SHAPES}.")
    raise BadInput(f"The model {spec!r} was given.", f"A model is {SHAPES}.", f"Did you mean torchvision:{spec}?")


def load_weights(module: nn.Module, path: Path) -> None:
    """Load weights from a safetensors file or from tensors saved by ``torch.save``; other objects are refused."""
    weights = _read(path)
    for key in ("state_dict", "model", "model_state_dict"):
        if isinstance(weights.get(key), dict):
            weights = weights[key]
    try:
        module.load_state_dict(weights)
    except (RuntimeError, AttributeError, TypeError) as error:
        lines = [line.strip() for line in str(error).splitlines()[1:5]]
        raise BadInput(
            f"The weights in {path.name} do not fit the model.", " ".join(lines),
            "Give the --set with which they were trained, or other weights.",
        ) from error  # fmt: skip


def _read(path: Path) -> dict[str, Any]:
    try:
        if path.suffix == ".safetensors":
            return dict(import_module("safetensors.torch").load_file(path))
        return dict(torch.load(path, map_location="cpu", weights_only=True))
    except (OSError, RuntimeError, ValueError, TypeError, ImportError, pickle.UnpicklingError) as error:
        raise BadInput(
            f"The weights in {path.name} could not be read: {str(error).strip().splitlines()[0]}.",
            "Possible are safetensors files and dictionaries of tensors saved by torch.save.",
            "Save module.state_dict() in one of these.",
        ) from error
