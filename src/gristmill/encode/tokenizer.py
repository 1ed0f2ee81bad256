"""`Tokenizer`: a vocabulary and a pattern, with methods that encode and decode text."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from gristmill.encode.encode_methods import EncodeMethods
from gristmill.errors import TokenizerFormatError
from gristmill.tokenizer.formats import FORMATS, HEAD_BYTES
from gristmill.tokenizer.formats.content import may_be_hub_name
from gristmill.tokenizer.formats.tiktoken import PUBLISHED

__all__ = ["AnyTokenizer", "Tokenizer", "as_tokenizer"]


class Tokenizer(EncodeMethods):
    """A byte-level BPE tokenizer: immutable, safe to share between threads, picklable.

    Ids 0-255 are the bytes, followed by the merges in the order in which they were learned, then by the special tokens
    in the given order. A tokenizer loaded from another tool keeps its ids. Every text can be encoded, and decoding
    returns the same text: `decode(encode(x)) == x`.

    In `encode`, `encode_file` and `encode_corpus`, a special token in the text is plain text unless `allowed_special`
    names it, so user text cannot forge control tokens. Where special tokens overlap, the leftmost wins, then the
    longest.

    Examples:
        >>> tok = Tokenizer([(b"l", b"o"), (b"lo", b"w")], special_tokens=["<|end|>"])
        >>> tok.encode("low<|end|>", allowed_special="all")
        [257, 258]
        >>> tok.decode([257, 258])
        'low<|end|>'
    """


class ForeignTokenizer(Protocol):
    """A `tiktoken.Encoding` or a Hugging Face tokenizer, typed without importing these libraries."""

    @property
    def encode(self) -> Callable[..., Any]:
        """The method that all of them have."""


# Types that are accepted as a `tokenizer` argument.
AnyTokenizer = Tokenizer | str | os.PathLike[str] | ForeignTokenizer


def as_tokenizer(tokenizer: AnyTokenizer, name: str = "tokenizer") -> Tokenizer:
    """Return `tokenizer` as a `Tokenizer`; `name` is the name of the argument, for messages.

    Converts a `tiktoken.Encoding`, a `tokenizers.Tokenizer` or a fast tokenizer of transformers without importing these
    libraries. Loads a path: a tokenizer file of any format, or a folder with one.
    """
    if isinstance(tokenizer, Tokenizer):
        return tokenizer
    if isinstance(tokenizer, str | os.PathLike):
        return _load(tokenizer, name)
    packages = {base.__module__.partition(".")[0] for base in type(tokenizer).__mro__}
    if "tiktoken" in packages:
        return Tokenizer.from_tiktoken(tokenizer)
    if packages & {"tokenizers", "transformers"}:
        return Tokenizer.from_huggingface(tokenizer)
    raise TypeError(
        f"{name} is of type {type(tokenizer).__name__}. Pass a gristmill.Tokenizer, the path of a tokenizer file or of "
        f"a folder with one, a tiktoken.Encoding, or a Hugging Face tokenizer."
    )


def _load(path: str | os.PathLike[str], name: str) -> Tokenizer:
    """Return the tokenizer at `path`. An error names the argument and says how to create a tokenizer."""
    advice = "Train one with train_tokenizer()."
    try:
        return Tokenizer.load(path)
    except FileNotFoundError:
        if path in PUBLISHED:
            advice = f"For the tiktoken encoding of this name, pass Tokenizer.from_tiktoken({path!r})."
        elif isinstance(path, str) and may_be_hub_name(path):
            advice += f" For a name on the Hugging Face Hub, pass Tokenizer.from_pretrained({path!r})."
        message = f"{name}={os.fspath(path)!r}: there is no such file or folder. {advice}"
        raise FileNotFoundError(message) from None
    except TokenizerFormatError:
        if _looks_like_a_tokenizer(Path(path)):
            raise
        raise TokenizerFormatError(f"{name}={os.fspath(path)!r} is not a tokenizer file. {advice}") from None


def _looks_like_a_tokenizer(path: Path) -> bool:
    """Whether a format recognizes the file, so that its reader has a more precise message. True for a folder."""
    if not path.is_file():
        return True
    with path.open("rb") as file:
        head = file.read(HEAD_BYTES)
    return any(format.recognizes(path, head) for format in FORMATS.values())
