"""gristmill tokenize: show the ids or tokens of a text."""

from __future__ import annotations

import re
import shlex
import shutil
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

import tyro

from gristmill.analysis.texts import file_chunks
from gristmill.cli.examples import Examples
from gristmill.cli.options import ProfileOut
from gristmill.cli.streams import argument_bytes, is_terminal, stdin_chunks, stdin_is_given, use_colors
from gristmill.cli.table import show_token
from gristmill.cli.tokenizers import AllowedSpecial, TokenizerOptions, allowed, check_allowed
from gristmill.cli.values import UsageError, one_of
from gristmill.trace import span

if TYPE_CHECKING:
    from gristmill import Tokenizer

BATCH_IDS = 4096
# Black on four light backgrounds in turn, so neighbours always differ. Special tokens are white on red.
BACKGROUNDS = ("\033[38;5;16;48;5;153m", "\033[38;5;16;48;5;223m", "\033[38;5;16;48;5;157m", "\033[38;5;16;48;5;219m")
SPECIAL_BACKGROUND = "\033[1;38;5;231;48;5;160m"
RESET = "\033[0m"
_LIKE_SHORT = re.compile(r"-[^-0-9.]")
WHAT_TO_PASS = "texts as arguments, --file FILE, or text through a pipe"


@dataclass(frozen=True, kw_only=True)
class Command(TokenizerOptions):
    r"""Show the ids and tokens of texts.

    Ids are written one line per text; `gristmill decode` turns them back into the same bytes. In tokens, a space is
    shown as ␣, and bytes that are not a complete character as \xNN.
    """

    EXAMPLES: ClassVar[Examples] = (
        ("Show the tokens of a text with their ids.", "gristmill tokenize -t tok.json --show both 'Once upon a time'"),
        (
            "Write the ids of a file, and turn them back into text.",
            "gristmill tokenize -t tok.json --file story.txt | gristmill decode -t tok.json",
        ),
        (
            "Turn a special token in the text into its id.",
            "gristmill tokenize -t tok.json 'The end.<|endoftext|>' --allowed-special all",
        ),
    )

    texts: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="TEXT…", help_behavior_hint="")] = ()
    """Texts to tokenize, before --allowed-special. Reads stdin if omitted or -."""

    file: Annotated[Path | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="")] = None
    """Read the text from this file. .gz and .zst files are decompressed."""

    show: Annotated[
        str | None,
        one_of(["ids", "tokens", "both"]),
        tyro.conf.arg(help_behavior_hint="(default: both on a terminal, ids elsewhere)"),
    ] = None
    """Output: ids, tokens, or both (tokens with their ids below)."""

    allowed_special: AllowedSpecial = ()
    """Special tokens that become their ids where the text contains them. all: every special token."""

    color: Annotated[str, one_of(["auto", "always", "never"])] = "auto"
    """Use colours. auto: on a terminal, unless $NO_COLOR is set."""

    profile_out: ProfileOut = None

    def run(self) -> int:
        tokenizer = self.load_tokenizer()
        self._check(tokenizer)
        show = self.show or ("both" if is_terminal() else "ids")
        writer = _Writer(tokenizer, in_color=show != "ids" and use_colors(self.color))
        write = {"ids": _write_ids, "tokens": writer.write_tokens, "both": writer.write_both}[show]
        for number, chunks in enumerate(self._texts()):
            if number and show == "both":
                print()
            write(tokenizer.encode_iterable(chunks, allowed_special=allowed(self.allowed_special)))
        return 0

    def _check(self, tokenizer: Tokenizer) -> None:
        if self.texts and self.file is not None:
            raise UsageError("texts and --file exclude each other. Pass one of them.")
        if self.texts.count("-") > 1:
            raise UsageError("- is given twice, but stdin can be read only once. Pass it once.")
        check_allowed(self.allowed_special, tokenizer, self.tokenizer, "text")
        if not self.texts and self.file is None and not stdin_is_given():
            raise UsageError(f"no text given. Pass {WHAT_TO_PASS}.")

    def _texts(self) -> Iterator[Iterable[bytes]]:
        if self.file is not None:
            yield file_chunks(self.file)
            return
        for text in self.texts or ("-",):
            yield stdin_chunks(WHAT_TO_PASS) if text == "-" else [argument_bytes(text)]


def spelled_out(arguments: list[str]) -> list[str]:
    """Return the arguments unchanged. Raise `UsageError` for a text that looks like a short option."""
    for argument in takewhile(lambda argument: argument != "--", arguments):
        if _LIKE_SHORT.match(argument) and argument not in ("-t", "-h"):
            text = shlex.quote(argument)
            raise UsageError(f"'tokenize' has no option {argument!r}. If it is a text, put -- before it: -- {text}")
    return arguments


def _write_ids(ids: Iterator[int]) -> None:
    separator = ""
    for batch in _batches(ids):
        with span("write ids", ids=len(batch)):
            print(separator + " ".join(map(str, batch)), end="")
        separator = " "
    print()


def _batches(ids: Iterator[int]) -> Iterator[list[int]]:
    """Yield the ids in lists. To produce them, `ids` reads the text and encodes it."""
    while True:
        with span("read and encode"):
            batch = list(islice(ids, BATCH_IDS))
        if not batch:
            return
        yield batch


class _Writer:
    """Writes tokens, on one line per text or with their ids below."""

    def __init__(self, tokenizer: Tokenizer, *, in_color: bool) -> None:
        self._vocab = tokenizer.vocab
        self._special_ids = frozenset(tokenizer.special_tokens.values())
        self._in_color = in_color
        self._number = 0

    def write_tokens(self, ids: Iterator[int]) -> None:
        """Write the tokens on one line, separated by spaces or colours."""
        between = ""
        for batch in _batches(ids):
            with span("write tokens", ids=len(batch)):
                print(between + ("" if self._in_color else " ").join(map(self._shown, batch)), end="")
            between = "" if self._in_color else " "
        print()

    def write_both(self, ids: Iterator[int]) -> None:
        """Write lines of tokens, each with the ids on the line below."""
        width = shutil.get_terminal_size((80, 24)).columns
        row: list[int] = []
        room = width
        for id in ids:
            needed = self._width(id) + 2 * bool(row)
            if row and needed > room:
                self._write_row(row)
                row, room, needed = [], width, self._width(id)
            row.append(id)
            room -= needed
        self._write_row(row)

    def _write_row(self, row: list[int]) -> None:
        tokens = [self._shown(id) + " " * (self._width(id) - _columns(show_token(self._vocab[id]))) for id in row]
        print("  ".join(tokens).rstrip(" "))
        print("  ".join(f"{id:<{self._width(id)}}" for id in row).rstrip())

    def _width(self, id: int) -> int:
        return max(_columns(show_token(self._vocab[id])), len(str(id)))

    def _shown(self, id: int) -> str:
        token = show_token(self._vocab[id])
        if not self._in_color:
            return token
        self._number += 1
        background = SPECIAL_BACKGROUND if id in self._special_ids else BACKGROUNDS[self._number % len(BACKGROUNDS)]
        return f"{background}{token}{RESET}"


def _columns(text: str) -> int:
    """Return the width of `text` in terminal columns: two for each wide East Asian character."""
    return len(text) + sum(unicodedata.east_asian_width(character) in "WF" for character in text)
