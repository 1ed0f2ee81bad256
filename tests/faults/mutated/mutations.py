"""Mutations: a valid file in, a damaged or hostile one out. The same `Random` gives the same bytes.

Half of them know JSON: they change one place of the parsed content. The others change bytes of any format.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable
from random import Random
from typing import Any

MAX_BYTES = 1 << 16  # small files keep the rate high
DEEP = (50, 900, 1100, 20_000)  # levels of lists and objects; CPython allows about 1,000 calls

EXTREMES = (
    *(0, 1, -1, 2, 127, 128, 255, 256, 257, 65_535, 65_536, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**53),
    *(2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**31), -(2**63), -(2**63) - 1, 10**18, 10**30),
)
# Texts that json.dumps would not write, by the string that stands for each.
RAW = {
    "@nan@": "NaN",
    "@infinity@": "-Infinity",
    "@float@": "1e400",
    "@tiny@": "1e-400",
    "@minus@": "-0",
    "@long@": "1" + "0" * 4400,
    "@digits@": "9" * 4000,
    "@point@": "0." + "3" * 300,
    "@lists@": "[" * 20_000 + "]" * 20_000,
    "@objects@": '{"a":' * 3_000 + "1" + "}" * 3_000,
    "@list@": "[" * 300 + "]" * 300,
    "@open@": "[" * 2_000,
    "@surrogate@": r'"\ud800"',
    "@other surrogate@": r'"a\udfff\ud83d"',
    "@escape@": r'"\q"',
    "@tab@": '"\t\x00"',
}
_MARK = re.compile("|".join(f'"{re.escape(mark)}"' for mark in RAW))
TEXTS = (
    *("", " ", "x", "\x00", "a\nb", "\ufeff", "é", "\U0001f600", "true", "null", "-1", "1e5", "nan", "A" * 300),
    *(".", "..", "../x", "../../../../etc/passwd", "/etc/passwd", "/dev/zero", "/dev/stdin", "~/x", "a/b", "a\\b"),
    *("C:\\x", "file:///etc/passwd", "http://127.0.0.1:9/x", "s3://bucket/x", "{0.__class__}", "%s%n", "$(id)", "`id`"),
    *("__class__", "__proto__", "!!python/object/apply:os.system ['true']", "{{ 7 * 7 }}", "(a+)+$", "(?R)", "[", "*"),
    *("(?:(?:(?:a{1,9}){1,9}){1,9}){1,9}", r"\p{L}{1,99999}", "(?P<n>a)(?P=n)", "(?<=a+)b", "uint8", "float64", "<U9"),
    *("train", "val", "gpt2", "o200k", "0" * 16, "f" * 64, "0" * 64, "AAECAw==", "====", "AA=", "manifest.json"),
)
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0.5, -0.0, 1e308, 5e-324, [], {}, [None], [[]], {"": None}, {"a": {"a": []}}, [0, 1], [1, 0]),
    *EXTREMES,
    *TEXTS,
    *RAW,
)
TOKENS = (
    *(
        b"\x00",
        b"\xff" * 8,
        b"\x80",
        b"\xc0\x80",
        b"\xed\xa0\x80",
        b"\xf4\x90\x80\x80",
        b"\xef\xbb\xbf",
        b"\r",
        b"\r\n",
    ),
    *(b"\n", b"\n\n", b",", b":", b"{", b"}", b"[", b"]", b'"', b"\\", b"\\u0000", b"\\ud800", b"null", b"NaN", b"-"),
    *(
        b"'",
        b"#",
        b"!",
        b"&a ",
        b"*a",
        b"<<: ",
        b"---\n",
        b"!!python/name:os.system ",
        b"\t",
        b"  ",
        b" ",
        b"=",
        b"../",
    ),
    *(b"\x1f\x8b\x08", b"(\xb5/\xfd", b"PAR1", b"ARROW1", b"\xff\xff\xff\xff", b"9" * 40, b"e999", b"{{", b"%"),
)
_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?")


def mutate(data: bytes, other: bytes, random: Random) -> bytes:
    """Return a mutation of `data`; `other` is a file of the same kind to take parts from."""
    change = random.choice(CHANGES)
    changed = change(data, other, random)
    while random.random() < 0.2:  # several faults in one file
        changed = random.choice(BYTE_CHANGES)(changed, other, random)
    return changed[:MAX_BYTES]


# Any bytes


def flip_bits(data: bytes, other: bytes, random: Random) -> bytes:
    changed = bytearray(data or b"\0")
    for _ in range(random.choice((1, 1, 1, 2, 8))):
        changed[random.randrange(len(changed))] ^= 1 << random.randrange(8)
    return bytes(changed)


def set_bytes(data: bytes, other: bytes, random: Random) -> bytes:
    changed = bytearray(data or b"\0")
    for _ in range(random.choice((1, 1, 2, 4))):
        changed[random.randrange(len(changed))] = random.choice((0, 1, 0x7F, 0x80, 0xFF, random.randrange(256)))
    return bytes(changed)


def truncate(data: bytes, other: bytes, random: Random) -> bytes:
    return data[: random.randint(0, len(data))]


def cut_start(data: bytes, other: bytes, random: Random) -> bytes:
    return data[random.randint(0, len(data)) :]


def remove(data: bytes, other: bytes, random: Random) -> bytes:
    begin, end = _range(data, random)
    return data[:begin] + data[end:]


def insert(data: bytes, other: bytes, random: Random) -> bytes:
    place = random.randint(0, len(data))
    new = random.choice(TOKENS) if random.random() < 0.7 else random.randbytes(random.randint(1, 16))
    return data[:place] + new + data[place:]


def duplicate(data: bytes, other: bytes, random: Random) -> bytes:
    begin, end = _range(data, random)
    return data[:end] + data[begin:end] * random.choice((1, 1, 2, 100)) + data[end:]


def splice(data: bytes, other: bytes, random: Random) -> bytes:
    return data[: random.randint(0, len(data))] + other[random.randint(0, len(other)) :]


def replace_range(data: bytes, other: bytes, random: Random) -> bytes:
    begin, end = _range(data, random)
    first, last = _range(other, random)
    return data[:begin] + other[first:last] + data[end:]


def replace_number(data: bytes, other: bytes, random: Random) -> bytes:
    """Replace a number in digits by an extreme one."""
    found = list(_NUMBER.finditer(data))
    if not found:
        return flip_bits(data, other, random)
    number = random.choice(found)
    new = random.choice((*map(str, EXTREMES), "1e400", "NaN", "-0", "007", "1.5", "0x10", "1_000", "٣", "9" * 5000, ""))
    return data[: number.start()] + new.encode() + data[number.end() :]


def replace_integer(data: bytes, other: bytes, random: Random) -> bytes:
    """Replace a binary number, such as a length, by an extreme one. Most are near an end of the file."""
    size = random.choice((1, 2, 4, 8))
    if len(data) < size:
        return insert(data, other, random)
    near = min(len(data) - size, 40)
    place = random.choice((random.randint(0, near), random.randint(len(data) - size - near, len(data) - size)))
    if random.random() < 0.3:
        place = random.randint(0, len(data) - size)
    value = random.choice((*EXTREMES, len(data), len(data) - 8, len(data) + 1, random.randrange(1 << 16)))
    number = (value % (1 << (8 * size))).to_bytes(size, "little")
    return data[:place] + (number[::-1] if random.random() < 0.3 else number) + data[place + size :]


def replace_everywhere(data: bytes, other: bytes, random: Random) -> bytes:
    """Replace all copies of a binary number, such as a number of rows that a file has in two places."""
    size = random.choice((4, 8))
    places = [place for place in range(0, len(data) - size, 4) if any(data[place : place + 2])]
    if not places:
        return insert(data, other, random)
    place = random.choice(places)
    value = random.choice((*EXTREMES, 10**6, 10**8, 4 * 10**8, 10**9))
    return data.replace(data[place : place + size], (value % (1 << (8 * size))).to_bytes(size, "little"))


def swap_lines(data: bytes, other: bytes, random: Random) -> bytes:
    lines = data.splitlines(keepends=True)
    if len(lines) < 2:
        return duplicate(data, other, random)
    one, two = random.randrange(len(lines)), random.randrange(len(lines))
    lines[one], lines[two] = lines[two], lines[one]
    return b"".join(lines)


def nest(data: bytes, other: bytes, random: Random) -> bytes:
    place, depth = random.randint(0, len(data)), random.choice(DEEP)
    begin, end = random.choice(((b"[", b"]"), (b'{"a":', b"}"), (b"(", b")"), (b"- ", b""), (b"(?:", b")")))
    return data[:place] + begin * depth + end * random.choice((0, depth)) + data[place:]


def nothing(data: bytes, other: bytes, random: Random) -> bytes:
    return random.choice((b"", b"\n", b"{}", b"[]", b"null", b"0", b'""', other, random.randbytes(20)))


def _range(data: bytes, random: Random) -> tuple[int, int]:
    begin = random.randint(0, len(data))
    return begin, min(len(data), begin + random.choice((1, 2, 4, 8, 30, 200, len(data))))


# JSON


def change_json(data: bytes, other: bytes, random: Random) -> bytes:
    """Change one place of a JSON text, of a line of JSON lines, or of a header after its length in eight bytes."""
    if (content := _parsed(data)) is not None:
        indent = 1 if b"\n " in data[:200] else None
        return edited(content, random, indent)
    lines = data.split(b"\n")
    if len(lines) > 1:
        number = random.randrange(len(lines))
        if (content := _parsed(lines[number])) is not None:
            lines[number] = edited(content, random)
            return b"\n".join(lines)
    length = int.from_bytes(data[:8], "little")
    if 2 <= length <= len(data) - 8 and (content := _parsed(data[8 : 8 + length])) is not None:
        header = edited(content, random)
        return len(header).to_bytes(8, "little") + header + data[8 + length :]
    return random.choice(BYTE_CHANGES)(data, other, random)


def _parsed(data: bytes) -> Any:
    if data[:1] not in (b"{", b"["):
        return None
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def edited(content: Any, random: Random, indent: int | None = None) -> bytes:
    """Return the JSON text of `content` with one change, seldom with several. Changes `content`."""
    repeated = None
    for _ in range(random.choice((1, 1, 1, 1, 2, 3))):
        holder, key = _place(content, random)
        if holder is None:
            return dump(random.choice(VALUES), indent)
        match random.randrange(9):
            case 0:
                del holder[key]
            case 1 if isinstance(holder, dict):
                holder[random.choice(TEXTS)] = holder.pop(key)
            case 2 if isinstance(holder, dict):
                repeated = key
            case 3 if isinstance(holder, list):
                holder.insert(random.randint(0, len(holder)), copy.deepcopy(holder[key]))
            case 4 if isinstance(holder, list):
                random.shuffle(holder)
            case 5:
                _, other = _place(content, random)
                holder[key] = other
            case 6:
                there, other = _place(content, random)
                holder[key] = copy.deepcopy(there[other])
            case 7:
                holder[key] = _of_other_type(holder[key], random)
            case _:
                # A copy: a later edit may change it, or put it into itself.
                holder[key] = copy.deepcopy(random.choice(VALUES))
        if not content:
            break
    text = dump(content, indent)
    if repeated is not None:
        name = json.dumps(repeated).encode()
        text = text.replace(name, name + b": " + dump(random.choice(VALUES), None) + b", " + name, 1)
    return text


def _place(content: Any, random: Random) -> tuple[Any, Any]:
    """Return a list or object in `content`, and a key of it. Each level is about equally likely."""
    holder, key = None, None
    while isinstance(content, dict | list) and content:
        keys = list(content) if isinstance(content, dict) else range(len(content))
        holder, key = content, random.choice(keys)
        if random.random() < 0.3:
            break
        content = content[key]
    return holder, key


def _of_other_type(value: Any, random: Random) -> Any:
    changes: tuple[Callable[[Any], Any], ...] = (
        lambda value: [value],
        lambda value: {"a": value},
        str,
        lambda value: len(str(value)),
        bool,
        lambda value: -value if isinstance(value, int | float) else None,
        lambda value: value + 1 if isinstance(value, int | float) else f"{value}x",
        lambda value: value * 1000 if isinstance(value, int | float) else [value] * 1000,
        lambda value: float(value) if isinstance(value, int) and abs(value) < 10**300 else list(str(value)[:50]),
    )
    return random.choice(changes)(value)


def dump(content: Any, indent: int | None) -> bytes:
    text = json.dumps(content, indent=indent)
    return _MARK.sub(lambda found: RAW[found[0][1:-1]], text).encode("utf-8", "surrogatepass")


BYTE_CHANGES = (
    *(flip_bits, set_bytes, truncate, cut_start, remove, insert, duplicate, splice, replace_range, replace_number),
    *(replace_integer, replace_everywhere, swap_lines, nest),
)
CHANGES = (*BYTE_CHANGES, nothing, *([change_json] * 13))
