"""gristmill inspect FOLDER: show statistics and sample documents of a folder of shards."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from gristmill.analysis.shard_contents import (
    count_shard_tokens,
    counts_documents,
    document_lengths,
    length_percentiles,
    read_contents,
    sample_documents,
    shard_entries,
)
from gristmill.analysis.token_text import printable, shortened
from gristmill.cli.options import format_size
from gristmill.cli.table import bar, columns, pairs, show_token
from gristmill.shards.folder_kind import is_gristmill_folder

if TYPE_CHECKING:
    from gristmill import Tokenizer
    from gristmill.shards import Manifest

__all__ = ["inspect_shards"]

WIDTH = 78
NUM_SHARDS_SHOWN = 10
NUM_TOKENS_SHOWN = 15
NUM_SAMPLES = 3
SAMPLE_LINES = 4
SAMPLE_TOKENS = 400  # more than fits in the lines


def inspect_shards(folder: Path, seed: int) -> str:
    """Return a description of the folder. `seed` selects the sample documents."""
    from gristmill.shards.shards import load_tokenizer

    manifest = read_contents(folder)
    if not is_gristmill_folder(folder):
        return _inspect_foreign(folder, manifest)
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


def _inspect_foreign(folder: Path, manifest: Manifest) -> str:
    """Return a description of token files of another program."""
    head = [
        ("shards", str(folder)),
        ("layout", f"{manifest.layout}, written by another program"),
        ("dtype", manifest.dtype),
        ("tokenizer", "unknown: not stored in the files"),
    ]
    has_number = counts_documents(manifest)
    rows = [
        [name, f"{split.documents:,}" if has_number else "-", f"{split.tokens:,}", f"{len(split.shards):,}"]
        for name, split in manifest.splits.items()
    ]
    splits = columns(["split", "documents", "tokens", "shards"], rows)
    return "\n\n".join([pairs(head, indent=0), splits, _shards(manifest)])


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
        rows.append(("command", shortened(printable(manifest.command), WIDTH - 13)))
    return pairs(rows, indent=0)


def _splits(manifest: Manifest) -> str:
    head = ["split", "documents", "tokens", "source bytes", "bytes/token", "shards"]
    rows = []
    for name, split in manifest.splits.items():
        ratio = f"{split.source_bytes / split.tokens:.3f}" if split.tokens else "-"
        numbers = (split.documents, split.tokens, split.source_bytes)
        rows.append([name, *(f"{number:,}" for number in numbers), ratio, f"{len(split.shards):,}"])
    return columns(head, rows)


def _shards(manifest: Manifest) -> str:
    has_number = counts_documents(manifest)
    rows = [
        [entry.file, f"{entry.tokens:,}", f"{entry.documents:,}" if has_number else "-", format_size(entry.bytes)]
        for entry in shard_entries(manifest)
    ]
    if len(rows) > NUM_SHARDS_SHOWN:
        shown = NUM_SHARDS_SHOWN // 2
        rows[shown:-shown] = [["…", "", "", ""]]
    return columns(["shard", "tokens", "documents", "size"], rows)


def _frequent_tokens(folder: Path, manifest: Manifest, tokenizer: Tokenizer) -> str:
    """Return a histogram of the most frequent tokens, and the share of the vocabulary that occurs."""
    counts = count_shard_tokens(folder, manifest, vocab_size=tokenizer.vocab_size)
    num_counted, num_tokens = int(counts.sum()), sum(entry.tokens for entry in shard_entries(manifest))
    if not num_counted:
        return ""
    vocab = tokenizer.vocab
    top = np.argsort(-counts, kind="stable")[:NUM_TOKENS_SHOWN]
    names = [shortened(show_token(vocab.get(id, b"")), 24) for id in top.tolist()]
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


def _lengths(folder: Path, manifest: Manifest) -> str:
    """Return percentiles of document lengths, if the layout stores document boundaries."""
    lengths = document_lengths(folder, manifest)
    if not len(lengths):
        return ""
    percentiles = length_percentiles(lengths)
    head = ["", *percentiles, "mean"]
    row = ["tokens", *(f"{value:,}" for value in percentiles.values()), f"{lengths.mean():,.1f}"]
    total = sum(split.documents for split in manifest.splits.values())
    sample = f", in a sample of {len(lengths):,}" * (len(lengths) < total)
    mark = "" if manifest.end_of_text is None else ", end of text included"
    return f"Document lengths{mark}{sample}\n" + columns(head, [row])


def _samples(folder: Path, manifest: Manifest, seed: int) -> str:
    """Return some documents, decoded and shortened."""
    samples = []
    for sample in sample_documents(folder, manifest, num_documents=NUM_SAMPLES, max_tokens=SAMPLE_TOKENS, seed=seed):
        text = printable(" ".join(sample.text.split()))
        rest = " …" * (len(sample.ids) > SAMPLE_TOKENS)
        shown = textwrap.fill(
            text + rest,
            WIDTH,
            initial_indent="    ",
            subsequent_indent="    ",
            max_lines=SAMPLE_LINES,
            placeholder=" …",
            break_on_hyphens=False,
        )
        samples.append(f"  document {sample.number:,}, {len(sample.ids):,} tokens\n{shown or '    (empty)'}")
    return "\n".join(["Sample documents", *samples]) if samples else ""
