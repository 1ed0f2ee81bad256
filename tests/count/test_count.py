"""count: files and documents to words, by the core and by worker processes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import gristmill as gm
from gristmill.pretokenize import pieces, worker_pool
from texts import STORY


@pytest.mark.parametrize("pattern", ["gpt2", r"\w+|\W"])
def test_a_file_that_changes_while_it_is_read_is_an_error(tmp_path, monkeypatch, pattern):
    from gristmill.count import regex_counting

    monkeypatch.setattr(regex_counting, "TASK_BYTES", 1 << 16)
    path = tmp_path / "growing.txt"
    path.write_bytes(b"some words here <s>\n" * 2_000_000)

    def grow(_):
        with path.open("ab") as file:
            file.write(b"more")

    with pytest.raises(gm.InputChangedError, match=r"growing\.txt"):
        gm.train_tokenizer(path, vocab_size=300, pattern=pattern, special_tokens=["<s>"], progress=grow, num_threads=1)


def test_progress_over_documents_counts_up_through_all_batches(monkeypatch):
    monkeypatch.setattr("gristmill.count.counting.CALL_BYTES", 1000)
    for corpus in ([STORY] * 20, pa.table({"text": [STORY] * 20})):
        reports = []
        gm.count_words(corpus, progress=reports.append, special_tokens=())
        done = [report.done for report in reports if report.stage == "count"]
        assert done == sorted(done)
        assert done[-1] == 20 * len(STORY.encode())


def test_a_pattern_that_never_ends_is_a_timeout_that_names_pattern_and_document(monkeypatch):
    monkeypatch.setattr(pieces, "TIMEOUT_SECONDS", 0.3)
    with pytest.raises(gm.PieceTimeoutError, match=r"\(\?:a\|a\)\*b.* on document 1 of the corpus") as caught:
        gm.count_words(["fine", "a" * 50], pattern=r"(?:a|a)*b|.", num_threads=2, special_tokens=())
    assert isinstance(caught.value, TimeoutError)


def test_a_killed_worker_is_an_error_and_not_a_hang(monkeypatch):
    start = worker_pool.WorkerPool._start_worker

    def start_and_kill(self):
        worker = start(self)
        worker.kill()
        return worker

    monkeypatch.setattr(worker_pool.WorkerPool, "_start_worker", start_and_kill)
    with pytest.raises(gm.WorkerError, match="status -9"):
        gm.count_words([STORY] * 10, pattern=r"\w+|\W", num_threads=3, special_tokens=())


def test_a_custom_pattern_counts_no_document_longer_than_max_document_bytes(tmp_path):
    path = tmp_path / "long.txt"
    path.write_bytes(b"fits<s>" + b"word " * 500_000)
    with pytest.raises(gm.CorpusError, match=r"long\.txt: the document at byte 7 has 2,500,000 bytes, more than"):
        gm.count_words(path, pattern=r"\w+|\W", special_tokens=["<s>"], max_document_bytes=2 << 20, num_threads=1)
    counted = gm.count_words(path, pattern=r"\w+|\W", special_tokens=["<s>"], max_document_bytes=3 << 20, num_threads=1)
    assert counted.count("word") == 500_000


@pytest.mark.parametrize(
    "call",
    [
        gm.count_words,
        lambda corpus: gm.count_words(gm.Documents(corpus)),
        lambda corpus: gm.train_tokenizer(corpus, vocab_size=300),
        lambda corpus: gm.encode_corpus(corpus, gm.Tokenizer([]), out="never", end_of_text=None),
    ],
)
def test_ids_instead_of_text_are_an_error_about_what_was_passed_and_not_about_its_first_item(call, tmp_path):
    tok = gm.Tokenizer([], special_tokens=["<|endoftext|>"])
    gm.encode_corpus(["low lower", "lowest"], tok, out=tmp_path / "shards", progress=None)
    with pytest.raises(TypeError, match=r"corpus is Shards, which hold token ids, not text\. Pass the text"):
        call(gm.Shards(tmp_path / "shards"))
    with pytest.raises(TypeError, match=r"corpus is an array of uint16 \(shape \(3, 2\)\), which is not text"):
        call(np.zeros((3, 2), np.uint16))


@pytest.mark.parametrize("dtype", [object, str, bytes])
def test_an_array_of_texts_is_a_corpus_of_documents(dtype):
    assert gm.count_words(np.array(["a b", "c"], dtype)) == gm.count_words(["a b", "c"])
