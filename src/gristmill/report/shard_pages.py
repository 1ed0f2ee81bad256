"""Shard pages: splits, sources, document lengths, token frequencies and samples of a folder of shards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gristmill.analysis.shard_contents import (
    count_shard_tokens,
    counts_documents,
    document_lengths,
    length_bins,
    length_percentiles,
    read_contents,
    sample_documents,
    shard_entries,
)
from gristmill.analysis.usage import renyi_efficiency, zipf_curve
from gristmill.encode.tokenizer import Tokenizer
from gristmill.profile import Profile
from gristmill.report import figures
from gristmill.report.document import (
    Column,
    Document,
    Plots,
    Samples,
    Section,
    Settings,
    ShownToken,
    Table,
    TokenGroup,
    Tokens,
    cells,
    full_rows,
)
from gristmill.report.drawing import BLUE, Plot
from gristmill.report.options import flat
from gristmill.report.profile_sections import encoding_figures, encoding_sections
from gristmill.report.summary import Figure
from gristmill.report.token_plots import Line, log_axis, zipf_plot
from gristmill.report.tokenizer_pages import optional, shown_tokens
from gristmill.shards import Manifest
from gristmill.shards.folder_kind import is_gristmill_folder
from gristmill.shards.shards import load_tokenizer

NUM_FREQUENT = 24
NUM_SAMPLES = 5
SAMPLE_TOKENS = 300
MAX_SOURCES = 20


def shards_document(folder: Path, *, profile: Profile | None = None, seed: int = 0) -> Document:
    """Return the page about a folder of shards, and about the encoding that `profile` measured.

    `seed` selects the sample documents.
    """
    manifest = read_contents(folder)
    tokenizer = load_tokenizer(manifest, folder) if is_gristmill_folder(folder) else None
    counts = count_shard_tokens(folder, manifest, vocab_size=None if tokenizer is None else tokenizer.vocab_size)
    lengths = document_lengths(folder, manifest)
    num_tokens = sum(split.tokens for split in manifest.splits.values())
    num_counted = int(counts.sum())
    source_bytes = sum(split.source_bytes for split in manifest.splits.values())
    sample = f" in an evenly spaced sample of {figures.short(num_counted)} tokens" * (num_counted < num_tokens)
    sections: list[Section] = [
        _splits_table(manifest),
        Plots("Documents and tokens", _plots(manifest, counts, lengths, sample)),
        _lengths_table(manifest, lengths),
        Tokens("Frequent tokens", _frequent(tokenizer, counts, num_counted, sample)),
        *([] if profile is None else encoding_sections(profile)),
        _samples(folder, manifest, seed),
        _sources(manifest),
        Settings("Options of the encoding", _settings(manifest)),
    ]
    return Document(
        kicker="Token shards",
        title=folder.resolve().name,
        result=_result(manifest, num_tokens),
        figures=[
            *_figures(manifest, tokenizer, counts, lengths, num_tokens),
            *([] if profile is None else encoding_figures(profile, source_bytes=source_bytes)),
        ],
        sections=sections,
        footer="the manifest and the files of the folder.",
    )


def _result(manifest: Manifest, num_tokens: int) -> str:
    num_documents = sum(split.documents for split in manifest.splits.values())
    documents = f" in {num_documents:,} documents" if counts_documents(manifest) else ""
    return f"{num_tokens:,} tokens{documents}, format {manifest.layout}, {manifest.dtype}."


def _figures(
    manifest: Manifest,
    tokenizer: Tokenizer | None,
    counts: NDArray[np.int64],
    lengths: NDArray[np.int64],
    num_tokens: int,
) -> list[Figure]:
    splits = manifest.splits.values()
    source_bytes = sum(split.source_bytes for split in splits)
    num_shards = len(shard_entries(manifest))
    used = int(np.count_nonzero(counts))
    found = [Figure("tokens", figures.short(num_tokens), f"{num_shards:,} shard{'s' * (num_shards != 1)}")]
    if counts_documents(manifest):
        found.append(Figure("documents", figures.short(sum(split.documents for split in splits)), ""))
    if len(lengths):
        found.append(Figure("mean length", f"{lengths.mean():,.0f}", "tokens per document"))
    if source_bytes and num_tokens:
        found.append(
            Figure("bytes per token", f"{source_bytes / num_tokens:.3f}", figures.size(source_bytes) + " of text")
        )
    if tokenizer is None:
        found.append(Figure("distinct ids", f"{used:,}", "the tokenizer is unknown"))
        return found
    share = figures.percent(used / len(tokenizer.vocab))
    found += [
        Figure("tokens used", f"{used:,}", f"{share} of the vocabulary"),
        Figure("Rényi efficiency", optional(renyi_efficiency(counts, len(tokenizer.vocab)), ".3f"), "evenness of use"),
    ]
    return found


def _splits_table(manifest: Manifest) -> Table:
    names = ["split", "documents", "tokens", "text", "bytes/token", "shards"]
    rows = []
    for name, split in manifest.splits.items():
        ratio = split.source_bytes / split.tokens if split.tokens and split.source_bytes else None
        documents = f"{split.documents:,}" if counts_documents(manifest) else "–"
        text = figures.size(split.source_bytes) if split.source_bytes else "–"
        rows.append(
            cells([name, documents, f"{split.tokens:,}", text, optional(ratio, ".3f"), f"{len(split.shards):,}"])
        )
    return Table("Splits", [Column(name) for name in names], rows)


def _plots(manifest: Manifest, counts: NDArray[np.int64], lengths: NDArray[np.int64], sample: str) -> list[Plot]:
    ranks, frequencies = zipf_curve(counts)
    zipf = zipf_plot([Line("", ranks, frequencies)], f"the folder{sample}")
    return full_rows([_lengths_plot(manifest, lengths), zipf])


def _lengths_plot(manifest: Manifest, lengths: NDArray[np.int64]) -> Plot | None:
    positive = lengths[lengths > 0]
    if not len(positive):
        return None
    edges, numbers, is_log = length_bins(positive)

    def draw(axes: Any) -> None:
        if is_log:
            log_axis(axes, "x", [positive])
        else:
            axes.set_xlim(0, 1.02 * edges[-1])
        axes.bar(edges[:-1], numbers, np.diff(edges), align="edge", color=BLUE, linewidth=0.4, edgecolor="white")
        axes.yaxis.set_major_formatter(lambda value, _: figures.short(value))
        axes.set_ylabel("documents")

    note = f"Median {int(np.median(lengths)):,} tokens{_end_of_text_included(manifest)}{_sampled(manifest, lengths)}."
    return Plot("lengths", "Document lengths", note, draw, across="tokens")


def _end_of_text_included(manifest: Manifest) -> str:
    return "" if manifest.end_of_text is None else ", end of text included"


def _sampled(manifest: Manifest, lengths: NDArray[np.int64]) -> str:
    total = sum(split.documents for split in manifest.splits.values())
    return f", in a sample of {len(lengths):,} documents" * (len(lengths) < total)


def _lengths_table(manifest: Manifest, lengths: NDArray[np.int64]) -> Table:
    if not len(lengths):
        return Table("Document lengths", [], [])
    percentiles = length_percentiles(lengths)
    row = ["tokens", *(f"{value:,}" for value in percentiles.values()), f"{lengths.mean():,.1f}"]
    columns = [Column(name) for name in ("length in", *percentiles, "mean")]
    return Table("Document lengths", columns, [cells(row)])


def _frequent(
    tokenizer: Tokenizer | None, counts: NDArray[np.int64], num_counted: int, sample: str
) -> list[TokenGroup]:
    top = np.argsort(-counts, kind="stable")[:NUM_FREQUENT]
    top = top[counts[top] > 0]
    if not len(top):
        return []
    notes = [f"{count:,} · {figures.percent(count / num_counted)}" for count in counts[top].tolist()]
    if tokenizer is None:
        shown = [ShownToken(f"id {id}", note) for id, note in zip(top.tolist(), notes, strict=True)]
    else:
        shown = shown_tokens(tokenizer, top, notes, most=NUM_FREQUENT)
    return [TokenGroup("Most frequent", f"Count and share of all tokens{sample}.", shown)]


def _samples(folder: Path, manifest: Manifest, seed: int) -> Samples:
    found = sample_documents(folder, manifest, num_documents=NUM_SAMPLES, max_tokens=SAMPLE_TOKENS, seed=seed)
    samples = [
        (
            f"Document {sample.number:,}, {len(sample.ids):,} tokens",
            (sample.text.strip() + " …" * (len(sample.ids) > SAMPLE_TOKENS)) or "(empty)",
        )
        for sample in found
    ]
    return Samples("Sample documents", samples)


def _sources(manifest: Manifest) -> Table:
    rows = []
    for entry in manifest.inputs[:MAX_SOURCES]:
        state = "read" if entry.skipped is None else f"skipped: {entry.skipped}"
        kind = f"{entry.format}{f', {entry.compression}' * bool(entry.compression)}"
        rows.append(cells([entry.path, kind, figures.size(entry.bytes), state]))
    columns = [Column("source"), Column("format", is_text=True), Column("size"), Column("state", is_text=True)]
    more = len(manifest.inputs) - MAX_SOURCES
    note = f"The first {MAX_SOURCES} of {len(manifest.inputs):,} files; manifest.json lists all." if more > 0 else ""
    return Table("Sources", columns, rows, note)


def _settings(manifest: Manifest) -> list[tuple[str, str]]:
    if not manifest.tokenizer_fingerprint:
        return [("format", f"{manifest.layout}, written by another program"), ("dtype", manifest.dtype)]
    mark = manifest.end_of_text
    rows = [
        ("end of text", "none" if mark is None else f"{mark.token} = {mark.id}, {mark.position} each document"),
        ("tokenizer", f"{manifest.tokenizer_file}, vocabulary {manifest.vocab_size:,}"),
        ("fingerprint of the tokenizer", manifest.tokenizer_fingerprint),
        *((name, figures.setting(value)) for name, value in flat(manifest.options)),
    ]
    return [*rows, ("command", manifest.command)] if manifest.command else rows
