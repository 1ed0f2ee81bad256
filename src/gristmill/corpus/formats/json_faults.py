"""What is wrong with a line of JSON, in words.

The core finds the fault; here it is only explained, without parsing the line again: Python's own parser fails on lines
that the core accepts (1,000 levels, integers of 4,301 digits) and makes an object of every value.
"""

from __future__ import annotations

import json
import re
from itertools import islice
from typing import Any

# What the core calls them -> what is said.
FAULTS = {
    "bom": "a byte order mark, which JSON must not have,",
    "syntax": "not valid JSON",
    "utf8": "invalid UTF-8",
    "surrogate": "an escaped surrogate that is no half of a pair",
    "control": "a control character that is not escaped",
    "number": "not a number of JSON",
    "depth": "more than 1,024 objects and arrays inside each other",
}
KINDS = {b"{": "an object", b"[": "an array", b'"': "a string", b"t": "true or false", b"f": "true or false"}
NUM_FIELDS_SHOWN = 20
MAX_NAME_CHARACTERS = 60
# Strings and signs of a line that are looked at for its fields: a line may be of any length.
MAX_TOKENS = 100_000
# Possessive, because a repetition that may be taken back costs memory for every time.
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[{}\[\],]', re.DOTALL)


def explain_record(line: Any, field: str, kind: str, byte: int) -> str:
    """What is wrong with a line that is valid JSON: `kind` as the core calls it, at `byte` of the buffer `line`."""
    if kind == "missing":
        return _explain_missing(line, field)
    first = bytes(line[byte : byte + 1])
    found = "null" if first == b"n" else KINDS.get(first, "a number")
    if kind == "not-object":
        return f"holds {found}, not an object. Each line must be an object with a field {field!r}."
    return f"field {field!r} holds {found}, not a string. Pass text_field=… to read another field."


def near(line: Any, byte: int) -> str:
    """The text around a byte, for messages."""
    text = bytes(line[max(0, byte - 20) : byte + 20]).decode("utf-8", "backslashreplace").strip()
    return f", near {text!r}" if text else ""


def _explain_missing(line: Any, field: str) -> str:
    sizes, is_complete = _string_sizes(line)
    names = [repr(_short(name)) for name in islice(sizes, NUM_FIELDS_SHOWN)]
    if len(sizes) > NUM_FIELDS_SHOWN or not is_complete:
        names.append("…")
    likely = max(sizes, key=lambda name: sizes[name], default="")
    is_text = likely and sizes[likely] and len(likely) <= MAX_NAME_CHARACTERS
    advice = json.dumps(likely, ensure_ascii=False) if is_text else "…"
    return f"no field {field!r} (fields: {', '.join(names) or 'none'}). Pass text_field={advice}."


def _string_sizes(line: Any) -> tuple[dict[str, int], bool]:
    """The fields of the object with the size of their string, 0 for other values; whether these are all of them.

    >>> _string_sizes(b'{"a": {"b": "inner"}, "c": "four", "d": 1}')
    ({'a': 0, 'c': 6, 'd': 0}, True)
    """
    sizes: dict[str, int] = {}
    name: str | None = None  # of the field whose value comes next
    depth = 0
    tokens = _TOKEN.finditer(line)
    for found in islice(tokens, MAX_TOKENS):
        sign = bytes(line[found.start() : found.start() + 1])
        if sign in b"{[":
            depth += 1
        elif sign in b"}]":
            depth -= 1
        elif depth == 1 and sign == b",":
            name = None
        elif depth == 1 and name is None:
            name = str(json.loads(bytes(line[found.start() : found.end()])))
            sizes[name] = 0
        elif depth == 1 and name is not None:
            sizes[name] = found.end() - found.start()
    return sizes, next(tokens, None) is None


def _short(name: str) -> str:
    return name if len(name) <= MAX_NAME_CHARACTERS else name[:MAX_NAME_CHARACTERS] + "…"
