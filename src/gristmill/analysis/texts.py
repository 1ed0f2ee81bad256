"""Texts: the text that figures are measured on, from files or from the built-in sample corpus."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from gristmill.encode.compressed import find_compression
from gristmill.errors import OptionError

__all__ = [
    "MAX_TEXT_BYTES",
    "Text",
    "chunks_of",
    "file_chunks",
    "first_bytes",
    "read_text",
    "read_texts",
    "sample_text",
    "whole_characters",
]

MAX_TEXT_BYTES = 10_000_000
SAMPLE_BYTES = 1_000_000
CHUNK_BYTES = 1 << 16


@dataclass(frozen=True)
class Text:
    """A text and its name: a label such as a language, or the name of its file."""

    name: str
    data: bytes
    is_cut: bool = False  # the file is longer than `data`
    is_sample: bool = False  # from the built-in sample corpus
    path: str = ""  # of its file

    @property
    def description(self) -> str:
        """The name, and how much of the text was used."""
        return f"the first {len(self.data) / 1e6:.3g} MB of {self.name}" if self.is_cut else self.name


def read_texts(
    texts: Mapping[str, str | os.PathLike[str]] | Sequence[str | os.PathLike[str]] | str | os.PathLike[str] | None,
    *,
    max_bytes: int = MAX_TEXT_BYTES,
) -> list[Text]:
    """Return the beginning of each text file, or the sample text if there are none.

    texts: one file, several files, or files by label. A file is named by its label, or by its path.
    """
    if texts is None:
        return [sample_text()]
    if isinstance(texts, str | os.PathLike):
        texts = [texts]
    files = texts if isinstance(texts, Mapping) else {os.fspath(path): path for path in texts}
    if not files:
        raise OptionError("texts is empty. Pass one or more text files, or None for the built-in sample corpus.")
    return [read_text(path, name=name, max_bytes=max_bytes) for name, path in files.items()]


def read_text(path: str | os.PathLike[str], *, name: str | None = None, max_bytes: int = MAX_TEXT_BYTES) -> Text:
    """Return the first `max_bytes` of a text file, decompressed if its name ends in .gz or .zst.

    A longer file is cut at the end of a character.
    """
    data, more = first_bytes(Path(path), max_bytes)
    source = os.fspath(path)
    return Text(name or source, whole_characters(data) if more else data, is_cut=more, path=source)


def sample_text(num_bytes: int = SAMPLE_BYTES) -> Text:
    """Return the beginning of the built-in sample corpus: stories, one after the other, of about `num_bytes`."""
    from gristmill.sample_corpus import stories

    parts, size = [], 0
    for story in map(str.encode, stories()):
        parts.append(story)
        size += len(story) + 1
        if size > num_bytes:
            break
    return Text("the built-in sample corpus", b"\n".join(parts), is_sample=True)


def whole_characters(data: bytes) -> bytes:
    r"""Return `data` without an incomplete character at its end.

    >>> whole_characters(b"a\xc3"), whole_characters("aé".encode()) == "aé".encode(), whole_characters(b"a\x80\x80")
    (b'a', True, b'a\x80\x80')
    """
    for size in range(1, min(4, len(data) + 1)):
        byte = data[-size]
        if byte >= 0xC0:  # the first byte of a character of 2 to 4 bytes
            length = 2 + (byte >= 0xE0) + (byte >= 0xF0)
            return data[:-size] if size < length else data
        if byte < 0x80:
            break
    return data


def file_chunks(path: Path) -> Generator[bytes]:
    """Yield the bytes of a text file in chunks. Decompresses .gz and .zst, as `Tokenizer.encode_file` does."""
    # A pipe has no size, and its suffix means nothing.
    if path.is_file() and (compression := find_compression(str(path))):
        yield from _unpacked_chunks(path, compression)
        return
    with path.open("rb") as file:
        yield from chunks_of(file)


def first_bytes(path: Path, limit: int) -> tuple[bytes, bool]:
    """Return the first `limit` bytes of a text file, decompressed as in `file_chunks`, and whether it has more."""
    data = bytearray()
    with contextlib.closing(file_chunks(path)) as chunks:
        for chunk in chunks:
            data += chunk
            if len(data) > limit:
                return bytes(data[:limit]), True
    return bytes(data), False


def chunks_of(file: BinaryIO) -> Iterator[bytes]:
    """Yield the bytes of a file in chunks, as soon as they arrive."""
    read = getattr(file, "read1", file.read)  # read() would wait for a full chunk from the pipe
    while chunk := cast(bytes, read(CHUNK_BYTES)):
        yield chunk


def _unpacked_chunks(path: Path, compression: str) -> Iterator[bytes]:
    from gristmill.corpus.formats import load_packages
    from gristmill.corpus.inputs import Input
    from gristmill.corpus.skipped import without_skip_advice
    from gristmill.corpus.streams import open_stream
    from gristmill.errors import DamagedInputError

    status = path.stat()
    input = Input(str(path), "text", compression, status.st_size, status.st_mtime_ns)
    load_packages(input)
    buffer = memoryview(bytearray(CHUNK_BYTES))
    try:
        with open_stream(input) as stream:
            while num_bytes := stream.read(buffer):
                yield bytes(buffer[:num_bytes])
    except DamagedInputError as error:
        raise without_skip_advice(error) from None  # a single file has no --on-error
