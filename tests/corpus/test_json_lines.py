"""Strings out of JSON lines: the core accepts what orjson accepts and numbers of any size, and finds the same texts."""

from __future__ import annotations

import json
import random
import re
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gristmill import _core

# All kernels of x86-64 but the scalar one run the same code for JSON.
KERNELS = [kernel for kernel in _core.supported_kernels() if kernel in ("scalar", "avx2", "neon")]
FAULTS_OF_OBJECTS = {"not-object", "missing", "not-string"}
FAULTS_OF_JSON = {"bom", "syntax", "utf8", "surrogate", "control", "number", "depth"}
SPACE = b" \t\r"

SAMPLE = (
    '{"id": 7, "text": "It\'s\\n\\n\\"so\\" \\u00e9\\ud83d\\ude00 中文, Москва\\\\", '
    '"meta": {"a": [1, -2.5e+3, true, null], "": {}}}'
).encode()
LONG = b'{"a":"' + b"0123456789" * 7 + b'","text":"' + "01234567é中".encode() * 9 + b'\\t"}'


def extract(lines, field=b"text"):
    """Return (texts, nulls, problem), which must be the same for every kernel."""
    results = []
    for kernel in KERNELS:
        data, begins, ends, num_nulls, problem = _core.extract_json(lines, field, kernel)
        whole = data.tobytes()
        assert begins.tolist() == [0, *ends.tolist()][: len(begins)]
        assert len(whole) == max(ends.tolist(), default=0)
        texts = [whole[begin:end] for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)]
        results.append((texts, num_nulls, problem))
    assert all(result == results[0] for result in results)
    return results[0]


def load(line):
    """Return the value of a line. orjson rejects numbers beyond the range of a double, which JSON allows."""
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError:
        values = re.sub(rb'"(?:[^"\\]|\\.)*"|\d+(?:[eE][+-]?\d+)?', smaller, line)
        if values == line:
            raise
        return orjson.loads(values)


def smaller(number):
    """Return a number of the same form within the range of a double. Strings are unchanged."""
    if number[0].startswith(b'"'):
        return number[0]
    digits, *exponent = re.split(rb"[eE]", number[0])
    return digits[:300] + b"e0" * len(exponent)


def judge(line, field):
    """The text of a line, None for null, or the kind of its fault as reported by orjson."""
    try:
        value = load(line)
    except orjson.JSONDecodeError:
        return "invalid"
    if not isinstance(value, dict):
        return "not-object"
    if field.decode() not in value:
        return "missing"
    text = value[field.decode()]
    if text is None:
        return None
    return text.encode() if isinstance(text, str) else "not-string"


def assert_agrees_with_orjson(lines, field=b"text"):
    texts, num_nulls, problem = extract(lines, field)
    expected: list[bytes] = []
    expected_nulls = 0
    for index, line in enumerate(lines.split(b"\n")):
        if not line.strip(SPACE):
            continue
        found = judge(line, field)
        if isinstance(found, str):
            assert problem is not None, line
            assert problem[0] == index
            assert 0 <= problem[1] <= len(line)
            assert problem[2] in (FAULTS_OF_JSON if found == "invalid" else {found}), (line, problem)
            break
        expected_nulls += found is None
        if found is not None:
            expected.append(found)
    else:
        assert problem is None, (lines, problem)
    assert texts == expected
    assert num_nulls == expected_nulls


# Hypothesis strategies: values, and every way to write them.

strings = st.text(st.characters(exclude_categories=["Cs"]), max_size=80)
keys = strings | st.sampled_from(["text", "", "tex", "textt", "te\0xt", '"', "\\", "ключ", "😀"])
numbers = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(
    st.none() | st.booleans() | numbers | strings,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=12,
)
objects = st.dictionaries(keys, values, max_size=5)


def write_character(character, choose):
    code = ord(character)
    short = {'"': '\\"', "\\": "\\\\", "/": "\\/", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
    forms = [short[character]] if character in short else []
    if code >= 0x20 and character not in '"\\':
        forms += [character] * 4
    units = character.encode("utf-16-be")
    escapes = [f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2)]
    return choose([*forms, "".join(escapes), "".join(e[:2] + e[2:].upper() for e in escapes)])


