"""Counts, lengths and samples of shards."""

import numpy as np
import pytest

from gristmill.analysis import shard_contents
from gristmill.analysis.shard_contents import (
    count_shard_tokens,
    document_lengths,
    length_bins,
    read_contents,
    sample_documents,
)
from gristmill.sample_corpus import stories
from gristmill.shards.folder_kind import is_shard_folder
from shards.builder import build_folder, train

TEXTS = [story for story, _ in zip(stories(), range(60), strict=False)]
TOKENIZER = train(text=" ".join(TEXTS), vocab_size=600)
ROWS = [TOKENIZER.encode(text) for text in TEXTS]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("contents") / "s"
    build_folder(path, TEXTS, shard_tokens=150, tokenizer=TOKENIZER)
    return path


def test_all_tokens_and_documents_are_counted(folder):
    manifest = read_contents(folder)
    counts = count_shard_tokens(folder, manifest, vocab_size=TOKENIZER.vocab_size)
    expected = np.bincount(np.concatenate(ROWS), minlength=600)
    expected[manifest.end_of_text.id] += len(TEXTS)
    assert counts.tolist() == expected.tolist()
    assert document_lengths(folder, manifest).tolist() == [len(row) + 1 for row in ROWS]


def test_a_sample_reads_few_tokens_even_if_there_are_many_shards(folder, monkeypatch):
    """A chunk of every shard would read a terabyte nearly whole."""
    manifest = read_contents(folder)
    assert len(manifest.splits["train"].shards) > 60
    monkeypatch.setattr(shard_contents, "MAX_TOKENS", 1000)
    monkeypatch.setattr(shard_contents, "CHUNK_TOKENS", 20)
    counts = count_shard_tokens(folder, manifest, vocab_size=TOKENIZER.vocab_size)
    assert 500 <= counts.sum() <= 1020


@pytest.mark.parametrize(("shard_tokens", "at_least"), [(150, 15), (2500, 10)])
def test_a_sample_of_lengths_has_only_true_lengths(tmp_path, monkeypatch, shard_tokens, at_least):
    monkeypatch.setattr(shard_contents, "MAX_DOCUMENTS", 20)
    monkeypatch.setattr(shard_contents, "MIN_SHARDS", 2)
    monkeypatch.setattr(shard_contents, "MIN_SHARD_DOCUMENTS", 3)
    build_folder(tmp_path / "s", TEXTS, shard_tokens=shard_tokens, tokenizer=TOKENIZER)
    lengths = document_lengths(tmp_path / "s", read_contents(tmp_path / "s"))
    assert at_least <= len(lengths) <= 20
    assert set(lengths.tolist()) <= {len(row) + 1 for row in ROWS}


def test_numbers_that_are_no_ids_are_left_out(tmp_path):
    build_folder(tmp_path / "s", ["low lower"], tokenizer=TOKENIZER)
    manifest = read_contents(tmp_path / "s")
    path = tmp_path / "s" / manifest.splits["train"].shards[0].file
    ids = np.fromfile(path, "<u2")
    ids[0] = 60_000
    ids.tofile(path)
    counts = count_shard_tokens(tmp_path / "s", manifest, vocab_size=600)
    assert (len(counts), counts.sum()) == (600, len(ids) - 1)
    assert len(count_shard_tokens(tmp_path / "s", manifest, vocab_size=None)) == 60_001


def test_samples_depend_on_the_seed_and_are_documents(folder):
    manifest = read_contents(folder)
    samples = sample_documents(folder, manifest, num_documents=4, max_tokens=10, seed=1)
    assert len(samples) == 4
    assert [sample.number for sample in samples] != [
        sample.number for sample in sample_documents(folder, manifest, num_documents=4, max_tokens=10, seed=2)
    ]
    for sample in samples:
        assert sample.ids.tolist() == ROWS[sample.number]
        assert sample.text == TOKENIZER.decode(ROWS[sample.number][:10])


def test_folders_that_are_no_shards(tmp_path, folder):
    (tmp_path / "notes.txt").write_text("no shards")
    assert is_shard_folder(folder)
    assert not is_shard_folder(tmp_path) and not is_shard_folder(tmp_path / "notes.txt")
    assert not is_shard_folder(tmp_path / "missing")


@pytest.mark.parametrize("lengths", [[0], [3] * 5, list(range(100)), [0, 1, 1, 2, 10**7], [5, 10**12]])
def test_every_length_is_in_one_bin(lengths):
    edges, counts, _ = length_bins(np.array(lengths))
    assert edges == sorted(set(edges)) and len(edges) == len(counts) + 1
    for i, count in enumerate(counts):
        assert count == sum(edges[i] <= length < edges[i + 1] for length in lengths)
