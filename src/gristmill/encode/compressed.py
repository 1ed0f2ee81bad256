"""Encode a compressed text file, decompressed while it is read."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gristmill.corpus.files import COMPRESSIONS, PACKED_SUFFIXES
from gristmill.corpus.formats import READERS, load_packages
from gristmill.corpus.inputs import Input
from gristmill.corpus.skipped import without_skip_advice
from gristmill.corpus.streams import Stream, open_stream
from gristmill.encode.chunks import encode_chunks
from gristmill.encode.encoder import Encoder
from gristmill.errors import CorpusError, DamagedInputError
from gristmill.progress import OnProgress

# Text decompressed at a time: enough for several threads.
BLOCK_BYTES = 8 << 20


def find_compression(path: str) -> str:
    """Return the compression of a text file by its suffix, as in a corpus: "gz", "zst" or "" for none.

    Raises CorpusError if the suffix is that of a file that is not text.

    >>> find_compression("tales.txt.gz"), find_compression("tales.ZST"), find_compression("tales.txt")
    ('gz', 'zst', '')
    """
    stem, suffix = os.path.splitext(path.lower())  # noqa: PTH122  as the corpus does
    compression = COMPRESSIONS.get(suffix, "")
    if compression:
        suffix = os.path.splitext(stem)[1]  # noqa: PTH122
    if suffix in PACKED_SUFFIXES:
        raise CorpusError(
            f"{path}: a {suffix} file is not plain text, and only .gz and .zst are decompressed. Decompress it first."
        )
    for reader in READERS.values():
        if not reader.may_be_compressed and suffix in (*reader.suffixes, *reader.asked_suffixes):
            raise CorpusError(
                f"{path}: a {suffix} file is a table, not one text. Pass it to encode_corpus, which reads the texts of "
                f"its column."
            )
    return compression


def encode_compressed(
    path: str,
    compression: str,
    encoder: Encoder[Any],
    rule: Any,
    num_threads: int,
    on_progress: OnProgress | None,
    *,
    max_bytes: int | None = None,
) -> NDArray[Any]:
    """Return the ids of the text in a compressed file. Memory holds the ids and a few blocks of text.

    Progress is in compressed bytes. A damaged file raises the same errors as in a corpus.

    max_bytes: raise CorpusError if the text is larger.
    """
    status = Path(path).stat()
    input = Input(path, "text", compression, status.st_size, status.st_mtime_ns)
    load_packages(input)

    def encode(text: bytes, rule: Any) -> NDArray[Any]:
        return encoder.encode_array(text, rule, num_threads)

    ids = [np.empty(0, encoder.dtype)]
    with _without_advice_to_skip(), open_stream(input) as stream:
        for some_ids in encode_chunks(
            _blocks_of(stream, max_bytes), encoder, rule, encode=encode, block_bytes=BLOCK_BYTES
        ):
            ids.append(some_ids)
            if on_progress is not None:
                on_progress("encode", stream.position, input.num_bytes)
    return np.concatenate(ids)


def _blocks_of(stream: Stream, max_bytes: int | None) -> Iterator[bytes]:
    buffer, total = memoryview(bytearray(BLOCK_BYTES)), 0
    while num_bytes := stream.read(buffer):
        total += num_bytes
        if max_bytes is not None and total > max_bytes:
            raise CorpusError(
                f"{stream.input.shown}: its text is larger than max_decompressed_bytes={max_bytes:,}. Pass a larger "
                f"limit, or encode_corpus() for a text of any size in bounded memory."
            )
        yield bytes(buffer[:num_bytes])


@contextmanager
def _without_advice_to_skip() -> Iterator[None]:
    """Remove the advice to pass on_error from errors, because `encode_file` has no such argument."""
    try:
        yield
    except DamagedInputError as error:
        without_skip_advice(error)
        raise
