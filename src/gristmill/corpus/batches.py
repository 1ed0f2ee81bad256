"""The output of every reader: batches of documents, as spans of one buffer, with the place where each batch begins."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

# Large enough that Python's work per batch is negligible next to encoding. Small enough that a dozen batches take
# little memory, and that threads wait only briefly for the one with the last batch.
BATCH_BYTES = 2 << 20
# Version of the rule that decides where batches end. Increase it when the rule changes, because a resumed run must
# find the same ends.
VERSION = 1
# The beginning of a document, which decides its split, is never cut.
MIN_STRETCH_BYTES = 64 << 10
# How far a native pattern looks back from a cut: one character.
MIN_REACH = 4

Buffer: TypeAlias = bytes | NDArray[np.uint8]
# Returns the last place where a text may be cut whatever follows it, 0 if not found. None instead of a function:
# documents are never cut, and each is kept in memory as a whole.
Cut: TypeAlias = Callable[[Buffer], int] | None


class Cutting(NamedTuple):
    """Where documents may be cut, for a planner that reads only parts of them."""

    # (text, start) -> a place after `start` where `text` may be cut, 0 if not found. The cut is valid whatever follows
    # `text`, and whatever precedes it if `start` is at least `reach`.
    last: Callable[[Buffer, int], int]
    reach: int

    @classmethod
    def of(cls, last: Callable[[Buffer, int], int], special_tokens: Iterable[str]) -> Cutting:
        """Return the `Cutting` of a native pattern and these special tokens. Its reach covers the longest of them.

        >>> Cutting.of(lambda text, start: 0, ["<|end|>", "ä"]).reach
        7
        """
        return cls(last, max([MIN_REACH, *(len(special.encode()) for special in special_tokens)]))


class Mark(NamedTuple):
    """A place in an input where a batch begins. A reader that starts there returns the same batches from there on."""

    offset: int = 0  # bytes of the decompressed stream, or rows
    line: int = 0  # number of lines before it
    in_document: bool = False  # the previous document continues here


@dataclass(frozen=True, slots=True)
class Spans:
    """Documents as spans of one buffer: document i is `text[begins[i]:ends[i]]`."""

    text: Buffer
    begins: NDArray[np.int64]
    ends: NDArray[np.int64]
    continued: bool = False  # the first span continues the unfinished document of the previous batch
    unfinished: bool = False  # the document of the last span continues in the next batch
    num_nulls: int = 0  # skipped records without a text


class Batch(Protocol):
    """Some documents of one input, in order."""

    mark: Mark
    next_mark: Mark
    position: int  # bytes read so far of the input as stored (compressed)
    num_bytes: int  # approximate size of the text

    def spans(self) -> Spans:
        """Return the documents. This is the expensive part of reading. Any thread may call it; it releases the GIL."""


def join_spans(parts: list[Spans]) -> Spans:
    """Return the documents of several batches as spans of one buffer. `continued` and `unfinished` have no meaning.

    >>> import numpy as np
    >>> one = Spans(b"abXcd", np.array([0, 3]), np.array([2, 5]))
    >>> joined = join_spans([one, Spans(b"__ef", np.array([2]), np.array([4]))])
    >>> bytes(joined.text), joined.begins.tolist(), joined.ends.tolist()
    (b'abXcdef', [0, 3, 5], [2, 5, 7])
    """
    parts = [part for part in parts if len(part.begins)]
    if len(parts) == 1:
        return parts[0]
    texts: list[NDArray[np.uint8]] = []
    begins, ends = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    size = 0
    for part in parts:
        first, last = int(part.begins[0]), int(part.ends[-1])
        texts.append(np.frombuffer(part.text, np.uint8)[first:last])
        begins.append(part.begins - first + size)
        ends.append(part.ends - first + size)
        size += last - first
    text = np.concatenate(texts) if texts else np.empty(0, np.uint8)
    return Spans(text, np.concatenate(begins), np.concatenate(ends))
