"""Shard contents: token counts, document lengths and sample documents of a folder of shards, in bounded time.

A folder above `MAX_TOKENS` or `MAX_DOCUMENTS` is read at evenly spaced places, so a terabyte takes no longer than a
gigabyte. The functions take the manifest of the folder (`Manifest.read`, or `read_foreign` for another program's).
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from gristmill.shards import LAYOUTS, Manifest, Shards
from gristmill.shards.folder_kind import is_gristmill_folder
from gristmill.shards.foreign import read_foreign
from gristmill.shards.layouts import layout_of
from gristmill.shards.manifest import ShardEntry
from gristmill.shards.shards import without_end
from gristmill.tokenizer.vocabulary import MAX_ID
from gristmill.trace import spanned

__all__ = [
    "SampleDocument",
    "count_shard_tokens",
    "counts_documents",
    "document_lengths",
    "length_bins",
    "length_percentiles",
    "read_contents",
    "sample_documents",
    "shard_entries",
]

MAX_TOKENS = 100_000_000
MAX_DOCUMENTS = 5_000_000
CHUNK_TOKENS = 1 << 20
# If there are too many documents, lengths are read from at least this many shards, if each has enough documents.
MIN_SHARDS = 50
MIN_SHARD_DOCUMENTS = 100
NUM_BINS = 32
LONG_TAIL = 8  # times the median: a longer document makes the axis logarithmic
PERCENTILES = {"min": 0, "10 %": 10, "25 %": 25, "median": 50, "75 %": 75, "90 %": 90, "99 %": 99, "max": 100}


@dataclass(frozen=True, eq=False)
class SampleDocument:
    """One document of the split "train": its number, its ids without the end-of-text id, and the start of its text."""

    number: int
    ids: NDArray[Any]
    text: str


def read_contents(folder: Path) -> Manifest:
    """Return the manifest of a folder that `is_shard_folder` has recognized, or what another program's files show."""
    manifest = None if is_gristmill_folder(folder) else read_foreign(folder)
    return Manifest.read(folder) if manifest is None else manifest


def shard_entries(manifest: Manifest) -> list[ShardEntry]:
    """Return the shards of all splits."""
    return [entry for split in manifest.splits.values() for entry in split.shards]


def counts_documents(manifest: Manifest) -> bool:
    """Return whether the number of documents is known without reading every token.

    It is not for files of another program without an index.
    """
    return bool(manifest.tokenizer_fingerprint) or all(entry.index is not None for entry in shard_entries(manifest))


@spanned("count tokens")
def count_shard_tokens(folder: Path, manifest: Manifest, *, vocab_size: int | None) -> NDArray[np.int64]:
    """Return how often each id occurs in all tokens, or in an evenly spaced sample of about `MAX_TOKENS`.

    The index is the id. Numbers in a damaged file that are not ids are left out. `vocab_size` is that of the
    tokenizer. If it is None, because the tokenizer is unknown, the array ends at the largest id that occurs.
    """
    limit = MAX_ID + 1 if vocab_size is None else vocab_size
    counts = np.zeros(vocab_size or 0, np.int64)
    for ids in _token_chunks(folder, manifest):
        if len(ids) and int(ids.max()) >= limit:
            ids = ids[ids < limit]
        found = np.bincount(ids)
        if len(found) > len(counts):
            counts = np.concatenate([counts, np.zeros(len(found) - len(counts), np.int64)])
        counts[: len(found)] += found
    return counts


def _token_chunks(folder: Path, manifest: Manifest) -> Iterator[NDArray[Any]]:
    """Yield the tokens in chunks: all of them, or an evenly spaced sample."""
    layout, entries = layout_of(manifest.layout, manifest.options), shard_entries(manifest)
    step = _thinned(sum(entry.tokens for entry in entries), MAX_TOKENS)
    if layout.converts:
        for entry in entries[::step]:
            yield from (tokens for tokens, _ in layout.read_rows(folder / entry.file))
        return
    stride = CHUNK_TOKENS * step
    next_begin = 0  # relative to the start of the shard: the next chunk may be in a later one
    for entry in entries:
        if next_begin < entry.tokens:
            tokens = cast("NDArray[Any]", layout.open_tokens(folder / entry.file, entry.tokens, manifest.token_dtype))
            while next_begin < entry.tokens:
                yield tokens[next_begin : next_begin + CHUNK_TOKENS]
                next_begin += stride
        # All tokens are read if step is 1: a chunk that ends with its shard is followed by the start of the next.
        next_begin = next_begin - entry.tokens if step > 1 else 0


