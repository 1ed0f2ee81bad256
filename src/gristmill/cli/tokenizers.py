"""Options shared by commands that use a tokenizer: the tokenizer, and the special tokens allowed in text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

import tyro

from gristmill.cli.values import UsageError

if TYPE_CHECKING:
    from gristmill import Tokenizer

AllowedSpecial: TypeAlias = Annotated[tuple[str, ...], tyro.conf.arg(metavar="[TOKEN …]", help_behavior_hint="")]
SpecialTokens: TypeAlias = Annotated[tuple[str, ...], tyro.conf.arg(metavar="[TOKEN[=ID] …]", help_behavior_hint="")]


@dataclass(frozen=True, kw_only=True)
class TokenizerOptions:
    """Tokenizer of a command, in any format, with the pattern and special tokens that the format does not store."""

    tokenizer: Annotated[Path, tyro.conf.arg(aliases=["-t"], metavar="TOKENIZER")]
    """Tokenizer file or folder, in any supported format."""

    pattern: Annotated[str | None, tyro.conf.arg(metavar="NAME|REGEX", help_behavior_hint="")] = None
    """Pattern of TOKENIZER, for formats that do not store it, such as .tiktoken."""

    special_tokens: SpecialTokens = ()
    """Special tokens of TOKENIZER, for formats that do not store them. Write TOKEN or TOKEN=ID."""

    def load_tokenizer(self) -> Tokenizer:
        """Return the tokenizer that the options name."""
        import gristmill

        return gristmill.Tokenizer.load(
            self.tokenizer, pattern=self.pattern, special_tokens=parse_special_tokens(self.special_tokens)
        )


def allowed(specials: tuple[str, ...]) -> Literal["all"] | tuple[str, ...]:
    """Return the value of `--allowed-special` as `encode` takes it: the word "all" allows every special token.

    >>> allowed(("all",)), allowed(("<s>",))
    ('all', ('<s>',))
    """
    return "all" if "all" in specials else specials


def check_allowed(specials: tuple[str, ...], tokenizer: Tokenizer, path: str | Path, what: str) -> None:
    """Raise `UsageError` if a value of `--allowed-special` is not a special token. It may be a misplaced `what`."""
    for text in specials:
        if text != "all" and text not in tokenizer.special_tokens:
            raise UsageError(
                f"--allowed-special {text!r} is not a special token of {path}. "
                f"If it is a {what}, put it before --allowed-special."
            )


def parse_special_tokens(texts: Sequence[str]) -> Mapping[str, int] | list[str] | None:
    """Return the special tokens with ids, without ids, or None if there are none.

    >>> parse_special_tokens(["<s>=300", "<a=b>=301"]), parse_special_tokens(["<s>"])
    ({'<s>': 300, '<a=b>': 301}, ['<s>'])
    """
    if not texts:
        return None
    split = [text.rpartition("=") for text in texts]
    with_ids = [bool(name) and id.isascii() and id.isdigit() for name, _, id in split]
    if all(with_ids):
        return {name: int(id) for name, _, id in split}
    if any(with_ids):
        raise UsageError("--special-tokens has tokens with an id and tokens without. Give all of them ids, or none.")
    return list(texts)
