"""A run of encode_corpus that fails before its first checkpoint: the real error is raised, and nothing is left."""

from __future__ import annotations

import errno
import os

import pytest

import gristmill as gm
from gristmill import encode_corpus
from gristmill.shards.layouts import LAYOUTS
from shards.shard_corpora import digest, write_jsonl
from texts import random_story

FAILURES = ["bad line", "full disk", "failing fsync", "empty corpus", "interrupt"]


@pytest.fixture
def source(tmp_path):
    return write_jsonl(tmp_path / "corpus.jsonl", [random_story(i, 50) for i in range(40)])


def fail(kind, source, tok, patch, **options):
    """Provoke a failure of this kind, and check that exactly this error is raised."""
    corpus, expected = source, OSError
    if kind == "bad line":
        corpus = source.with_name("bad.jsonl")
        corpus.write_text(source.read_text() + '{"text": "half a\n')
        expected = gm.CorpusError
    elif kind == "empty corpus":
        corpus = source.with_name("empty.jsonl")
        corpus.write_text("")
        expected = gm.EmptyCorpusError
    elif kind == "full disk":
        patch.setattr(
            "gristmill.shards.writer._PartFiles._write", staticmethod(_raising(OSError(errno.ENOSPC, "full")))
        )
    elif kind == "failing fsync":
        patch.setattr("gristmill.shards.writer._PartFiles.flush", _raising(OSError(errno.EIO, "broken")))
    else:
        expected = KeyboardInterrupt
        patch.setattr("gristmill.shards.writer.SplitWriter.write", _raising(KeyboardInterrupt()))
    with pytest.raises(expected) as caught:
        encode_corpus(corpus, tok, progress=None, **options)
    if kind in ("full disk", "failing fsync"):
        assert caught.value.errno == {"full disk": errno.ENOSPC, "failing fsync": errno.EIO}[kind]


def _raising(error):
    def raising(*_, **__):
        raise error

    return raising


@pytest.mark.parametrize("kind", FAILURES)
@pytest.mark.parametrize("format", LAYOUTS)
def test_a_failure_is_not_hidden_and_leaves_no_folder_and_the_next_run_works(
    tok, source, tmp_path, monkeypatch, format, kind
):
    if format == "parquet":
        pytest.importorskip("pyarrow")
    options = {"format": format, "val_fraction": 0.3}
    out = tmp_path / "out"
    with monkeypatch.context() as patch:
        fail(kind, source, tok, patch, out=out, **options)
    assert not out.exists()
    run = encode_corpus(source, tok, out=out, progress=None, **options)
    assert (run.num_documents, run.resumed) == (40, False)


@pytest.mark.parametrize("kind", FAILURES)
@pytest.mark.parametrize("format", LAYOUTS)
def test_a_failure_of_an_overwrite_leaves_the_finished_shards_alone_and_the_next_overwrite_works(
    tok, source, tmp_path, monkeypatch, format, kind
):
    if format == "parquet":
        pytest.importorskip("pyarrow")
    out = tmp_path / "out"
    encode_corpus(source, tok, out=out, format=format, progress=None)
    before = digest(out)
    options = {"format": format, "val_fraction": 0.3}
    with monkeypatch.context() as patch:
        fail(kind, source, tok, patch, out=out, overwrite=True, **options)
    assert digest(out) == before
    assert not (out / ".new").exists()
    encode_corpus(source, tok, out=out, overwrite=True, progress=None, **options)
    (tmp_path / "judge").mkdir()
    encode_corpus(source, tok, out=tmp_path / "judge" / "out", progress=None, **options)
    assert digest(out) == digest(tmp_path / "judge" / "out")


def test_an_error_while_cleaning_up_does_not_hide_the_failure(tok, source, tmp_path, monkeypatch):
    def stop(*_):
        raise AssertionError("a bug in the cleaning up")

    monkeypatch.setattr("gristmill.shards.folder.Folder._put_in_order", stop)
    with monkeypatch.context() as patch:
        patch.setattr(
            "gristmill.shards.writer.SplitWriter.write", _raising(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
        )
        with pytest.raises(OSError, match="No space left") as caught:
            encode_corpus(source, tok, out=tmp_path / "out", progress=None)
    assert "a bug in the cleaning up" in "".join(caught.value.__notes__)