@spanned("read document lengths")
def document_lengths(folder: Path, manifest: Manifest) -> NDArray[np.int64]:
    """Return the lengths of all documents in tokens, or of an evenly spaced sample of about `MAX_DOCUMENTS`.

    A length includes the end-of-text id. Empty if the layout stores no document boundaries.
    """
    return np.concatenate([np.empty(0, np.int64), *_length_chunks(folder, manifest)])


def _length_chunks(folder: Path, manifest: Manifest) -> Iterator[NDArray[np.int64]]:
    layout, entries = layout_of(manifest.layout, manifest.options), shard_entries(manifest)
    num_documents = sum(entry.documents for entry in entries)
    step = _thinned(num_documents, MAX_DOCUMENTS)
    if layout.converts:
        for entry in entries[::step]:
            yield from (lengths for _, lengths in layout.read_rows(folder / entry.file))
        return
    # Reading the index of every shard would take hours for a billion documents, so some shards are left out.
    # The first document of a shard after a gap has no known length, so shards with few documents are all read.
    are_long = num_documents >= MIN_SHARD_DOCUMENTS * len(entries)
    shard_step = max(1, min(step, len(entries) // MIN_SHARDS)) if are_long else 1
    step = _thinned(step, shard_step)
    # End of the previous document relative to the start of the shard: 0 or negative at a new shard. None if unknown.
    before: int | None = 0
    skipped = 0  # documents before the next one of the sample
    for number, entry in enumerate(entries):
        if number % shard_step:
            before = None
            continue
        if entry.index is not None:
            for ends in layout.read_ends(folder / entry.index, entry.documents, manifest.token_dtype):
                lengths = np.diff(ends) if before is None else np.diff(ends, prepend=before)
                yield lengths[skipped::step]
                skipped = (skipped - len(lengths)) % step
                before = int(ends[-1])
        before = None if before is None else before - entry.tokens


def length_percentiles(lengths: NDArray[np.int64]) -> dict[str, int]:
    """Return percentiles of document lengths, the shortest and the longest. Each is the length of a document.

    >>> length_percentiles(np.arange(1, 102))
    {'min': 1, '10 %': 11, '25 %': 26, 'median': 51, '75 %': 76, '90 %': 91, '99 %': 100, 'max': 101}
    """
    values = np.percentile(lengths, list(PERCENTILES.values()), method="nearest").tolist()
    return dict(zip(PERCENTILES, values, strict=True))


def length_bins(lengths: NDArray[np.int64]) -> tuple[list[int], list[int], bool]:
    """Return edges and counts of a histogram: bin i has the lengths from edge i up to, not including, edge i + 1.

    The bins have equal widths, or, if a few documents are much longer than the others, equal widths on a logarithmic
    axis. The third value is True for a logarithmic axis.

    >>> length_bins(np.array([1, 2, 2, 5]))
    ([1, 2, 3, 4, 5, 6], [1, 2, 0, 0, 1], False)
    """
    low, high = int(lengths.min()), int(lengths.max()) + 1
    is_log = high - low > NUM_BINS and high > LONG_TAIL * max(float(np.median(lengths)), 1)
    if high - low <= NUM_BINS:
        edges = np.arange(low, high + 1)
    elif is_log:
        first = max(low, 1)
        edges = np.unique(np.round(np.geomspace(first, high, NUM_BINS + 1)).astype(np.int64))
        if low < first:
            edges = np.concatenate([[low], edges])
    else:
        edges = np.round(np.linspace(low, high, NUM_BINS + 1)).astype(np.int64)
    counts, _ = np.histogram(lengths, np.append(edges[:-1], high - 0.5))  # the last bin of NumPy includes its end
    return edges.tolist(), counts.tolist(), is_log


@spanned("read sample documents")
def sample_documents(
    folder: Path, manifest: Manifest, *, num_documents: int, max_tokens: int, seed: int = 0
) -> list[SampleDocument]:
    """Return documents of the split "train" that `seed` selects, in order, each with its first `max_tokens` decoded.

    Empty for a layout without an index, where finding a document means reading every token, and for a folder of
    another program, whose tokenizer is unknown.
    """
    layout = LAYOUTS[manifest.layout]
    if layout.index_file("", "train", 0) is None or not manifest.splits.get("train") or not is_gristmill_folder(folder):
        return []
    shards = Shards(folder)
    chosen = sorted(random.Random(seed).sample(range(len(shards)), min(num_documents, len(shards))))
    found = []
    for number in chosen:
        ids = without_end(shards[number], shards.end_of_text)
        found.append(SampleDocument(number, ids, shards.tokenizer.decode(ids[:max_tokens])))
    return found


def _thinned(number: int, most: int) -> int:
    """Return the step that leaves at most `most` of `number` items."""
    return max(1, -(-number // most))
