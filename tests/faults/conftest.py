"""Inputs and folders for the tests of faults of encode_corpus."""

import pytest

from faults.broken_runs import OPTIONS, unfinished
from gristmill import encode_corpus
from shards.shard_corpora import documents, small_batches, tokenizer, write_jsonl, write_text
from texts import random_story


@pytest.fixture(scope="session")
def tok():
    return tokenizer()


@pytest.fixture
def corpus(tmp_path):
    """Two inputs, with long documents that span many batches."""
    folder = tmp_path / "corpus"
    folder.mkdir()
    long = [random_story(i, 600).encode() for i in range(3)]
    return [
        write_text(folder / "a.txt", documents(1, 12) + long),
        write_jsonl(folder / "b.jsonl", [random_story(i, 50) for i in range(40)]),
    ]


@pytest.fixture(params=["unfinished", "finished"])
def existing(request, tok, corpus, tmp_path, monkeypatch):
    """A folder that an earlier run has left unfinished, or completed."""
    small_batches(monkeypatch)
    monkeypatch.setattr("gristmill.shards.meter.REPORT_SECONDS", 0)
    if request.param == "unfinished":
        unfinished(corpus, tok, tmp_path / "out")
    else:
        encode_corpus(corpus, tok, out=tmp_path / "out", **OPTIONS)
    return tmp_path / "out"
