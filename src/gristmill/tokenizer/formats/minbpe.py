"""minbpe's `.model`, and the human-readable `.vocab` that is written with it and never read.

    minbpe v1
    '(?i:[sdmt]|ll|ve|re)|…            the pattern; an empty line for none, as in its BasicTokenizer
    1                                  the number of special tokens
    <|endoftext|> 100257               each special token with its id
    104 101                            the merges: left id, right id; they create ids 256, 257, …

Only Gristmill's layout can be stored: bytes are ids 0-255, followed by the merges. Special tokens may have any ids.
"""

from __future__ import annotations

import dataclasses
import unicodedata
from pathlib import Path

import numpy as np

from gristmill.arguments import NUM_BYTE_TOKENS, check_special_tokens
from gristmill.errors import FormatWarning, TokenizerFormatError, warn_user
from gristmill.merge.merges import check_merges, check_tokens
from gristmill.pretokenize.patterns import WHOLE_TEXT, Pattern, resolve_pattern
from gristmill.pretokenize.stages import stages
from gristmill.tokenizer.formats.content import check_content, read_content, split_lines
from gristmill.tokenizer.formats.given import Given
from gristmill.tokenizer.parts import ASSUMED_TIE_BREAK, TokenizerParts
from gristmill.tokenizer.vocabulary import MAX_ID, Vocabulary, check_special_ids

OPTIONS: frozenset[str] = frozenset()

VERSION = "minbpe v1"


def recognizes(path: Path, head: bytes) -> bool:
    """Whether the file looks like this format."""
    return head.startswith(VERSION.encode())


def read(path: Path, given: Given) -> TokenizerParts:
    """Return the tokenizer in the file at `path`."""
    parts = parse(read_content(path))
    given.agree_with(parts.pattern, parts.vocabulary.special_tokens)
    return parts


def files(parts: TokenizerParts, path: Path) -> dict[Path, bytes]:
    """Return the files to write: `NAME.model` and `NAME.vocab`, for `NAME` or `NAME.model` as `path`."""
    data = dump(parts)
    check_content(data)
    stem = path.name.removesuffix(".model")
    return {
        path.with_name(f"{stem}.vocab"): dump_vocab(parts.vocabulary),
        path.with_name(f"{stem}.model"): data,
    }


def dump(parts: TokenizerParts) -> bytes:
    """Return the content of the `.model`."""
    vocabulary = parts.vocabulary
    made = np.arange(NUM_BYTE_TOKENS, NUM_BYTE_TOKENS + len(vocabulary.merges))
    if (
        vocabulary.other_tokens
        or vocabulary.whole_pieces
        or not np.array_equal(vocabulary.byte_ids, np.arange(NUM_BYTE_TOKENS))
        or not np.array_equal(vocabulary.merges[:, 2], made)
    ):
        raise TokenizerFormatError(
            "a minbpe file stores no ids of tokens: bytes are ids 0-255 and merges follow from 256 on, but this "
            "vocabulary has other ids. Export as 'huggingface' or 'gristmill'."
        )
    for special in vocabulary.special_tokens:
        if special.split() != [special]:
            raise TokenizerFormatError(
                f"the special token {special!r} contains white space, which a minbpe file cannot store. Rename it."
            )
    specials = sorted(vocabulary.special_tokens.items(), key=lambda item: item[1])
    lines = [VERSION, _pattern_line(parts.pattern), str(len(specials))]
    lines += [f"{special} {id}" for special, id in specials]
    lines += [f"{left} {right}" for left, right, _ in vocabulary.merges.tolist()]
    return ("\n".join(lines) + "\n").encode()


