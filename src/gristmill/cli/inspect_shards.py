"""gristmill inspect FOLDER: show statistics and sample documents of a folder of shards."""

from __future__ import annotations

import random
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from gristmill.cli.options import format_size
from gristmill.cli.table import bar, columns, pairs, show_token
from gristmill.shards.folder_kind import is_gristmill_folder

if TYPE_CHECKING:
    from gristmill import Tokenizer
    from gristmill.shards import Manifest
    from gristmill.shards.manifest import ShardEntry

WIDTH = 78
NUM_SHARDS_SHOWN = 10
NUM_TOKENS_SHOWN = 15
NUM_SAMPLES = 3
SAMPLE_LINES = 4
SAMPLE_TOKENS = 400  # more than fits in the lines
# Above these limits, an evenly spaced sample is used, so a terabyte takes no longer than a gigabyte.
MAX_TOKENS = 100_000_000
MAX_DOCUMENTS = 5_000_000
CHUNK_TOKENS = 1 << 20
PERCENTILES = {"min": 0, "10 %": 10, "25 %": 25, "median": 50, "75 %": 75, "90 %": 90, "99 %": 99, "max": 100}


def inspect_shards(folder: Path, seed: int) -> str:
    """Return a description of the folder. `seed` selects the sample documents."""
    from gristmill.shards import Manifest
    from gristmill.shards.shards import load_tokenizer

    if not is_gristmill_folder(folder):
        return _inspect_foreign(folder)
    manifest = Manifest.read(folder)
    tokenizer = load_tokenizer(manifest, folder)
    sections = [
        _head(folder, manifest),
        _splits(manifest),
        _shards(manifest),
        _frequent_tokens(folder, manifest, tokenizer),
        _lengths(folder, manifest),
        _samples(folder, manifest, seed),
    ]
    return "\n\n".join(section for section in sections if section)


def _inspect_foreign(folder: Path) -> str:
    """Return a description of token files of another program."""
    from gristmill.shards.foreign import read_foreign

    manifest = read_foreign(folder)
    assert manifest is not None  # is_shard_folder has recognized it
    head = [
        ("shards", str(folder)),
        ("layout", f"{manifest.layout}, written by another program"),
        ("dtype", manifest.dtype),
        ("tokenizer", "unknown: not stored in the files"),
    ]
    # Without an index, finding documents means reading every token.
    counts_documents = all(entry.index is not None for entry in _entries(manifest))
    rows = [
        [name, f"{split.documents:,}" if counts_documents else "-", f"{split.tokens:,}", f"{len(split.shards):,}"]
        for name, split in manifest.splits.items()
    ]
    splits = columns(["split", "documents", "tokens", "shards"], rows)
    return "\n\n".join([pairs(head, indent=0), splits, _shards(manifest, counts_documents=counts_documents)])


def _head(folder: Path, manifest: Manifest) -> str:
    mark = manifest.end_of_text
    end_of_text = (
        "none" if mark is None else f"{show_token(mark.token.encode())} = {mark.id}, {mark.position} each document"
    )
    read = [entry for entry in manifest.inputs if entry.skipped is None]
    skipped = f", {len(manifest.inputs) - len(read):,} skipped" * (len(read) < len(manifest.inputs))
    rows = [
        ("shards", str(folder)),
        ("layout", manifest.layout),
        ("dtype", manifest.dtype),
        ("tokenizer", f"{manifest.tokenizer_file}  (vocabulary {manifest.vocab_size:,})"),
        ("fingerprint", manifest.tokenizer_fingerprint),
        ("end of text", end_of_text),
    ]
    if manifest.inputs:
        size = format_size(sum(entry.bytes for entry in read))
        rows.append(("inputs", f"{len(read):,} file{'s' * (len(read) != 1)}, {size}{skipped}"))
    if manifest.command:
        rows.append(("command", _shortened(_printable(manifest.command), WIDTH - 13)))
    return pairs(rows, indent=0)


def _splits(manifest: Manifest) -> str:
    head = ["split", "documents", "tokens", "source bytes", "bytes/token", "shards"]
    rows = []
    for name, split in manifest.splits.items():
        ratio = f"{split.source_bytes / split.tokens:.3f}" if split.tokens else "-"
        numbers = (split.documents, split.tokens, split.source_bytes)
        rows.append([name, *(f"{number:,}" for number in numbers), ratio, f"{len(split.shards):,}"])
    return columns(head, rows)


def _shards(manifest: Manifest, *, counts_documents: bool = True) -> str:
    rows = [
        [entry.file, f"{entry.tokens:,}", f"{entry.documents:,}" if counts_documents else "-", format_size(entry.bytes)]
        for entry in _entries(manifest)
    ]
    if len(rows) > NUM_SHARDS_SHOWN:
        shown = NUM_SHARDS_SHOWN // 2
        rows[shown:-shown] = [["…", "", "", ""]]
    return columns(["shard", "tokens", "documents", "size"], rows)


