"""Row 9: ten to a hundred million times the same character, and other texts without a place to cut."""

from __future__ import annotations

import json
import os

import pytest

import gristmill as gm
from faults.rows.fault import Fault
from scripts import run_script

FAULT = Fault(
    row=9,
    injected="1 to 100 million bytes of one letter, space, line break, sign, contraction or Chinese character, of "
    "random white space, Fibonacci words and almost special tokens, read on a stack of 256 KiB",
    promise="Counting, training and encoding take near-linear time: twice the text takes less than 3.5 times the CPU "
    "time. The memory of counting and training is flat for lines and words, and at most 24 bytes per byte of the "
    "longest text without a place to cut (before white space). No stack overflows",
    see_also=(
        "tests/faults/test_limits.py",
        "tests/pretokenize/test_pretokenize.py",
        "tests/encode/test_encode.py",
    ),
)

needs_proc = pytest.mark.skipif(
    not os.access("/proc/self/clear_refs", os.W_OK), reason="resets the peak of memory in /proc/self/clear_refs"
)
MIB = 1 << 20

# Measures each call at two sizes, in a thread with a small stack: recursion over the text would overflow it. The text
# is written by the child, so that pytest does not hold it.
MEASURE = """
    import json, re, sys, threading, time, warnings
    from pathlib import Path
    import numpy as np
    import gristmill as gm

    warnings.simplefilter("ignore")
    folder, name = Path(sys.argv[1]), sys.argv[2]
    path = folder / "a.txt"
    random = np.random.default_rng(9)
    units = {"a": b"a", "space": b" ", "line break": b"\\n", "sign": b"^", "contraction": b"'s",
        "Chinese": "漢".encode(), "almost special": b"<|endoftext|", "lines": b"some words in a line\\n"}

    def fibonacci(size):
        one, two = b"a", b"ab"
        while len(two) < size:
            one, two = two, two + one
        return two[:size]

    def text(kind, size):
        if kind == "white space":
            return random.choice(np.frombuffer(b" \\n\\t\\r", np.uint8), size).tobytes()
        if kind == "Fibonacci":
            return fibonacci(size)
        return units[kind] * (size // len(units[kind]))

    samples = [text(kind, 2000) for kind in [*units, "white space", "Fibonacci"]]
    tok = gm.train_tokenizer(samples, vocab_size=600, progress=None)
    calls = {
        "count": lambda: gm.count_words(path, num_threads=1, progress=None),
        "train": lambda: gm.train_tokenizer(path, vocab_size=600, num_threads=1, progress=None),
        "encode": lambda: tok.encode_file(path, num_threads=1),
        "chunks": lambda: sum(1 for _ in tok.encode_iterable([path.read_bytes()])),
    }

    def resident(what):
        return int(re.search(what + r":\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) * 1024

    def measure():
        for kind, size in json.loads(sys.argv[3]):
            figures = []
            for num_bytes in (size // 2, size):
                path.write_bytes(text(kind, num_bytes))
                Path("/proc/self/clear_refs").write_text("5")
                before, began = resident("VmRSS"), time.process_time()
                calls[name]()
                figures.append([time.process_time() - began, resident("VmHWM") - before])
            print(json.dumps([kind, size, *figures]), flush=True)

    threading.stack_size(256 << 10)
    thread = threading.Thread(target=measure)
    thread.start()
    thread.join()
"""
UNBROKEN = ["a", "space", "line break", "sign", "contraction", "Chinese", "almost special"]
TEN_MILLION = 10_000_000
OTHERS = [*UNBROKEN[1:], "lines", "white space", "Fibonacci"]
CASES = {
    "count": [("a", 10 * TEN_MILLION), ("lines", 10 * TEN_MILLION), *((kind, TEN_MILLION) for kind in OTHERS)],
    "train": [("a", TEN_MILLION), ("lines", TEN_MILLION), *((kind, 4_000_000) for kind in OTHERS)],
    "encode": [("a", TEN_MILLION), *((kind, 2_000_000) for kind in OTHERS)],
    "chunks": [(kind, 1_000_000) for kind in ("a", *OTHERS)],
}


@needs_proc
@pytest.mark.parametrize("name", CASES)
def test_row_09_time_is_near_linear_and_memory_is_bounded(tmp_path, name):
    done = run_script(MEASURE, tmp_path, name, json.dumps(CASES[name]))
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(kind, size) for kind, size, _, _ in lines] == CASES[name]
    for kind, size, (half_seconds, _), (seconds, memory) in lines:
        what = (name, kind, seconds, half_seconds, memory)
        assert seconds < 3.5 * half_seconds + 0.5, what
        is_flat = kind == "lines" and name in ("count", "train")  # the others return all ids
        assert memory < (0 if is_flat else 24 * size) + 64 * MIB, what


# Expressions such as `\s*[\r\n]` and `\s+(?!\S)` take quadratic time in a matcher that backtracks.
EVERY_PATTERN = """
    import json, sys, time
    from pathlib import Path
    import gristmill as gm
    from gristmill.pretokenize import NATIVE_PATTERNS

    path = Path(sys.argv[1], "a.txt")
    units = [b"a", b"aA", b" ", b"\\n", b"\\r\\n", b" /", b"'", b"!\\n", b"1", b"\\x80"]
    units += ["\\u3000".encode(), "\\u0301".encode()]
    for unit in units:
        seconds = {}
        for num_bytes in (500_000, 1_000_000):
            path.write_bytes(unit * (num_bytes // len(unit)))
            for pattern in NATIVE_PATTERNS:
                began = time.process_time()
                gm.count_words(path, pattern=pattern, num_threads=1, progress=None)
                seconds.setdefault(pattern, []).append(time.process_time() - began)
        print(json.dumps([repr(unit), seconds]))
"""


@pytest.mark.parametrize("kernel", ["auto", "scalar"])
def test_row_09_every_pattern_takes_near_linear_time(tmp_path, kernel):
    environment = {} if kernel == "auto" else {"GRISTMILL_KERNEL": kernel}
    done = run_script(EVERY_PATTERN, tmp_path, environment=environment)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(lines) == 12
    for unit, figures in lines:
        for pattern, (half_seconds, seconds) in figures.items():
            assert seconds < 3.5 * half_seconds + 0.5, (unit, pattern, half_seconds, seconds)


@pytest.mark.parametrize("unit", ["a", " ", "\n", "^", "'s", "漢"])
def test_row_09_ids_of_a_long_run_return_the_text(unit):
    with pytest.warns(gm.EarlyStopWarning):
        tok = gm.train_tokenizer([unit * 1_000_000], vocab_size=400, special_tokens=(), progress=None)
    text = unit * 1_000_001
    ids = tok.encode_array(text)
    assert tok.decode(ids) == text
    assert len(ids) < len(text) / 1.5
