"""gristmill export: a tokenizer in, the files of another tool out."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import tyro

from gristmill.cli.choices import TokenizerFormat, listed
from gristmill.cli.examples import Examples
from gristmill.cli.options import Flag, UsageError, format_size
from gristmill.cli.table import pairs
from gristmill.cli.tokenizers import TokenizerOptions, parse_special_tokens
from gristmill.tokenizer.formats import FORMATS, read_tokenizer, write_tokenizer


@dataclass(frozen=True, kw_only=True)
class Command(TokenizerOptions):
    """Write a tokenizer in the format of another tool, with the same ids.

    Warnings on stderr name what the format cannot hold. If the ids would change, nothing is written.
    """

    EXAMPLES: ClassVar[Examples] = (
        ("For transformers: a folder that AutoTokenizer loads.", "gristmill export tok.json -f huggingface -o hf"),
        ("For tiktoken.", "gristmill export tok.json -f tiktoken -o tok.tiktoken"),
        ("For llama.cpp.", "gristmill export tok.json -f gguf -o tok.gguf"),
    )

    tokenizer: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="TOKENIZER")]
    """A tokenizer file or folder, in any format that can be read."""

    format: Annotated[
        TokenizerFormat,
        tyro.conf.arg(aliases=["-f"], metavar="FORMAT", help=f"The format to write: {listed(FORMATS)}."),
    ]

    output: Annotated[Path, tyro.conf.arg(aliases=["-o"], metavar="PATH")]
    """The file to write; for huggingface a folder, or one file if the name ends in .json; for gpt2 a folder; for minbpe
    the name without .model."""

    overwrite: Flag = False
    """Replace the output if it is already there."""

    legacy_merges: Flag = False
    """huggingface: merges as "a b", for versions of tokenizers before 0.20."""

    pre: Annotated[str | None, tyro.conf.arg(metavar="NAME", help_behavior_hint="")] = None
    """gguf: the name of the pattern in llama.cpp, where it is not known."""

    bos_token: Annotated[str | None, tyro.conf.arg(metavar="TOKEN", help_behavior_hint="")] = None
    """huggingface, gguf: the special token that begins a text; without it one whose name says so."""

    eos_token: Annotated[str | None, tyro.conf.arg(metavar="TOKEN", help_behavior_hint="")] = None
    """huggingface, gguf: the special token that ends a text; without it <|endoftext|>, where there is one."""

    pad_token: Annotated[str | None, tyro.conf.arg(metavar="TOKEN", help_behavior_hint="")] = None
    """huggingface: the special token that fills up short texts; without it one whose name says so."""

    model_max_length: Annotated[int | None, tyro.conf.arg(metavar="TOKENS", help_behavior_hint="")] = None
    """huggingface: the longest text that the model takes, in tokens."""

    def run(self) -> int:
        options = self._options()
        if str(self.output) == "-":
            raise UsageError("--output - is not stdout here. Pass the name of a file or folder.")
        parts = read_tokenizer(
            self.tokenizer, pattern=self.pattern, special_tokens=parse_special_tokens(self.special_tokens)
        )
        try:
            written = write_tokenizer(parts, self.output, format=self.format, overwrite=self.overwrite, **options)
        except FileExistsError as error:
            raise FileExistsError(
                error.errno, "is already there. Pass --overwrite to replace it", error.filename
            ) from None
        vocabulary = parts.vocabulary
        rows = [
            ("tokenizer", str(self.tokenizer)),
            ("format", self.format),
            (
                "vocabulary",
                f"{vocabulary.size:,}  ({len(vocabulary.merges):,} merges, {len(vocabulary.special_tokens):,} special)",
            ),
            ("pattern", str(parts.pattern)),
            *[("saved to", f"{path}  ({format_size(path.stat().st_size)})") for path in written],
        ]
        print(pairs(rows))
        return 0

    def _options(self) -> dict[str, Any]:
        given = {
            "legacy_merges": self.legacy_merges or None,
            "pre": self.pre,
            "bos_token": self.bos_token,
            "eos_token": self.eos_token,
            "pad_token": self.pad_token,
            "model_max_length": self.model_max_length,
        }
        options = {name: value for name, value in given.items() if value is not None}
        unfit = sorted(set(options) - FORMATS[self.format].OPTIONS)
        if unfit:
            raise UsageError(f"--{unfit[0].replace('_', '-')} does not go with -f {self.format}. Leave it out.")
        return options
