"""gristmill compare: compare tokenizers on a text, and their vocabularies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
import tyro
from numpy.typing import NDArray

from gristmill.cli.examples import Examples
from gristmill.cli.options import format_size
from gristmill.cli.streams import first_bytes
from gristmill.cli.table import columns, pairs, show_token
from gristmill.cli.tokenizers import AllowedSpecial, allowed, check_allowed
from gristmill.cli.values import UsageError, whole_number

if TYPE_CHECKING:
    from gristmill import Tokenizer

MAX_TEXT_BYTES = 10_000_000
MAX_SHOWN_TOKENS = 24


@dataclass(frozen=True, kw_only=True)
class Command:
    r"""Compare tokenizers: bytes per token on a text, shared vocabulary, and places where they split differently.

    Tokens are compared by their bytes, not by their ids. A space is shown as ␣, and bytes that are not a complete
    character as \xNN.
    """

    EXAMPLES: ClassVar[Examples] = (
        ("Compare two tokenizers on a built-in story.", "gristmill compare old.json new.json"),
        (
            "Compare on your own text, and show 20 differences.",
            "gristmill compare old.json new.json --text story.txt --num-differences 20",
        ),
    )

    tokenizers: Annotated[
        tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="TOKENIZER…", help_behavior_hint="")
    ]
    """Two or more tokenizer files or folders, in any supported format. Put them before --allowed-special."""

    text: Annotated[Path | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="")] = None
    """Text file to compare on; only the first 10 MB are used. By default, a built-in story."""

    pattern: Annotated[str | None, tyro.conf.arg(metavar="NAME|REGEX", help_behavior_hint="")] = None
    """Pattern of tokenizers whose format does not store it, such as .tiktoken."""

    num_differences: Annotated[int, whole_number("--num-differences")] = 5
    """Number of differences to show."""

    allowed_special: AllowedSpecial = ()
    """Special tokens that become their ids where the text contains them. all: every special token."""

    def run(self) -> int:
        if len(self.tokenizers) < 2:
            raise UsageError("compare needs at least two tokenizers. Pass their files or folders.")
        tokenizers = [_load(name, self.pattern) for name in self.tokenizers]
        name, data = self._read_text()
        for path, tokenizer in zip(self.tokenizers, tokenizers, strict=True):
            check_allowed(self.allowed_special, tokenizer, path, "tokenizer")
        rule = allowed(self.allowed_special)
        encoded = [tokenizer.encode_array(data, allowed_special=rule) for tokenizer in tokenizers]
        print(f"Text: {name}, {format_size(len(data))}")
        print(_sizes(self.tokenizers, tokenizers, [len(ids) for ids in encoded], len(data)))
        print("\nShared tokens, compared by their bytes")
        print(_overlaps(self.tokenizers, tokenizers))
        cuts = [_token_ends(tokenizer, ids) for tokenizer, ids in zip(tokenizers, encoded, strict=True)]
        print("\n" + _differences(self.tokenizers, cuts, data, max(self.num_differences, 0)))
        return 0

    def _read_text(self) -> tuple[str, bytes]:
        if self.text is not None:
            data, more = first_bytes(self.text, MAX_TEXT_BYTES)
            return f"the first 10 MB of {self.text}" if more else str(self.text), data
        from gristmill.sample_corpus import stories

        return "a story of the sample corpus (--text FILE to use another text)", next(stories()).encode()


def _load(name: str, pattern: str | None) -> Tokenizer:
    """Return the tokenizer. The pattern is used only for files that do not store one."""
    import gristmill
    from gristmill.errors import TokenizerFormatError

    try:
        return gristmill.Tokenizer.load(name)
    except TokenizerFormatError:
        if pattern is None:
            raise
        return gristmill.Tokenizer.load(name, pattern=pattern)


def _sizes(names: Sequence[str], tokenizers: Sequence[Tokenizer], counts: Sequence[int], num_bytes: int) -> str:
    rows = []
    for name, tokenizer, num_tokens in zip(names, tokenizers, counts, strict=True):
        ratio = f"{num_bytes / num_tokens:.3f}" if num_tokens else "-"
        relative = f"{100 * (num_tokens / counts[0] - 1):+.1f} %" if counts[0] and name != names[0] else ""
        pattern = tokenizer.pattern if len(tokenizer.pattern) <= 12 else "a regex"
        rows.append([name, f"{tokenizer.vocab_size:,}", pattern, f"{num_tokens:,}", relative, ratio])
    return columns(["tokenizer", "vocabulary", "pattern", "tokens", "", "bytes/token"], rows)


def _overlaps(names: Sequence[str], tokenizers: Sequence[Tokenizer]) -> str:
    vocabularies = [set(tokenizer.vocab.values()) for tokenizer in tokenizers]
    rows = []
    for i, j in combinations(range(len(names)), 2):
        shared = len(vocabularies[i] & vocabularies[j])
        numbers = [shared, len(vocabularies[i]) - shared, len(vocabularies[j]) - shared]
        share = 100 * shared / len(vocabularies[i] | vocabularies[j])
        rows.append([f"{names[i]}, {names[j]}", *(f"{number:,}" for number in numbers), f"{share:.1f} %"])
    return columns(["tokenizers", "shared", "first only", "second only", "of all"], rows)


def _token_ends(tokenizer: Tokenizer, ids: NDArray[Any]) -> NDArray[np.int64]:
    """Return the end of each token in the text."""
    lengths = np.zeros(tokenizer.vocab_size, np.int64)
    for id, token in tokenizer.vocab.items():
        lengths[id] = len(token)
    return np.cumsum(lengths[ids])


def _differences(names: Sequence[str], cuts: list[NDArray[np.int64]], data: bytes, num_shown: int) -> str:
    places = list(_places(cuts))
    if not places:
        return "All tokenizers split the text into the same tokens."
    num_bytes = sum(end - begin for begin, end in places)
    share = 100 * num_bytes / len(data)
    lines = [f"Different splits: {len(places):,}, covering {share:.1f} % of the bytes"]
    for begin, end in places[:num_shown]:
        rows = [(name, _tokens_between(begin, end, ends, data)) for name, ends in zip(names, cuts, strict=True)]
        lines.append(f"  byte {begin:,}\n{pairs(rows, indent=4)}")
    if len(places) > num_shown:
        lines.append(f"  … {len(places) - num_shown:,} more")
    return "\n".join(lines)


def _places(cuts: list[NDArray[np.int64]]) -> Iterator[tuple[int, int]]:
    """Yield the shortest spans that start and end at token boundaries of every tokenizer but are split differently."""
    common = cuts[0]
    for ends in cuts[1:]:
        common = np.intersect1d(common, ends, assume_unique=True)
    # Number of tokens between common boundaries: where it is 1 for every tokenizer, the tokens are identical.
    steps = [np.diff(np.searchsorted(ends, common, side="right"), prepend=0) for ends in cuts]
    is_same = np.all([step == 1 for step in steps], axis=0)
    begins = np.concatenate([[0], common[:-1]])
    for i in np.flatnonzero(~is_same).tolist():
        yield int(begins[i]), int(common[i])


def _tokens_between(begin: int, end: int, ends: NDArray[np.int64], data: bytes) -> str:
    first, last = np.searchsorted(ends, [begin, end], side="right").tolist()
    bounds = [begin, *ends[first:last].tolist()]
    shown = [f"[{show_token(data[a:b])}]" for a, b in pairwise(bounds)]
    return "".join(shown[:MAX_SHOWN_TOKENS]) + "…" * (len(shown) > MAX_SHOWN_TOKENS)
