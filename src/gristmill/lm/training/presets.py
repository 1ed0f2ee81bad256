"""Presets: named sets of options. Each model declares its presets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gristmill.errors import OptionError
from gristmill.lm.models.config import ModelConfig
from gristmill.lm.models.registry import MODELS, find_model

__all__ = ["LENGTHS", "PRESET_NOTES", "all_presets", "preset_options", "run_defaults", "without_length"]

# Notes shown next to the names of presets in lists.
PRESET_NOTES = {"quickstart": "three minutes on a CPU"}

# Options that set the length of a run; at most one of them is given.
LENGTHS = ("max_steps", "max_tokens", "epochs")


def all_presets() -> dict[str, dict[str, Any]]:
    """Return the options of every preset of every model, including "model"."""
    return {
        preset: {"model": name, **options}
        for name, entry in MODELS.items()
        for preset, options in _own_presets(entry.config).items()
    }


def _own_presets(kind: type[ModelConfig]) -> Mapping[str, Mapping[str, Any]]:
    """Return the presets of a config, without those inherited from another model."""
    owner = next(base for base in kind.__mro__ if "PRESETS" in vars(base))
    is_inherited = owner is not kind and any(entry.config is owner for entry in MODELS.values())
    return {} if is_inherited else kind.PRESETS


def preset_options(preset: str | None, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of the preset, with the model in `given` if there is one; raise if it does not fit."""
    presets = all_presets()
    if preset is not None and preset not in presets:
        raise OptionError(f"preset={preset!r} is not known. Pass one of {', '.join(map(repr, presets))}.")
    if preset is None:
        return {}
    options = presets[preset]
    model = given.get("model") or options["model"]
    kind = type(model) if isinstance(model, ModelConfig) else find_model(model).config
    if not issubclass(kind, find_model(options["model"]).config):
        raise OptionError(
            f"preset={preset!r} is for model={options['model']!r}, but model={kind.name!r} is given. Leave one out."
        )
    return {**options, "model": kind.name}


def run_defaults(model: str) -> Mapping[str, Any]:
    """Return the run defaults that differ for this model. Presets and options replace them."""
    return find_model(model).config.RUN_DEFAULTS


def without_length(options: dict[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a preset or file without the length and global batch that `given` replaces."""
    if any(given.get(name) is not None for name in LENGTHS):
        options = {name: value for name, value in options.items() if name not in LENGTHS}
    if given.get("gradient_accumulation_steps") is not None and given.get("global_batch_size") is None:
        options = {name: value for name, value in options.items() if name != "global_batch_size"}
    return options
