"""What every reader gives: batches of documents, as stretches of one buffer, with the place where each batch begins."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

# Large enough that what Python does for a batch is nothing beside encoding it, small enough that a dozen of them under
# way are little memory and that the last one is not long in coming.
BATCH_BYTES = 2 << 20
# Of the places where batches end. A run that goes on must find the same ones: count it up when they move.
VERSION = 1
# The beginning of a document, by which it is assigned to a split, is never cut in two.
MIN_STRETCH_BYTES = 64 << 10
# How far a native pattern looks back from a cut: one character.
MIN_REACH = 4

Buffer: TypeAlias = bytes | NDArray[np.uint8]
# The last place where a text may be cut in two whatever follows it, 0 if there is none. None in its place: documents
# are never cut, and each is held whole.
Cut: TypeAlias = Callable[[Buffer], int] | None


class Cutting(NamedTuple):
    """Where documents may be cut by one who has seen only a stretch of them: a planner that looks at a few places."""

    # (text, start) -> a place after `start` where `text` may be cut, 0 if there is none: whatever follows `text`, and
    # whatever stands before it if `start` is at least `reach`.
    last: Callable[[Buffer, int], int]
    reach: int

    @classmethod
    def of(cls, last: Callable[[Buffer, int], int], special_tokens: Iterable[str]) -> Cutting:
        """That of a native pattern and these special tokens, which it may look at as a whole.

        >>> Cutting.of(lambda text, start: 0, ["<|end|>", "ä"]).reach
        7
        """
        return cls(last, max([MIN_REACH, *(len(special.encode()) for special in special_tokens)]))


class Mark(NamedTuple):
    """A place in an input where a batch begins; a reader that starts there gives the same batches from there on."""

    offset: int = 0  # bytes of the decompressed stream, or rows
    line: int = 0  # lines before it
    in_document: bool = False  # the document before goes on here


@dataclass(frozen=True, slots=True)
class Spans:
    """Documents as stretches of one buffer: document i is `text[begins[i]:ends[i]]`."""

    text: Buffer
    begins: NDArray[np.int64]
    ends: NDArray[np.int64]
    continued: bool = False  # the first stretch goes on with the document that the batch before left unfinished
    unfinished: bool = False  # the document of the last stretch goes on in the next batch
    num_nulls: int = 0  # records without a text, left out


class Batch(Protocol):
    """Some documents of one input, in order."""

    mark: Mark
    next_mark: Mark
    position: int  # bytes of the input, as it lies on the disk, that were read so far
    num_bytes: int  # of its text, about

    def spans(self) -> Spans:
        """The documents. The heavy part of reading; any thread may do it, with the GIL released."""


def join_spans(parts: list[Spans]) -> Spans:
    """The documents of several batches as stretches of one buffer; `continued` and `unfinished` mean nothing in it.

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
