r"""Gristmill's own tokenizer file: UTF-8 JSON with one merge per line. Equal tokenizers give identical files.

    {
    "format": "gristmill-tokenizer",
    "version": 1,
    "pattern": {"name": "gpt2", "regex": "'(?:[sdmt]|ll|ve|re)| …"},      name null: a pattern without a native matcher
    "tie_break": "greatest-bytes",                                        null: not recorded by the tool it comes from
    "special_tokens": [["<|endoftext|>", 258]],                           text and id; ids follow those of the merges
    "merges": [
    [104, 101],                                                           left id, right id -> id 256
    [116, 256]                                                            … -> id 257
    ],
    "sha256": "9f86d0…"                                                   of all bytes before the comma above
    }

Version 1 is Gristmill's layout: ids 0-255 are the bytes. Version 2 is for vocabularies with other ids:

    "version": 2,
    …
    "special_tokens": [["<|endoftext|>", 50256]],                         in order of id; any ids
    "whole_pieces": false,                                                a piece that is a token becomes that token
    "byte_ids": [188, 189, …],                                            the id of each of the 256 bytes
    "other_tokens": [
    [50257, "AAECAw=="]                                                   id, bytes (base64); no merge creates them
    ],
    "merges": [
    [71, 68, 258]                                                         left id, right id, created id; by rank
    ],

The file stores the regular expression as well as the name, so that it is complete for readers without Gristmill's table
of names, and so that a change in the meaning of a name is detected. To load a file edited by hand, remove its "sha256"
line and the comma before it.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np

from gristmill import _core
from gristmill.arguments import NUM_BYTE_TOKENS, check_special_tokens, check_tie_break
from gristmill.errors import TokenizerFormatError
from gristmill.merge.merges import MergeIds, check_merges, check_tokens
from gristmill.pretokenize.patterns import Pattern
from gristmill.tokenizer.formats.content import check_content, parse_json, read_content
from gristmill.tokenizer.formats.given import Given
from gristmill.tokenizer.parts import ASSUMED_TIE_BREAK, TokenizerParts
from gristmill.tokenizer.vocabulary import MAX_ID, Vocabulary, add_made

OPTIONS: frozenset[str] = frozenset()

FORMAT = "gristmill-tokenizer"
KEYS = {
    1: ("format", "version", "pattern", "tie_break", "special_tokens", "merges"),
    2: (
        *("format", "version", "pattern", "tie_break", "special_tokens"),
        *("whole_pieces", "byte_ids", "other_tokens", "merges"),
    ),
}
CHECKSUM_LINE = b',\n"sha256": "%s"\n}\n'


def recognizes(path: Path, head: bytes) -> bool:
    """Whether the file looks like this format."""
    return f'"{FORMAT}"'.encode() in head


def read(path: Path, given: Given) -> TokenizerParts:
    """Return the tokenizer in the file at `path`."""
    parts = parse(read_content(path))
    given.agree_with(parts.pattern, parts.vocabulary.special_tokens)
    return parts


def files(parts: TokenizerParts, path: Path) -> dict[Path, bytes]:
    """Return the content of the file to write, by path."""
    return {path: content(parts)}


def content(parts: TokenizerParts) -> bytes:
    """Return the content of a file. Raises what `read` would raise for it."""
    data = dump(parts)
    check_content(data)
    return data


def dump(parts: TokenizerParts) -> bytes:
    """Return the content of the file."""
    vocabulary = parts.vocabulary
    plain = vocabulary.is_plain
    specials = sorted(vocabulary.special_tokens.items(), key=lambda item: item[1])
    head: dict[str, Any] = {
        "format": FORMAT,
        "version": 1 if plain else 2,
        "pattern": parts.pattern.to_json(),
        "tie_break": parts.tie_break if parts.states_tie_break else None,
        "special_tokens": [[text, id] for text, id in specials],
    }
    if not plain:
        head |= {"whole_pieces": vocabulary.whole_pieces, "byte_ids": vocabulary.byte_ids.tolist()}
    lines = [f"{json.dumps(key)}: {json.dumps(value, ensure_ascii=False)},\n" for key, value in head.items()]
    if not plain:
        others = [[id, base64.b64encode(token).decode()] for id, token in sorted(vocabulary.other_tokens.items())]
        rows = ",\n".join([json.dumps(row) for row in others])
        lines.append(f'"other_tokens": [\n{rows}\n],\n')
    merges = np.ascontiguousarray(vocabulary.merges[:, :2] if plain else vocabulary.merges)
    # The core formats the merges: json.dumps takes 30 ms for the 50,000 merges of GPT-2, too long for a short
    # encode_corpus.
    body = f'{{\n{"".join(lines)}"merges": [\n{_core.format_rows(merges)}\n]'.encode()
    return body + CHECKSUM_LINE % hashlib.sha256(body).hexdigest().encode()


def parse(data: bytes) -> TokenizerParts:
    """Return the tokenizer in a file. Raises a ValueError for any content that `dump` does not write."""
    content = parse_json(data)
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise TokenizerFormatError(f'not a Gristmill tokenizer: "format": "{FORMAT}" is missing.')
    version = content.get("version")
    if type(version) is not int or version not in KEYS:
        raise TokenizerFormatError(f"has version {version!r}; this Gristmill reads versions 1 and 2.")
    checksum = content.pop("sha256", None)
    if set(content) != set(KEYS[version]):
        missing, unknown = sorted(set(KEYS[version]) - set(content)), sorted(set(content) - set(KEYS[version]))
        raise TokenizerFormatError(
            f"the keys are not those of version {version}: missing {missing}, unknown {unknown}."
        )
    if checksum is not None:
        _check_sum(data, checksum)
    tie_break = content["tie_break"]
    return TokenizerParts(
        vocabulary=(_plain_vocabulary if version == 1 else _any_vocabulary)(content),
        pattern=Pattern.from_json(content["pattern"]),
        tie_break=ASSUMED_TIE_BREAK if tie_break is None else check_tie_break(tie_break),
        states_tie_break=tie_break is not None,
    )


def _check_sum(data: bytes, checksum: Any) -> None:
    end = data.rfind(b',\n"sha256"')
    if not isinstance(checksum, str) or hashlib.sha256(data[:end]).hexdigest() != checksum:
        raise TokenizerFormatError(
            "its checksum does not match its content: the file is damaged. If it was edited on purpose, remove the "
            '"sha256" line and the comma before it.'
        )


def _plain_vocabulary(content: dict[str, Any]) -> Vocabulary:
    merges: MergeIds = check_merges(_id_rows(content["merges"], "[left id, right id]", 2))
    check_tokens(merges)
    specials = _read_specials(content["special_tokens"])
    first_id = NUM_BYTE_TOKENS + len(merges)
    for i, (text, id) in enumerate(specials.items()):
        if type(id) is not int or id != first_id + i:
            raise TokenizerFormatError(f"special token {text!r} has id {id!r}; it must be {first_id + i}.")
    return Vocabulary.from_merges(merges, list(specials))


def _any_vocabulary(content: dict[str, Any]) -> Vocabulary:
    byte_ids, whole_pieces = content["byte_ids"], content["whole_pieces"]
    if (
        not isinstance(byte_ids, list)
        or len(byte_ids) != NUM_BYTE_TOKENS
        or not all(type(id) is int for id in byte_ids)
    ):
        raise TokenizerFormatError('"byte_ids" is not a list of 256 ids.')
    if type(whole_pieces) is not bool:
        raise TokenizerFormatError(f'"whole_pieces" is {whole_pieces!r:.80} instead of true or false.')
    merges = _id_rows(content["merges"], "[left id, right id, created id]", 3)
    tokens = {id: bytes([byte]) for byte, id in enumerate(byte_ids)}
    others = _read_others(content["other_tokens"])
    if len(tokens) < NUM_BYTE_TOKENS or set(others) & set(tokens):
        raise TokenizerFormatError('an id occurs twice in "byte_ids" and "other_tokens".')
    tokens |= others
    add_made(tokens, merges)
    id_of = {token: id for id, token in tokens.items()}
    if len(id_of) < len(tokens):
        id, token = next((id, token) for id, token in tokens.items() if id_of[token] != id)
        raise TokenizerFormatError(f"ids {id} and {id_of[token]} have the same bytes: {token[:80]!r}.")
    vocabulary = Vocabulary.from_pairs(
        id_of, [(tokens[left], tokens[right]) for left, right, _ in merges], _read_specials(content["special_tokens"])
    )
    return dataclasses.replace(vocabulary, other_tokens=others, whole_pieces=whole_pieces and bool(others))


def _id_rows(rows: Any, form: str, length: int) -> list[list[int]]:
    if not isinstance(rows, list):
        raise TokenizerFormatError(f'"merges" is of type {type(rows).__name__} instead of a list.')
    for i, row in enumerate(rows):
        # type(), not isinstance(), because True is an instance of int
        if type(row) is not list or len(row) != length or not all(type(id) is int for id in row):
            raise TokenizerFormatError(f"merge {i} is {json.dumps(row)[:80]} instead of {form}.")
    if length == 3 and rows:
        array = np.array(rows)  # of dtype object if an id exceeds 64 bits, which is slow but correct
        if not ((array >= 0) & (array <= MAX_ID)).all():
            raise TokenizerFormatError(f"a merge has an id outside 0 to {MAX_ID:,}.")
    return rows


def _read_others(rows: Any) -> dict[int, bytes]:
    others: dict[int, bytes] = {}
    for i, row in enumerate(rows if isinstance(rows, list) else [rows]):
        match row:
            case [int(id), str(text)] if type(id) is int:
                pass
            case _:
                raise TokenizerFormatError(f'"other_tokens" {i} is {json.dumps(row)[:80]} instead of [id, base64].')
        if id in others:
            raise TokenizerFormatError(f'id {id} occurs twice in "other_tokens".')
        others[id] = base64.b64decode(text, validate=True)
    return dict(sorted(others.items()))


def _read_specials(rows: Any) -> dict[str, int]:
    if not isinstance(rows, list) or not all(isinstance(row, list) and len(row) == 2 for row in rows):
        raise TokenizerFormatError('"special_tokens" is not a list of [text, id].')
    specials = check_special_tokens([text for text, _ in rows])
    return dict(zip(specials, [id for _, id in rows], strict=True))
