"""TextRequest: the prompts and options of text generation. Does not import torch, because the command line uses it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from gristmill.arguments import check_whole_number
from gristmill.errors import OptionError
from gristmill.lm.models.stop_strings import check_stop

if TYPE_CHECKING:
    from gristmill.lm.data.chat_template import ChatTemplate

__all__ = ["PrecisionOfText", "TextRequest"]

PrecisionOfText: TypeAlias = Literal["auto", "bf16", "32"]


@dataclass(frozen=True, kw_only=True)
class TextRequest:
    """The prompts and options of text generation.

    A model fills in its defaults for None, and raises `OptionError` for options it does not support.
    """

    prompt: str = ""
    prompts: tuple[str, ...] = ()  # several, instead of `prompt`
    reconstruct: str | None = None  # a text to reconstruct from its latent
    between: tuple[str, str] | None = None  # two texts to interpolate between
    num_texts: int | None = None  # per prompt
    max_tokens: int | None = None  # per text
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()  # a text ends before the first of these strings
    batch_size: int | None = None  # texts generated at once
    use_cache: bool = True
    chat: ChatTemplate | None = None  # treat prompts as user messages, and generate responses

    def __post_init__(self) -> None:
        object.__setattr__(self, "stop", check_stop(self.stop))
        for name, least in (("num_texts", 1), ("max_tokens", 0), ("batch_size", 1)):
            value = getattr(self, name)
            if value is not None and check_whole_number(name, value) < least:
                raise OptionError(f"{name} must be >= {least}, got {value}.")
        if self.prompt and self.prompts:
            raise OptionError("prompt and prompts exclude each other. Pass one of them.")

    @property
    def all_prompts(self) -> tuple[str, ...]:
        """The prompts, one or several."""
        return self.prompts or (self.prompt,)
