"""Patterns without a native matcher: worker processes return the ids of one process, and of the reference."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings

import numpy as np
import pytest

import gristmill as gm
from gristmill import Tokenizer, reference
from gristmill.encode import regex_encoder
from gristmill.pretokenize import patterns, worker_pool
from texts import STORY, random_text

PATTERN = r"\p{Lu}?\p{Ll}+|\p{N}|[^\w\s]+"  # leaves gaps
SPECIALS = ["<s>", "<s>>", "<t>"]


@pytest.fixture(scope="module")
def tok() -> Tokenizer:
    return gm.train_tokenizer([STORY], vocab_size=400, pattern=PATTERN, special_tokens=SPECIALS, num_threads=1)


@pytest.fixture
def small_groups(monkeypatch):
    """Use several workers even for texts of a few hundred bytes."""
    monkeypatch.setattr(regex_encoder, "GROUP_BYTES", 100)


TEXTS = [STORY + "<s>" + STORY, "", "<s><s>>", b"\xc3<s>\xa9", "tail<s", random_text(5, 400), "<t>" * 50]


def test_workers_give_the_ids_of_one_process_for_every_text_and_batch(tok, small_groups):
    for allowed in ((), {"<s>"}, "all"):
        options = {"allowed_special": allowed, "disallowed_special": ()}
        expected = [tok.encode(text, **options) for text in TEXTS]
        assert tok.encode_batch(TEXTS, **options, num_threads=3).tolist() == expected
        for text, ids in zip(TEXTS, expected, strict=True):
            assert tok.encode_array(text, **options, num_threads=2).tolist() == ids
            assert tok.count_tokens(text, **options, num_threads=2) == len(ids)


def test_workers_start_for_long_texts_only(tok, monkeypatch):
    def refuse(self):
        raise AssertionError("a worker was started")

    monkeypatch.setattr(worker_pool.WorkerPool, "_start_worker", refuse)
    assert tok.encode_batch(["ab"] * 3, num_threads=4).tolist() == [tok.encode("ab")] * 3
    monkeypatch.setattr(regex_encoder, "GROUP_BYTES", 2)
    with pytest.raises(AssertionError, match="a worker was started"):
        tok.encode_batch(["ab"] * 3, num_threads=4)


def test_a_file_is_encoded_by_workers_and_reports_all_of_its_bytes(tok, small_groups, tmp_path):
    path = tmp_path / "story.txt"
    path.write_text((STORY + "<s>") * 20, encoding="utf-8")
    reports = []
    ids = tok.encode_file(path, allowed_special="all", num_threads=2, progress=reports.append)
    assert ids.tolist() == tok.encode((STORY + "<s>") * 20, allowed_special="all")
    assert reports[-1].done == reports[-1].total == path.stat().st_size


def test_a_disallowed_special_is_found_before_any_worker_sees_it(tok, small_groups):
    with pytest.raises(gm.SpecialTokenError, match=r"texts\[1\] contains the special token '<s>' at byte 150"):
        tok.encode_batch(["a" * 300, "b" * 150 + "<s>"], disallowed_special="all", num_threads=2)


@pytest.mark.parametrize("size", [1, 2, 5, 64])
def test_a_stream_has_the_ids_and_errors_of_the_whole_wherever_its_chunks_end(tok, size, monkeypatch):
    monkeypatch.setattr("gristmill.encode.chunks.BLOCK_BYTES", 4)
    for text in TEXTS:
        data = text.encode() if isinstance(text, str) else text
        chunks = [data[i : i + size] for i in range(0, len(data), size)]
        whole = tok.encode(data, allowed_special="all")
        assert list(tok.encode_iterable(chunks, allowed_special="all")) == whole
    overlapping = Tokenizer([], pattern=PATTERN, special_tokens=["<a>", ">b"])
    chunks = [b"<a>b"[i : i + size] for i in range(0, 4, size)]
    with pytest.raises(gm.SpecialTokenError, match="'>b' at byte 2"):
        list(overlapping.encode_iterable(chunks, allowed_special={"<a>"}, disallowed_special="all"))


@pytest.mark.parametrize("format", ["gristmill", "llmc"])
def test_shards_are_the_same_bytes_for_1_and_3_workers(tok, tmp_path, format):
    documents = [STORY[i : i + 200] for i in range(0, len(STORY), 50)] * 20
    files = {}
    for threads in (1, 3):
        out = tmp_path / str(threads) / "shards"
        out.parent.mkdir()
        options = {"format": format, "end_of_text": "<s>", "val_fraction": 0.2, "num_threads": threads}
        run = gm.encode_corpus(iter(documents), tok, out=out, progress=None, **options)
        assert run.num_documents == len(documents)
        files[threads] = {path.name: path.read_bytes() for path in out.iterdir()}
    assert files[1] == files[3]


def test_shards_have_the_ids_of_the_reference(tok, tmp_path):
    gm.encode_corpus(iter([STORY, "ab"]), tok, out=tmp_path / "shards", end_of_text=None, num_threads=2, progress=None)
    expected = reference.encode(STORY, tok.merges, pattern=PATTERN)
    assert gm.Shards(tmp_path / "shards")[0].tolist() == expected


def test_a_worker_that_is_killed_while_it_encodes_is_an_error_and_not_a_hang(tok, small_groups, monkeypatch):
    start = worker_pool.WorkerPool._start_worker

    def start_and_kill(self):
        worker = start(self)
        worker.kill()
        return worker

    monkeypatch.setattr(worker_pool.WorkerPool, "_start_worker", start_and_kill)
    with pytest.raises(gm.WorkerError, match="status -9"):
        tok.encode_batch([STORY] * 5, num_threads=2)


def test_a_batch_of_many_short_texts_is_gathered_in_one_pass():
    class Counted(bytes):
        num_asked = 0

        def __len__(self):
            Counted.num_asked += 1
            return super().__len__()

    texts = [Counted(b"ab") for _ in range(1000)]
    groups = list(regex_encoder._gathered(texts, 500))
    assert [len(group) for group in groups] == [250] * 4
    assert Counted.num_asked == 1000  # a sum over the group for each text would need 125,000 calls


def test_a_text_that_no_message_holds_is_encoded_here(tok, small_groups, monkeypatch):
    monkeypatch.setattr(regex_encoder, "MAX_MESSAGE_BYTES", 150)
    texts = [STORY, "ab", STORY + "<s>"]
    options = {"allowed_special": "all"}
    assert tok.encode_batch(texts, num_threads=2, **options).tolist() == [tok.encode(text, **options) for text in texts]


def test_a_forged_special_in_a_stream_is_found_before_the_stream_has_ended(tok):
    taken = []

    def chunks():
        for i in range(1000):
            taken.append(i)
            yield "<s>" if i == 3 else "word " * 10_000

    with pytest.raises(gm.SpecialTokenError, match="'<s>' at byte 150000"):
        list(tok.encode_iterable(chunks(), disallowed_special="all"))
    assert len(taken) < 20


def test_work_continues_with_the_workers_that_could_be_started(tok, small_groups, monkeypatch):
    start = worker_pool.WorkerPool._start_worker

    def start_one(self):
        if self._workers:
            raise BlockingIOError(11, "Resource temporarily unavailable")
        return start(self)

    monkeypatch.setattr(worker_pool.WorkerPool, "_start_worker", start_one)
    texts = [STORY] * 10
    assert tok.encode_batch(texts, num_threads=4).tolist() == [tok.encode(STORY)] * 10


@pytest.mark.parametrize("id", [5000, 70_000, -1])
@pytest.mark.parametrize("pattern", ["gpt2", PATTERN])
def test_documents_are_not_marked_with_an_id_that_is_no_token(pattern, id):
    with pytest.raises(gm.UnknownTokenError):
        Tokenizer([], pattern=pattern).document_encoder(end_of_text=id)


def test_decoding_and_counting_ids_warn_of_no_slow_pattern(monkeypatch):
    monkeypatch.setattr(patterns, "_warned", set())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Tokenizer([], pattern=PATTERN).decode([97, 98]) == "ab"


def test_encoding_warns_once_that_a_pattern_has_no_native_matcher(monkeypatch):
    monkeypatch.setattr(patterns, "_warned", set())
    for expected in (1, 0):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            Tokenizer([], pattern=r"\w+|\s").encode("ab cd")
        slow = [warning for warning in caught if warning.category is gm.SlowPatternWarning]
        assert len(slow) == expected
        assert all(warning.filename == __file__ for warning in slow)


def test_ids_of_more_than_16_bits_come_back_from_workers_whole(monkeypatch):
    monkeypatch.setattr(regex_encoder, "GROUP_BYTES", 4)
    ranks = {bytes([byte]): byte for byte in range(256)} | {b"ab": 100_000}
    parts = gm.tokenizer.TokenizerParts(
        gm.tokenizer.Vocabulary.from_ranks(ranks, {}), patterns.resolve_pattern(PATTERN), "greatest-bytes"
    )
    ids = Tokenizer.from_parts(parts).encode_batch(["abab ab"] * 4, num_threads=2)
    assert ids.ids.dtype == np.uint32
    assert ids.tolist() == [[100_000, 100_000, 32, 100_000]] * 4


def test_no_worker_outlives_its_parent(tok, tmp_path):
    tok.save(tmp_path / "tok.json")
    script = f"""
