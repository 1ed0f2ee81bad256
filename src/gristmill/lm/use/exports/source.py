"""What a format of exports gets, and what it returns."""

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
    """How a model that was trained on conversations is asked, and where its responses end."""

    template: str
    end_of_turn: int | None  # the special token that ends a response; None: text does, or it is not known
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Source:
    """A trained model in the words of the format, and what is written beside it."""

    model: ForeignModel
    tokenizer: Tokenizer
    name: str  # of the run
    context_length: int
    dtype: str
    overwrite: bool
    eos_token: str | None  # which ends a document
    chat: Chat | None = None


@dataclass(frozen=True, kw_only=True)
class Written:
    """What a format wrote."""

    files: list[Path]
    architecture: str
    how_to_load: str  # a line of code, or a command
    notes: tuple[str, ...] = ()


def converted(name: str, tensor: Tensor, dtype: str) -> Tensor:
    """A copy of the tensor in main memory; `OptionError` for a number that is too large for the type."""
    import torch

    copy = tensor.detach().to("cpu", getattr(torch, dtype), copy=True).contiguous()
    if not bool(torch.isfinite(copy).all()):
        raise OptionError(
            f"dtype={dtype!r}: the weight {name!r} holds numbers beyond its range. Pass dtype='bfloat16' or 'float32'."
        )
    return copy


def num_bytes(tensors: Iterable[Tensor], dtype: str) -> int:
    """The size of tensors in another type."""
    import torch

    return sum(tensor.numel() for tensor in tensors) * torch.empty((), dtype=getattr(torch, dtype)).itemsize
