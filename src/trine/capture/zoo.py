"""Models of torchvision and timm: built by name with random weights and random images."""

from importlib import import_module
from typing import Any

import torch
from torch import nn

from trine.capture.inputs import random_tensor
from trine.capture.losses import assumed_loss, assumed_targets
from trine.capture.model import Model, make_model
from trine.capture.wishes import Wishes
from trine.errors import BadInput, UnknownName

SIZES = {
    "inception_v3": (3, 299, 299),
    "mvit": (3, 16, 224, 224),
    "swin3d": (3, 16, 224, 224),
    "s3d": (3, 16, 224, 224),
}
VIDEO = (3, 16, 112, 112)
IMAGE = (3, 224, 224)
EXTRAS = {
    "torchvision": "vision",
    "timm": "timm",
    "transformers": "hf",
    "diffusers": "dense",
    "segmentation_models_pytorch": "dense",
}  # package → the extra that installs it
SIZE_ARGUMENT = {"vit_": "image_size", "maxvit": "input_size"}  # constructors that must know the size of images


def zoo_package(name: str) -> Any:
    """A package of models; BadInput says how to install it."""
    try:
        return import_module(name)
    except ImportError as error:
        raise BadInput(
            f"The package {name} is needed for this model and is not installed.",
            f'For example: pip install "trine[{EXTRAS[name.split(".")[0]]}]"',
        ) from error


def seeded(build: Any, wishes: Wishes, what: str, *args: Any, **kwargs: Any) -> nn.Module:
    """What a constructor builds from the seed; the global random state is as before."""
    with torch.random.fork_rng(devices=[]), wishes.device():
        torch.manual_seed(wishes.seed or 0)
        try:
            module: nn.Module = build(*args, **kwargs)
        except (TypeError, ValueError, RuntimeError, AssertionError) as error:
            raise BadInput(
                f"{what} could not be built: {(str(error).strip() or type(error).__name__).splitlines()[0]}.",
                f"It was given {kwargs}." if kwargs else "",
                "Change --set or --size.",
            ) from error
    return module


def torchvision_model(name: str, wishes: Wishes) -> Model:
    """``torchvision:NAME``."""
    zoo = zoo_package("torchvision.models")
    known = [n for n in zoo.list_models() if not n.startswith("quantized_")]
    if name not in known:
        raise UnknownName("torchvision model", name, known)
    wishes.refuse(name, seq="Its inputs are images.")
    kind = zoo.get_model_builder(name).__module__.split(".")
    settings = wishes.settings
    if "segmentation" in kind or "detection" in kind:
        settings.setdefault("weights_backbone", None)
    if name in ("googlenet", "inception_v3"):
        settings.setdefault("init_weights", False)
    shape = next((s for prefix, s in SIZES.items() if name.startswith(prefix)), VIDEO if "video" in kind else IMAGE)
    if wishes.size:
        shape = (*shape[:-2], wishes.size, wishes.size)
    argument = next((a for prefix, a in SIZE_ARGUMENT.items() if name.startswith(prefix)), None)
    if argument and wishes.size:
        settings.setdefault(argument, wishes.size if argument == "image_size" else (wishes.size,) * 2)
    module = seeded(zoo.get_model, wishes, f"torchvision:{name}", name, weights=None, **settings)
    if "detection" in kind or "optical_flow" in kind:
        raise BadInput(
            f"torchvision:{name} takes lists of images with boxes, or pairs of images, and its shapes depend on data.",
            "Such a model cannot be captured whole.",
            "Give the part that can, for example its backbone, as file.py:callable.",
        )
    return image_model(f"torchvision:{name}", module, shape, wishes)


def timm_model(name: str, wishes: Wishes) -> Model:
    """``timm:NAME``."""
    timm = zoo_package("timm")
    known = timm.list_models()
    if name.split(".")[0] not in known:
        raise UnknownName("timm model", name, known)
    wishes.refuse(name, seq="Its inputs are images.")
    settings = wishes.settings
    build = timm.create_model
    plan: dict[str, Any] = timm.get_pretrained_cfg_value(name, "input_size") or IMAGE
    fixed = timm.get_pretrained_cfg_value(name, "fixed_input_size")
    shape = tuple(plan)
    if wishes.size:
        shape = (shape[0], wishes.size, wishes.size)
        if fixed:
            settings.setdefault("img_size", wishes.size)
    module = seeded(build, wishes, f"timm:{name}", name, pretrained=False, **settings)
    return image_model(f"timm:{name}", module, shape, wishes)


def image_model(name: str, module: nn.Module, shape: tuple[int, ...], wishes: Wishes) -> Model:
    """A model of images with random inputs, and the assumed loss with random targets."""
    if len(wishes.input) > 1:
        raise BadInput(f"{len(wishes.input)} inputs were given for {name}.", "It takes one.", "Give --input once.")
    dtype = wishes.torch_dtype() or torch.float32
    module = module.to(dtype)
    if wishes.input:
        shape = wishes.input[0].shape
        given = wishes.input[0].dtype
        if given not in ("float32", str(dtype).removeprefix("torch.")):  # float32 is also what nobody said
            raise BadInput(
                f"An input of {given} was given for {name}.", "Its images have the type of the weights.",
                "Leave it out, or give --dtype for both.",
            )  # fmt: skip
    seed = wishes.seed or 0
    images = random_tensor((wishes.batch, *shape), dtype, 0, 0, seed)
    targets = assumed_targets(module, (images,), {}, seed + 1)
    return make_model(module, (images,), targets, assumed_loss, name=name, seed=seed, weights=f"random, seed {seed}")
