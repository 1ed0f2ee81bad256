"""Input and result of an export format."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gristmill.errors import OptionError

if TYPE_CHECKING:
    from torch import Tensor

    from gristmill.encode.tokenizer import Tokenizer
    from gristmill.lm.models.foreign import ForeignModel

__all__ = ["Chat", "Source", "Written", "converted"]


@dataclass(frozen=True, kw_only=True)
class Chat:
    """Chat template of a model trained on conversations, and the token that ends a response."""

    template: str
    end_of_turn: int | None  # id that ends a response; None if plain text ends it, or if it is unknown
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Source:
    """A trained model in the terms of the format, with its tokenizer and options."""

    model: ForeignModel
    tokenizer: Tokenizer
    name: str  # name of the run
    context_length: int
    dtype: str
    overwrite: bool
    eos_token: str | None  # end-of-text token
    chat: Chat | None = None


@dataclass(frozen=True, kw_only=True)
class Written:
    """Result of an export format."""

    files: list[Path]
    architecture: str
    how_to_load: str  # a line of code, or a command
    notes: tuple[str, ...] = ()


def converted(name: str, tensor: Tensor, dtype: str) -> Tensor:
    """Return a CPU copy of the tensor in `dtype`. Raise `OptionError` if a number is too large for it."""
    import torch

    copy = tensor.detach().to("cpu", getattr(torch, dtype), copy=True).contiguous()
    if not bool(torch.isfinite(copy).all()):
        raise OptionError(
            f"dtype={dtype!r} is too small for numbers in the weight {name!r}. Pass dtype='bfloat16' or 'float32'."
        )
    return copy


def num_bytes(tensors: Iterable[Tensor], dtype: str) -> int:
    """Return the size of tensors in `dtype`, in bytes."""
    import torch

    return sum(tensor.numel() for tensor in tensors) * torch.empty((), dtype=getattr(torch, dtype)).itemsize
