"""ForeignModel: a model in the format of another library, as an export writes it.

| format | `config` | `weights` |
|---|---|---|
| huggingface | content of config.json: `architectures`, `model_type`, sizes | the state dict of that class |
| gguf | metadata by key, including `general.architecture` | named as in llama.cpp |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["ForeignModel"]


@dataclass(frozen=True)
class ForeignModel:
    """The config and the weights of a model under the names of another library.

    Examples:
        >>> from gristmill.lm import GPT, GPTConfig
        >>> model = GPT(GPTConfig(vocab_size=300, num_layers=1, num_heads=2, d_model=16, context_length=8))
        >>> foreign = model.exported("huggingface", vocab_size=300)
        >>> foreign.config["model_type"], len(foreign.weights)
        ('llama', 12)
    """

    config: Mapping[str, Any]
    """Sizes and settings under the names of the other library."""
    weights: Mapping[str, Tensor]
    """Tensors under the names of the other library."""
