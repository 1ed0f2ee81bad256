"""gristmill extend: add merges learned from a corpus to a tokenizer."""

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
    ProfileOut,
    ReadingOptions,
    Threads,
    TokenizerDevice,
    find_corpus,
)
from gristmill.cli.table import pairs
from gristmill.cli.tokenizers import TokenizerOptions
from gristmill.cli.train_tokenizer import device_rows
from gristmill.cli.truncate import size_rows
from gristmill.cli.values import UsageError, byte_size, one_of, whole_number


@dataclass(frozen=True, kw_only=True)
class Command(ReadingOptions, TokenizerOptions):
    """Enlarge the vocabulary of a tokenizer: keep its merges and learn more from a corpus.

    Pattern and special tokens are kept. On the original training corpus, the result equals training with the larger
    size. Special tokens stay last, so their ids move up; all other ids stay the same.
    """

    EXAMPLES: ClassVar[Examples] = (
        (
            "Add merges learned from a second corpus, up to 40,000 tokens.",
            "gristmill extend tok.json code.txt --vocab-size 40k -o larger.json",
        ),
        (
            "Extend a Hugging Face tokenizer.",
            "gristmill extend hf/tokenizer.json code.txt --vocab-size 60k -o larger.json",
        ),
    )

    tokenizer: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="TOKENIZER")]
    """Tokenizer to extend, in any supported format."""

    corpus: CorpusNames
    """Files, folders, URLs, globs such as 'data/**/*.txt', or word counts (.gmw). Put them before --special-tokens."""

    vocab_size: Annotated[int, whole_number("--vocab-size")]
    """Total number of tokens, such as 32k: those of TOKENIZER and the new ones."""

    output: Output
    """Tokenizer file to write."""

    overwrite: Flag = False
    """Replace an existing output."""

    tie_break: Annotated[
        str | None,
        one_of(TIE_BREAKS),
        tyro.conf.arg(help_behavior_hint="(default: the rule stored in TOKENIZER)"),
    ] = None
    """Pair to merge first among pairs with equal counts."""

    min_frequency: Annotated[int, whole_number("--min-frequency")] = 1
    """Ignore words that occur fewer than N times."""

    max_token_bytes: Annotated[int | None, byte_size("--max-token-bytes"), tyro.conf.arg(help_behavior_hint="")] = None
    """Maximum length of a token in bytes."""

    threads: Threads = None
    """Number of threads."""

    memory_limit: Annotated[int | None, byte_size("--memory-limit"), tyro.conf.arg(help_behavior_hint="")] = None
    """Memory limit of counting, such as 512MB or 2GiB. Counts beyond it go to the temporary folder."""

    device: TokenizerDevice = "auto"

    progress: ProgressKind = "auto"
    """Progress on stderr: auto (bars on a terminal), bar, jsonl (JSON Lines) or none."""

    profile_out: ProfileOut = None

    def run(self) -> int:
        import gristmill

        corpus = find_corpus(self.corpus, self, output=self.output, overwrite=self.overwrite)
        before = self.load_tokenizer()
        if self.vocab_size < before.vocab_size:
            raise UsageError(
                f"--vocab-size {self.vocab_size} is smaller than the {before.vocab_size} tokens of {self.tokenizer}. "
                f"Pass a larger size, or run 'gristmill truncate'."
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
            device=self.device,
            progress=None if self.progress == "none" else self.progress,
            **self.read_options(),
        )
        after.save(self.output, overwrite=self.overwrite)
        rows = device_rows(after.profile.stages) if after.profile is not None else []
        print(pairs([*size_rows(before, after), *rows, ("saved to", str(self.output))]))
        return 0
