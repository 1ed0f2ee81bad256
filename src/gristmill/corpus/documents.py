"""Documents of a corpus: any iterable of `str` and `bytes` -> batches of bytes, never more than one in memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from gristmill.errors import TextError

BATCH_BYTES = 16 << 20


@dataclass(frozen=True)
class Documents:
    """Documents that are still to be read from an iterable, once."""

    items: Iterable[Any]

    def batches(self, batch_bytes: int = BATCH_BYTES) -> Iterator[list[bytes]]:
        r"""The documents as bytes, gathered in lists of about `batch_bytes`; a longer document is a list of its own.

        >>> list(Documents(["ab", b"cd", "é"]).batches(batch_bytes=4))
        [[b'ab', b'cd'], [b'\xc3\xa9']]
        """
        batch: list[bytes] = []
        room = batch_bytes
        for index, item in enumerate(self.items):
            document = _as_bytes(item, index)
            if batch and len(document) > room:
                yield batch
                batch, room = [], batch_bytes
            batch.append(document)
            room -= len(document)
        if batch:
            yield batch


def _as_bytes(document: Any, index: int) -> bytes:
    if isinstance(document, bytes):
        return document
    if not isinstance(document, str):
        raise TypeError(
            f"document {index} of the corpus is a {type(document).__name__}. Every document must be str or bytes."
        )
    try:
        return document.encode()
    except UnicodeEncodeError as error:
        raise TextError(
            f"document {index} of the corpus has no UTF-8 form: {document[error.start]!r} at character {error.start} "
            f"is a lone surrogate. Pass bytes, such as document.encode('utf-8', 'surrogateescape')."
        ) from None
