"""Map batches of documents over processes, like `datasets.map(batched=True, num_proc=N)` without its cache files.

With one process, the mapping is local. Several are forked, so the tokenizer is inherited and never pickled; documents
are sent pickled and ids are returned as arrays, which costs less than the lists of typical scripts.
"""

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

Tokens = npt.NDArray[np.uint16]
EncodeBatch = Callable[[Any, Sequence[str]], list[Tokens]]

# The usual batch is 1,000 short texts. Fewer balance the load if some texts are books, and save memory.
DOCUMENTS_A_BATCH = 10


def map_documents(tok: Any, documents: Sequence[str], encode: EncodeBatch, *, num_processes: int) -> list[Tokens]:
    """Return the ids of each document, in order."""
    batches = (documents[i : i + DOCUMENTS_A_BATCH] for i in range(0, len(documents), DOCUMENTS_A_BATCH))
    if num_processes == 1:
        return [tokens for batch in batches for tokens in encode(tok, batch)]
    pool = multiprocessing.get_context("fork").Pool(num_processes, initializer=_keep, initargs=(tok, encode))
    with pool:
        result = [tokens for encoded in pool.imap(_encode, batches) for tokens in encoded]
        pool.close()
        pool.join()  # the CPU time of a process counts after it has ended
    return result


def in_batches(tokens: Sequence[Tokens], num_batches: int) -> Iterator[Tokens]:
    """Yield the ids of all documents in at most `num_batches` joined groups of about the same number of documents.

    >>> [run.tolist() for run in in_batches([np.array([1]), np.array([2, 3]), np.array([4])], 2)]
    [[1], [2, 3, 4]]
    """
    bounds = [len(tokens) * i // num_batches for i in range(num_batches + 1)]
    for begin, end in pairwise(bounds):
        if begin < end:
            yield np.concatenate(tokens[begin:end])


_inherited: list[Any] = []


def _keep(tok: Any, encode: EncodeBatch) -> None:
    _inherited[:] = [tok, encode]


def _encode(batch: Sequence[str]) -> list[Tokens]:
    tok, encode = _inherited
    encoded: list[Tokens] = encode(tok, batch)
    return encoded
