"""Messages for faults in a line of JSON.

The core finds the fault. This module explains it without parsing the line again: Python's parser fails on lines that
the core accepts (1,000 levels, integers of 4,301 digits) and creates an object for every value.
"""

from __future__ import annotations

import json
import re
from itertools import islice
from typing import Any

# Fault in the core -> text of the message.
FAULTS = {
    "bom": "a byte order mark, which JSON does not allow,",
    "syntax": "not valid JSON",
    "utf8": "invalid UTF-8",
    "surrogate": "an escaped surrogate that is not part of a pair",
    "control": "an unescaped control character",
    "number": "not a valid JSON number",
    "depth": "more than 1,024 nested objects and arrays",
}
KINDS = {b"{": "an object", b"[": "an array", b'"': "a string", b"t": "true or false", b"f": "true or false"}
NUM_FIELDS_SHOWN = 20
MAX_NAME_CHARACTERS = 60
# Strings and punctuation of a line that are searched for its fields, because a line may be very long.
MAX_TOKENS = 100_000
# Possessive, because backtracking would cost memory for every repetition.
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[{}\[\],]', re.DOTALL)


def explain_record(line: Any, field: str, kind: str, byte: int) -> str:
    """Return the message for a line of valid JSON without a text. `kind` is the core's name of the fault at `byte`."""
    if kind == "missing":
        return _explain_missing(line, field)
    first = bytes(line[byte : byte + 1])
    found = "null" if first == b"n" else KINDS.get(first, "a number")
    if kind == "not-object":
        return f"the line is {found}, not an object. Each line must be an object with a field {field!r}."
    return f"field {field!r} is {found}, not a string. Pass text_field=… to read another field."


def near(line: Any, byte: int) -> str:
    """Return the text around a byte, for messages."""
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
    """Return the fields of the object with the size of their string (0 for other values), and whether that is all.

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
