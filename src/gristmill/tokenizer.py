"""tokenizer: merges, a pattern and special tokens, and what they do with text."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from gristmill import _core
from gristmill.arguments import (
    NUM_BYTE_TOKENS,
    as_utf8,
    check_kernel,
    check_special_tokens,
    check_tie_break,
    check_vocab_size,
)
from gristmill.errors import SpecialTokenError, UnknownTokenError, VocabSizeError
from gristmill.formats import TokenizerParts, read_tokenizer, write_tokenizer
from gristmill.merges import MergeIds, build_tokens, check_merges, find_ids
from gristmill.patterns import resolve_pattern
from gristmill.pretokenize import cut_into_pieces, time_limit, to_bytes, too_slow
from gristmill.profile import Profile

__all__ = ["Tokenizer"]

Specials = Literal["all"] | Collection[str]


class Tokenizer:
    """A byte-level BPE tokenizer: immutable, safe to share between threads, picklable.

    Ids 0-255 are the bytes, then come the merges in the order in which they were learned, then the special tokens in
    the order given. Every text can be encoded and comes back the same: `decode(encode(x)) == x`.

    >>> tok = Tokenizer([(b"l", b"o"), (b"lo", b"w")], special_tokens=["<|end|>"])
    >>> tok.encode("low<|end|>", allowed_special="all")
    [257, 258]
    >>> tok.decode([257, 258])
    'low<|end|>'
    """

    def __init__(
        self,
        merges: NDArray[np.integer[Any]] | Sequence[tuple[bytes, bytes]],
        *,
        pattern: str = "gpt2",
        special_tokens: Iterable[str] = (),
        tie_break: str = "greatest-bytes",
        profile: Profile | None = None,
    ) -> None:
        """Build a tokenizer from merges: pairs of bytes, or an (n, 2) array of ids of which row i makes id 256 + i.

        `tie_break` is the rule the merges were learned under; `extend_tokenizer` goes on with it.
        """
        # Nothing here may loop over the merges in Python: training 32,000 of them takes no more than 0.2 s in all.
        self._merge_ids = check_merges(merges if isinstance(merges, np.ndarray) else find_ids(merges))
        self._pattern = resolve_pattern(pattern)
        self._special_tokens = check_special_tokens(special_tokens)
        self._tie_break = check_tie_break(tie_break)
        self._profile = profile
        check_vocab_size(self.vocab_size, len(self._special_tokens))

    # What it is made of

    @property
    def vocab_size(self) -> int:
        """The number of tokens: 256 bytes, the merges and the special tokens."""
        return NUM_BYTE_TOKENS + len(self._merge_ids) + len(self._special_tokens)

    @property
    def pattern(self) -> str:
        """What cuts text into pieces: a name, or the regular expression of a pattern without a name."""
        return str(self._pattern)

    @property
    def tie_break(self) -> str:
        """The rule for pairs of equal count under which the merges were learned."""
        return self._tie_break

    @property
    def profile(self) -> Profile | None:
        """The figures of the training run this tokenizer comes from; not saved, not compared."""
        return self._profile

    @property
    def merge_ids(self) -> MergeIds:
        """The merges as ids, in order: shape (n, 2), row i makes id 256 + i. Read-only."""
        return self._merge_ids

    @property
    def merges(self) -> list[tuple[bytes, bytes]]:
        """The merges as bytes, in order."""
        return _core.build_pairs(self._merge_ids, self._tokens)

    @property
    def special_tokens(self) -> dict[str, int]:
        """The special tokens with their ids."""
        return dict(self._id_of_special)

    @property
    def vocab(self) -> dict[int, bytes]:
        """The bytes of every id, special tokens among them."""
        vocab = dict(enumerate(self._tokens))
        vocab.update((id, special.encode()) for special, id in self._id_of_special.items())
        return vocab

    @cached_property
    def _tokens(self) -> list[bytes]:
        return build_tokens(self._merge_ids)

    @cached_property
    def _id_of_token(self) -> dict[bytes, int]:
        return {token: id for id, token in enumerate(self._tokens)}

    @cached_property
    def _id_of_special(self) -> dict[str, int]:
        first = NUM_BYTE_TOKENS + len(self._merge_ids)
        return {special: first + i for i, special in enumerate(self._special_tokens)}

    @cached_property
    def _encoder(self) -> _core.Encoder:
        check_kernel()
        return _core.Encoder(
            self._merge_ids,
            self._pattern.name,
            [special.encode() for special in self._special_tokens],
            list(self._id_of_special.values()),
        )

    def token_bytes(self, id: int) -> bytes:
        """The bytes of one token, special or not.

        >>> Tokenizer([(b"l", b"o")]).token_bytes(256)
        b'lo'
        """
        return self.decode_bytes([id])

    def id_of(self, token: str | bytes) -> int:
        """The id of the token with these bytes; where a special token has the bytes of a plain one, the plain one's.

        >>> Tokenizer([(b"l", b"o")], special_tokens=["<s>"]).id_of("<s>")
        257
        """
        data = as_utf8(token, "the token")
        id = self._id_of_token.get(data)
        if id is None:
            id = self._id_of_special.get(data.decode("utf-8", "replace"))
        if id is None:
            raise UnknownTokenError(f"{token!r} is not a token of this tokenizer; encode() gives the ids of any text.")
        return id

    # What it does

    def encode(
        self, text: str | bytes, *, allowed_special: Specials = (), disallowed_special: Specials = "all"
    ) -> list[int]:
        """Return the ids of `text`.

        A special token spelled out in `text` is an error unless it is allowed: user text must not forge control tokens.
        Of specials that overlap, the leftmost wins, then the longest.

        allowed_special: special tokens that become their ids; "all" for all of them.
        disallowed_special: special tokens that are an error; "all" for all that are not allowed. What is in neither is
            encoded as plain text, so `disallowed_special=()` takes every text as it comes.

        >>> tok = Tokenizer([(b"a", b"a")], special_tokens=["<|end|>"])
        >>> tok.encode("aab")
        [256, 98]
        >>> tok.encode("aab<|end|>", allowed_special={"<|end|>"})
        [256, 98, 257]
        >>> len(tok.encode("<|end|>", disallowed_special=()))
        7
        """
        data = as_utf8(text, "the text")
        allowed = self._special_ids("allowed_special", allowed_special)
        if disallowed_special == "all":
            disallowed = set(self._id_of_special.values()) - allowed
        else:
            disallowed = self._special_ids("disallowed_special", disallowed_special)
        self._refuse_forged_specials(data, allowed, disallowed)
        if self._pattern.name is not None:
            ids: list[int] = self._encoder.encode(data, sorted(allowed)).tolist()
            return ids
        return self._encode_by_regex(data, allowed)

    def decode(self, ids: Iterable[int] | NDArray[np.integer[Any]], *, errors: str = "replace") -> str:
        r"""Return the text of `ids`.

        Tokens are bytes, and a few of them may be only a part of a character: `errors` says what becomes of that, as in
        `bytes.decode`. `decode_bytes` loses nothing.

        >>> tok = Tokenizer([])
        >>> tok.decode(tok.encode("é")), tok.decode(tok.encode("é")[:1])
        ('é', '\ufffd')
        """
        return self.decode_bytes(ids).decode("utf-8", errors)

    def decode_bytes(self, ids: Iterable[int] | NDArray[np.integer[Any]]) -> bytes:
        """Return the bytes of `ids`; `UnknownTokenError` (a `KeyError`) for an id that no token has."""
        return self._encoder.decode_bytes(self._checked_ids(ids))

    # What can be made of it

    def truncated(self, vocab_size: int) -> Tokenizer:
        """The tokenizer of a smaller vocabulary: what training with this `vocab_size` would have given.

        Special tokens stay last, so **their ids move down**; all other ids stay.

        >>> Tokenizer([(b"l", b"o"), (b"lo", b"w")], special_tokens=["<s>"]).truncated(258).special_tokens
        {'<s>': 257}
        """
        size = check_vocab_size(vocab_size, len(self._special_tokens))
        if size > self.vocab_size:
            raise VocabSizeError(
                f"vocab_size={size} is larger than that of the tokenizer, {self.vocab_size}. "
                f"Pass a smaller one, or go on training with extend_tokenizer()."
            )
        return Tokenizer(
            self._merge_ids[: size - NUM_BYTE_TOKENS - len(self._special_tokens)],
            pattern=self.pattern,
            special_tokens=self._special_tokens,
            tie_break=self._tie_break,
        )

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = True) -> None:
        """Write the tokenizer to `path` as Gristmill JSON; an existing file is replaced whole or not at all.

        A symbolic link is replaced, not followed. With `overwrite=False` an existing file is FileExistsError.
        """
        parts = TokenizerParts(self._merge_ids, self._pattern, self._special_tokens, self._tie_break)
        write_tokenizer(parts, path, overwrite=overwrite)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, format: str = "auto") -> Tokenizer:
        """The tokenizer in the file at `path`; `TokenizerFormatError` when it does not hold a sound one.

        Nothing in the file is executed.
        """
        parts = read_tokenizer(path, format)
        return cls(
            parts.merges, pattern=str(parts.pattern), special_tokens=parts.special_tokens, tie_break=parts.tie_break
        )

    # How Python sees it

    def _identity(self) -> tuple[bytes, str, tuple[str, ...], str]:
        merges = self._merge_ids.astype("<u4", copy=False).tobytes()
        return merges, self.pattern, self._special_tokens, self._tie_break

    def __eq__(self, other: object) -> bool:
        """Whether both would be saved as the same file."""
        return self._identity() == other._identity() if isinstance(other, Tokenizer) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._identity())

    def __reduce__(self) -> tuple[Callable[..., Tokenizer], tuple[Any, ...]]:
        return _restore, self._identity()

    def __repr__(self) -> str:
        specials = ", ".join(map(repr, self._special_tokens[:3])) + ", …" * (len(self._special_tokens) > 3)
        return f"<Tokenizer: vocab_size {self.vocab_size:,}, pattern {self.pattern!r}, special_tokens [{specials}]>"

    # Parts of encode and decode

    def _special_ids(self, argument: str, specials: Specials) -> set[int]:
        if specials == "all":
            return set(self._id_of_special.values())
        if isinstance(specials, str):
            raise SpecialTokenError(f"{argument}={specials!r} is a str. Pass a set, {{{specials!r}}}, or 'all'.")
        unknown = [special for special in specials if special not in self._id_of_special]
        if unknown:
            known = ", ".join(map(repr, self._special_tokens)) or "none at all"
            raise SpecialTokenError(
                f"{argument}: {unknown[0]!r} is not a special token of this tokenizer. It has {known}."
            )
        return {self._id_of_special[special] for special in specials}

    def _refuse_forged_specials(self, data: bytes, allowed: set[int], disallowed: set[int]) -> None:
        if not disallowed:
            return
        if not allowed:
            found = self._encoder.find_special(data, sorted(disallowed))
        else:
            matches = self._find_specials(data, allowed | disallowed)
            found = next(((match.start(), id) for match, id in matches if id in disallowed), None)
        if found is not None:
            position, id = found
            special = self._special_tokens[id - self.vocab_size]
            raise SpecialTokenError(
                f"the text spells out the special token {special!r} at byte {position}, which is not allowed. "
                f"Pass allowed_special={{{special!r}}} to encode it as its id, "
                f"or disallowed_special=() to encode it as plain text."
            )

    def _find_specials(self, data: bytes, ids: set[int]) -> Iterable[tuple[re.Match[bytes], int]]:
        """The specials with these ids in `data`: the leftmost, then the longest."""
        id_of = {special.encode(): id for special, id in self._id_of_special.items() if id in ids}
        if not id_of:
            return []
        longest_first = sorted(id_of, key=len, reverse=True)
        matches = re.finditer(b"|".join(map(re.escape, longest_first)), data)
        return ((match, id_of[match.group()]) for match in matches)

    def _encode_by_regex(self, data: bytes, allowed: set[int]) -> list[int]:
        ids: list[int] = []
        ids_of: dict[str, list[int]] = {}

        def encode_document(document: bytes) -> None:
            try:
                pieces = cut_into_pieces(document, self._pattern.regex, timeout=time_limit(document))
            except TimeoutError:
                raise too_slow(self._pattern.regex, document, "the text") from None
            for piece in pieces:
                if piece not in ids_of:
                    ids_of[piece] = self._encoder.encode_piece(to_bytes(piece)).tolist()
                ids.extend(ids_of[piece])

        begin = 0
        for match, id in self._find_specials(data, allowed):
            encode_document(data[begin : match.start()])
            ids.append(id)
            begin = match.end()
        encode_document(data[begin:])
        return ids

    def _checked_ids(self, ids: Iterable[int] | NDArray[np.integer[Any]]) -> NDArray[np.uint32]:
        array = np.asarray(ids if hasattr(ids, "__array__") else list(ids))
        if array.size == 0:
            return np.empty(0, np.uint32)
        if array.ndim != 1 or array.dtype.kind not in "iuO":
            raise TypeError(
                f"ids are {array.dtype} of shape {array.shape}. Pass a list or one-dimensional array of ints."
            )
        wrong = (array < 0) | (array >= self.vocab_size)
        if wrong.any():
            raise UnknownTokenError(f"no token has id {array[wrong][0]}: they go from 0 to {self.vocab_size - 1}.")
        return array.astype(np.uint32)


def _restore(merges: bytes, pattern: str, special_tokens: tuple[str, ...], tie_break: str) -> Tokenizer:
    ids = np.frombuffer(merges, "<u4").reshape(-1, 2)
    return Tokenizer(ids, pattern=pattern, special_tokens=special_tokens, tie_break=tie_break)
