"""tokenizer: a vocabulary and a pattern, and what they do with text."""

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

    Ids 0-255 are the bytes, then come the merges in the order in which they were learned, then the special tokens in
    the order given; a tokenizer from elsewhere keeps the ids it has there. Every text can be encoded and comes back
    the same: `decode(encode(x)) == x`.

    Wherever text is encoded, by `encode`, `encode_file` or `encode_corpus`, a special token spelled out in it is plain
    text unless `allowed_special` names it, so that user text cannot forge control tokens. Of specials that overlap, the
    leftmost wins, then the longest.

    allowed_special: special tokens that become their ids; "all" for all of them.
    disallowed_special: special tokens that are an error; "all" for all that are not allowed.
    dtype: of the ids; default: uint16 where that holds them all, otherwise uint32.
    num_threads: default: every core this process may use, for texts that are worth it.

    >>> tok = Tokenizer([(b"l", b"o"), (b"lo", b"w")], special_tokens=["<|end|>"])
    >>> tok.encode("low<|end|>", allowed_special="all")
    [257, 258]
    >>> tok.decode([257, 258])
    'low<|end|>'
    """


class ForeignTokenizer(Protocol):
    """A `tiktoken.Encoding` or a tokenizer of Hugging Face, as far as type checkers can see without these libraries."""

    @property
    def encode(self) -> Callable[..., Any]:
        """What all of them have."""


# What may be passed where a tokenizer is asked for.
AnyTokenizer = Tokenizer | str | os.PathLike[str] | ForeignTokenizer


def as_tokenizer(tokenizer: AnyTokenizer, name: str = "tokenizer") -> Tokenizer:
    """Return the tokenizer that was passed as the argument `name`, converted or loaded where it is another object.

    A `tiktoken.Encoding`, a `tokenizers.Tokenizer` and a fast tokenizer of transformers are converted; none of these
    libraries is imported for that. A path is loaded: a tokenizer file of any format, or a folder with one.
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
        f"{name} is a {type(tokenizer).__name__}. Pass a gristmill.Tokenizer, the path of a tokenizer file or of a "
        f"folder with one, a tiktoken.Encoding, or a tokenizer of Hugging Face."
    )


def _load(path: str | os.PathLike[str], name: str) -> Tokenizer:
    """The tokenizer at `path`. An error says what was passed, and how to make a tokenizer where there is none."""
    advice = "Train one with train_tokenizer()."
    try:
        return Tokenizer.load(path)
    except FileNotFoundError:
        if path in PUBLISHED:
            advice = f"For the encoding of tiktoken with this name, pass Tokenizer.from_tiktoken({path!r})."
        elif isinstance(path, str) and may_be_hub_name(path):
            advice += f" For a name on the Hugging Face Hub, pass Tokenizer.from_pretrained({path!r})."
        message = f"{name}={os.fspath(path)!r}: there is no such file or folder. {advice}"
        raise FileNotFoundError(message) from None
    except TokenizerFormatError:
        if _looks_like_a_tokenizer(Path(path)):
            raise
        raise TokenizerFormatError(f"{name}={os.fspath(path)!r} is not a tokenizer file. {advice}") from None


def _looks_like_a_tokenizer(path: Path) -> bool:
    """Whether a format claims the file, so that its reader's message says more; a folder always has one of its own."""
    if not path.is_file():
        return True
    with path.open("rb") as file:
        head = file.read(HEAD_BYTES)
    return any(format.recognizes(path, head) for format in FORMATS.values())
