"""Memory, disk or address space run out, also in a forked child: a clear error, or the same result."""

import errno
import importlib
import multiprocessing
import os
import re
import sys
from pathlib import Path

import pytest

import gristmill as gm
from gristmill.cli import main
from scripts import run_script

linux_only = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc and sets Linux limits")
MIB = 1 << 20


@pytest.fixture(scope="module")
def many_words(tmp_path_factory):
    """A text of 1.2 million different words, 24 MB: its table is larger than the limits of the tests."""
    path = tmp_path_factory.mktemp("faults") / "words.txt"
    path.write_text("".join(f"{i * 7919 % 1_200_000:x}word{i:x} " for i in range(1_200_000)))
    return path


@linux_only
def test_counting_stays_within_its_memory_limit(many_words):
    script = """
        import re, sys
        import gristmill as gm
        gm.count_words(["warm up"], progress=None, memory_limit=32 << 20)
        def resident():  # not ru_maxrss, which begins with that of the parent
            return int(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1]) * 1024
        before = resident()
        limit = int(sys.argv[2])
        options = {"pattern": "whitespace", "num_threads": 2, "progress": None}
        words = gm.count_words(sys.argv[1], memory_limit=limit or None, **options)
        print(len(words), resident() - before)
    """
    num_words, unlimited = map(int, run_script(script, many_words, 0).stdout.split())
    assert unlimited > 100 * MIB
    for limit in (56 * MIB, 96 * MIB):
        num_limited, limited = map(int, run_script(script, many_words, limit).stdout.split())
        assert num_words == num_limited > 1_200_000
        assert limited < limit


@linux_only
def test_no_address_space_left_is_a_memory_error_and_no_abort(many_words):
    script = """
        import resource, sys
        import gristmill as gm
        gm.count_words(["warm up"], progress=None)
        used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + (96 << 20),) * 2)
        try:
            gm.train_tokenizer(sys.argv[1], vocab_size=1000, pattern="whitespace", num_threads=2, progress=None)
        except MemoryError:
            print("MemoryError")
    """
    done = run_script(script, many_words)
    assert (done.returncode, done.stdout) == (0, "MemoryError\n"), done.stderr


@linux_only
@pytest.mark.parametrize(
    ("call", "helps"),
    [
        ("count", {"memory_limit", "num_threads"}),
        ("merge", {"min_frequency", "num_threads"}),
        ("encode", {"num_threads"}),
        ("load", set()),
    ],
)
def test_a_memory_error_names_only_options_of_the_function_that_ran_out(call, helps, many_words):
    script = """
        import resource, sys
        import numpy as np
        import gristmill as gm
        from gristmill import _core
        text = open(sys.argv[2], "rb").read()
        words = gm.count_words([text[:4_000_000]], pattern="whitespace", progress=None)
        tok = gm.train_tokenizer(["a b"], vocab_size=256, special_tokens=(), progress=None)
        bytes_only = {"byte_ids": np.arange(256, dtype=np.uint32), "merges": np.empty((0, 3), np.uint32)}
        special = {"special_tokens": [b"<s>"], "special_ids": [(1 << 24) - 1]}
        calls = {
            "count": lambda: gm.count_words([text], pattern="whitespace", num_threads=1, progress=None),
            "merge": lambda: gm.train_tokenizer(words, vocab_size=1000, num_threads=1, progress=None),
            "encode": lambda: tok.encode_array(text, num_threads=1),
            "load": lambda: _core.Encoder(**bytes_only, **special, pattern="gpt2"),
        }
        used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + (8 << 20),) * 2)
        try:
            calls[sys.argv[1]]()
        except MemoryError as error:
            print(error)
    """
    done = run_script(script, call, many_words)
    assert done.stdout.startswith("out of memory"), done.stderr
    options = {"memory_limit", "num_threads", "min_frequency"}
    assert {option for option in options if option in done.stdout} == helps


COMMANDS = {
    "train-tokenizer": ["x", "--vocab-size", "300", "-o", "y"],
    "encode": ["x", "-t", "y", "-o", "z"],
    "inspect": ["x"],
    "verify": ["x"],
}


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize(
    "error", [MemoryError(), MemoryError("out of memory. Pass a memory_limit."), MemoryError("3 GiB")]
)
def test_a_command_without_memory_advises_only_options_that_it_has(name, error, capsys, monkeypatch):
    def run(self):
        raise error

    module = importlib.import_module(f"gristmill.cli.{name.replace('-', '_')}")
    monkeypatch.setattr(module.Command, "run", run)
    assert main([name, *COMMANDS[name]]) == 1
    message = capsys.readouterr().err
    assert message.startswith("gristmill: error: out of memory") and message.count("\n") == 1
    assert ("3 GiB" in str(error)) == ("3 GiB" in message)
    assert main([name, "--help"]) == 0
    usage = capsys.readouterr().out
    options = re.findall(r"--[a-z-]+", message)
    assert all(option in usage for option in options)
    assert ("--memory-limit" in options, "--threads" in options) == ("--memory-limit" in usage, "--threads" in usage)


@linux_only
def test_a_full_disk_while_spilling_is_an_os_error_and_leaves_no_file(many_words, tmp_path):
    script = """
        import resource, signal, sys
        import gristmill as gm
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20,) * 2)
        try:
            gm.count_words(sys.argv[1], pattern="whitespace", memory_limit=40 << 20, num_threads=2, progress=None)
        except OSError as error:
            print("OSError", error.errno, error.filename)
    """
    done = run_script(script, many_words, environment={"TMPDIR": str(tmp_path)})
    assert done.stdout == f"OSError {errno.EFBIG} {tmp_path}\n", done.stderr
    assert list(tmp_path.iterdir()) == []


def train_in_child(queue):
    queue.put(
        gm.train_tokenizer(
            ["one two one two three " * 1000], vocab_size=266, num_threads=3, progress=None, special_tokens=()
        ).merges
    )


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_training_works_in_a_child_forked_after_threads_were_used():
    expected = gm.train_tokenizer(
        ["one two one two three " * 1000], vocab_size=266, num_threads=3, progress=None, special_tokens=()
    ).merges
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=train_in_child, args=(queue,))
    child.start()
    assert queue.get(timeout=60) == expected
    child.join(timeout=60)
    assert child.exitcode == 0


def test_a_million_of_one_letter_space_or_newline_trains_in_flat_memory(tmp_path):
    path = Path(tmp_path, "runs.txt")
    for unit in (b"a", b" ", b"\n", b"^", b"'s", "漢".encode()):
        path.write_bytes(unit * 1_000_000)
        with pytest.warns(gm.EarlyStopWarning):
            tok = gm.train_tokenizer(path, vocab_size=400, progress=None, special_tokens=())
        assert tok.decode_bytes(tok.encode(unit * 1000)) == unit * 1000
