r"""`Words`: the distinct pieces of a corpus with their counts. `count_words` returns it, and training accepts it.

Counting is most of the work on a large corpus. Count once, save the table, add the tables of several parts, and train
any number of vocabularies from the result:

>>> a = Words.from_counts({"low": 5, "lower": 2})
>>> b = Words.from_counts({"newest": 6, "low": 1})
>>> (a + b).most_common(2)
[(b'low', 6), (b'newest', 6)]

The file format (`.gmw`), with little-endian numbers:

    8 bytes    b"GMWORDS\n"
    u32        version, 1
    u32        length of the header in bytes
    header     JSON in UTF-8: {"pattern": {"name", "regex"}, "special_tokens": [text, …],
               "num_words": n, "num_bytes": m, "source_bytes": s}
    u64 × n    counts
    u64 × n    positions of the first occurrences in the corpus, ascending
    u64 × n+1  offsets of the words in the next section
    u8  × m    the words, one after the other
    32 bytes   SHA-256 of everything before it

The reader does not trust the file. It checks the sizes against the size of the file before it reads on, and the
checksum, the order and the distinctness of the words before it builds the table.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from gristmill._core import WordTable
from gristmill.arguments import DEFAULT_SPECIAL_TOKENS, as_utf8, check_min_frequency, check_special_tokens
from gristmill.errors import CorpusError, CountOverflowError, GristmillError, WordsFormatError, warn_user
from gristmill.gpu.counting import DeviceTable
from gristmill.notebook import html_table, shortened
from gristmill.pretokenize.patterns import Pattern, resolve_pattern
from gristmill.publish import publish

__all__ = ["Words"]

MAGIC = b"GMWORDS\n"
VERSION = 1
MAX_HEADER_BYTES = 16 << 20
MAX_COUNT = 2**63 - 1
_START = struct.Struct("<8sII")
_CHECKSUM_BYTES = 32
READ_ITEMS = 1 << 20


class Words:
    """Words (distinct pieces) with their counts, in order of first occurrence.

    Create one with `count_words`, `Words.from_counts` or `Words.load`. `len(words)` is the number of distinct words,
    `b" low" in words` tests for one, iteration yields them, and `a + b` adds the tables of two corpora.

    Examples:
        >>> words = Words.from_counts({"low": 5, "lower": 2}) + Words.from_counts({"newest": 6, "low": 1})
        >>> len(words), words.num_pieces, words.count("low")
        (3, 14, 6)
    """

    def __init__(self, table: WordTable | DeviceTable, *, pattern: Pattern, special_tokens: tuple[str, ...]) -> None:
        """Wrap a native table.

        Args:
            table: The table of the core, or one in the memory of a GPU.
            pattern: Pattern that cut the pieces.
            special_tokens: Special tokens that were boundaries.
        """
        self._made = table
        self._pattern = pattern
        self._special_tokens = special_tokens

    @classmethod
    def from_counts(
        cls, counts: Mapping[Any, int], *, pattern: str = "gpt2", special_tokens: Iterable[str] = DEFAULT_SPECIAL_TOKENS
    ) -> Words:
        """Return the words of a mapping from `str` or `bytes` to counts, such as one counted by another program.

        Each key is one word: the pattern is not applied to it. The order of the mapping is taken as the order of first
        occurrence.

        Args:
            counts: Count of each word.
            pattern: Pattern of the tokenizer that will be trained.
            special_tokens: Special tokens of the tokenizer that will be trained.

        Raises:
            CorpusError: A word is empty or counted twice, or a count is not an integer from 1 to 2^63 - 1.
            CountOverflowError: The sum of the counts exceeds 2^63 - 1.
            OptionError: `pattern` or `special_tokens` is not valid.
            TypeError: A key is neither `str` nor `bytes`.

        Examples:
            >>> list(Words.from_counts({"b": 2, "a": 3}).items())
            [(b'b', 2), (b'a', 3)]
        """
        words: dict[bytes, int] = {}
        for key, count in counts.items():
            word = as_utf8(key, f"the word {key!r}")
            if isinstance(count, bool) or not isinstance(count, int | np.integer) or not 1 <= count <= MAX_COUNT:
                raise CorpusError(f"the count of {key!r} is {count!r}. Pass integers from 1 to 2^63 - 1.")
            if not word:
                raise CorpusError("the counts contain an empty word, but a piece is never empty. Remove it.")
            if word in words:
                raise CorpusError(f"{word!r} is counted twice, as str and as bytes. Add the two counts.")
            words[word] = int(count)
        num_bytes = min(sum(len(word) * count for word, count in words.items()), MAX_COUNT)
        table = build_table(words, num_bytes=num_bytes)
        return cls(table, pattern=resolve_pattern(pattern), special_tokens=check_special_tokens(special_tokens))

    @property
    def table(self) -> WordTable:
        """The native table that merges are learned from."""
        return self._made.to_host() if isinstance(self._made, DeviceTable) else self._made

    @property
    def pattern(self) -> str:
        """Pattern that cut the pieces: its name, or the regular expression of a pattern without a name."""
        return str(self._pattern)

    @property
    def special_tokens(self) -> tuple[str, ...]:
        """Special tokens that were boundaries."""
        return self._special_tokens

    @property
    def num_pieces(self) -> int:
        """Number of pieces: the sum of all counts."""
        return self.table.total

    @property
    def total(self) -> int:
        """Deprecated name of `num_pieces`."""
        warn_user("Words.total is deprecated. Use Words.num_pieces.", DeprecationWarning)
        return self.num_pieces

    @property
    def source_bytes(self) -> int:
        """Size in bytes of the corpus that was counted."""
        return self.table.source_bytes

    def __len__(self) -> int:
        """Return the number of distinct words."""
        return len(self._made)

    def __iter__(self) -> Iterator[bytes]:
        """Yield the words in order of first occurrence."""
        data, offsets = self.table.data.tobytes(), self.table.offsets.tolist()
        for i in range(len(self)):
            yield data[offsets[i] : offsets[i + 1]]

    def items(self) -> Iterator[tuple[bytes, int]]:
        """Return an iterator over (word, count), in order of first occurrence.

        Examples:
            >>> list(Words.from_counts({"b": 2, "a": 3}).items())
            [(b'b', 2), (b'a', 3)]
        """
        return zip(self, self.table.counts.tolist(), strict=True)

    def most_common(self, n: int | None = None) -> list[tuple[bytes, int]]:
        """Return the `n` words with the highest counts. Words with equal counts are in order of first occurrence.

        Args:
            n: Number of words. None: all of them.

        Raises:
            TypeError: `n` is neither an int nor None.

        Examples:
            >>> Words.from_counts({"low": 5, "lower": 2, "newest": 6}).most_common(2)
            [(b'newest', 6), (b'low', 5)]
        """
        counts = self.table.counts
        order = np.argsort(-counts.astype(np.int64), kind="stable")[:n]
        data, offsets = self.table.data, self.table.offsets
        return [(data[offsets[i] : offsets[i + 1]].tobytes(), int(counts[i])) for i in order.tolist()]

    @cached_property
    def _count_of(self) -> dict[bytes, int]:
        return dict(self.items())

    def count(self, word: str | bytes) -> int:
        """Return the count of `word`; 0 if it does not occur.

        Args:
            word: The word as `str` or `bytes`.

        Raises:
            TextError: `word` is a `str` with lone surrogates.
            TypeError: `word` is neither `str` nor `bytes`.

        Examples:
            >>> Words.from_counts({"low": 5}).count("high")
            0
        """
        return self._count_of.get(as_utf8(word, "the word"), 0)

    def __contains__(self, word: object) -> bool:
        """Whether `word`, `str` or `bytes`, is in the table."""
        return isinstance(word, str | bytes) and as_utf8(word, "the word") in self._count_of

    def __add__(self, other: Words) -> Words:
        """Return the words of both corpora, as if `other` were read after `self`.

        Both must have the same pattern and special tokens. Raises CountOverflowError if the sum of the counts exceeds
        2^63 - 1.
        """
        if not isinstance(other, Words):
            return NotImplemented
        for what, mine, theirs in (
            ("pattern", self.pattern, other.pattern),
            ("special_tokens", list(self.special_tokens), list(other.special_tokens)),
        ):
            if mine != theirs:
                raise CorpusError(
                    f"cannot add words counted with {what}={mine!r} to words counted with {what}={theirs!r}. "
                    f"Count both with the same {what}."
                )
        return self._with(self.table.joined(other.table))

    def at_least(self, min_frequency: int) -> Words:
        """Return the words that occur at least `min_frequency` times.

        Args:
            min_frequency: Smallest count to keep.

        Raises:
            OptionError: `min_frequency` is less than 1.

        Examples:
            >>> list(Words.from_counts({"low": 5, "high": 1}).at_least(2))
            [b'low']
        """
        return self._with(self.table.at_least(check_min_frequency(min_frequency)))

    def _with(self, table: WordTable) -> Words:
        return Words(table, pattern=self._pattern, special_tokens=self._special_tokens)

    def __eq__(self, other: object) -> bool:
        """Whether words, counts, order, pattern and special tokens are equal."""
        if not isinstance(other, Words):
            return NotImplemented
        return (
            (self.pattern, self.special_tokens) == (other.pattern, other.special_tokens)
            and np.array_equal(self.table.counts, other.table.counts)
            and np.array_equal(self.table.offsets, other.table.offsets)
            and np.array_equal(self.table.data, other.table.data)
        )

    __hash__ = None  # type: ignore[assignment]  # not hashable, like a dict

    def __reduce__(self) -> tuple[Any, ...]:
        table = self.table
        arrays = (table.data, table.offsets, table.counts, table.firsts)
        return _restore, (*arrays, table.source_bytes, self._pattern, self._special_tokens)

    def __repr__(self) -> str:
        return f"<Words: {len(self):,} distinct, {self.num_pieces:,} pieces, pattern {shortened(self.pattern)!r}>"

    def _repr_html_(self) -> str:
        """Return the HTML that notebooks show."""
        specials = ", ".join(repr(shortened(special)) for special in self.special_tokens[:3])
        words = ", ".join(f"{shortened(word.decode('utf-8', 'replace'))!r} {n:,}" for word, n in self.most_common(5))
        rows = [
            ("distinct words", f"{len(self):,}"),
            ("pieces", f"{self.num_pieces:,}"),
            ("corpus bytes", f"{self.source_bytes:,}"),
            ("most common", words or "none"),
            ("special tokens", specials + ", …" * (len(self.special_tokens) > 3) or "none"),
            ("pattern", shortened(self.pattern)),
        ]
        return html_table("Words", rows)

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = True) -> None:
        """Write the table to `path`.

        The write is atomic: an existing file is replaced completely or not at all.

        Args:
            path: Path of the file to write, such as "corpus.gmw".
            overwrite: Replace an existing file.

        Raises:
            FileExistsError: The file exists and `overwrite` is False.
            OSError: The file cannot be written.

        Examples:
            ```python
            words.save("corpus.gmw")
            words = gm.Words.load("corpus.gmw")
            ```
        """
        header = {
            "pattern": self._pattern.to_json(),
            "special_tokens": list(self._special_tokens),
            "num_words": len(self),
            "num_bytes": int(self.table.offsets[-1]),
            "source_bytes": self.source_bytes,
        }
        text = json.dumps(header, ensure_ascii=False).encode()
        checksum = hashlib.sha256()
        with publish(path, overwrite=overwrite) as file:
            for part in (
                _START.pack(MAGIC, VERSION, len(text)) + text,
                _little_endian(self.table.counts),
                _little_endian(self.table.firsts),
                _little_endian(self.table.offsets),
                self.table.data.data,
            ):
                checksum.update(part)
                file.write(part)
            file.write(checksum.digest())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Words:
        """Return the table that `save` wrote to `path`.

        Args:
            path: Path of the file.

        Raises:
            WordsFormatError: The file is damaged, or not a table of words.
            OSError: The file cannot be read.

        Examples:
            ```python
            tok = gm.train_tokenizer(gm.Words.load("corpus.gmw"), vocab_size=32_000)
            ```
        """
        with Path(path).open("rb") as file:
            try:
                return cls._read(file, os.fstat(file.fileno()).st_size)
            except (GristmillError, ValueError, KeyError, TypeError, RecursionError) as error:
                raise WordsFormatError(
                    f"{os.fspath(path)}: not a table of words: {error!s:.2000}. Count again with "
                    f"gristmill.count_words()."
                ) from error

    @classmethod
    def _read(cls, file: BinaryIO, file_bytes: int) -> Words:
        start = file.read(_START.size)
        if len(start) < _START.size or not start.startswith(MAGIC):
            raise WordsFormatError(f"it starts with {start[:8]!r} instead of {MAGIC!r}")
        _, version, header_bytes = _START.unpack(start)
        if version != VERSION:
            raise WordsFormatError(f"its format version is {version}, but this Gristmill reads version {VERSION}")
        if header_bytes > min(MAX_HEADER_BYTES, file_bytes):
            raise WordsFormatError(f"it claims a header of {header_bytes} bytes, which is too long")
        text = file.read(header_bytes)
        header = json.loads(text)
        num_words, num_bytes, source_bytes = (
            _size(header, name) for name in ("num_words", "num_bytes", "source_bytes")
        )
        expected = _START.size + header_bytes + 8 * (3 * num_words + 1) + num_bytes + _CHECKSUM_BYTES
        if file_bytes != expected:
            raise WordsFormatError(f"it has {file_bytes} bytes, but its {num_words} words need {expected} bytes")
        checksum = hashlib.sha256(start + text)
        counts, firsts, offsets, data = (
            _read_array(file, dtype, length, checksum)
            for dtype, length in (("<u8", num_words), ("<u8", num_words), ("<u8", num_words + 1), ("u1", num_bytes))
        )
        if file.read(_CHECKSUM_BYTES) != checksum.digest():
            raise WordsFormatError("its checksum does not match its content")
        pattern = Pattern.from_json(header["pattern"])
        special_tokens = check_special_tokens(header["special_tokens"])
        table = WordTable.from_arrays(data, offsets, counts, firsts, source_bytes)
        return cls(table, pattern=pattern, special_tokens=special_tokens)


def device_table(words: Words) -> DeviceTable | None:
    """Return the table in the memory of the GPU that counted the words, or None."""
    return words._made if isinstance(words._made, DeviceTable) else None


def build_table(words: Mapping[bytes, int], *, num_bytes: int, firsts: NDArray[np.uint64] | None = None) -> WordTable:
    """Return the native table of `words`, which are in order of first occurrence.

    Without `firsts`, the first occurrences are assumed to follow one another directly.
    """
    if sum(words.values()) > MAX_COUNT:
        raise CountOverflowError("the sum of all counts exceeds 2^63 - 1. Divide the counts by a common factor.")
    lengths = np.fromiter((len(word) for word in words), np.uint64, len(words))
    offsets = np.zeros(len(words) + 1, np.uint64)
    np.cumsum(lengths, out=offsets[1:])
    return WordTable.from_arrays(
        np.frombuffer(b"".join(words), np.uint8),
        offsets,
        np.fromiter(words.values(), np.uint64, len(words)),
        offsets[:-1].copy() if firsts is None else firsts,
        num_bytes,
    )


def _restore(*parts: Any) -> Words:
    *table, pattern, special_tokens = parts
    return Words(WordTable.from_arrays(*table), pattern=pattern, special_tokens=special_tokens)


def _size(header: Any, name: str) -> int:
    size = header[name]
    if type(size) is not int or not 0 <= size <= MAX_COUNT:
        raise WordsFormatError(f"its {name} is {size!r}")
    return size


def _little_endian(array: NDArray[np.uint64]) -> memoryview:
    return np.ascontiguousarray(array, dtype="<u8").data


def _read_array(file: BinaryIO, dtype: str, length: int, checksum: Any) -> NDArray[Any]:
    array = np.empty(length, dtype)
    for start in range(0, length, READ_ITEMS):
        part = array[start : start + READ_ITEMS]
        data = file.read(part.nbytes)
        checksum.update(data)
        part[:] = np.frombuffer(data, dtype)  # raises ValueError if the file is truncated
    return array.astype(dtype.lstrip("<"), copy=False)