def _pattern_line(pattern: Pattern) -> str:
    if pattern.regex == WHOLE_TEXT:
        return ""
    if len(stages(pattern.regex)) > 1:
        raise TokenizerFormatError(
            "the pattern has several expressions that cut one after the other, but a minbpe file stores one. "
            "Export as 'huggingface' or 'gristmill'."
        )
    if len(pattern.regex.splitlines()) != 1:
        raise TokenizerFormatError(
            "the pattern has line breaks, but a minbpe file has one line for it. Write them as \\n in the pattern."
        )
    if pattern.name is None:
        warn_user(
            f"minbpe drops text that the pattern {pattern.regex!r} does not match, and uses groups as pieces. "
            f"Gristmill does neither. Compare ids before you rely on them.",
            FormatWarning,
        )
    # minbpe strips white space from both ends of the line.
    return pattern.regex if pattern.regex == pattern.regex.strip() else f"(?:{pattern.regex})"


def dump_vocab(vocabulary: Vocabulary) -> bytes:
    """Return the content of the `.vocab`: each token with its parts and its id. Invalid UTF-8 is shown as U+FFFD."""
    shown = {id: _show(token) for id, token in vocabulary.tokens.items()}
    parts = {made: f"[{shown[left]}][{shown[right]}] -> " for left, right, made in vocabulary.merges.tolist()}
    lines = [f"{parts.get(id, '')}[{text}] {id}\n" for id, text in shown.items()]
    lines += [f"[{_show(special.encode())}] {id}\n" for special, id in vocabulary.special_tokens.items()]
    return "".join(lines).encode()


def _show(token: bytes) -> str:
    text = token.decode("utf-8", "replace")
    return "".join(
        f"\\u{ord(character):04x}" if unicodedata.category(character).startswith("C") else character
        for character in text
    )


def parse(data: bytes) -> TokenizerParts:
    """Return the tokenizer in a `.model`."""
    try:
        lines = [line.decode() for line in split_lines(data)]
    except UnicodeDecodeError as error:
        raise TokenizerFormatError(f"is not UTF-8: {error}") from None
    if lines[0].strip() != VERSION or lines[-1].strip():
        raise TokenizerFormatError(
            f"not a minbpe model, or truncated: expected {VERSION!r} on the first line and a trailing newline."
        )
    if len(lines) < 4:
        raise TokenizerFormatError("truncated: line 3, the number of special tokens, is missing. Copy the file again.")
    pattern = lines[1].strip()
    num_specials = _number(lines[2].strip(), 3)
    if num_specials > len(lines) - 4:
        raise TokenizerFormatError(f"line 3 announces {num_specials:,} special tokens, but the file has fewer lines.")
    specials = _read_specials(lines[3 : 3 + num_specials])
    rows = [_read_merge(line, 4 + num_specials + i) for i, line in enumerate(lines[3 + num_specials : -1])]
    merges = check_merges(rows)
    check_tokens(merges)
    taken = range(NUM_BYTE_TOKENS + len(merges))
    return TokenizerParts(
        dataclasses.replace(Vocabulary.from_merges(merges), special_tokens=check_special_ids(specials, taken)),
        resolve_pattern(pattern or WHOLE_TEXT),
        ASSUMED_TIE_BREAK,
        states_tie_break=False,
    )


def _read_specials(lines: list[str]) -> dict[str, int]:
    rows = [line.split() for line in lines]
    for number, row in enumerate(rows, 4):
        if len(row) != 2:
            raise TokenizerFormatError(
                f"line {number} is {' '.join(row)[:80]!r} instead of a special token and its id."
            )
    names = check_special_tokens([row[0] for row in rows])
    return {name: _number(row[1], number) for number, (name, row) in enumerate(zip(names, rows, strict=True), 4)}


def _read_merge(line: str, number: int) -> tuple[int, int]:
    match line.split():
        case [left, right]:
            return _number(left, number), _number(right, number)
    raise TokenizerFormatError(f"line {number} is {line[:80]!r} instead of the ids of a merge.")


def _number(text: str, line_number: int) -> int:
    if text.isascii() and text.isdigit() and len(text) <= 10 and int(text) <= MAX_ID:
        return int(text)
    raise TokenizerFormatError(f"line {line_number}: {text[:80]!r} is not an integer from 0 to {MAX_ID:,}.")
