"""ForeignModel: a model as another library describes it, which is what an export writes.

| format | `config` | `weights` |
|---|---|---|
| huggingface | what config.json holds: `architectures`, `model_type`, sizes | the state dict of that class |
| gguf | metadata by its keys, `general.architecture` among them | by llama.cpp's names |
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
    """The config and the weights of a model under the names of another library."""

    config: Mapping[str, Any]
    weights: Mapping[str, Tensor]
