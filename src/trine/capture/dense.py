"""Models from image to image: segmentation-models-pytorch and diffusers, built with random weights."""

from typing import Any

import torch
from torch import nn

from trine.capture.inputs import random_tensor
from trine.capture.losses import assumed_loss, assumed_targets
from trine.capture.model import Model, make_model
from trine.capture.wishes import Wishes
from trine.capture.zoo import image_model, seeded, zoo_package
from trine.errors import BadInput, UnknownName

SIZE = 64
STEPS = 1000  # time steps of a diffusion
CLASSES = ("AutoencoderKL", "AutoencoderTiny", "VQModel", "UNet2DModel", "UNet2DConditionModel")
WORDS = 77  # of a prompt, where a model of diffusion is told what to draw


def segmentation_model(name: str, wishes: Wishes) -> Model:
    """``smp:ARCHITECTURE/ENCODER``."""
    smp = zoo_package("segmentation_models_pytorch")
    kind, _, encoder = name.partition("/")
    parts = {name: getattr(smp, name) for name in dir(smp)}
    known = {name: part for name, part in parts.items() if isinstance(part, type) and issubclass(part, nn.Module)}
    if kind not in known:
        raise UnknownName("architecture of segmentation-models-pytorch", kind, known)
    encoders = smp.encoders.get_encoder_names()
    if encoder and encoder not in encoders:
        raise UnknownName("encoder of segmentation-models-pytorch", encoder, encoders)
    wishes.refuse(name, seq="Its inputs are images.")
    settings = {"encoder_weights": None, "classes": 2, **({"encoder_name": encoder} if encoder else {})}
    settings |= wishes.settings
    module = seeded(known[kind], wishes, f"smp:{name}", **settings)
    size = wishes.size or SIZE
    return image_model(f"smp:{name}", module, (settings.get("in_channels", 3), size, size), wishes)


def diffusers_model(name: str, wishes: Wishes) -> Model:
    """``diffusers:CLASS``: a module of diffusers whose inputs are known, with its constructor's settings."""
    diffusers = zoo_package("diffusers")
    if name not in CLASSES:
        raise UnknownName("model of diffusers", name, CLASSES, change="Give another one as file.py:callable.")
    wishes.refuse(name, seq="Its inputs are images.", input="Its inputs follow from its config.")
    module = seeded(getattr(diffusers, name), wishes, f"diffusers:{name}", **wishes.settings)
    module = module.to(wishes.torch_dtype() or torch.float32)
    inputs, plain, seed = diffusion_inputs(module, name, wishes), FirstOutput(module), wishes.seed or 0
    targets = assumed_targets(plain, (), inputs, seed + 1)
    weights = f"random, seed {seed}"
    return make_model(plain, inputs, targets, assumed_loss, name=f"diffusers:{name}", seed=seed, weights=weights)


class FirstOutput(nn.Module):
    """A module of diffusers that gives its first result instead of an object of its library."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, **inputs: Any) -> Any:
        """The first of its results."""
        return self.module(**inputs, return_dict=False)[0]


def diffusion_inputs(module: Any, name: str, wishes: Wishes) -> dict[str, Any]:
    """Random images; a time step and a prompt where the model takes them."""
    config, seed, dtype = module.config, wishes.seed or 0, next(module.parameters()).dtype
    size = wishes.size or (config.get("sample_size") or SIZE)
    height, width = size if isinstance(size, (tuple, list)) else (size, size)
    shape = (wishes.batch, config["in_channels"], height, width)
    inputs: dict[str, Any] = {"sample": random_tensor(shape, dtype, 0, 0, seed)}
    if name.startswith("UNet2D"):
        inputs["timestep"] = random_tensor((wishes.batch,), torch.int64, 0, STEPS, seed + 2)
    if config.get("addition_embed_type"):
        raise BadInput(
            f"diffusers:{name} takes added conditions of the kind {config['addition_embed_type']}.",
            "Their shapes are not known.", "Give it as file.py:callable.",
        )  # fmt: skip
    if name == "UNet2DConditionModel":
        wide = config["cross_attention_dim"]
        if not isinstance(wide, int):
            raise BadInput(
                f"diffusers:{name} takes prompts of several widths, {wide}.", "", "Give it as file.py:callable."
            )
        inputs["encoder_hidden_states"] = random_tensor((wishes.batch, WORDS, wide), dtype, 0, 0, seed + 3)
    return inputs
