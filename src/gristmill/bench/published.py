"""Figures that other people published, for the tables that stand beside our own.

They were measured on other machines and other text, so no ratio to a figure of this machine is computed. The guides are
those from which this project grew. They name no CPU. They report the number of processes for one training figure and
for encoding, and no program for OpenWebText and for encoding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gristmill.bench.tables import markdown_table

__all__ = ["ENCODING", "TRAINING", "PublishedEncoding", "PublishedTraining", "encoding_table", "training_table"]

GUIDES = "original guides"
PROCESSES = "16 processes, CPU not reported"
UNKNOWN = "not reported"


@dataclass(frozen=True)
class PublishedTraining:
    """A published time to train a tokenizer."""

    source: str
    corpus: str
    num_bytes: int
    vocab_size: int
    seconds: tuple[float, float]  # lowest and highest
    peak_bytes: int | None
    method: str
    hardware: str


@dataclass(frozen=True)
class PublishedEncoding:
    """A published time to encode a corpus."""

    source: str
    num_tokens: int
    seconds: float
    tokens_per_second: float  # as reported; the quotient of the rounded figures differs slightly
    num_workers: int
    method: str
    hardware: str


TRAINING = (
    PublishedTraining(GUIDES, "TinyStories", 2_200_000_000, 10_000, (131, 131), None, "parallel Python", PROCESSES),
    PublishedTraining(GUIDES, "TinyStories", 2_200_000_000, 10_000, (34, 36), 6_900_000_000, "best form", UNKNOWN),
    PublishedTraining(GUIDES, "OpenWebText", 100_000_000, 32_000, (20.6, 20.6), None, UNKNOWN, UNKNOWN),
    PublishedTraining(GUIDES, "OpenWebText", 10_000_000_000, 32_000, (535, 535), 23_800_000_000, UNKNOWN, UNKNOWN),
)
ENCODING = (
    PublishedEncoding(GUIDES, 541_000_000, 35, 15_100_000, 16, UNKNOWN, PROCESSES),
    PublishedEncoding(GUIDES, 2_727_000_000, 213, 12_800_000, 16, UNKNOWN, PROCESSES),
)


def training_table(figures: Sequence[PublishedTraining] = TRAINING) -> str:
    """Return the published training times as a Markdown table."""
    header = ["source", "corpus", "vocabulary", "s", "peak MB", "method", "hardware as reported"]
    return markdown_table(header, [_training_row(figure) for figure in figures])


def _training_row(figure: PublishedTraining) -> list[str]:
    low, high = figure.seconds
    return [
        figure.source,
        f"{figure.corpus}, {figure.num_bytes / 1e6:,.0f} MB",
        f"{figure.vocab_size:,}",
        f"{low:g}" if low == high else f"{low:g}–{high:g}",
        f"{figure.peak_bytes / 1e6:,.0f}" if figure.peak_bytes else "–",
        figure.method,
        figure.hardware,
    ]


def encoding_table(figures: Sequence[PublishedEncoding] = ENCODING) -> str:
    """Return the published encoding times as a Markdown table."""
    header = ["source", "workers", "tokens", "s", "k tokens/s", "method", "hardware as reported"]
    rows = [
        [
            figure.source,
            str(figure.num_workers),
            f"{figure.num_tokens / 1e6:,.0f}M",
            f"{figure.seconds:g}",
            f"{figure.tokens_per_second / 1e3:,.0f}",
            figure.method,
            figure.hardware,
        ]
        for figure in figures
    ]
    return markdown_table(header, rows)
