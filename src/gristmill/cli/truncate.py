"""gristmill truncate: remove the last merges of a tokenizer."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

import tyro

from gristmill.cli.examples import Examples
from gristmill.cli.options import Flag, Output, check_output
from gristmill.cli.table import pairs
from gristmill.cli.tokenizers import TokenizerOptions
from gristmill.cli.values import UsageError, whole_number

if TYPE_CHECKING:
    from gristmill import Tokenizer


@dataclass(frozen=True, kw_only=True)
class Command(TokenizerOptions):
    """Shrink the vocabulary of a tokenizer. The result equals training with the smaller size.

    Special tokens stay last, so their ids move down; all other ids stay the same.
    """

    EXAMPLES: ClassVar[Examples] = (
        ("Keep the first 8,000 tokens.", "gristmill truncate tok.json --vocab-size 8k -o small.json"),
        ("Replace an existing file.", "gristmill truncate tok.json --vocab-size 8k -o small.json --overwrite"),
    )

    tokenizer: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="TOKENIZER")]
    """Tokenizer with ids in Gristmill's order: bytes, merges, special tokens."""

    vocab_size: Annotated[int, whole_number("--vocab-size")]
    """Total number of tokens, such as 8k: 256 bytes, merges and special tokens."""

    output: Output
    """Tokenizer file to write."""

    overwrite: Flag = False
    """Replace an existing output."""

    def run(self) -> int:
        check_output(self.output, overwrite=self.overwrite)
        before = self.load_tokenizer()
        if self.vocab_size > before.vocab_size:
            raise UsageError(
                f"--vocab-size {self.vocab_size} is larger than the {before.vocab_size} tokens of {self.tokenizer}. "
                f"Pass a smaller size, or run 'gristmill extend'."
            )
        after = before.truncated(self.vocab_size)
        after.save(self.output, overwrite=self.overwrite)
        print(pairs([*size_rows(before, after), ("saved to", str(self.output))]))
        return 0


def size_rows(before: Tokenizer, after: Tokenizer) -> list[tuple[str, str]]:
    """Return the changes between two tokenizers: sizes, and ids of special tokens."""
    rows = [
        ("vocabulary", f"{before.vocab_size:,} -> {after.vocab_size:,}"),
        ("merges", f"{len(before.merge_ids):,} -> {len(after.merge_ids):,}"),
    ]
    ids = after.special_tokens
    moved = [f"{name} {id} -> {ids[name]}" for name, id in before.special_tokens.items() if ids[name] != id]
    if moved:
        rows.append(("special ids", ", ".join(moved[:5]) + ", …" * (len(moved) > 5)))
    return rows
