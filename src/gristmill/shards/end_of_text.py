"""The end-of-text token: which one it is, and whether it comes after or before a document."""

from __future__ import annotations

from typing import Any, Literal, cast

from gristmill.arguments import check_whole_number
from gristmill.encode.tokenizer import Tokenizer
from gristmill.errors import OptionError, SpecialTokenError
from gristmill.shards.layouts import Layout
from gristmill.shards.manifest import EndOfText

AUTO = "auto"
KNOWN = ("<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<|eos|>", "[EOS]")
POSITIONS = ("after", "before")


def find_end_of_text(tokenizer: Tokenizer, end_of_text: Any, position: Any, layout: Layout) -> EndOfText | None:
    """Return the token that separates documents: a special by name or id, the usual one for "auto", or None.

    >>> tok = Tokenizer([], special_tokens=["<|endoftext|>"])
    >>> from gristmill.shards.layouts import LAYOUTS
    >>> find_end_of_text(tok, "auto", None, LAYOUTS["nanogpt"]).position
    'after'
    """
    side = layout.end_of_text if position is None else position
    if side not in POSITIONS:
        raise OptionError(f"end_of_text_position must be 'after' or 'before', got {position!r}.")
    if end_of_text is None:
        if position is not None:
            raise OptionError(
                f"end_of_text_position={position!r} does not apply to end_of_text=None, which means no separator. "
                f"Leave one of them out."
            )
        return None
    specials = tokenizer.special_tokens
    token = _named(specials, end_of_text) if isinstance(end_of_text, str) else _with_id(specials, end_of_text)
    return EndOfText(id=specials[token], token=token, position=cast(Literal["after", "before"], side))


def _named(specials: dict[str, int], name: str) -> str:
    if name in specials:
        return name
    if name != AUTO:
        raise SpecialTokenError(f"end_of_text={name!r} is not a special token of this tokenizer. {_has(specials)}")
    for known in KNOWN:
        if known in specials:
            return known
    raise SpecialTokenError(
        f"the tokenizer has none of the usual end-of-text tokens ({', '.join(KNOWN)}). {_has(specials)} "
        f"Pass end_of_text= with one of its special tokens, or end_of_text=None for no separator between documents."
    )


def _with_id(specials: dict[str, int], id: Any) -> str:
    number = check_whole_number("end_of_text", id)
    for token, its_id in specials.items():
        if its_id == number:
            return token
    raise SpecialTokenError(f"end_of_text={number} is not the id of a special token. {_has(specials)}")


def _has(specials: dict[str, int]) -> str:
    shown = ", ".join(f"{token!r} ({id})" for token, id in list(specials.items())[:10])
    return f"It has {shown or 'no special tokens'}{', …' * (len(specials) > 10)}."
