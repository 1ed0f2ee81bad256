"""Options of every action of `gristmill bench`, and the loop over the corpora."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, TypeAlias

import tyro

from gristmill.cli.options import Flag, ProfileOut
from gristmill.cli.values import UsageError, whole_number
from gristmill.errors import CorpusError, OptionError

if TYPE_CHECKING:
    from gristmill.bench.contest import Rounds
    from gristmill.bench.corpora import Corpus

SAMPLE_VOCABULARY, VOCABULARY, QUICK_VOCABULARY = 4096, 32_000, 2000
LEAST_VOCABULARY = 258

Systems: TypeAlias = Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME…", help_behavior_hint="(default: all)")]
Threads: TypeAlias = Annotated[tuple[int, ...], tyro.conf.arg(metavar="N…", help_behavior_hint="")]


@dataclass(frozen=True, kw_only=True)
class BenchOptions:
    """Options of every action."""

    # Size of the text with --quick, and runs of systems that are slow.
    QUICK_SIZE: ClassVar[str] = "5MB"
    NUM_SLOW_ROUNDS: ClassVar[int] = 3

    corpus: Annotated[tuple[str, ...], tyro.conf.arg(metavar="FILE|NAME…", help_behavior_hint="(default: sample)")] = (
        "sample",
    )
    """Text files to measure on, or 'sample' for generated stories. With GRISTMILL_DATA set to a folder of real text
    also english, code, multilingual, tinystories and large. NAME:5MB is the first 5 MB."""

    vocab_size: Annotated[
        int | None,
        whole_number("--vocab-size"),
        tyro.conf.arg(metavar="N", help_behavior_hint="(default: 4096 for sample, else 32000)"),
    ] = None
    """Number of tokens of the trained vocabulary."""

    rounds: Annotated[int, whole_number("--rounds")] = 5
    """Runs of each system. Slow systems run less often."""

    timeout: Annotated[float, tyro.conf.arg(metavar="SECONDS")] = 900.0
    """Time limit of one run. A system that exceeds it is listed without a time."""

    output: Annotated[Path, tyro.conf.arg(aliases=["-o"], metavar="FOLDER")] = Path("bench-results")
    """Folder for the results, as Markdown, JSON and SVG."""

    quick: Flag = False
    """Run a smoke test of a few seconds: the start of the corpus, a small vocabulary, one round."""

    profile_out: ProfileOut = None

    def run(self) -> int:
        from gristmill.bench.corpora import resolve
        from gristmill.bench.tables import prepare_folder

        self.check()
        corpora = [resolve(self._quick_name(name)) for name in self.corpus]
        prepare_folder(self.output)
        code, skipped = 0, []
        for corpus in corpora:
            try:
                code = max(code, self.measure(corpus))
            except (CorpusError, OptionError) as reason:  # such as a corpus without text
                if len(corpora) == 1:
                    raise
                skipped.append(reason)
                print(f"skipped {corpus.name}: {reason}", file=sys.stderr)
        if len(skipped) == len(corpora):
            raise skipped[0]
        return code

    def check(self) -> None:
        """Raise UsageError if options are invalid, before anything is measured."""
        if not self.corpus:
            raise UsageError("--corpus needs a file or a name. Pass one, or omit --corpus for the sample corpus.")
        if self.vocab_size is not None and self.vocab_size < LEAST_VOCABULARY:
            raise UsageError(f"--vocab-size {self.vocab_size} leaves no merge. Pass {LEAST_VOCABULARY} or more.")
        if self.rounds < 1:
            raise UsageError(f"--rounds must be >= 1, got {self.rounds}.")
        if not self.timeout > 0:
            raise UsageError(f"--timeout must be > 0, got {self.timeout:g}.")

    def measure(self, corpus: Corpus) -> int:
        """Measure one corpus and return the exit code."""
        raise NotImplementedError

    def vocab_size_for(self, corpus: Corpus) -> int:
        """Return the vocabulary size, or its default for this corpus."""
        if self.vocab_size is not None:
            return self.vocab_size
        if self.quick:
            return QUICK_VOCABULARY
        return SAMPLE_VOCABULARY if corpus.name.startswith("sample") else VOCABULARY

    def rounds_of(self) -> Rounds:
        """Return how often each system runs."""
        from gristmill.bench.contest import Rounds

        if self.quick:
            return Rounds(1, 1, 0, self.timeout)
        return Rounds(self.rounds, min(self.rounds, self.NUM_SLOW_ROUNDS), timeout_seconds=self.timeout)

    def _quick_name(self, name: str) -> str:
        from gristmill.bench.corpora import SLICED

        return f"{name}:{self.QUICK_SIZE}" if self.quick and not SLICED.fullmatch(name) else name


def check_threads(threads: Sequence[int]) -> None:
    """Raise UsageError unless all numbers of threads are positive."""
    for number in threads:
        if number < 1:
            raise UsageError(f"--threads must be >= 1, got {number}.")
