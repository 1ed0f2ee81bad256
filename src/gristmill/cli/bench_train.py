"""gristmill bench train: compare the training of tokenizers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

import tyro

from gristmill.cli.bench_options import BenchOptions, Systems, Threads, check_threads
from gristmill.cli.examples import Examples
from gristmill.cli.values import one_of

if TYPE_CHECKING:
    from gristmill.bench.corpora import Corpus


@dataclass(frozen=True, kw_only=True)
class Train(BenchOptions):
    """Compare the training of tokenizers: time and memory of gristmill and other installed libraries.

    Merges are compared before times. A library that is missing, crashes, exceeds the time limit or learns other merges
    is listed without a time.
    """

    ACTION: ClassVar[tuple[str, ...]] = ("train",)
    EXAMPLES: ClassVar[Examples] = (
        ("Compare in a few seconds.", "gristmill bench train --quick"),
        ("Compare on your own text.", "gristmill bench train --corpus corpus.txt --vocab-size 32k"),
        ("Compare two systems on two threads.", "gristmill bench train --systems gristmill tokenizers --threads 2"),
    )

    action: Annotated[str, tyro.conf.Positional, one_of(["train"]), tyro.conf.arg(name="ACTION")]
    """train: compare the training of tokenizers."""

    threads: Threads = ()
    """Threads of every system. Several numbers give several tables. By default, the number of CPUs."""

    systems: Systems = ()
    """Systems to compare: gristmill, gigabpe, gigatoken, rustbpe, tokenizers, or the dotted name of your own module."""

    def check(self) -> None:
        from gristmill.bench.adapters import check_systems
        from gristmill.bench.train import SYSTEMS

        super().check()
        check_threads(self.threads)
        check_systems(self.systems, SYSTEMS)

    def measure(self, corpus: Corpus) -> int:
        from gristmill.bench.machine import num_cores
        from gristmill.bench.train import SYSTEMS, bench_train

        return max(
            bench_train(
                corpus,
                vocab_size=self.vocab_size_for(corpus),
                num_threads=number,
                rounds=self.rounds_of(),
                systems=self.systems or SYSTEMS,
                folder=self.output,
            )
            for number in self.threads or (num_cores(),)
        )
