"""TextRequest: what a model is asked to write."""

from __future__ import annotations

from dataclasses import dataclass

from gristmill.arguments import check_whole_number
from gristmill.errors import OptionError

__all__ = ["TextRequest"]


@dataclass(frozen=True, kw_only=True)
class TextRequest:
    """A model fills in its own defaults for None, and refuses with `OptionError` what it cannot do."""

    prompt: str = ""
    reconstruct: str | None = None  # give back this text from its latent
    between: tuple[str, str] | None = None  # the texts on the way from one to the other
    num_texts: int | None = None
    max_tokens: int | None = None  # in each text
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    seed: int | None = None
    use_cache: bool = True

    def __post_init__(self) -> None:
        for name, least in (("num_texts", 1), ("max_tokens", 0)):
            value = getattr(self, name)
            if value is not None and check_whole_number(name, value) < least:
                raise OptionError(f"{name}={value} is too small. Pass {name} >= {least}.")
