"""gristmill bench scaling: measure how gristmill scales with threads and with the size of the corpus."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

import tyro

from gristmill.cli.bench_options import BenchOptions, Threads, check_threads
from gristmill.cli.examples import Examples
from gristmill.cli.values import one_of

if TYPE_CHECKING:
    from gristmill.bench.corpora import Corpus


@dataclass(frozen=True, kw_only=True)
class Scaling(BenchOptions):
    """Measure how counting, training and encoding scale with threads and with the size of the corpus.

    The corpus is used whole and in parts of 1/4 and 1/16. The results of all numbers of threads are compared.
    """

    ACTION: ClassVar[tuple[str, ...]] = ("scaling",)
    EXAMPLES: ClassVar[Examples] = (
        ("Measure in a few seconds.", "gristmill bench scaling --quick"),
        ("Measure on your own text.", "gristmill bench scaling --corpus corpus.txt --threads 1 2 4 8"),
    )

    action: Annotated[str, tyro.conf.Positional, one_of(["scaling"]), tyro.conf.arg(name="ACTION")]
    """scaling: measure how gristmill scales."""

    threads: Threads = ()
    """Numbers of threads. By default, 1, 2, 4, … up to the number of CPUs."""

    def check(self) -> None:
        super().check()
        check_threads(self.threads)

    def measure(self, corpus: Corpus) -> int:
        from gristmill.bench.scaling import bench_scaling, thread_counts

        return bench_scaling(
            corpus,
            vocab_size=self.vocab_size_for(corpus),
            num_threads=sorted(set(self.threads)) or thread_counts(),
            rounds=self.rounds_of(),
            folder=self.output,
        )
