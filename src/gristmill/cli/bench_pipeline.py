"""gristmill bench pipeline: compare whole pipelines, from a text file to a token file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

import tyro

from gristmill.cli.bench_options import BenchOptions, Systems, Threads, check_threads
from gristmill.cli.examples import Examples
from gristmill.cli.options import Flag
from gristmill.cli.values import UsageError, one_of

if TYPE_CHECKING:
    from gristmill.bench.corpora import Corpus


@dataclass(frozen=True, kw_only=True)
class Pipeline(BenchOptions):
    """Compare whole pipelines, from a text file to a uint16 token file: time, CPU time and memory.

    Token files are compared before times. Other libraries run as common scripts use them.
    """

    ACTION: ClassVar[tuple[str, ...]] = ("pipeline",)
    QUICK_SIZE: ClassVar[str] = "1MB"
    EXAMPLES: ClassVar[Examples] = (
        ("Compare in a few seconds.", "gristmill bench pipeline --quick"),
        ("Compare with files of all systems on disk.", "gristmill bench pipeline --fsync"),
        ("Compare on your own text.", "gristmill bench pipeline --corpus corpus.txt --threads 1 4"),
    )

    action: Annotated[str, tyro.conf.Positional, one_of(["pipeline"]), tyro.conf.arg(name="ACTION")]
    """pipeline: compare whole pipelines."""

    vocabulary: Annotated[str, one_of(["trained", "gpt2"])] = "trained"
    """Vocabulary of all systems. trained: trained on the corpus, at most 65,536 tokens. gpt2: needs gpt2_vocab.json and
    gpt2_merges.txt in the folder GRISTMILL_DATA."""

    threads: Threads = ()
    """Threads or processes of every system. Several numbers give several tables. By default, 1 and the number of
    CPUs."""

    systems: Systems = ()
    """Systems to compare: NAME, NAME:FORM, or the dotted name of your own module. Names: gristmill, gigatoken,
    tokenizers, tiktoken."""

    fsync: Flag = False
    """Token files of all systems must be on disk when the clock stops."""

    scratch: Annotated[Path | None, tyro.conf.arg(metavar="FOLDER", help_behavior_hint="")] = None
    """Folder for the token files, which are removed. By default, the system's folder for temporary files."""

    def check(self) -> None:
        from gristmill.bench.adapters import check_systems
        from gristmill.bench.pipeline import MAX_VOCABULARY, SYSTEMS

        super().check()
        check_threads(self.threads)
        check_systems(self.systems, SYSTEMS)
        if self.vocab_size is not None and self.vocab_size > MAX_VOCABULARY:
            raise UsageError(
                f"--vocab-size {self.vocab_size} does not fit uint16, the type of the token files. Pass at most "
                f"{MAX_VOCABULARY}."
            )
        if self.scratch is not None and not self.scratch.is_dir():
            raise UsageError(f"--scratch {self.scratch} is not a folder. Pass an existing folder.")

    def measure(self, corpus: Corpus) -> int:
        from gristmill.bench.machine import num_cores
        from gristmill.bench.pipeline import SYSTEMS, bench_pipeline

        return bench_pipeline(
            corpus,
            vocabulary=self.vocabulary,
            vocab_size=self.vocab_size_for(corpus),
            num_threads=self.threads or sorted({1, num_cores()}),
            rounds=self.rounds_of(),
            systems=self.systems or SYSTEMS,
            folder=self.output,
            scratch=self.scratch,
            fsync=self.fsync,
        )
