"""Models of transformers, built from their config: never weights or code from a hub."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from trine.capture.inputs import random_tensor
from trine.capture.model import Model, make_model
from trine.capture.wishes import Wishes
from trine.capture.zoo import IMAGE, seeded, zoo_package
from trine.errors import BadInput, UnknownKey, UnknownName

TASKS = (  # the first that the model type has is built
    ("ZERO_SHOT_IMAGE_CLASSIFICATION", "AutoModel"),
    ("IMAGE_CLASSIFICATION", "AutoModelForImageClassification"),
    ("SPEECH_SEQ_2_SEQ", "AutoModelForSpeechSeq2Seq"),
    ("SEQ_TO_SEQ_CAUSAL_LM", "AutoModelForSeq2SeqLM"),
    ("MASKED_LM", "AutoModelForMaskedLM"),
    ("CAUSAL_LM", "AutoModelForCausalLM"),
)
SEQUENCE = 128


def transformers_model(name: str, wishes: Wishes) -> Model:
    """``hf:MODEL_TYPE``, or a local folder or config.json."""
    transformers = zoo_package("transformers")
    auto = zoo_package("transformers.models.auto.modeling_auto")
    wishes.refuse(name, input="Its inputs follow from its config.")
    config = _config(transformers, name, wishes)
    kind = config.model_type
    task = next((t for t, _ in TASKS if kind in getattr(auto, f"MODEL_FOR_{t}_MAPPING_NAMES")), None)
    if task is None:
        raise BadInput(
            f"hf:{kind} has none of the tasks for which inputs and a loss are known.",
            f"Known: {', '.join(t.lower().replace('_', ' ') for t, _ in TASKS)}.",
            "Give it as file.py:callable that returns a dictionary with module and inputs.",
        )
    _prepare(config, task)
    dtype = wishes.torch_dtype() or torch.float32
    inputs, targets = _examples(config, task, wishes, dtype)
    build = getattr(transformers, dict(TASKS)[task]).from_config
    seed = wishes.seed or 0
    module = seeded(build, wishes, f"hf:{kind}", config).to(dtype)
    if task == "CAUSAL_LM" and getattr(module, "loss_type", "") is None:
        module.loss_type = "ForCausalLM"  # the library's own choice, without its warning
    return make_model(module, inputs, targets, name=f"hf:{kind}", seed=seed, weights=f"random, seed {seed}")


def _config(transformers: Any, name: str, wishes: Wishes) -> Any:
    """The config with the settings applied; an unknown setting is an error."""
    settings = wishes.settings
    path = Path(name)
    if path.exists():
        return _with(transformers.AutoConfig.from_pretrained(path, local_files_only=True), settings, name)
    known = list(zoo_package("transformers.models.auto.configuration_auto").CONFIG_MAPPING_NAMES)
    if name not in known:
        raise UnknownName(
            "model type of transformers", name, known, change="A local folder or config.json will do too."
        )
    default = transformers.AutoConfig.for_model(name)
    _check_keys(default, settings, f"the config of hf:{name}")
    try:
        return transformers.AutoConfig.for_model(name, **settings)
    except (TypeError, ValueError) as error:
        raise BadInput(f"The config of hf:{name} does not take {settings}: {error}.", "", "Change --set.") from error


def _with(config: Any, settings: Mapping[str, Any], where: str) -> Any:
    _check_keys(config, settings, where)
    for key, value in settings.items():
        if isinstance(value, dict):
            _with(getattr(config, key), value, f"{where}: {key}")
        else:
            setattr(config, key, value)
    return config


def _check_keys(config: Any, settings: Mapping[str, Any], where: str) -> None:
    known = [*config.to_dict(), *config.attribute_map]
    for key, value in settings.items():
        if key not in known and not hasattr(config, key):
            raise UnknownKey(where=where, key=key, known=known)
        inner = getattr(config, key)
        if isinstance(value, dict) and hasattr(inner, "to_dict"):
            _check_keys(inner, value, f"{where}: {key}")


def _prepare(config: Any, task: str) -> None:
    """What a single forward pass needs: no cache, a start token, experts that run in every type."""
    for part in (config, getattr(config, "text_config", None)):
        if getattr(part, "use_cache", False):
            part.use_cache = False
    if "SEQ" in task and getattr(config, "decoder_start_token_id", None) is None:
        config.decoder_start_token_id = getattr(config, "pad_token_id", None) or 0
    if hasattr(config, "num_local_experts") or hasattr(config, "num_experts"):
        config._experts_implementation = "batched_mm"  # the fastest one has no float64


def _examples(config: Any, task: str, wishes: Wishes, dtype: torch.dtype) -> tuple[dict[str, Any], dict[str, Any]]:
    """Keyword arguments of the forward pass, and those more that make it compute its loss."""
    seed, batch, text = wishes.seed or 0, wishes.batch, config.get_text_config()
    vision = getattr(config, "vision_config", config)
    has_text = task != "IMAGE_CLASSIFICATION"
    wishes.refuse(config.model_type, **({} if has_text else {"seq": "Its inputs are images."}))
    has_images = task.endswith("IMAGE_CLASSIFICATION")
    wishes.refuse(config.model_type, **({} if has_images else {"size": "Its inputs are sequences."}))
    inputs: dict[str, Any] = {}
    if has_images:
        own = getattr(vision, "image_size", None)  # convolutions alone take any size, and some say none
        size = wishes.size or own or IMAGE[-1]
        height, width = size if isinstance(size, (tuple, list)) else (size, size)
        shape = (batch, getattr(vision, "num_channels", 3), height, width)
        inputs["pixel_values"] = random_tensor(shape, dtype, 0, 0, seed)
        if own and wishes.size and wishes.size != own:
            inputs["interpolate_pos_encoding"] = True
    if not has_text:
        return inputs, {"labels": random_tensor((batch,), torch.int64, 0, config.num_labels, seed + 1)}
    limits = [getattr(text, n, None) for n in ("max_position_embeddings", "n_positions", "max_target_positions")]
    length = wishes.seq or min([SEQUENCE, *(n for n in limits if n)])
    tokens = random_tensor((batch, length), torch.int64, 3, text.vocab_size, seed)
    if task == "ZERO_SHOT_IMAGE_CLASSIFICATION":
        return {"input_ids": tokens, **inputs}, {"return_loss": True}
    if task == "SPEECH_SEQ_2_SEQ":
        shape = (batch, config.num_mel_bins, 2 * config.max_source_positions)
        return {"input_features": random_tensor(shape, dtype, 0, 0, seed), "decoder_input_ids": tokens}, {
            "labels": tokens
        }
    if task == "SEQ_TO_SEQ_CAUSAL_LM":
        return {"input_ids": tokens, "decoder_input_ids": tokens.clone()}, {"labels": tokens.clone()}
    return {"input_ids": tokens}, {"labels": tokens.clone()}
