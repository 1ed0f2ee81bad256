"""pretokenize: the native matchers, with every kernel, compared with the `regex` module."""

from __future__ import annotations

import os
import subprocess
import sys
import unicodedata

import numpy as np
import pytest
import regex

from gristmill import _core, reference
from gristmill.pretokenize import NATIVE_PATTERNS
from texts import CHARACTERS, CONTRACTIONS, INVALID, RUNS, STORY, random_text

KERNELS = _core.supported_kernels()


def regex_ends(data: bytes, pattern: str) -> np.ndarray:
    """Return the end of each piece of `data` in bytes, as cut by the `regex` module."""
    text = data.decode("utf-8", "surrogateescape")
    code_points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    widths = 1 + (code_points > 0x7F).astype(np.int64) + (code_points > 0x7FF) + (code_points > 0xFFFF)
    widths[(code_points >= 0xDC80) & (code_points <= 0xDCFF)] = 1  # one invalid byte
    byte_ends = np.cumsum(widths)
    ends = np.fromiter((match.end() for match in regex.finditer(NATIVE_PATTERNS[pattern], text)), np.int64)
    return byte_ends[ends - 1].astype(np.uint64) if len(ends) else np.empty(0, np.uint64)


def assert_same_pieces(data: bytes, pattern: str) -> None:
    """Assert that every kernel that this machine can run cuts `data` like the `regex` module."""
    expected = regex_ends(data, pattern)
    for kernel in KERNELS:
        found = _core.find_pieces(data, pattern, kernel)
        if not np.array_equal(found, expected):
            pytest.fail(f"{pattern}, {kernel}: {first_difference(data, found, expected)}")


def first_difference(data: bytes, found: np.ndarray, expected: np.ndarray) -> str:
    size = min(len(found), len(expected))
    i = int(np.append(found[:size] != expected[:size], True).argmax())
    start = int(expected[i - 1]) if i else 0
    stops = [int(ends[i]) if i < len(ends) else len(data) for ends in (found, expected)]
    return (
        f"after {data[max(0, start - 20) : start]!r} the piece is {data[start : stops[0]]!r:.80} and must be "
        f"{data[start : stops[1]]!r:.80}; then comes {data[max(stops) : max(stops) + 20]!r}"
    )


on_every_pattern = pytest.mark.parametrize("pattern", NATIVE_PATTERNS)


@on_every_pattern
def test_pieces_of_random_hostile_text_are_those_of_regex(pattern):
    for seed in range(400):
        assert_same_pieces(random_text(seed, seed % 40), pattern)
    for seed in range(20):
        assert_same_pieces(random_text(seed, 5000), pattern)


@on_every_pattern
def test_pieces_of_ordinary_text_are_those_of_regex(pattern):
    # every alignment to the 64 bytes of a SIMD block
    for shift in range(70):
        assert_same_pieces(("x" * shift + STORY * 2).encode(), pattern)


@on_every_pattern
def test_every_sequence_of_three_of_the_characters_that_matter(pattern):
    parts = [part.encode() for part in [*"aAs1 \n\r'!/", "é", "É", "\xa0", "\u3000", "\u0301", "中", "½", "'ll"]] + [
        b"\xff"
    ]
    text = b"".join(a + b + c + b"\n0!" for a in parts for b in parts for c in parts)
    assert_same_pieces(text, pattern)
    for a in parts:
        for b in parts:
            assert_same_pieces(a + b, pattern)  # at the start and at the end of a text


@on_every_pattern
def test_text_of_every_length_is_cut_to_its_end(pattern):
    for unit in ("ab ", "é ", " ", "\n", "'", "1", "中", "!"):
        for length in [*range(0, 140, 7), 63, 64, 65, 127, 128, 129, 4095, 4096, 4097, 70_000]:
            assert_same_pieces((unit * length).encode()[:length], pattern)


@on_every_pattern
def test_a_piece_of_megabytes_is_one_piece_and_takes_linear_time(pattern):
    for unit in (b"a", b" ", b"\n", b"^", "中".encode()):
        for kernel in KERNELS:
            assert _core.find_pieces(unit * 1_000_000, pattern, kernel).tolist() == [len(unit) * 1_000_000]
    assert_same_pieces(b"'s" * 200_000, pattern)


def all_code_points() -> list[int]:
    return [code for code in range(0x110000) if not 0xD800 <= code <= 0xDFFF]


@on_every_pattern
def test_every_code_point_beside_a_letter(pattern):
    # A letter separates the characters, so the cuts show the class of each in the core's table.
    text = "".join(f"a{chr(code)}" for code in all_code_points()).encode()
    assert_same_pieces(text, pattern)


@on_every_pattern
def test_every_assigned_code_point_in_many_contexts(pattern):
    # The large scripts are uniform inside, so every thousandth character is enough. The test above covers their edges.
    chosen = [
        code
        for code in all_code_points()
        if unicodedata.category(chr(code)) not in ("Cn", "Co")
        and (not (0x3400 <= code < 0xA000 or 0xAC00 <= code < 0xD7A4 or code >= 0x17000) or code % 1000 == 0)
    ]
    contexts = "A{0}b {0}1{0}{0} '{0}s!{0}\n {0}  {0}\r\n/{0}Z"
    text = "\n".join(contexts.replace("{0}", chr(code)) for code in chosen).encode()
    assert_same_pieces(text, pattern)


@on_every_pattern
def test_every_pair_of_bytes_valid_or_not(pattern):
    data = b"".join(bytes([first, second]) + b" x" for first in range(256) for second in range(256))
    assert_same_pieces(data, pattern)
    assert_same_pieces(
        b"".join(a + b + c for a in INVALID for b in INVALID for c in (b"a", b" ", b"\xc3\xa9")), pattern
    )


@on_every_pattern
def test_a_text_may_be_cut_at_every_place_that_find_cuts_names(pattern):
    num_cuts = 0
    for seed in range(150):
        data = random_text(seed, 60) if seed % 3 else STORY.encode()[seed : seed + 120]
        whole = _core.find_pieces(data, pattern).tolist()
        for cut in _core.find_cuts(data, pattern).tolist():
            left, right = _core.find_pieces(data[:cut], pattern), _core.find_pieces(data[cut:], pattern)
            assert left.tolist() + [cut + end for end in right.tolist()] == whole, (data, cut)
            num_cuts += 1
    assert num_cuts > 300


def test_ordinary_text_can_be_cut_often_under_every_pattern():
    # otherwise one thread would get all the work
    for pattern in NATIVE_PATTERNS:
        assert len(_core.find_cuts(STORY.encode(), pattern)) > len(STORY) / 20


def test_the_kernel_can_be_forced_by_an_environment_variable():
    code = "from gristmill import _core; print(_core.default_kernel())"
    for kernel in KERNELS:
        run = subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"GRISTMILL_KERNEL": kernel},
            capture_output=True,
            text=True,
            check=True,
        )
        assert run.stdout.strip() == kernel


def test_the_reference_cuts_with_the_same_expression():
    data = "".join(CHARACTERS + CONTRACTIONS + RUNS).encode()
    for pattern in NATIVE_PATTERNS:
        lengths = [len(piece) for piece in reference.pretokenize(data, pattern)]
        assert np.cumsum(lengths).tolist() == _core.find_pieces(data, pattern).tolist()
