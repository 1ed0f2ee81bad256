"""gristmill extend: a tokenizer and a corpus in, the same tokenizer with more merges out."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

import tyro

from gristmill.arguments import TIE_BREAKS
from gristmill.cli.choices import ProgressKind
from gristmill.cli.examples import Examples
from gristmill.cli.options import (
    CorpusNames,
    Flag,
    Output,
    ReadingOptions,
    Threads,
    find_corpus,
)
from gristmill.cli.table import pairs
from gristmill.cli.tokenizers import TokenizerOptions
from gristmill.cli.truncate import size_rows
from gristmill.cli.values import UsageError, byte_size, one_of, whole_number


@dataclass(frozen=True, kw_only=True)
class Command(ReadingOptions, TokenizerOptions):
    """Make the vocabulary of a tokenizer larger: keep its merges and learn more from a corpus.

    Pattern and special tokens stay. On the corpus of its training this gives what a longer run would have given.
    Special tokens stay last, so their ids move up; all other ids stay.
    """

    EXAMPLES: ClassVar[Examples] = (
        (
            "Add merges learned from a second corpus, up to 40,000 tokens.",
            "gristmill extend tok.json code.txt --vocab-size 40k -o larger.json",
        ),
        (
            "Extend a tokenizer of Hugging Face.",
            "gristmill extend hf/tokenizer.json code.txt --vocab-size 60k -o larger.json",
        ),
    )

    tokenizer: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="TOKENIZER")]
    """The tokenizer to start from, in any format that can be read."""

    corpus: CorpusNames
    """Files, folders, URLs, globs such as 'data/**/*.txt', or words (.gmw). Name them before --special-tokens."""

    vocab_size: Annotated[int, whole_number("--vocab-size")]
    """Tokens in all, such as 32k: those of TOKENIZER and the new ones."""

    output: Output
    """The tokenizer file to write."""

    overwrite: Flag = False
    """Replace the output if it is already there."""

    tie_break: Annotated[
        str | None,
        one_of(TIE_BREAKS),
        tyro.conf.arg(help_behavior_hint="(default: the rule that TOKENIZER records)"),
    ] = None
    """Which pair wins among equal counts."""

    min_frequency: Annotated[int, whole_number("--min-frequency")] = 1
    """Leave out words that occur fewer times."""

    max_token_bytes: Annotated[int | None, byte_size("--max-token-bytes"), tyro.conf.arg(help_behavior_hint="")] = None
    """The longest token allowed."""

    threads: Threads = None
    """How many threads to use."""

    memory_limit: Annotated[int | None, byte_size("--memory-limit"), tyro.conf.arg(help_behavior_hint="")] = None
    """What counting may use, such as 512MB or 2GiB; beyond it, the temporary folder is used."""

    progress: ProgressKind = "auto"
    """Bars on a terminal, bars always, JSON lines, or nothing; on stderr."""

    def run(self) -> int:
        import gristmill

        corpus = find_corpus(self.corpus, self, output=self.output, overwrite=self.overwrite)
        before = self.load_tokenizer()
        if self.vocab_size < before.vocab_size:
            raise UsageError(
                f"--vocab-size {self.vocab_size} is smaller than that of {self.tokenizer}, {before.vocab_size}. "
                f"Pass a larger one, or run 'gristmill truncate'."
            )
        after = gristmill.extend_tokenizer(
            before,
            corpus,
            vocab_size=self.vocab_size,
            tie_break=self.tie_break,
            min_frequency=self.min_frequency,
            max_token_bytes=self.max_token_bytes,
            memory_limit=self.memory_limit,
            num_threads=self.threads,
            progress=None if self.progress == "none" else self.progress,
            **self.read_options(),
        )
        after.save(self.output, overwrite=self.overwrite)
        print(pairs([*size_rows(before, after), ("saved to", str(self.output))]))
        return 0
