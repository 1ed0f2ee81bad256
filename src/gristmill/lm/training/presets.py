"""Presets: options that belong together, under a name. Each model declares its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gristmill.errors import OptionError
from gristmill.lm.models.config import ModelConfig
from gristmill.lm.models.registry import MODELS, find_model

__all__ = ["PRESET_NOTES", "all_presets", "preset_options", "without_length"]

# What a list of the presets adds to a name.
PRESET_NOTES = {"quickstart": "two minutes on a CPU"}

LENGTHS = ("max_steps", "max_tokens", "epochs")


def all_presets() -> dict[str, dict[str, Any]]:
    """The options of every preset of every model, its model among them."""
    return {
        preset: {"model": name, **options}
        for name, entry in MODELS.items()
        for preset, options in _own_presets(entry.config).items()
    }


def _own_presets(kind: type[ModelConfig]) -> Mapping[str, Mapping[str, Any]]:
    """The presets of a config, without those that it inherits from another model: they stay presets of that one."""
    owner = next(base for base in kind.__mro__ if "PRESETS" in vars(base))
    is_inherited = owner is not kind and any(entry.config is owner for entry in MODELS.values())
    return {} if is_inherited else kind.PRESETS


def preset_options(preset: str | None, given: Mapping[str, Any]) -> dict[str, Any]:
    """The options of the preset, on top of the run defaults of its model, or of the model in `given`."""
    presets = all_presets()
    if preset is not None and preset not in presets:
        raise OptionError(f"preset={preset!r} is not known. Pass one of {', '.join(map(repr, presets))}.")
    options = presets[preset] if preset is not None else {}
    model = given.get("model") or options.get("model")
    if model is None:
        return options
    kind = type(model) if isinstance(model, ModelConfig) else find_model(model).config
    if options and not issubclass(kind, find_model(options["model"]).config):
        raise OptionError(
            f"preset={preset!r} is for model={options['model']!r}, and this is model={kind.name!r}. Leave one out."
        )
    return {**kind.RUN_DEFAULTS, **options, **({"model": kind.name} if options else {})}


def without_length(options: dict[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a preset or file, less what those on top of it make void: its length, its global batch."""
    if any(given.get(name) is not None for name in LENGTHS):
        options = {name: value for name, value in options.items() if name not in LENGTHS}
    if given.get("gradient_accumulation_steps") is not None and given.get("global_batch_size") is None:
        options = {name: value for name, value in options.items() if name != "global_batch_size"}
    return options
