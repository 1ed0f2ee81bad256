"""Row 10: a pattern of a user that takes exponential time."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import pytest

import gristmill as gm
from faults.rows.fault import Fault
from gristmill.pretokenize import pieces
from scripts import run_script

FAULT = Fault(
    row=10,
    injected="The patterns `(a+)+$` and `(?:a|aa)+$` on a run of a's that ends with another letter",
    promise="The first one ends in time that grows with the cube of the run. The second one takes exponential time: "
    "every call ends with `PieceTimeoutError` after 60 s and 10 s per MB of the document (of CPU time, in the "
    "process of the caller), which the error names "
    "with the pattern and the cure. Meanwhile other Python threads run and Ctrl-C works; no worker is left",
    undetectable="Whether a pattern would have ended one second after the limit",
    see_also=("tests/pretokenize/test_workers.py", "tests/pretokenize/test_cutting.py", "tests/count/test_count.py"),
)

PATTERN = r"(?:a|aa)+$"
HOSTILE = "a" * 60 + "b"
LIMIT_SECONDS = 0.2


@pytest.fixture
def short_limit(monkeypatch):
    monkeypatch.setattr(pieces, "TIMEOUT_SECONDS", LIMIT_SECONDS)


def tokenizer() -> gm.Tokenizer:
    return gm.Tokenizer([(b"a", b"a")], pattern=PATTERN, special_tokens=["<|endoftext|>"])


def children() -> list[str]:
    return Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()


CALLS = {
    "pretokenize": lambda folder: gm.pretokenize(HOSTILE, pattern=PATTERN),
    "count_words": lambda folder: gm.count_words(["good", HOSTILE], pattern=PATTERN, num_threads=2, progress=None),
    "train_tokenizer": lambda folder: gm.train_tokenizer([HOSTILE], vocab_size=300, pattern=PATTERN, progress=None),
    "encode": lambda folder: tokenizer().encode(HOSTILE),
    "encode_batch": lambda folder: tokenizer().encode_batch(["good", HOSTILE], num_threads=2),
    "encode_file": lambda folder: tokenizer().encode_file(folder / "a.txt"),
    "encode_corpus": lambda folder: gm.encode_corpus(folder / "a.txt", tokenizer(), out=folder / "out", progress=None),
}


@pytest.mark.parametrize("name", CALLS)
def test_row_10_a_pattern_without_end_is_a_timeout_that_names_the_document(short_limit, tmp_path, name):
    (tmp_path / "a.txt").write_text(HOSTILE)
    before = children()
    with pytest.raises(
        gm.PieceTimeoutError, match=r"\(\?:a\|aa\)\+\$.* took more than 0\.2\d* s on .*possessive"
    ) as caught:
        CALLS[name](tmp_path)
    assert "61 bytes that begin with 'aaa" in str(caught.value)
    assert not (tmp_path / "out" / "manifest.json").exists()
    deadline = time.monotonic() + 30
    while set(children()) - set(before) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not set(children()) - set(before)


def test_row_10_nested_repetitions_alone_end_without_a_timeout():
    run = "a" * 200
    assert gm.pretokenize(run + "b", pattern=r"(a+)+$") == [run + "b"]


def test_row_10_the_cure_that_the_error_names_works(short_limit):
    assert gm.pretokenize(HOSTILE, pattern=r"(?:a++)++|b") == ["a" * 60, "b"]


def test_row_10_other_threads_run_during_a_match(short_limit):
    errors = []

    def encode():
        try:
            tokenizer().encode(HOSTILE)
        except gm.PieceTimeoutError as error:
            errors.append(error)

    thread = threading.Thread(target=encode)
    thread.start()
    num_turns = 0
    while thread.is_alive():
        num_turns += 1
        time.sleep(0.001)
    assert errors and num_turns > 5  # a match that kept the GIL would allow one turn before it and one after it


# The limit is far away, so only Ctrl-C can end these matches.
INTERRUPTED = """
    import os, signal, sys, threading, time
    import gristmill as gm

    tok = gm.Tokenizer([(b"a", b"a")], pattern=sys.argv[1])
    calls = {
        "encode": lambda: tok.encode(sys.argv[2]),
        "count_words": lambda: gm.count_words([sys.argv[2]], pattern=sys.argv[1], progress=None),
    }
    threading.Timer(1.0, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    try:
        calls[sys.argv[3]]()
    except KeyboardInterrupt:
        print("interrupted")
"""


@pytest.mark.parametrize("name", ["encode", "count_words"])
def test_row_10_ctrl_c_ends_a_match_before_its_limit(name):
    assert signal.getsignal(signal.SIGINT) == signal.default_int_handler  # otherwise the child would ignore Ctrl-C
    process = run_script(INTERRUPTED, PATTERN, HOSTILE, name)
    assert (process.returncode, process.stdout) == (0, "interrupted\n"), process.stderr