def write_json(value, choose):
    def space():
        return choose(["", "", " ", "\t \r"])

    def string(text):
        return '"' + "".join(write_character(character, choose) for character in text) + '"'

    if isinstance(value, str):
        return string(value)
    if isinstance(value, list):
        items = [space() + write_json(item, choose) + space() for item in value]
        return "[" + (",".join(items) or space()) + "]"
    if isinstance(value, dict):
        members = [
            space() + string(key) + space() + ":" + space() + write_json(item, choose) + space()
            for key, item in value.items()
        ]
        return "{" + (",".join(members) or space()) + "}"
    return json.dumps(value)


@given(objects, keys, strings, st.randoms(use_true_random=False))
def test_a_text_written_in_any_way_is_found(members, field, text, rng):
    members = {**members, field: text}
    for line in (write_json(members, rng.choice), json.dumps(members), json.dumps(members, ensure_ascii=False)):
        assert extract(line.encode(), field.encode()) == ([text.encode()], 0, None)
        assert json.loads(line)[field] == text


@given(st.lists(objects | values, max_size=6), st.randoms(use_true_random=False))
def test_lines_of_any_values_are_judged_as_orjson_judges_them(documents, rng):
    lines = "\n".join(rng.choice([write_json(document, rng.choice), " "]) for document in documents)
    assert_agrees_with_orjson(lines.encode())


@given(st.lists(st.sampled_from([*'{}[]:,"\\ntu0de8.+-\n ', '"text"', '"text":"a"', "null", "\x1f", "é"]), max_size=12))
def test_any_sequence_of_signs_is_judged_as_orjson_judges_it(signs):
    assert_agrees_with_orjson("".join(signs).encode())
    assert_agrees_with_orjson(('{"text":"' + "".join(signs) + '"}').encode())


@given(st.binary(max_size=70))
def test_any_bytes_in_a_string_are_judged_as_orjson_judges_them(data):
    assert_agrees_with_orjson(b'{"text":"' + data + b'"}')
    assert_agrees_with_orjson(b'{"text":"ab' + data.replace(b'"', b"").replace(b"\\", b"") + b'\\n"}')


# Every position and every byte.


@pytest.mark.parametrize("line", [SAMPLE, LONG, b'{"text":""}'])
def test_a_line_cut_at_every_byte(line):
    assert_agrees_with_orjson(line)
    for size in range(len(line)):
        assert_agrees_with_orjson(line[:size])
        assert_agrees_with_orjson(line[:size] + b"\n" + line)


@pytest.mark.parametrize("line", [SAMPLE, b'{"text":"\\u12aF","a":[1.5,{"b":null}]}', LONG[60:]])
def test_every_byte_in_every_place(line):
    for at in range(0, len(line) + 1, 1 if len(line) < 60 else 3):
        for byte in range(256):
            assert_agrees_with_orjson(line[:at] + bytes([byte]) + line[at:])
            assert_agrees_with_orjson(line[:at] + bytes([byte]) + line[at + 1 :])


def mutate(line, rng):
    pieces = [
        b'"',
        b"\\",
        b"\n",
        b"\\u",
        b"\xed\xa0\x80",
        b"\xc3",
        b"\xa9",
        b"{",
        b"}",
        b"[",
        b"]",
        b",",
        b":",
        b"0",
        b"e",
    ]
    changed = bytearray(line)
    for _ in range(rng.randint(1, 3)):
        at, piece = rng.randrange(len(changed) + 1), rng.choice([*pieces, rng.randbytes(rng.randint(1, 2))])
        removed = rng.choice([0, 1, 1, 2, 5])
        changed[at : at + removed] = b"" if rng.random() < 0.3 else piece
    return bytes(changed)