import gristmill as gm, os, sys
from gristmill.encode import regex_encoder
regex_encoder.GROUP_BYTES = 100
tok = gm.Tokenizer.load({str(tmp_path / "tok.json")!r})
encoder = tok.document_encoder(num_threads=2)
with encoder:
    workers = encoder._encoder
    workers.encode_texts([b"ab"], tok._rules.rule())
    print(workers._pool._workers[0].pid, flush=True)
    os.kill(os.getpid(), 9)
"""
    run = subprocess.run([sys.executable, "-W", "ignore", "-c", script], capture_output=True, text=True, timeout=60)
    assert run.returncode == -9
    pid = int(run.stdout)
    assert _ends(pid)


def _ends(pid: int) -> bool:
    import time
    from pathlib import Path

    for _ in range(200):
        try:
            if "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text():
                return True
        except OSError:
            return True
        time.sleep(0.05)
    return False


def test_what_python_prints_when_a_worker_starts_is_no_answer(tok, small_groups, tmp_path, monkeypatch):
    (tmp_path / "sitecustomize.py").write_text("print('noise')\nprint('more', end='')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.syspath_prepend(tmp_path)
    assert tok.encode_batch([STORY] * 5, num_threads=2).tolist() == [tok.encode(STORY)] * 5


def test_a_worker_that_sends_no_answer_is_ended_and_reported(tok, small_groups, monkeypatch):
    start = worker_pool.WorkerPool._start_worker

    def start_another(self):
        worker = start(self)
        script = (
            "import sys, time; from gristmill.pretokenize.worker import READY; sys.stdout.buffer.write(READY + b'?'); "
        )
        script += "sys.stdout.flush(); time.sleep(600)"
        worker.kill()
        return subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    monkeypatch.setattr(worker_pool.WorkerPool, "_start_worker", start_another)
    with pytest.raises(gm.WorkerError, match="no answer"):
        tok.encode_batch([STORY] * 5, num_threads=2)
