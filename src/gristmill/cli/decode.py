"""gristmill decode: turn ids back into the bytes of their text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

import tyro

from gristmill.cli.examples import Examples
from gristmill.cli.options import Flag, ProfileOut
from gristmill.cli.streams import argument_bytes, is_terminal, stdin_chunks, stdin_is_given, write_bytes
from gristmill.cli.table import show_token
from gristmill.cli.tokenizers import TokenizerOptions
from gristmill.cli.values import UsageError
from gristmill.errors import UnknownTokenError
from gristmill.tokenizer.vocabulary import MAX_ID
from gristmill.trace import span

if TYPE_CHECKING:
    from gristmill import Tokenizer

MAX_DIGITS = 18
WHAT_TO_PASS = "ids as arguments, or through a pipe"
_AS_SPACES = bytes.maketrans(b",[]()", b"     ")


@dataclass(frozen=True, kw_only=True)
class Command(TokenizerOptions):
    """Decode ids and write their text to stdout, byte for byte.

    Ids are separated by spaces, line breaks or commas, with or without brackets, as `gristmill tokenize` and Python
    print them. The texts of several lines are joined without a separator. On a terminal, a line break is added at the
    end.
    """

    EXAMPLES: ClassVar[Examples] = (
        ("Decode ids given as arguments.", "gristmill decode -t tok.json 79 344 261"),
        ("Decode the ids in a file.", "gristmill decode -t tok.json < ids.txt"),
        ("Omit special tokens.", "gristmill decode -t tok.json --skip-special 79 344 261 999"),
    )

    ids: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="ID…", help_behavior_hint="")] = ()
    """Ids to decode. Reads stdin if omitted or -."""

    skip_special: Flag = False
    """Omit special tokens."""

    profile_out: ProfileOut = None

    def run(self) -> int:
        if not self.ids and not stdin_is_given():
            raise UsageError(f"no ids given. Pass {WHAT_TO_PASS}.")
        tokenizer = self.load_tokenizer()
        left_out = frozenset(tokenizer.special_tokens.values()) if self.skip_special else frozenset[int]()
        last = b"\n"
        for ids in _parsed(self._chunks()):
            with span("decode", ids=len(ids)):
                data = _decoded(tokenizer, [id for id in ids if id not in left_out] if left_out else ids)
            with span("write", bytes=len(data)):
                write_bytes(data)
            last = data[-1:] or last
        if is_terminal() and last != b"\n":
            write_bytes(b"\n")  # so that the shell prompt starts on a new line
        return 0

    def _chunks(self) -> Iterator[bytes]:
        for text in self.ids or ("-",):
            yield from stdin_chunks(WHAT_TO_PASS) if text == "-" else [argument_bytes(text)]
            yield b" "


def _parsed(chunks: Iterable[bytes]) -> Iterator[list[int]]:
    """Yield the ids of each chunk; an id split between two chunks comes with the second."""
    rest = b""
    for chunk in chunks:
        with span("parse ids", bytes=len(chunk)):
            words = (rest + chunk.translate(_AS_SPACES) + b"|").split()
            rest = words.pop()[:-1]
            ids = _parse_ids(words)
        yield ids
        if len(rest) > MAX_DIGITS:
            _parse_id(rest)  # raises an error: no id is this long, and memory stays bounded


def _parse_ids(words: list[bytes]) -> list[int]:
    are_ids = b"".join(words).isdigit() and max(map(len, words)) <= MAX_DIGITS
    return list(map(int, words)) if are_ids else list(map(_parse_id, words))


def _parse_id(word: bytes) -> int:
    if not word.isdigit() or len(word) > MAX_DIGITS:
        shown = show_token(word[:40]) + "…" * (len(word) > 40)
        if word.isdigit():
            raise UsageError(f"{shown} is too large for an id. The largest possible id is {MAX_ID}.")
        raise UsageError(f"'{shown}' is not an id. Pass whole numbers, separated by spaces or commas.")
    return int(word)


def _decoded(tokenizer: Tokenizer, ids: list[int]) -> bytes:
    try:
        return tokenizer.decode_bytes(ids)
    except UnknownTokenError:
        vocab = tokenizer.vocab
        unknown = next(id for id in ids if id not in vocab)
        gaps = ", with gaps" if unknown < tokenizer.vocab_size else ""
        raise UnknownTokenError(
            f"no token has id {unknown}: the ids of this tokenizer are 0 to {tokenizer.vocab_size - 1}{gaps}. "
            f"Pass the tokenizer that produced the ids."
        ) from None