@pytest.mark.parametrize("seed", range(4))
def test_mutated_lines_are_judged_as_orjson_judges_them(seed):
    rng = random.Random(seed)
    lines = [SAMPLE, LONG, json.dumps(json.loads(SAMPLE)).encode(), b'{"text":null}', b'{"n":[1e5,0.5,-7],"text":"x"}']
    for _ in range(4000):
        chosen = rng.choice(lines)
        assert_agrees_with_orjson(b"\n".join([mutate(chosen, rng), SAMPLE]))


@pytest.mark.parametrize(
    "size", [0, 1, 7, 8, 9, 15, 16, 17, 30, 31, 32, 33, 47, 48, 62, 63, 64, 65, 66, 95, 96, 97, 129]
)
def test_strings_as_long_as_a_block_and_a_little_more_or_less(size):
    for special in ("", "\n", '"', "é", "中", "😀", "\0", "\u2028"):
        for after in (0, 1, 5, 31, 40):
            text = "a" * size + special + "b" * after
            for line in (orjson.dumps({"text": text}), json.dumps({"k" * size: text, "text": text}).encode()):
                assert extract(line) == ([text.encode()], 0, None)
    for bad in (
        b"\xff",
        b"\xc3",
        b"\xe4\xb8",
        b"\xf0\x9f\x98",
        b"\xed\xa0\x80",
        b"\x80",
        b"\x1f",
        b"\x00",
        b"\\x",
        b"\\ud800",
    ):
        for after in (b"", b"c" * 40):
            assert_agrees_with_orjson(b'{"text":"' + "é".encode() + b"a" * size + bad + after + b'"}')


@pytest.mark.parametrize(
    "number",
    ["-0", "-0.0", "1e309", "-1e309", "1E+400", "1e-400", "1e99999999999999999999", "7" * 10_000, "0." + "3" * 10_000],
)
def test_a_number_that_no_double_holds_is_passed_over(number):
    assert extract(b'{"n":[' + number.encode() + b'],"text":"x"}') == ([b"x"], 0, None)
    assert extract(b'{"text":' + number.encode() + b"}") == ([], 0, (0, 8, "not-string"))
    for wrong in ("0" + number.lstrip("-"), number + ".", number + "e", number + "-", "+" + number):
        assert extract(b'{"n":[' + wrong.encode() + b'],"text":"x"}')[2] is not None


def test_numbers_at_the_end_of_the_range_of_a_double():
    rng = random.Random(5)
    limit = 2**1024 - 2**970
    for _ in range(3000):
        digits = str(limit + rng.choice([-1, 0, 1, -(10 ** rng.randint(0, 307)), 10 ** rng.randint(0, 307)]))
        digits = rng.choice([digits, digits[: rng.randint(1, 309)], digits + "0" * rng.randint(1, 30)])
        digits = rng.choice(["", "0." + "0" * rng.randint(0, 20)]) + digits
        if "." not in digits and len(digits) > 1 and rng.random() < 0.5:
            point = rng.randint(1, len(digits) - 1)
            digits = digits[:point] + "." + digits[point:]
        shift = 309 - (digits.index(".") if "." in digits else len(digits)) + rng.choice([0, 0, 0, -1, 1, 5])
        exponent = rng.choice(["", f"e{shift}", f"E{shift:+}", f"e{shift:+030}"])
        assert_agrees_with_orjson(b'{"n":-' + (digits + exponent).encode() + b',"text":"x"}')


# Faults by name. Row 6 of the table of bad inputs.


