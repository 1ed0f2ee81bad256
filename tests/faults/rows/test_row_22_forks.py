"""Row 22: processes that are forked after threads were used, or while they run, and processes that are spawned.

A fork copies one thread. What the other threads held stays locked in the child, unless it is opened there.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import threading
import time

import pytest

import gristmill as gm
from faults.rows.children import call
from faults.rows.fault import Fault
from gristmill import publish as publishing
from gristmill.encode import has_encoder, regex_encoder
from gristmill.pretokenize import worker_pool
from gristmill.shards import encode_job
from scripts import run_script
from texts import random_story

FAULT = Fault(
    row=22,
    injected="Forks while other threads build encoders, train, count, encode, write and record, in the middle of a "
    "native call; spawned processes; forked workers of a `DataLoader`",
    promise="Everything works in the child with the same results, and no process waits forever",
    undetectable="A child that returns from a fork inside a progress callback to the native call that made it: it must "
    "exit instead, as `multiprocessing` does",
    see_also=(
        "tests/faults/test_encode_faults.py",
        "tests/faults/test_limits.py",
        "tests/encode/test_encode.py",
        "tests/shards/test_shards.py",
        "tests/lm/test_foreign_loops.py",
        "tests/lm/test_dataset.py",
        "tests/lm/test_sequences_workers.py",
        "tests/gpu/test_cuda.py",
    ),
)

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork"),
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::gristmill.SlowPatternWarning"),
]

EOT = "<|endoftext|>"
TEXT = random_story(1, 400)
TEXTS = [random_story(seed, 40) for seed in range(8)]


@pytest.fixture(scope="module")
def tok():
    return gm.train_tokenizer([TEXT], vocab_size=400, num_threads=2, progress=None)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    file = tmp_path_factory.mktemp("corpus") / "a.txt"
    file.write_text(EOT.join(TEXTS))
    return file


def fresh(tokenizer):
    """Return a tokenizer that has not built anything yet."""
    return gm.Tokenizer.from_parts(tokenizer.parts)


numbers = itertools.count()


def use_everything(tok, path, folder):
    """Use every part of the library that has threads, locks, caches or temporary files, and return what it gives."""
    out = folder / f"{os.getpid()}-{next(numbers)}"
    out.mkdir()
    gm.encode_corpus(path, tok, out=out / "shards", num_threads=2, progress=None)
    words = gm.count_words(path, num_threads=3, progress=None)
    words.save(out / "words.gmw")
    return {
        "train": gm.train_tokenizer([TEXT], vocab_size=300, num_threads=3, progress=None).merges,
        "count": dict(gm.Words.load(out / "words.gmw").items()),
        "encode": fresh(tok).encode(TEXT),
        "batch": fresh(tok).encode_batch(TEXTS, num_threads=3),
        "decode": fresh(tok).decode(range(400)),
        "fingerprint": fresh(tok).fingerprint,
        "shards": (out / "shards" / "shard-00000.bin").read_bytes(),
        "documents": [list(ids) for ids in gm.Shards(out / "shards")],
    }


@pytest.fixture(scope="module")
def expected(tok, path, tmp_path_factory):
    return use_everything(tok, path, tmp_path_factory.mktemp("expected"))


def check_in_a_child(work, expected, tmp_path):
    """Fork; the child must return `expected` from `work`. A child that hangs is killed and fails the test."""

    def compare():
        found = work()
        wrong = [name for name in expected if found[name] != expected[name]]
        if wrong:
            print("differs:", wrong)
        return len(wrong)

    ended = call(compare, log=tmp_path / "child.log")
    assert ended.status == 0, ended.text


def test_row_22_a_pattern_with_worker_processes_works_in_a_child_forked_while_they_start(tok, tmp_path, monkeypatch):
    monkeypatch.setattr(regex_encoder, "GROUP_BYTES", 500)  # so that this small text is worth processes
    slow = gm.Tokenizer(tok.merges, pattern=r"\w+|\W")
    ids = slow.encode_array(TEXT).tolist()
    starting = threading.Event()
    start = worker_pool.start_process

    def start_and_say_so(*arguments):
        starting.set()
        return start(*arguments)

    monkeypatch.setattr(worker_pool, "start_process", start_and_say_so)
    thread = threading.Thread(target=lambda: slow.encode_array(TEXT, num_threads=2))
    thread.start()
    assert starting.wait(60)
    check_in_a_child(lambda: {"ids": slow.encode_array(TEXT, num_threads=2).tolist()}, {"ids": ids}, tmp_path)
    thread.join(60)
    assert not thread.is_alive()


def test_row_22_everything_works_in_children_forked_while_threads_use_everything(tok, path, expected, tmp_path):
    stop, failed = threading.Event(), []

    def keep_busy():
        while not stop.is_set():
            if use_everything(tok, path, tmp_path) != expected:
                failed.append(True)

    threads = [threading.Thread(target=keep_busy) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for number in range(5):
            time.sleep(0.01 * number)
            check_in_a_child(lambda: use_everything(tok, path, tmp_path), expected, tmp_path)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not failed


@pytest.mark.parametrize("stage", ["count", "merge", "encode"])
def test_row_22_a_fork_in_the_middle_of_a_native_call_of_another_thread(stage, tok, path, expected, tmp_path):
    inside, may_continue = threading.Event(), threading.Event()

    def stop_there(progress):
        if progress.stage == stage and not inside.is_set():
            inside.set()
            may_continue.wait(60)

    def make_the_call():
        if stage == "encode":
            gm.encode_corpus(path, tok, out=tmp_path / "s", num_threads=3, progress=stop_there)
        else:
            gm.train_tokenizer(path, vocab_size=400, num_threads=3, progress=stop_there)

    thread = threading.Thread(target=make_the_call)
    thread.start()
    try:
        assert inside.wait(60)
        check_in_a_child(lambda: use_everything(tok, path, tmp_path), expected, tmp_path)
    finally:
        may_continue.set()
        thread.join()


def test_row_22_a_child_can_build_an_encoder_while_a_thread_of_the_parent_was_building_one(tok, tmp_path, monkeypatch):
    # Found by forking at random: in Python 3.11, functools.cached_property holds one lock for all tokenizers.
    inside, may_continue = threading.Event(), threading.Event()
    build, forking = has_encoder.build_encoder, threading.get_ident()

    def build_slowly(parts):
        if threading.get_ident() != forking:
            inside.set()
            may_continue.wait(60)
        return build(parts)

    monkeypatch.setattr(has_encoder, "build_encoder", build_slowly)
    ids = tok.encode(TEXT)
    thread = threading.Thread(target=lambda: fresh(tok).encode(TEXT))
    thread.start()
    try:
        assert inside.wait(60)
        check_in_a_child(lambda: {"ids": fresh(tok).encode(TEXT)}, {"ids": ids}, tmp_path)
    finally:
        may_continue.set()
        thread.join()


def held(lock):
    """Start a thread that holds `lock` for a moment; return it once it does."""
    inside = threading.Event()

    def hold():
        with lock:
            inside.set()
            time.sleep(0.1)

    thread = threading.Thread(target=hold)
    thread.start()
    assert inside.wait(60)
    return thread


def test_row_22_a_child_can_write_files_while_a_thread_of_the_parent_reads_the_umask(tmp_path):
    before = os.umask(0o022)
    os.umask(before)
    thread = held(publishing._umask_lock)

    def write():
        with publishing.publish(tmp_path / "a.txt") as file:
            file.write(b"whole")
        now = os.umask(0)
        return {
            "content": (tmp_path / "a.txt").read_bytes(),
            "free": publishing._umask_lock.acquire(timeout=5),
            "umask": now,
        }

    check_in_a_child(write, {"content": b"whole", "free": True, "umask": before}, tmp_path)
    thread.join()


def test_row_22_a_child_can_read_a_job_while_a_thread_of_the_parent_reads_one(path, tok, tmp_path):
    thread = held(encode_job._lock)
    options = {"out": tmp_path / "s", "executor": gm.Local(num_workers=1, part_bytes=500), "progress": None}
    check_in_a_child(lambda: {"n": gm.encode_corpus(path, tok, **options).num_documents}, {"n": 8}, tmp_path)
    thread.join()


def test_row_22_a_child_neither_records_nor_writes_the_trace_of_its_parent(tok, tmp_path):
    with gm.recording(tmp_path / "trace.json") as trace:

        def record():
            tok.encode_batch(TEXTS, num_threads=2)
            inherited = len(list(trace.events()))
            with gm.recording(tmp_path / "own.json"):
                gm.train_tokenizer([TEXT], vocab_size=300, progress=None)
            return {"new": len(list(trace.events())) - inherited, "own": (tmp_path / "own.json").exists()}

        check_in_a_child(record, {"new": 0, "own": True}, tmp_path)
        assert not (tmp_path / "trace.json").exists()
        gm.train_tokenizer([TEXT], vocab_size=300, progress=None)
    assert {"merge", "count"} <= {event["name"] for event in trace.events()}


def encode_in_child(pipe, tok, words, shards):
    result = [tok.encode_batch(TEXTS, num_threads=2), dict(words.items()), [list(ids) for ids in shards]]
    pipe.send([*result, gm.train_tokenizer(words, vocab_size=300, num_threads=2, progress=None).merges])
    pipe.close()


@pytest.mark.parametrize("method", multiprocessing.get_all_start_methods())
def test_row_22_tokenizers_words_and_shards_are_sent_to_processes_of_every_kind(method, tok, path, tmp_path):
    words = gm.count_words(path, progress=None)
    gm.encode_corpus(path, tok, out=tmp_path / "s", num_threads=2, progress=None)
    shards = gm.Shards(tmp_path / "s")
    context = multiprocessing.get_context(method)
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(target=encode_in_child, args=(theirs, tok, words, shards))
    child.start()
    assert ours.poll(60), "the child does not answer"
    batch, counts, documents, merges = ours.recv()
    child.join(60)
    assert child.exitcode == 0
    assert batch == tok.encode_batch(TEXTS)
    assert counts == dict(words.items())
    assert documents == [list(ids) for ids in shards]
    assert merges == gm.train_tokenizer(words, vocab_size=300, progress=None).merges


def test_row_22_forked_workers_of_a_data_loader_use_a_tokenizer_and_shards(tok, path, tmp_path):
    """In a process of its own, whose first use of torch and of threads is before the fork."""
    pytest.importorskip("torch")
    gm.encode_corpus(path, tok, out=tmp_path / "s", num_threads=2, progress=None)
    tok.save(tmp_path / "tok.json")
    script = """
        import faulthandler, sys
        import torch, gristmill as gm
        from torch.utils.data import DataLoader, Dataset
        faulthandler.dump_traceback_later(100, exit=True)
        tok, shards = gm.Tokenizer.load(sys.argv[1]), gm.Shards(sys.argv[2])
        slow = gm.Tokenizer(tok.merges, pattern=r"\\\\w+|\\\\W")
        text = open(sys.argv[3]).read().split("<|endoftext|>")
        class Texts(Dataset):
            def __len__(self):
                return len(text)
            def __getitem__(self, i):
                ids = tok.encode_batch([text[i], text[i]], num_threads=2)[0]
                assert i > 0 or slow.decode(slow.encode_batch([text[i]])[0]) == text[i]
                merges = gm.train_tokenizer([text[i]], vocab_size=260, num_threads=2, progress=None).merges
                assert tok.decode(list(shards[i])[:-1]) == text[i] and len(merges) == 3
                return torch.tensor(ids)
        torch.ones(1000, 1000) @ torch.ones(1000, 1000)
        expected = [tok.encode(each) for each in text]
        tok.encode_batch(text, num_threads=2)
        for persistent in (False, True):
            loader = DataLoader(Texts(), batch_size=None, num_workers=2, persistent_workers=persistent,
                                multiprocessing_context="fork")
            assert [ids.tolist() for ids in loader] == expected
        print("done")
    """
    child = run_script(script, tmp_path / "tok.json", tmp_path / "s", path)
    assert child.stdout == "done\n", child.stderr
