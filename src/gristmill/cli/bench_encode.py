"""gristmill bench encode: compare the encoding of text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

import tyro

from gristmill.cli.bench_options import BenchOptions, Systems, Threads, check_threads
from gristmill.cli.examples import Examples
from gristmill.cli.options import Flag
from gristmill.cli.values import one_of

if TYPE_CHECKING:
    from gristmill.bench.corpora import Corpus


@dataclass(frozen=True, kw_only=True)
class Encode(BenchOptions):
    """Compare the encoding of text: MB/s of gristmill and other installed libraries, cold and warm.

    Ids are compared before times. A second table shows the tokens per second of gristmill for 1, 2, … workers.
    """

    ACTION: ClassVar[tuple[str, ...]] = ("encode",)
    QUICK_SIZE: ClassVar[str] = "1MB"
    NUM_SLOW_ROUNDS: ClassVar[int] = 1
    EXAMPLES: ClassVar[Examples] = (
        ("Compare in a few seconds.", "gristmill bench encode --quick"),
        ("Compare on your own text, with 1 and 4 threads.", "gristmill bench encode --corpus corpus.txt --threads 1 4"),
        ("Compare with the vocabulary of GPT-4.", "gristmill bench encode --vocabulary cl100k"),
    )

    action: Annotated[str, tyro.conf.Positional, one_of(["encode"]), tyro.conf.arg(name="ACTION")]
    """encode: compare the encoding of text."""

    vocabulary: Annotated[str, one_of(["trained", "gpt2", "cl100k"])] = "trained"
    """Vocabulary of all systems. trained: trained on the corpus. gpt2: needs gpt2_vocab.json and gpt2_merges.txt in the
    folder GRISTMILL_DATA. cl100k: needs the package bpe-openai."""

    threads: Threads = (1,)
    """Threads of every system. Several numbers give several tables. By default, 1."""

    systems: Systems = ()
    """Systems to compare: NAME, NAME:API, or the dotted name of your own module. Names: gristmill, gigatoken,
    fastokens, tiktoken, tokenizers, tokie, bpe_openai, wordchipper, quicktok."""

    to_disk: Flag = False
    """Also write the ids to a uint16 file, within the timed region."""

    def check(self) -> None:
        from gristmill.bench.adapters import check_systems
        from gristmill.bench.encode import SYSTEMS

        super().check()
        check_threads(self.threads)
        check_systems(self.systems, SYSTEMS)

    def measure(self, corpus: Corpus) -> int:
        from gristmill.bench.encode import SYSTEMS, bench_encode
        from gristmill.bench.scaling import thread_counts

        return bench_encode(
            corpus,
            vocabulary=self.vocabulary,
            vocab_size=self.vocab_size_for(corpus),
            num_threads=self.threads or (1,),
            num_workers=thread_counts(),
            rounds=self.rounds_of(),
            systems=self.systems or SYSTEMS,
            folder=self.output,
            num_warm=1 if self.quick else 3,
            to_disk=self.to_disk,
        )