def _frequent_tokens(folder: Path, manifest: Manifest, tokenizer: Tokenizer) -> str:
    """Return a histogram of the most frequent tokens, and the share of the vocabulary that occurs."""
    counts = np.zeros(tokenizer.vocab_size + 1, np.int64)
    for ids in _token_chunks(folder, manifest):
        # A damaged shard may hold numbers that are not ids. They are counted under an extra id, which is not shown.
        counts += np.bincount(np.minimum(ids, tokenizer.vocab_size), minlength=len(counts))
    counts = counts[:-1]
    num_counted, num_tokens = int(counts.sum()), sum(entry.tokens for entry in _entries(manifest))
    if not num_counted:
        return ""
    vocab = tokenizer.vocab
    top = np.argsort(-counts, kind="stable")[:NUM_TOKENS_SHOWN]
    names = [_shortened(show_token(vocab.get(id, b"")), 24) for id in top.tolist()]
    width = max(map(len, names))
    rows = [
        (
            f"{id}",
            f"{name:{width}}  {count:>13,}  {100 * count / num_counted:5.2f} %  {bar(count / counts[top[0]], 20)}",
        )
        for id, name, count in zip(top.tolist(), names, counts[top].tolist(), strict=True)
        if count
    ]
    used = int(np.count_nonzero(counts))
    sample = f", in a sample of {num_counted:,}" * (num_counted < num_tokens)
    vocabulary = f"{used:,} of {len(counts):,} ids occur ({100 * used / len(counts):.1f} %){sample}"
    return f"Most frequent tokens\n{pairs(rows)}\n  {vocabulary}"


def _token_chunks(folder: Path, manifest: Manifest) -> Iterator[NDArray[Any]]:
    """Yield the tokens in chunks: all of them, or an evenly spaced sample."""
    from gristmill.shards.layouts import layout_of

    layout, entries = layout_of(manifest.layout, manifest.options), _entries(manifest)
    step = _thinned(sum(entry.tokens for entry in entries), MAX_TOKENS)
    if layout.converts:
        for entry in entries[::step]:
            yield from (tokens for tokens, _ in layout.read_rows(folder / entry.file))
        return
    for entry in entries:
        tokens = layout.open_tokens(folder / entry.file, entry.tokens, manifest.token_dtype)
        for begin in range(0, entry.tokens, CHUNK_TOKENS * step):
            yield cast("NDArray[Any]", tokens)[begin : begin + CHUNK_TOKENS]


def _lengths(folder: Path, manifest: Manifest) -> str:
    """Return percentiles of document lengths, if the layout stores document boundaries."""
    lengths = np.concatenate([np.empty(0, np.int64), *_length_chunks(folder, manifest)])
    if not len(lengths):
        return ""
    values = np.percentile(lengths, list(PERCENTILES.values()), method="nearest")
    head = ["", *PERCENTILES, "mean"]
    row = ["tokens", *(f"{value:,}" for value in values.tolist()), f"{lengths.mean():,.1f}"]
    total = sum(split.documents for split in manifest.splits.values())
    sample = f", in a sample of {len(lengths):,}" * (len(lengths) < total)
    mark = "" if manifest.end_of_text is None else ", end of text included"
    return f"Document lengths{mark}{sample}\n" + columns(head, [row])


def _length_chunks(folder: Path, manifest: Manifest) -> Iterator[NDArray[np.int64]]:
    """Yield the lengths of documents in chunks: all of them, or an evenly spaced sample."""
    from gristmill.shards.layouts import layout_of

    layout, entries = layout_of(manifest.layout, manifest.options), _entries(manifest)
    step = _thinned(sum(entry.documents for entry in entries), MAX_DOCUMENTS)
    if layout.converts:
        for entry in entries[::step]:
            yield from (lengths for _, lengths in layout.read_rows(folder / entry.file))
        return
    before = 0  # end of the previous document relative to the start of the shard: 0 or negative at a new shard
    for entry in entries:
        if entry.index is not None:
            for ends in layout.read_ends(folder / entry.index, entry.documents, manifest.token_dtype):
                yield np.diff(ends, prepend=before)[::step]
                before = int(ends[-1])
        before -= entry.tokens


def _thinned(number: int, most: int) -> int:
    """Return the step that leaves at most `most` of `number` items."""
    return max(1, -(-number // most))


def _samples(folder: Path, manifest: Manifest, seed: int) -> str:
    """Return some documents, decoded and shortened."""
    from gristmill.shards import LAYOUTS, Shards
    from gristmill.shards.shards import without_end

    # Without an index, finding documents means reading every token.
    if LAYOUTS[manifest.layout].index_file("", "train", 0) is None or not manifest.splits.get("train"):
        return ""
    shards = Shards(folder)
    chosen = sorted(random.Random(seed).sample(range(len(shards)), min(NUM_SAMPLES, len(shards))))
    samples = []
    for number in chosen:
        ids = without_end(shards[number], shards.end_of_text)
        text = _printable(" ".join(shards.tokenizer.decode(ids[:SAMPLE_TOKENS]).split()))
        rest = " …" * (len(ids) > SAMPLE_TOKENS)
        shown = textwrap.fill(
            text + rest,
            WIDTH,
            initial_indent="    ",
            subsequent_indent="    ",
            max_lines=SAMPLE_LINES,
            placeholder=" …",
            break_on_hyphens=False,
        )
        samples.append(f"  document {number:,}, {len(ids):,} tokens\n{shown or '    (empty)'}")
    return "\n".join(["Sample documents", *samples]) if samples else ""


def _entries(manifest: Manifest) -> list[ShardEntry]:
    return [entry for split in manifest.splits.values() for entry in split.shards]


def _printable(text: str) -> str:
    """Return `text` with control characters replaced."""
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text)


def _shortened(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"