@pytest.mark.parametrize(
    ("line", "byte", "fault"),
    [
        (b'\xef\xbb\xbf{"text":"a"}', 0, "bom"),
        (b'{"text":"a",}', 12, "syntax"),
        (b'{"text":"a"', 11, "syntax"),
        (b'{"text":"a"} {}', 13, "syntax"),
        (b'{"text":"a\\q"}', 11, "syntax"),
        (b"not JSON", 0, "syntax"),
        (b'{"text":"caf\xe9"}', 12, "utf8"),
        (b'{"\xff":1,"text":"a"}', 2, "utf8"),
        (b'{"text":"a\\ud800"}', 10, "surrogate"),
        (b'{"text":"a\tb"}', 10, "control"),
        (b'{"score":NaN,"text":"a"}', 9, "number"),
        (b'{"score":-Infinity,"text":"a"}', 9, "number"),
        (b'{"score":01,"text":"a"}', 9, "number"),
        (b'{"a":' + b"[" * 2000 + b"]" * 2000 + b',"text":"a"}', 5 + 1023, "depth"),
        (b'["text"]', 0, "not-object"),
        (b' {"body":"a"}', 1, "missing"),
        (b'{"text": {"text":"a"}}', 9, "not-string"),
    ],
)
def test_a_fault_has_its_line_byte_and_name(line, byte, fault):
    before = b'{"text":"first"}\n \r\n{"text":null}\n'
    assert extract(before + line + b'\n{"text":"never"}') == ([b"first"], 1, (3, byte, fault))
    assert extract(before + line) == ([b"first"], 1, (3, byte, fault))


@pytest.mark.parametrize("depth", [1, 2, 1023, 1024, 1025, 1026, 100_000])
def test_1024_levels_are_enough_and_1025_too_many(depth):
    inner = depth - 1
    for value in (
        b"[" * inner + b"]" * inner,
        b'{"a":' * inner + b"1" + b"}" * inner,
        b"[" * inner + b"{}" + b"]" * inner,
    ):
        assert_agrees_with_orjson(b'{"a":' + (value or b"1") + b',"text":"x"}')


def test_the_last_of_repeated_members_counts():
    for line in (
        b'{"text":"a","text":"b"}',
        b'{"text":"a long one","x":"y","te\\u0078t":"b"}',
        b'{"text":1,"text":"b"}',
        b'{"text":"a","text":null}',
        b'{"text":null,"text":"a","x":{"text":"inner"}}',
        b'{"text":"a","text":1}',
        b'{"text":"a","TEXT":"b","text ":"c","text\\u0000":"d"}',
    ):
        assert_agrees_with_orjson(line)


def test_the_last_line_needs_no_newline_and_blank_lines_are_passed_over():
    assert extract(b'{"text":"a"}\n\n\t\n{"text":"b"}\r\n{"text":"\\u0000"}') == ([b"a", b"b", b"\0"], 0, None)
    assert extract(b"") == extract(b"\n") == extract(b" \r\n\n ") == ([], 0, None)


# Buffers.


@pytest.mark.parametrize("make", [bytes, bytearray, memoryview, lambda b: np.frombuffer(b, np.uint8)])
def test_any_buffer_of_bytes_will_do(make):
    assert extract(make(SAMPLE + b"\n" + LONG)) == extract(SAMPLE + b"\n" + LONG)
    inside = np.frombuffer(b"#" * 13 + SAMPLE + b'"}' * 40, np.uint8)[13 : 13 + len(SAMPLE)]
    assert extract(inside) == extract(SAMPLE)


def test_a_value_that_is_not_a_buffer_of_bytes_is_refused():
    with pytest.raises(TypeError):
        _core.extract_json("{}", b"text")
    with pytest.raises((BufferError, ValueError)):
        _core.extract_json(np.zeros(100, np.uint8)[::2], b"text")
    with pytest.raises(ValueError, match="kernel"):
        _core.extract_json(b"", b"text", "sse9")


def test_arrays_outlive_the_input_and_each_other():
    lines = bytearray(b'{"text":"abc"}\n' * 1000)
    data, begins, ends, _, _ = _core.extract_json(lines, b"text")
    lines[:] = bytes(len(lines))
    del lines
    assert (data.dtype, begins.dtype, ends.dtype) == (np.uint8, np.int64, np.int64)
    del begins, ends
    assert data.tobytes() == b"abc" * 1000


def test_threads_share_a_buffer():
    lines = b"\n".join([SAMPLE, LONG] * 500)
    expected = extract(lines)
    with ThreadPoolExecutor(4) as pool:
        assert all(result == expected for result in pool.map(extract, [lines] * 16))
