"""Corpora and vocabulary sizes in the shape of the original guides, for `gristmill bench ablation --suite guides`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from gristmill.bench.corpora import data_file
from gristmill.bench.published import TRAINING, PublishedTraining
from gristmill.errors import OptionError

__all__ = ["SUITES", "Case", "cases_of"]


@dataclass(frozen=True)
class Case:
    """A corpus to train on, and the published figures of similar corpora."""

    title: str
    corpus: str  # a name or a path
    vocab_size: int
    published: tuple[PublishedTraining, ...] = ()


SUITES = ("guides",)


def cases_of(suite: str, files: Sequence[str] = ()) -> list[Case]:
    """Return the cases of a suite. `files` replace the generated text, one per case, in order.

    Args:
        suite: One of `SUITES`.
        files: Files of the user, or names of corpora; none, or one per case.

    Raises:
        OptionError: The number of files is wrong.
    """
    has_real_text = data_file("english.txt*", "english_*.txt*") is not None
    cases = [
        Case("TinyStories-like, 21 MB", "sample:21MB", 4_096),
        Case(
            "web-like, 100 MB", "english:100MB" if has_real_text else "sample:100MB", 32_000, _published(max_bytes=1e9)
        ),
        Case("a large file", "sample:2200MB", 10_000, _published(min_bytes=1e9)),
    ]
    if files and len(files) != len(cases):
        raise OptionError(
            f"suite {suite!r} has {len(cases)} corpora, got {len(files)} files. Pass none, or one file per corpus: "
            + ", ".join(case.title for case in cases)
            + "."
        )
    return [
        Case(case.title, file, case.vocab_size, case.published)
        for case, file in zip(cases, files or [case.corpus for case in cases], strict=True)
    ]


def _published(*, min_bytes: float = 0, max_bytes: float = math.inf) -> tuple[PublishedTraining, ...]:
    return tuple(figure for figure in TRAINING if min_bytes <= figure.num_bytes < max_bytes)
