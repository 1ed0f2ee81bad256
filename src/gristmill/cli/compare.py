"""gristmill compare: compare tokenizers on a text, and their vocabularies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import tyro
from numpy.typing import NDArray

from gristmill.analysis.comparing import find_differences, vocabulary_overlaps
from gristmill.analysis.named_tokenizers import find_tokenizer
from gristmill.analysis.texts import Text, read_texts
from gristmill.analysis.usage import usage_of_ids
from gristmill.cli.examples import Examples
from gristmill.cli.options import Flag, ProfileOut, check_output, format_size
from gristmill.cli.table import columns, pairs, show_token
from gristmill.cli.texts import TextFiles, named_files
from gristmill.cli.tokenizers import AllowedSpecial, allowed, check_allowed
from gristmill.cli.values import UsageError, whole_number
from gristmill.packages import require_packages

if TYPE_CHECKING:
    from gristmill import Tokenizer

MAX_SHOWN_TOKENS = 24


@dataclass(frozen=True, kw_only=True)
class Command:
    r"""Compare tokenizers on a text: bytes per token, fertility, efficiency, shared vocabulary and different splits.

    Tokens are compared by their bytes, not by their ids. A space is shown as ␣, and bytes that are not a complete
    character as \xNN. Names such as gpt2, cl100k_base and o200k_base stand for published tokenizers, if their files
    are on this machine: in the cache of tiktoken or of the Hugging Face Hub, or in the package bpe-openai.
    """

    EXAMPLES: ClassVar[Examples] = (
        ("Compare two tokenizers on the built-in sample corpus.", "gristmill compare old.json new.json"),
        (
            "Compare on your own text, and show 20 differences.",
            "gristmill compare old.json new.json --text story.txt --num-differences 20",
        ),
        (
            "Write a page with plots, too.",
            "gristmill compare old.json new.json --text story.txt -o page.html",
        ),
        ("Compare with a published tokenizer.", "gristmill compare new.json cl100k_base --text story.txt"),
    )

    tokenizers: Annotated[
        tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="TOKENIZER…", help_behavior_hint="")
    ]
    """Two or more tokenizer files or folders, in any supported format, or names of published tokenizers. Put them
    before --allowed-special."""

    text: TextFiles = ()
    """Text file to compare on, with an optional name such as a language. Only its first 10 MB are used."""

    output: Annotated[Path | None, tyro.conf.arg(aliases=["-o"], metavar="FILE", help_behavior_hint="")] = None
    """HTML page to write, with plots, scripts and more differences."""

    overwrite: Flag = False
    """Replace an existing page."""

    download: Flag = False
    """Download a published tokenizer that is not on this machine."""

    pattern: Annotated[str | None, tyro.conf.arg(metavar="NAME|REGEX", help_behavior_hint="")] = None
    """Pattern of tokenizers whose format does not store it, such as .tiktoken."""

    num_differences: Annotated[int, whole_number("--num-differences")] = 5
    """Number of differences to show."""

    allowed_special: AllowedSpecial = ()
    """Special tokens that become their ids where the text contains them. all: every special token."""

    profile_out: ProfileOut = None

    def run(self) -> int:
        if len(self.tokenizers) < 2:
            raise UsageError("compare needs at least two tokenizers. Pass their files or folders.")
        if self.output is not None:
            require_packages("gristmill compare -o", "matplotlib", "jinja2")
            check_output(self.output, overwrite=self.overwrite, inputs=self.tokenizers)
        tokenizers = [find_tokenizer(name, pattern=self.pattern, download=self.download) for name in self.tokenizers]
        texts = read_texts(named_files(self.text))
        for path, tokenizer in zip(self.tokenizers, tokenizers, strict=True):
            check_allowed(self.allowed_special, tokenizer, path, "tokenizer")
        rule = allowed(self.allowed_special)
        for text in texts:
            encoded = [tokenizer.encode_array(text.data, allowed_special=rule) for tokenizer in tokenizers]
            print(_text_in_words(text))
            print(_figures(self.tokenizers, tokenizers, encoded, text.data), end="\n\n")
        print("Shared tokens, compared by their bytes")
        print(_overlaps(self.tokenizers, tokenizers), end="\n\n")
        encoded = [tokenizer.encode_array(texts[0].data, allowed_special=rule) for tokenizer in tokenizers]
        print(_differences(self.tokenizers, tokenizers, encoded, texts[0].data, max(self.num_differences, 0)))
        if self.output is not None:
            self._write_page(tokenizers, self.output)
        return 0

    def _write_page(self, tokenizers: Sequence[Tokenizer], output: Path) -> None:
        from gristmill.report.token_writing import titles, write_tokenizer_comparison

        page = write_tokenizer_comparison(
            dict(zip(titles(self.tokenizers), tokenizers, strict=True)),
            texts=named_files(self.text),
            allowed_special=allowed(self.allowed_special),
            out=output,
            overwrite=self.overwrite,
        )
        print("\n" + pairs([("page", str(page))], indent=0))


def _text_in_words(text: Text) -> str:
    hint = " (--text FILE to use another text)" if text.is_sample else ""
    size = "" if text.is_cut else f", {format_size(len(text.data))}"  # the description of a cut text has it
    return f"Text: {text.description}{size}{hint}"


def _figures(
    names: Sequence[str], tokenizers: Sequence[Tokenizer], encoded: Sequence[NDArray[Any]], data: bytes
) -> str:
    rows = []
    for name, tokenizer, ids in zip(names, tokenizers, encoded, strict=True):
        usage = usage_of_ids(tokenizer, ids, data)
        num_tokens, first = usage.num_tokens, len(encoded[0])
        relative = f"{100 * (num_tokens / first - 1):+.1f} %" if first and name != names[0] else ""
        pattern = tokenizer.pattern if len(tokenizer.pattern) <= 12 else "a regex"
        measures = (usage.bytes_per_token, usage.fertility, usage.renyi_efficiency)
        rows.append(
            [
                name,
                f"{tokenizer.vocab_size:,}",
                pattern,
                f"{num_tokens:,}",
                relative,
                *("-" if value is None else f"{value:.3f}" for value in measures),
                f"{len(usage.unused):,}",
            ]
        )
    head = ["tokenizer", "vocabulary", "pattern", "tokens", "", "bytes/token", "tokens/word", "Rényi", "unused"]
    return columns(head, rows)


def _overlaps(names: Sequence[str], tokenizers: Sequence[Tokenizer]) -> str:
    rows = []
    for overlap in vocabulary_overlaps(tokenizers):
        numbers = [overlap.num_shared, overlap.num_first_only, overlap.num_second_only]
        both = f"{names[overlap.first]}, {names[overlap.second]}"
        rows.append([both, *(f"{number:,}" for number in numbers), f"{100 * overlap.share:.1f} %"])
    return columns(["tokenizers", "shared", "first only", "second only", "of all"], rows)


def _differences(
    names: Sequence[str], tokenizers: Sequence[Tokenizer], encoded: Sequence[NDArray[Any]], data: bytes, num_shown: int
) -> str:
    found = find_differences(tokenizers, encoded, data, num_places=num_shown)
    if not found.num_places:
        return "All tokenizers split the text into the same tokens."
    share = 100 * found.num_bytes / len(data)
    lines = [f"Different splits: {found.num_places:,}, covering {share:.1f} % of the bytes"]
    for place in found.places:
        rows = [(name, _shown(tokens)) for name, tokens in zip(names, place.tokens, strict=True)]
        lines.append(f"  byte {place.begin:,}\n{pairs(rows, indent=4)}")
    if found.num_places > num_shown:
        lines.append(f"  … {found.num_places - num_shown:,} more")
    return "\n".join(lines)


def _shown(tokens: Sequence[bytes]) -> str:
    shown = [f"[{show_token(token)}]" for token in tokens[:MAX_SHOWN_TOKENS]]
    return "".join(shown) + "…" * (len(tokens) > MAX_SHOWN_TOKENS)
