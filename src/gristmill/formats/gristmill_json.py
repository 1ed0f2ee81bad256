r"""Gristmill's own tokenizer file: UTF-8 JSON, one merge a line, the same bytes for the same tokenizer.

    {
    "format": "gristmill-tokenizer",
    "version": 1,
    "pattern": {"name": "gpt2", "regex": "'(?:[sdmt]|ll|ve|re)| …"},      name null: a pattern without a native matcher
    "tie_break": "greatest-bytes",
    "special_tokens": [["<|endoftext|>", 258]],                           text and id; the ids follow the merges' own
    "merges": [
    [104, 101],                                                           left id, right id -> id 256
    [116, 256]                                                            … -> id 257
    ],
    "sha256": "9f86d0…"                                                   of all bytes before this line
    }

Ids 0-255 are the bytes of that value. The regular expression stands beside the name so that a reader without our table
of names has everything, and so that a name can never change its meaning unnoticed. A file edited by hand loads when its
"sha256" line, and the comma before it, are taken out.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from gristmill.arguments import NUM_BYTE_TOKENS, check_special_tokens, check_tie_break
from gristmill.errors import TokenizerFormatError
from gristmill.formats.parts import TokenizerParts
from gristmill.merges import MergeIds, check_merges, check_tokens
from gristmill.patterns import Pattern

FORMAT = "gristmill-tokenizer"
VERSION = 1
KEYS = ("format", "version", "pattern", "tie_break", "special_tokens", "merges")
CHECKSUM_LINE = b',\n"sha256": "%s"\n}\n'


def dump(parts: TokenizerParts) -> bytes:
    """The file of a tokenizer."""
    first_special = NUM_BYTE_TOKENS + len(parts.merges)
    head = {
        "format": FORMAT,
        "version": VERSION,
        "pattern": parts.pattern.to_json(),
        "tie_break": parts.tie_break,
        "special_tokens": [[text, first_special + i] for i, text in enumerate(parts.special_tokens)],
    }
    lines = [f"{json.dumps(key)}: {json.dumps(value, ensure_ascii=False)},\n" for key, value in head.items()]
    merges = ",\n".join([f"[{left}, {right}]" for left, right in parts.merges.tolist()])
    body = f'{{\n{"".join(lines)}"merges": [\n{merges}\n]'.encode()
    return body + CHECKSUM_LINE % hashlib.sha256(body).hexdigest().encode()


def parse(data: bytes) -> TokenizerParts:
    """The tokenizer in a file; `ValueError` of some kind for anything that `dump` does not write."""
    try:
        content = json.loads(data.decode(), object_pairs_hook=_without_repeated_keys)
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise TokenizerFormatError(f"not a Gristmill tokenizer: {type(error).__name__}: {error}") from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise TokenizerFormatError(f'not a Gristmill tokenizer: it has no "format": "{FORMAT}".')
    version = content.get("version")
    if type(version) is not int or version != VERSION:
        raise TokenizerFormatError(f"has version {version!r}; this Gristmill reads version {VERSION}.")
    checksum = content.pop("sha256", None)
    if set(content) != set(KEYS):
        missing, unknown = sorted(set(KEYS) - set(content)), sorted(set(content) - set(KEYS))
        raise TokenizerFormatError(f"lacks the keys {missing} and has the unknown keys {unknown}.")
    if checksum is not None:
        _check_sum(data, checksum)
    merges = _read_merges(content["merges"])
    return TokenizerParts(
        merges=merges,
        pattern=Pattern.from_json(content["pattern"]),
        special_tokens=_read_specials(content["special_tokens"], NUM_BYTE_TOKENS + len(merges)),
        tie_break=check_tie_break(content["tie_break"]),
    )


def _check_sum(data: bytes, checksum: Any) -> None:
    end = data.rfind(b',\n"sha256"')
    if not isinstance(checksum, str) or hashlib.sha256(data[:end]).hexdigest() != checksum:
        raise TokenizerFormatError(
            "its checksum does not fit its contents: the file is damaged. If it was edited on purpose, take the "
            '"sha256" line out.'
        )


def _read_merges(rows: Any) -> MergeIds:
    if not isinstance(rows, list):
        raise TokenizerFormatError(f'"merges" is a {type(rows).__name__} instead of a list.')
    for i, row in enumerate(rows):
        # type(), not isinstance(): `true` is an int to Python
        if type(row) is not list or len(row) != 2 or type(row[0]) is not int or type(row[1]) is not int:
            raise TokenizerFormatError(f"merge {i} is {json.dumps(row)[:80]} instead of [left id, right id].")
    merges = check_merges(rows)
    check_tokens(merges)
    return merges


def _read_specials(rows: Any, first_id: int) -> tuple[str, ...]:
    if not isinstance(rows, list) or not all(isinstance(row, list) and len(row) == 2 for row in rows):
        raise TokenizerFormatError('"special_tokens" is not a list of [text, id].')
    specials = check_special_tokens([text for text, _ in rows])
    for i, (text, id) in enumerate(rows):
        if type(id) is not int or id != first_id + i:
            raise TokenizerFormatError(f"special token {text!r} has id {id!r}; it must be {first_id + i}.")
    return specials


def _without_repeated_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        raise TokenizerFormatError("an object has the same key twice.")
    return content
