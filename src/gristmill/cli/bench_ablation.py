"""gristmill bench ablation: what each optimization of BPE training is worth."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

import tyro

from gristmill.cli.examples import Examples
from gristmill.cli.options import Flag, ProfileOut
from gristmill.cli.values import UsageError, one_of, several, whole_number

if TYPE_CHECKING:
    from gristmill.bench.ablation.suites import Case

DEFAULT_CORPUS = "sample:21MB"
DEFAULT_VOCAB_SIZE = 4_096
DEFAULT_TIME_LIMIT = 60.0
QUICK_SIZE, QUICK_VOCAB_SIZE, QUICK_TIME_LIMIT = "1MB", 500, 2.0


@dataclass(frozen=True, kw_only=True)
class Ablation:
    """Measure what each optimization of BPE training is worth, as a table and a bar chart.

    Seven plain Python programs, each with one more optimization, then the native core with 1, 2, … threads. Each row
    is a fresh process. Its merges are compared with those of the native core before its time is shown. The time of long
    rows is extrapolated from the first merges and marked with ~.

    Rows: (a) naive, (b) a process pool for every merge, (c) one pool, (d) batches of words, (e) rare words dropped,
    (f) incremental counts with an inverted index, (g) parallel pretokenization, (h) native core, (i) GPU,
    which is skipped: this version trains on the CPU only.
    """

    ACTION: ClassVar[tuple[str, ...]] = ("ablation",)
    EXAMPLES: ClassVar[Examples] = (
        ("Measure all rows on the sample corpus.", "gristmill bench ablation"),
        ("Measure some rows on a file.", "gristmill bench ablation --corpus corpus.txt --vocab-size 8k --rows a,f,g,h"),
        ("Run the tables of the original guides.", "gristmill bench ablation --suite guides --time-limit 120"),
        ("Check in a few seconds that it works.", "gristmill bench ablation --quick"),
    )

    action: Annotated[str, tyro.conf.Positional, one_of(["ablation"]), tyro.conf.arg(name="ACTION")]
    """ablation: measure what each optimization is worth."""

    corpus: Annotated[
        tuple[str, ...] | None,
        several("FILE|NAME …"),
        tyro.conf.arg(help_behavior_hint=f"(default: {DEFAULT_CORPUS})"),
    ] = None
    """Text file, or the name of a corpus such as sample:21MB. With --suite, one per table."""

    vocab_size: Annotated[
        int | None,
        whole_number("--vocab-size"),
        tyro.conf.arg(help_behavior_hint=f"(default: {DEFAULT_VOCAB_SIZE})"),
    ] = None
    """Size of the vocabulary: 256 bytes, <|endoftext|> and the merges. Forms such as 32k are accepted."""

    rows: Annotated[tuple[str, ...] | None, several("LETTER…"), tyro.conf.arg(help_behavior_hint="(default: all)")] = (
        None
    )
    """Rows to measure, such as a,f,h. Speed-ups need row a."""

    threads: Annotated[
        tuple[str, ...] | None,
        several("N…"),
        tyro.conf.arg(help_behavior_hint="(default: 1, 2, 4, … up to all cores)"),
    ] = None
    """Numbers of threads of the native core, such as 1,2,8. Process pools have as many processes as the largest."""

    time_limit: Annotated[
        float | None,
        tyro.conf.arg(metavar="SECONDS", help_behavior_hint=f"(default: {DEFAULT_TIME_LIMIT:g})"),
    ] = None
    """Time for the merges of a row, in seconds. The time of merges that were not learned is extrapolated."""

    suite: Annotated[str | None, one_of(["guides"]), tyro.conf.arg(help_behavior_hint="")] = None
    """Run several tables. guides: 21 MB at 4,096, 100 MB at 32,000 and a large file, beside the published figures."""

    output: Annotated[
        Path, tyro.conf.arg(aliases=["-o"], metavar="FOLDER", help_behavior_hint="(default: bench-results)")
    ] = Path("bench-results")
    """Folder for the results: a Markdown table, a chart (SVG) and all numbers (JSON) per corpus."""

    quick: Flag = False
    """Use the first 1 MB of the text, a vocabulary of 500 and 2 s per row: a check that all rows work."""

    profile_out: ProfileOut = None

    def run(self) -> int:
        from gristmill.bench.ablation.contest import EXTRA_RUNS, run_ablation
        from gristmill.bench.ablation.page import publish_ablation
        from gristmill.bench.ablation.rows import LETTERS, parse_letters
        from gristmill.bench.corpora import resolve
        from gristmill.bench.tables import prepare_folder
        from gristmill.errors import CorpusError

        letters = list(LETTERS) if self.rows is None else parse_letters(",".join(self.rows))
        threads = parse_threads(self.threads)
        cases = self._cases()
        time_limit = self.time_limit or (QUICK_TIME_LIMIT if self.quick else DEFAULT_TIME_LIMIT)
        corpora = [resolve(case.corpus) for case in cases]  # a missing file must not end the run after an hour
        prepare_folder(self.output)
        is_right, skipped = True, 0
        for case, corpus in zip(cases, corpora, strict=True):
            try:
                ablation = run_ablation(
                    corpus,
                    vocab_size=case.vocab_size,
                    letters=letters,
                    threads=threads,
                    time_limit=time_limit,
                    num_extra_runs=0 if self.quick else EXTRA_RUNS,
                    report=_report,
                )
            except CorpusError as reason:  # such as a corpus without a pair to merge
                skipped += 1
                if skipped == len(cases):
                    raise
                _report(f"skipped {corpus.name}: {reason}")
                continue
            publish_ablation(ablation, self.output, case=case)
            is_right = is_right and ablation.is_core_right
            if ablation.interruption is not None:
                raise ablation.interruption
        return 0 if is_right else 1

    def _cases(self) -> list[Case]:
        from gristmill.bench.ablation.suites import Case, cases_of
        from gristmill.bench.corpora import SLICED

        if self.time_limit is not None and not 0 < self.time_limit < float("inf"):
            raise UsageError(f"--time-limit {self.time_limit:g} is not a positive number of seconds.")
        corpora = self.corpus or ()
        if self.suite is not None:
            if self.vocab_size is not None or self.quick:
                what = "--quick" if self.quick else "--vocab-size"
                raise UsageError(f"--suite sets the corpora and vocabulary sizes; do not pass {what} with it.")
            return cases_of(self.suite, corpora)
        vocab_size = self.vocab_size
        if vocab_size is None:
            vocab_size = QUICK_VOCAB_SIZE if self.quick else DEFAULT_VOCAB_SIZE
        if self.quick:
            names = [
                corpus if SLICED.fullmatch(corpus) else f"{corpus}:{QUICK_SIZE}" for corpus in corpora or ("sample",)
            ]
        else:
            names = list(corpora or (DEFAULT_CORPUS,))
        return [Case("", name, vocab_size) for name in names]


def _report(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def parse_threads(values: Sequence[str] | None) -> list[int]:
    """Return the numbers of an option such as "1,2,8" in ascending order; 1, 2, 4, … and all cores for None.

    >>> parse_threads(["4,1", "2"])
    [1, 2, 4]
    """
    from gristmill.arguments import check_num_threads
    from gristmill.bench.scaling import thread_counts

    if values is None:
        return thread_counts()
    text = ",".join(values)
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts or not all(part.isascii() and part.isdigit() for part in parts):
        raise UsageError(f"--threads {text!r} is not a list of numbers. Pass numbers such as 1,2,8.")
    return sorted({check_num_threads(int(part)) for part in parts})
