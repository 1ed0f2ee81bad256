"""What every reader gives: batches of documents, as stretches of one buffer, with the place where each batch begins."""

from __future__ import annotations

from collections.abc import Callable
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

Buffer: TypeAlias = bytes | NDArray[np.uint8]
# The last place where a text may be cut in two whatever follows it, 0 if there is none. None in its place: documents
# are never cut, and each is held whole.
Cut: TypeAlias = Callable[[Buffer], int] | None


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
