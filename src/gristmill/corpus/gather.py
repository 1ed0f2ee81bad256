"""Documents of many batches, found on several threads, as few large stretches of text: what counting works on."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from gristmill.corpus.batches import Batch, Spans
from gristmill.corpus.ordered import map_in_order

Place = TypeVar("Place")


def find_documents(
    batches: Iterable[tuple[Place, Batch]], *, num_threads: int
) -> Generator[tuple[Place, Batch, Spans], None, None]:
    """The batches with their documents, in order, found on threads of their own."""

    def find(item: tuple[Place, Batch]) -> tuple[Place, Batch, Spans]:
        place, batch = item
        return place, batch, batch.spans()

    return map_in_order(find, batches, num_threads=num_threads)


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
