"""The cost of a checkpoint of encode_corpus, and a journal that is torn or damaged."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

import gristmill as gm
from faults.broken_runs import OPTIONS, unfinished
from gristmill import encode_corpus
from shards.shard_corpora import digest, small_batches, write_text

TOKENIZER = gm.Tokenizer([], special_tokens=["<|endoftext|>"])


def bytes_written():
    """Return the number of bytes that all threads of this process have written so far."""
    return int(Path("/proc/self/io").read_text().split("wchar: ")[1].split()[0])


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="only Linux counts the bytes that a process writes")
def test_bytes_written_grow_linearly_with_the_number_of_shards(tmp_path, monkeypatch):
    small_batches(monkeypatch)
    monkeypatch.setattr(os, "fsync", lambda _: None)  # only bytes count here, and thousands of flushes take a minute
    written = []
    for num_documents in (1500, 3000):
        path = write_text(tmp_path / f"{num_documents}.txt", [b"x" * 19] * num_documents)
        before = bytes_written()
        run = encode_corpus(
            path, TOKENIZER, out=tmp_path / f"out-{num_documents}", shard_tokens=100, checkpoint_seconds=0,
            num_threads=1, progress=None,
        )  # fmt: skip
        written.append((bytes_written() - before) / len(run.manifest.splits["train"].shards))
        assert len(run.manifest.splits["train"].shards) == num_documents // 5
    assert written[1] < 1.1 * written[0]  # bytes per shard; twice as many if checkpoints repeat all shards


@pytest.fixture
def out(tok, corpus, tmp_path, monkeypatch):
    """An unfinished run with published shards, and the result of the same run uninterrupted."""
    small_batches(monkeypatch)
    monkeypatch.setattr("gristmill.shards.meter.REPORT_SECONDS", 0)
    (tmp_path / "judge").mkdir()
    encode_corpus(corpus, tok, out=tmp_path / "judge" / "out", **OPTIONS)
    unfinished(corpus, tok, tmp_path / "out")
    return tmp_path / "out"


def test_lines_after_the_last_checkpoint_in_the_journal_are_ignored(tok, corpus, out, tmp_path):
    with (out / ".shards.jsonl").open("ab") as file:
        file.write(b'{"split": "train", "file": "shard-0')  # a kill in the middle of writing a line
    assert encode_corpus(corpus, tok, out=out, **OPTIONS).resumed
    assert digest(out) == digest(tmp_path / "judge" / "out")


@pytest.mark.parametrize("layout", ["gristmill", "megatron", "datatrove", "parquet"])
@pytest.mark.parametrize("changed", [-1, 2**62, 0])
def test_damaged_document_ends_of_a_part_are_an_error_and_no_crash(layout, changed, tmp_path, monkeypatch):
    small_batches(monkeypatch)
    monkeypatch.setattr("gristmill.shards.meter.REPORT_SECONDS", 0)
    path = write_text(tmp_path / "a.txt", [b"low lower lowest " * 4] * 300)
    options = {"format": layout, "shard_tokens": None, "val_fraction": 0, "num_threads": 1}
    unfinished(path, TOKENIZER, tmp_path / "out", **options)
    (ends,) = (tmp_path / "out").glob(".*.ends.part")
    numbers = np.fromfile(ends, np.int64)
    numbers[len(numbers) // 2] = changed
    numbers.tofile(ends)
    with pytest.raises(gm.ShardsFormatError, match="the document ends of the unfinished run are damaged"):
        encode_corpus(path, TOKENIZER, out=tmp_path / "out", **{**OPTIONS, **options})


def cut(path):
    os.truncate(path, path.stat().st_size - 1)


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def link(path):
    path.rename(path.parent.parent / "precious")
    path.symlink_to(path.parent.parent / "precious")


def pipe(path):
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize("damage", [Path.unlink, cut, flip, pipe])
def test_a_damaged_journal_is_an_error_that_overwrite_cures(tok, corpus, out, tmp_path, damage):
    damage(out / ".shards.jsonl")
    with pytest.raises(gm.ShardsFormatError, match=r"\.shards\.jsonl.*overwrite=True"):
        encode_corpus(corpus, tok, out=out, **OPTIONS)
    assert not encode_corpus(corpus, tok, out=out, overwrite=True, **OPTIONS).resumed
    assert digest(out) == digest(tmp_path / "judge" / "out")


def test_a_journal_whose_recorded_size_exceeds_memory_is_not_read(tok, corpus, out):
    from gristmill.shards.folder import _with_checksum

    progress = json.loads((out / "progress.json").read_bytes())
    content = {key: progress[key] for key in ("state", "parts", "journal", "batches")}
    content["journal"]["bytes"] = 1 << 40
    (out / "progress.json").write_bytes(_with_checksum(content))
    os.truncate(out / ".shards.jsonl", 1 << 40)  # sparse
    with pytest.raises(gm.ShardsFormatError, match=r"\.shards\.jsonl.*overwrite=True"):
        encode_corpus(corpus, tok, out=out, **OPTIONS)
    assert not encode_corpus(corpus, tok, out=out, overwrite=True, **OPTIONS).resumed


def test_a_journal_that_is_a_link_is_not_written_through(tok, corpus, out, tmp_path):
    link(out / ".shards.jsonl")
    before = (tmp_path / "precious").read_bytes()
    with pytest.raises(gm.ShardsFormatError, match=r"\.shards\.jsonl.*overwrite=True"):
        encode_corpus(corpus, tok, out=out, checkpoint_seconds=0, **OPTIONS)
    assert not encode_corpus(corpus, tok, out=out, overwrite=True, **OPTIONS).resumed
    assert (tmp_path / "precious").read_bytes() == before


def test_progress_of_an_older_version_is_named_as_such_and_overwrite_cures(tok, corpus, out, tmp_path):
    for name in ("progress.json", ".request.json"):
        copy = tmp_path / "copy" / "out"
        shutil.copytree(out, copy)
        (copy / name).write_text((copy / name).read_text().replace('"version": 2', '"version": 1'))
        with pytest.raises(gm.ShardsFormatError, match=r"another version.*overwrite=True"):
            encode_corpus(corpus, tok, out=copy, **OPTIONS)
        encode_corpus(corpus, tok, out=copy, overwrite=True, **OPTIONS)
        assert digest(copy) == digest(tmp_path / "judge" / "out")
        shutil.rmtree(copy)
