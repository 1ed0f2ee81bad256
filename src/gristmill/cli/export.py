"""gristmill export: convert a tokenizer to the format of another library."""

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
    """Convert a tokenizer to the format of another library, with the same ids.

    Warnings on stderr name features that the format cannot store. If the ids would change, nothing is written.
    """

    EXAMPLES: ClassVar[Examples] = (
        ("For transformers: a folder that AutoTokenizer loads.", "gristmill export tok.json -f huggingface -o hf"),
        ("For tiktoken.", "gristmill export tok.json -f tiktoken -o tok.tiktoken"),
        ("For llama.cpp.", "gristmill export tok.json -f gguf -o tok.gguf"),
    )

    tokenizer: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="TOKENIZER")]
    """Tokenizer file or folder, in any supported format."""

    format: Annotated[
        TokenizerFormat,
        tyro.conf.arg(aliases=["-f"], metavar="FORMAT", help=f"Format to write: {listed(FORMATS)}."),
    ]

    output: Annotated[
        Path,
        tyro.conf.arg(
            aliases=["-o"],
            metavar="PATH",
            help="File to write. huggingface: a folder, or one file if the name ends in .json. gpt2: a folder. minbpe: "
            "the name without .model.",
        ),
    ]

    overwrite: Flag = False
    """Replace an existing output."""

    legacy_merges: Flag = False
    """huggingface: write merges as "a b", for tokenizers before version 0.20."""

    pre: Annotated[str | None, tyro.conf.arg(metavar="NAME", help_behavior_hint="")] = None
    """gguf: name of the pattern in llama.cpp, if Gristmill does not know it."""

    bos_token: Annotated[str | None, tyro.conf.arg(metavar="TOKEN", help_behavior_hint="")] = None
    """huggingface, gguf: special token at the start of a text. By default, detected by name."""

    eos_token: Annotated[str | None, tyro.conf.arg(metavar="TOKEN", help_behavior_hint="")] = None
    """huggingface, gguf: special token at the end of a text. By default, detected by name, such as <|endoftext|>."""

    pad_token: Annotated[str | None, tyro.conf.arg(metavar="TOKEN", help_behavior_hint="")] = None
    """huggingface: special token for padding. By default, detected by name."""

    model_max_length: Annotated[int | None, tyro.conf.arg(metavar="TOKENS", help_behavior_hint="")] = None
    """huggingface: maximum input length of the model, in tokens."""

    def run(self) -> int:
        options = self._options()
        if str(self.output) == "-":
            raise UsageError("--output - (stdout) is not supported. Pass the name of a file or folder.")
        parts = read_tokenizer(
            self.tokenizer, pattern=self.pattern, special_tokens=parse_special_tokens(self.special_tokens)
        )
        try:
            written = write_tokenizer(parts, self.output, format=self.format, overwrite=self.overwrite, **options)
        except FileExistsError as error:
            raise FileExistsError(
                error.errno, "already exists. Pass --overwrite to replace it", error.filename
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
            raise UsageError(f"--{unfit[0].replace('_', '-')} is not supported by -f {self.format}. Omit it.")
        return options
