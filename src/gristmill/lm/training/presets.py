"""Presets: options that belong together, under a name; and what each model has for defaults of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gristmill.errors import OptionError

__all__ = ["MODEL_DEFAULTS", "PRESETS", "PRESET_NOTES", "preset_options", "without_length"]

# What a model has instead of the defaults of `TrainConfig`; presets and options go on top.
MODEL_DEFAULTS: dict[str, dict[str, Any]] = {
    "vae": {"batch_size": 4, "gradient_accumulation_steps": 2, "limit_val_batches": 0.1},
}

# What people ask for by these names; `bf16-mixed` is the better choice on every GPU that has it, and so few sequences
# at once are far from filling one.
FAST_VAE: dict[str, Any] = {
    "model": "vae",
    "batch_size": 4,
    "num_workers": 8,
    "pin_memory": True,
    "gradient_accumulation_steps": 2,
    "max_sequence_length": 1000,
    "precision": "16-mixed",
    "use_dynamic_padding": True,
}

PRESETS: dict[str, dict[str, Any]] = {
    "quickstart": {
        "context_length": 128,
        "num_layers": 4,
        "num_heads": 4,
        "d_model": 128,
        "tie_embeddings": True,
        "batch_size": 8,
        "max_steps": 1000,
        "optimizer": "muon",
        "learning_rate": 4e-3,
        "muon_learning_rate": 0.012,
        "warmup_steps": 0.05,
        "checkpoint_interval": 250,
        "limit_val_batches": 16,
        "val_check_interval": 200,
        "sample_interval": 200,
    },
    "tinystories-17m": {
        "context_length": 256,
        "num_layers": 4,
        "num_heads": 16,
        "d_model": 512,
        "d_ff": 1344,
        "batch_size": 256,
        "max_tokens": 327_680_000,
        "learning_rate": 2e-3,
        "warmup_steps": 200,
        "compile_model": True,
        "val_check_interval": 500,
        "sample_interval": 500,
    },
    "gpt2-124m": {
        "context_length": 1024,
        "num_layers": 12,
        "num_heads": 6,  # of 128, which attention kernels are fastest at; the same parameters as 12 of 64
        "d_model": 768,
        "tie_embeddings": True,
        "batch_size": 64,
        "global_batch_size": 512,
        "epochs": 1.0,
        "learning_rate": 6e-4,
        "warmup_steps": 700,
        "compile_model": True,
        "val_check_interval": 250,
        "sample_interval": 1000,
    },
    "vae-fast": {**FAST_VAE, "fast_detection": True},
    "vae-max-performance": {**FAST_VAE, "disable_metrics_monitoring": True, "compile_model": True},
    "vae-low-memory": {
        "model": "vae",
        "batch_size": 2,
        "num_workers": 4,
        "max_sequence_length": 500,
        "precision": "16-mixed",
        "fast_detection": True,
        "use_dynamic_padding": True,
    },
    "vae-debug": {
        "model": "vae",
        "batch_size": 1,
        "num_workers": 2,
        "max_sequence_length": 100,
        "precision": "32",
        "fast_detection": True,
        "bag_of_words_weight": 3.0,  # a sequence of 100 tokens has a third of the words of a usual one
    },
}

# What a list of the presets adds to a name.
PRESET_NOTES = {"quickstart": "two minutes on a CPU"}

LENGTHS = ("max_steps", "max_tokens", "epochs")


def preset_options(preset: str | None, given: Mapping[str, Any]) -> dict[str, Any]:
    """What the preset and its model set, or the model that was given; nothing for None."""
    if preset is not None and preset not in PRESETS:
        raise OptionError(f"preset={preset!r} is not known. Pass one of {', '.join(map(repr, PRESETS))}.")
    options = PRESETS[preset] if preset is not None else {}
    model = str(given.get("model") or options.get("model"))
    return {**MODEL_DEFAULTS.get(model, {}), **options}


def without_length(options: dict[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a preset or file, less what those that go on top of it make void: its length, its portions."""
    if any(given.get(name) is not None for name in LENGTHS):
        options = {name: value for name, value in options.items() if name not in LENGTHS}
    if given.get("gradient_accumulation_steps") is not None and given.get("global_batch_size") is None:
        options.pop("global_batch_size", None)
    return options
