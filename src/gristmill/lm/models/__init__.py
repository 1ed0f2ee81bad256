"""models: what can be trained, by name.

A model is one file here with a frozen dataclass of its sizes and an `nn.Module` made from it, which has

    loss(batch, schedule) -> (loss, stats)      the loss of a micro-batch, and what is worth recording of it
    num_parameters, flops_per_token(T)          what the meters reckon with

Adding one is the file, a line in `MODELS` and a test.
"""

from __future__ import annotations

from typing import Any

from torch import nn

from gristmill.lm.models.gpt.network import GPT, GPTConfig
from gristmill.lm.models.vae.network import SequenceVAE, VAEConfig

__all__ = ["GPT", "MODELS", "GPTConfig", "SequenceVAE", "VAEConfig"]

MODELS: dict[str, tuple[type[Any], type[nn.Module]]] = {
    "gpt": (GPTConfig, GPT),
    "vae": (VAEConfig, SequenceVAE),
}
