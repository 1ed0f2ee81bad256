"""Documents of a corpus: any iterable of `str` and `bytes` -> batches of bytes, never more than one in memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from gristmill.arguments import as_utf8

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
            document = item if isinstance(item, bytes) else as_utf8(item, f"document {index} of the corpus")
            if batch and len(document) > room:
                yield batch
                batch, room = [], batch_bytes
            batch.append(document)
            room -= len(document)
        if batch:
            yield batch
