"""A system that allows fewer threads than requested, or none: the same result with the available threads."""

from __future__ import annotations

import sys
import threading

import pytest

import gristmill as gm
from scripts import run_script
from shards.shard_corpora import small_batches, write_jsonl
from texts import random_story

linux_only = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc and sets Linux limits")
TEXTS = [[random_story(10 * i + k, 60) for k in range(10)] for i in range(6)]


@pytest.fixture
def corpus(tmp_path, monkeypatch):
    """Six inputs of many batches."""
    small_batches(monkeypatch)
    return [write_jsonl(tmp_path / f"{i}.jsonl", texts) for i, texts in enumerate(TEXTS)]


def allow_threads(num_threads, monkeypatch):
    """Allow only this many threads at a time; beyond that, Python raises a RuntimeError."""
    start = threading.Thread.start

    def start_if_few(thread):
        if sum(other.name.startswith("gristmill-") for other in threading.enumerate()) >= num_threads:
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_if_few)


@pytest.mark.parametrize("num_threads", [0, 1, 3, 6])
def test_counting_works_on_with_the_threads_that_could_be_started(corpus, monkeypatch, num_threads):
    expected = gm.count_words(corpus, num_threads=4, progress=None, special_tokens=())
    allow_threads(num_threads, monkeypatch)
    assert gm.count_words(corpus, num_threads=4, progress=None, special_tokens=()) == expected


@pytest.mark.parametrize("num_threads", [0, 1, 3, 6])
def test_encoding_a_corpus_works_on_with_the_threads_that_could_be_started(corpus, tmp_path, monkeypatch, num_threads):
    monkeypatch.setattr("gristmill.shards.writer.FLUSHED_BYTES", 100)
    tok = gm.train_tokenizer(TEXTS[0], vocab_size=300, special_tokens=["<|endoftext|>"], progress=None)

    def encode(name):
        gm.encode_corpus(corpus, tok, out=tmp_path / name, num_threads=4, shard_tokens=1000, progress=None)
        return {path.name: path.read_bytes() for path in (tmp_path / name).glob("*.bin")}

    expected = encode("many")
    allow_threads(num_threads, monkeypatch)
    assert encode("few") == expected
    assert len(expected) > 3


@pytest.mark.parametrize("num_threads", [0, 1, 3, 6])
def test_an_input_that_cannot_be_read_is_the_same_error_with_few_threads(corpus, monkeypatch, num_threads):
    corpus[2].write_bytes(b'{"text": "good"}\n{"text": bad}\n')
    allow_threads(num_threads, monkeypatch)
    with pytest.raises(gm.CorruptInputError, match=r"2\.jsonl"):
        gm.count_words(corpus, num_threads=4, progress=None, special_tokens=())
    with pytest.warns(gm.SkippedInputWarning, match=r"1 of 6 inputs.*2\.jsonl"):
        words = gm.count_words(corpus, num_threads=4, on_error="skip", progress=None, special_tokens=())
    assert words.count("good") == 0


@linux_only
@pytest.mark.parametrize("call", ["count_words", "train_tokenizer", "encode_corpus", "encode_array"])
def test_address_space_that_runs_out_is_no_work_undone_or_a_memory_error_and_never_another(call, tmp_path):
    # From too little for one thread to enough for all: one stack takes 8 MiB.
    write_jsonl(tmp_path / "a.jsonl", [random_story(i, 200) for i in range(300)])
    script = """
        import os, resource, sys
        import gristmill as gm
        name, path, out = sys.argv[1:]
        specials = ["<|endoftext|>"]
        tok = gm.train_tokenizer(["warm up the tables"], vocab_size=258, special_tokens=specials, progress=None)
        text = open(path, "rb").read() * 4
        calls = {
            "count_words": lambda i: gm.count_words(path, num_threads=8, progress=None),
            "train_tokenizer": lambda i: gm.train_tokenizer(path, vocab_size=300, num_threads=8, progress=None),
            "encode_corpus": lambda i: gm.encode_corpus(path, tok, out=f"{out}/{i}", num_threads=8, progress=None),
            "encode_array": lambda i: tok.encode_array(text, num_threads=8),
        }
        used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        for mib in (1, 4, 10, 20, 40, 80, 2000):
            child = os.fork()
            if child == 0:
                resource.setrlimit(resource.RLIMIT_AS, (used + (mib << 20),) * 2)
                try:
                    calls[name](mib)
                    os._exit(0)
                except MemoryError:
                    os._exit(10)
                except OSError as error:
                    os._exit(10 if error.errno == 12 else 11)
                finally:
                    sys.stderr.flush()
                    os._exit(12)
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), end=" ", flush=True)
    """
    codes = list(map(int, run_script(script, call, tmp_path / "a.jsonl", tmp_path).stdout.split()))
    assert set(codes) <= {0, 10}, codes
    assert codes[-1] == 0
