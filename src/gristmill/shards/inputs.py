"""What is written down of the inputs of a run, so that a later one can tell whether they are still the same."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from functools import partial

from gristmill.corpus import Input
from gristmill.corpus.sources import Source, open_source
from gristmill.shards.input_samples import sample_input
from gristmill.shards.manifest import InputEntry


def fingerprints(inputs: Iterable[Input]) -> tuple[InputEntry, ...]:
    """An entry for each input; a few kilobytes of each are read."""
    return tuple(_fingerprint(input) for input in inputs)


def _fingerprint(input: Input) -> InputEntry:
    samples = ""
    if input.is_local:  # elsewhere each sample would be a request, and a corpus may have a million inputs
        with closing(open_source(input)) as source:
            samples = sample_input(partial(_read_at, source), input.num_bytes)
    return InputEntry(
        path=input.name,
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
            break  # it was cut short since it was found, which opening it for reading will tell
        rest = rest[num_bytes:]
    return bytes(data[: size - len(rest)])
