"""Records of the inputs of a run, by which a later run detects whether they have changed."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import BinaryIO

from gristmill import _core
from gristmill.corpus import Input
from gristmill.corpus.inputs import is_url
from gristmill.corpus.sources import Source, open_source
from gristmill.shards.manifest import InputEntry

NUM_SAMPLES = 16
SAMPLE_BYTES = 4096


def recorded_name(name: str) -> str:
    """Return the path or URL of an input as manifests record it.

    The bytes of a path are decoded as UTF-8, whatever the encoding of the locale is.

    >>> recorded_name("tales/straße.txt")
    'tales/straße.txt'
    """
    return name if is_url(name) else os.fsencode(name).decode("utf-8", "surrogateescape")


def local_path(recorded: str) -> Path:
    """Return the path of a recorded name, for the encoding of this process."""
    return Path(os.fsdecode(recorded.encode("utf-8", "surrogateescape")))


def fingerprints(inputs: Iterable[Input]) -> tuple[InputEntry, ...]:
    """Return an entry for each input; a few kilobytes of each are read."""
    return tuple(_fingerprint(input) for input in inputs)


def _fingerprint(input: Input) -> InputEntry:
    samples = ""
    if input.is_local:  # at a URL each sample would be a request, and a corpus may have a million inputs
        with closing(open_source(input)) as source:
            samples = sample_input(partial(_read_at, source), input.num_bytes)
    return InputEntry(
        path=recorded_name(input.name),
        format=input.format,
        compression=input.compression,
        bytes=input.num_bytes,
        modified_ns=input.modified_ns,
        samples=samples,
        skipped=None,
    )


def _read_at(source: Source, offset: int, size: int) -> bytes:
    data = bytearray(size)
    rest = memoryview(data)
    source.seek(offset)
    while rest:
        num_bytes = source.readinto(rest)
        if not num_bytes:
            break  # truncated since it was found, which reading it will report
        rest = rest[num_bytes:]
    return bytes(data[: size - len(rest)])


def find_changes(entry: InputEntry) -> list[str]:
    """Describe how a local input differs from its record; an empty list if it does not."""
    path = local_path(entry.path)
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        return ["it is no longer a regular file"]
    changes = []
    if status.st_size != entry.bytes:
        changes.append(f"its size is {status.st_size:,} bytes instead of {entry.bytes:,}")
    if entry.modified_ns is not None and status.st_mtime_ns != entry.modified_ns:
        changes.append("its modification time differs")
    if entry.samples and status.st_size == entry.bytes:
        with path.open("rb", buffering=0) as file:
            samples = sample_input(partial(_read_file_at, file), status.st_size)
        if samples != entry.samples:
            changes.append("its content differs")
    return changes


def _read_file_at(file: BinaryIO, offset: int, size: int) -> bytes:
    file.seek(offset)
    return file.read(size)


def sample_input(read_at: Callable[[int, int], bytes], size: int) -> str:
    """Return the xxh64 of 16 samples of 4 KiB, evenly spread, as 16 hexadecimal digits; of all bytes in a small file.

    read_at(offset, size) returns bytes of the file. The samples include the first and the last bytes, so that they
    change when something is appended or bytes are shifted.

    >>> len(sample_input(lambda offset, size: b"tale"[offset:offset + size], 4))
    16
    """
    if size <= NUM_SAMPLES * SAMPLE_BYTES:
        data = read_at(0, size)
    else:
        last = size - SAMPLE_BYTES
        data = b"".join(read_at(i * last // (NUM_SAMPLES - 1), SAMPLE_BYTES) for i in range(NUM_SAMPLES))
    return f"{_core.xxh64(data):016x}"
