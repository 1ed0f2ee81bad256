"""gristmill inspect: show the contents of a tokenizer, of shards or of word counts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

import tyro

from gristmill.analysis.texts import first_bytes
from gristmill.cli.examples import Examples
from gristmill.cli.inspect_shards import inspect_shards
from gristmill.cli.options import ProfileOut, UsageError, format_size
from gristmill.cli.table import bar, pairs, show_token
from gristmill.cli.tokenizers import SpecialTokens, parse_special_tokens
from gristmill.shards.folder_kind import is_shard_folder

if TYPE_CHECKING:
    from gristmill import Tokenizer

NUM_SHOWN = 6
NUM_TOKENS_SHOWN = 80
NUM_SPECIALS_SHOWN = 20
NUM_WORDS_SHOWN = 15
TEXT_BYTES = 10_000_000
WIDTH = 78


@dataclass(frozen=True, kw_only=True)
class Command:
    r"""Show the contents of a tokenizer and how it splits a text, or the contents of shards or word counts.

    In tokens, a space is shown as ␣, and bytes that are not a complete character as \xNN.
    """

    EXAMPLES: ClassVar[Examples] = (
        ("Show vocabulary size, token lengths and merges.", "gristmill inspect tok.json"),
        ("Show the ids and tokens of a text.", "gristmill inspect tok.json --string 'Once upon a time'"),
        ("Show splits, frequent tokens and sample documents of shards.", "gristmill inspect shards"),
    )

    path: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="TOKENIZER|SHARDS")]
    """Tokenizer file or folder in any supported format, folder of shards, or word counts (.gmw)."""

    pattern: Annotated[str | None, tyro.conf.arg(metavar="NAME|REGEX", help_behavior_hint="")] = None
    """Pattern of the tokenizer, for formats that do not store it, such as .tiktoken."""

    special_tokens: SpecialTokens = ()
    """Special tokens, for formats that do not store them. Write TOKEN or TOKEN=ID."""

    text: Annotated[Path | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="")] = None
    """Text file on which to measure bytes per token; only the first 10 MB are used. By default, a built-in story."""

    string: Annotated[str | None, tyro.conf.arg(metavar="TEXT", help_behavior_hint="")] = None
    """Text to split into tokens, and to measure bytes per token on."""

    seed: Annotated[int | None, tyro.conf.arg(metavar="N", help_behavior_hint="")] = None
    """Seed that selects the sample documents of a folder of shards."""

    profile_out: ProfileOut = None

    def run(self) -> int:
        if is_shard_folder(self.path):
            return self._run_on_shards()
        if self.path.suffix.lower() == ".gmw" and self.path.is_file():
            return self._run_on_words()
        import gristmill

        if self.seed is not None:
            raise UsageError(f"--seed applies to a folder of shards, but {self.path} is not one. Omit --seed.")
        if self.text is not None and self.string is not None:
            raise UsageError("--text and --string exclude each other. Pass one of them.")
        tokenizer = gristmill.Tokenizer.load(
            self.path, pattern=self.pattern, special_tokens=parse_special_tokens(self.special_tokens)
        )
        sections = [self._sizes(tokenizer), _lengths(tokenizer), _longest(tokenizer), _merges(tokenizer)]
        # A user who passes a text wants to see its ids first.
        sections.insert(0 if self.string is not None else len(sections), self._text_figures(tokenizer))
        print("\n\n".join(section for section in sections if section))
        return 0

    def _run_on_shards(self) -> int:
        self._refuse(("pattern", "special_tokens", "text", "string"), "a tokenizer", "is a folder of shards")
        print(inspect_shards(self.path, self.seed or 0))
        return 0

    def _run_on_words(self) -> int:
        from gristmill.count import Words

        self._refuse(("pattern", "special_tokens", "text", "string"), "a tokenizer", "holds word counts")
        self._refuse(("seed",), "a folder of shards", "holds word counts")
        words = Words.load(self.path)
        rows = [
            ("word counts", f"{self.path}{_size(self.path)}"),
            ("corpus", f"{words.source_bytes:,} bytes"),
            ("words", f"{len(words):,}  ({words.num_pieces:,} pieces)"),
            ("special", ", ".join(words.special_tokens) or "none"),
            ("pattern", words.pattern),
        ]
        common = [(_shortened(show_token(word)), f"{count:>13,}") for word, count in words.most_common(NUM_WORDS_SHOWN)]
        print(pairs(rows, indent=0) + ("\n\nMost frequent words\n" + pairs(common) if common else ""))
        return 0

    def _refuse(self, options: tuple[str, ...], place: str, what: str) -> None:
        """Raise `UsageError` if one of `options`, which apply to `place`, is given. `what` describes the path."""
        for option in options:
            if getattr(self, option) not in (None, ()):
                name = option.replace("_", "-")
                raise UsageError(f"--{name} applies to {place}, but {self.path} {what}. Omit --{name}.")

    def _sizes(self, tokenizer: Tokenizer) -> str:
        specials = [f"{show_token(special.encode())} = {id}" for special, id in tokenizer.special_tokens.items()]
        specials[NUM_SPECIALS_SHOWN:] = [f"… {len(specials):,} in all"] * (len(specials) > NUM_SPECIALS_SHOWN)
        num_tokens = len(tokenizer.vocab)
        gaps = f"  ({num_tokens:,} tokens: some ids are unused)" * (num_tokens < tokenizer.vocab_size)
        return pairs(
            [
                ("tokenizer", f"{self.path}{_size(self.path)}"),
                ("vocabulary", f"{tokenizer.vocab_size:,}{gaps}"),
                ("merges", f"{len(tokenizer.merge_ids):,}"),
                ("special", ", ".join(specials) or "none"),
                ("pattern", tokenizer.pattern),
                ("tie-break", tokenizer.tie_break),
            ],
            indent=0,
        )

    def _text_figures(self, tokenizer: Tokenizer) -> str:
        name, data = self._read_text()
        ids = tokenizer.encode(data, allowed_special="all")
        ratio = len(data) / len(ids) if ids else 0.0
        figures = [("bytes", f"{len(data):,}"), ("tokens", f"{len(ids):,}"), ("bytes per token", f"{ratio:.3f}")]
        lines = [f"Text: {name}", pairs(figures)]
        if self.text is None and ids:
            vocab, more = tokenizer.vocab, ["…"] * (len(ids) > NUM_TOKENS_SHOWN)
            shown = ids[:NUM_TOKENS_SHOWN]
            cuts = _wrapped([f"[{show_token(vocab[id])}]" for id in shown] + more)
            if self.string is not None:
                return "\n".join(["Ids", _wrapped([f"{id} " for id in shown] + more), "Tokens", cuts, pairs(figures)])
            lines.append(cuts)
        return "\n".join(lines)

    def _read_text(self) -> tuple[str, bytes]:
        if self.string is not None:
            return "as given", self.string.encode("utf-8", "surrogateescape")
        if self.text is not None:
            return str(self.text), first_bytes(self.text, TEXT_BYTES)[0]
        from gristmill.sample_corpus import stories

        return "a story of the sample corpus (--text FILE to use another text)", next(stories()).encode()


def _size(path: Path) -> str:
    return "" if path.is_dir() else f"  ({format_size(path.stat().st_size)})"


def _ordinary(tokenizer: Tokenizer) -> dict[int, bytes]:
    """Return the tokens that are not special, by id."""
    special_ids = set(tokenizer.special_tokens.values())
    return {id: token for id, token in tokenizer.vocab.items() if id not in special_ids}


def _lengths(tokenizer: Tokenizer) -> str:
    """Return a histogram of token lengths. From 16 on, each line covers a range twice as wide as the previous one."""
    lengths = [len(token) for token in _ordinary(tokenizer).values()]
    ranges = [(n, n) for n in range(1, 16)] + [(2**k, 2 ** (k + 1) - 1) for k in range(4, 31)]
    counts = [
        (low, high, sum(low <= length <= high for length in lengths)) for low, high in ranges if low <= max(lengths)
    ]
    top = max(count for _, _, count in counts)
    rows = [
        (f"{low}" if low == high else f"{low}-{high}", f"{count:>7,}  {bar(count / top)}")
        for low, high, count in counts
    ]
    return "Tokens by length in bytes\n" + pairs(rows)


def _longest(tokenizer: Tokenizer) -> str:
    learned = [item for item in _ordinary(tokenizer).items() if len(item[1]) > 1]
    if not learned:
        return ""
    tokens = sorted(learned, key=lambda item: (-len(item[1]), item[0]))[:NUM_SHOWN]
    rows = [(f"{id}", f"{len(token):>4} bytes  {_shortened(show_token(token))}") for id, token in tokens]
    return "Longest tokens\n" + pairs(rows)


def _merges(tokenizer: Tokenizer) -> str:
    merges = tokenizer.merges
    if not merges:
        return ""
    rows = [(f"{id}", _show_merge(*merge)) for id, merge in zip(tokenizer.merged_ids.tolist(), merges, strict=True)]
    if len(rows) <= 2 * NUM_SHOWN:
        return "Merges\n" + pairs(rows)
    return f"First merges\n{pairs(rows[:NUM_SHOWN])}\n\nLast merges\n{pairs(rows[-NUM_SHOWN:])}"


def _show_merge(left: bytes, right: bytes) -> str:
    return _shortened(f"{show_token(left)} + {show_token(right)}")


def _shortened(text: str, width: int = 60) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def _wrapped(words: list[str], width: int = WIDTH) -> str:
    lines, line = [], "  "
    for word in words:
        if len(line) + len(word) > width and line.strip():
            lines.append(line)
            line = "  "
        line += word
    return "\n".join(line.rstrip() for line in [*lines, line])
