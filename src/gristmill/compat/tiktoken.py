"""tiktoken's `Encoding` over a Gristmill tokenizer.

>>> import gristmill
>>> enc = Encoding(gristmill.Tokenizer([(b"h", b"i")], special_tokens=["<|endoftext|>"]), name="tiny")
>>> enc.encode("hi<|endoftext|>", allowed_special="all"), enc.eot_token, enc.n_vocab
([256, 257], 257, 258)

Arguments, results and types of errors (`ValueError` for a special token that is not allowed, `KeyError` for an unknown
token) are those of tiktoken. Differences:

* a lone surrogate in a `str` is an error; tiktoken replaces it with U+FFFD;
* of special tokens that overlap, the leftmost wins, then the longest;
* `encode_with_unstable` is missing;
* `encode`, `encode_ordinary` and the batch methods accept `bytes` too.

`tokenizer.to_tiktoken()` returns a real `tiktoken.Encoding`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from gristmill.encode.special_rules import Specials
from gristmill.encode.tokenizer import AnyTokenizer, Tokenizer, as_tokenizer

__all__ = ["Encoding", "get_encoding"]

NUM_THREADS = 8


def get_encoding(encoding_name: str) -> Encoding:
    """Return the encoding that tiktoken has under this name. tiktoken supplies the vocabulary, and may download it."""
    return Encoding(Tokenizer.from_tiktoken(encoding_name), name=encoding_name)


class Encoding:
    """An object with the interface of `tiktoken.Encoding`; immutable, picklable, thread-safe."""

    def __init__(self, tokenizer: AnyTokenizer, name: str = "gristmill") -> None:
        self.name = name
        self._tokenizer = as_tokenizer(tokenizer)

    @property
    def tokenizer(self) -> Tokenizer:
        """The underlying tokenizer."""
        return self._tokenizer

    def __repr__(self) -> str:
        return f"<Encoding {self.name!r}>"

    # Properties

    @property
    def n_vocab(self) -> int:
        """The largest id plus one."""
        return self._tokenizer.vocab_size

    @property
    def max_token_value(self) -> int:
        """The largest id."""
        return self._tokenizer.vocab_size - 1

    @property
    def eot_token(self) -> int:
        """The id of "<|endoftext|>"; `KeyError` if there is no such token."""
        return self._tokenizer.special_tokens["<|endoftext|>"]

    @property
    def special_tokens_set(self) -> set[str]:
        """The special tokens."""
        return set(self._tokenizer.special_tokens)

    def is_special_token(self, token: int) -> bool:
        """Whether `token` is the id of a special token."""
        return token in self._tokenizer.special_tokens.values()

    def token_byte_values(self) -> list[bytes]:
        """Return the bytes of all tokens except special ones, sorted."""
        return sorted(self._tokenizer.parts.vocabulary.tokens.values())

    # Encoding

    def encode_ordinary(self, text: str | bytes) -> list[int]:
        """Return the ids of `text`; special tokens are plain text."""
        return self._tokenizer.encode_ordinary(text)

    def encode(
        self, text: str | bytes, *, allowed_special: Specials = (), disallowed_special: Specials = "all"
    ) -> list[int]:
        """Return the ids of `text`; a special token spelled out in it is a `ValueError` unless it is allowed."""
        return self._tokenizer.encode(text, allowed_special=allowed_special, disallowed_special=disallowed_special)

    def encode_to_numpy(
        self, text: str | bytes, *, allowed_special: Specials = (), disallowed_special: Specials = "all"
    ) -> NDArray[np.uint32]:
        """Return the ids of `text` as an array."""
        return self._tokenizer.encode_array(
            text,
            allowed_special=allowed_special,
            disallowed_special=disallowed_special,
            dtype=np.uint32,
            num_threads=1,
        )

    def encode_ordinary_batch(self, text: Sequence[str | bytes], *, num_threads: int = NUM_THREADS) -> list[list[int]]:
        """Return the ids of each text; special tokens are plain text."""
        return self.encode_batch(text, num_threads=num_threads, disallowed_special=())

    def encode_batch(
        self,
        text: Sequence[str | bytes],
        *,
        num_threads: int = NUM_THREADS,
        allowed_special: Specials = (),
        disallowed_special: Specials = "all",
    ) -> list[list[int]]:
        """Return the ids of each text."""
        ids: Any = self._tokenizer.encode_batch(
            text,
            allowed_special=allowed_special,
            disallowed_special=disallowed_special,
            num_threads=num_threads,
            as_lists=True,
        )
        return list(ids)

    def encode_with_unstable(self, text: str, **_: Any) -> NoReturn:
        """Raise NotImplementedError."""
        raise NotImplementedError("encode_with_unstable is not supported. Call it on tokenizer.to_tiktoken().")

    def encode_single_token(self, text_or_bytes: str | bytes) -> int:
        """Return the id of the token with these bytes, special or not; `KeyError` if there is no such token."""
        return self._tokenizer.id_of(text_or_bytes)

    # Decoding

    def decode_bytes(self, tokens: Sequence[int]) -> bytes:
        """Return the bytes of `tokens`."""
        return self._tokenizer.decode_bytes(tokens)

    def decode(self, tokens: Sequence[int], errors: str = "replace") -> str:
        """Return the text of `tokens`; `errors` is for invalid UTF-8, as in `bytes.decode`."""
        return self._tokenizer.decode(tokens, errors=errors)

    def decode_single_token_bytes(self, token: int) -> bytes:
        """Return the bytes of one token; `KeyError` for an unknown id."""
        return self._tokenizer.token_bytes(token)

    def decode_tokens_bytes(self, tokens: Sequence[int]) -> list[bytes]:
        """Return the bytes of each of `tokens`."""
        return [self._tokenizer.token_bytes(token) for token in tokens]

    def decode_with_offsets(self, tokens: Sequence[int]) -> tuple[str, list[int]]:
        """Return the text of `tokens`, and the position of the character in which each token begins.

        >>> Encoding(Tokenizer([])).decode_with_offsets(list("aé!".encode()))
        ('aé!', [0, 1, 1, 2])
        """
        parts = self.decode_tokens_bytes(tokens)
        text = b"".join(parts).decode("utf-8", "strict")
        offsets: list[int] = []
        num_characters = 0
        for part in parts:
            # A token that continues a character belongs to the character that has begun.
            offsets.append(max(0, num_characters - _is_continuation(part[0])))
            num_characters += sum(not _is_continuation(byte) for byte in part)
        return text, offsets

    def decode_batch(
        self, batch: Iterable[Sequence[int]], *, errors: str = "replace", num_threads: int = NUM_THREADS
    ) -> list[str]:
        """Return the text of each sequence of ids."""
        return self._tokenizer.decode_batch(batch, errors=errors)

    def decode_bytes_batch(self, batch: Iterable[Sequence[int]], *, num_threads: int = NUM_THREADS) -> list[bytes]:
        """Return the bytes of each sequence of ids."""
        return [self._tokenizer.decode_bytes(tokens) for tokens in batch]


def _is_continuation(byte: int) -> bool:
    """Whether a byte is not the first of its character in UTF-8."""
    return 0x80 <= byte < 0xC0
