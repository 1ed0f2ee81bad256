"""compat.chunked: the interface of hand-written scripts, with the merges of the core."""

from __future__ import annotations

import multiprocessing
import os
import pickle
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

import gristmill as gm
from gristmill import reference
from gristmill.compat.chunked import find_chunk_boundaries, pretoken_chunk, train_bpe
from texts import STORY, random_story

END = "<|endoftext|>"


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    path = tmp_path_factory.mktemp("chunked") / "corpus.txt"
    stories = [random_story(seed, 200) for seed in range(30)]
    path.write_bytes(END.join([STORY, *stories]).encode() + b"\xff\xfe end")
    return path


@pytest.mark.parametrize("num_chunks", [1, 2, 7, 64, 1000])
def test_boundaries_are_ends_of_the_file_and_beginnings_of_end_tokens(corpus, num_chunks):
    data = corpus.read_bytes()
    boundaries = find_chunk_boundaries(str(corpus), num_chunks)
    assert boundaries == sorted(set(boundaries))
    assert (boundaries[0], boundaries[-1]) == (0, len(data))
    assert len(boundaries) <= num_chunks + 1
    assert all(data.startswith(END.encode(), position) for position in boundaries[1:-1])


def test_an_end_token_across_two_buffers_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr("gristmill.compat.chunked.BUFFER_BYTES", 8)
    path = tmp_path / "corpus.txt"
    for shift in range(30):
        path.write_bytes(b"x" * (50 + shift) + END.encode() + b"y" * 5)
        assert find_chunk_boundaries(path, 2) == [0, 50 + shift, 50 + shift + len(END) + 5]


def test_files_without_end_tokens_or_without_anything(tmp_path):
    path = tmp_path / "corpus.txt"
    path.write_bytes(b"")
    assert find_chunk_boundaries(path, 8) == [0]
    path.write_bytes(b"no end token")
    assert find_chunk_boundaries(path, 8) == [0, 12]
    assert find_chunk_boundaries(path, 2, end_token="end") == [0, 12]
    assert find_chunk_boundaries(path, 4, end_token="end") == [0, 3, 12]


@given(text=st.text("ab<", min_size=1, max_size=30), num_chunks=st.integers(1, 8))
def test_chunks_of_any_end_token_add_up_to_the_whole(tmp_path_factory, text, num_chunks):
    path = tmp_path_factory.getbasetemp() / f"small-{os.getpid()}.txt"
    path.write_text(text)
    for end_token in ("a", "ab", "aa", "aba", "<"):
        whole = reference.count_words([text], special_tokens=[end_token])
        boundaries = find_chunk_boundaries(path, num_chunks, end_token)
        parts: Counter[str] = Counter()
        for start, end in pairwise(boundaries):
            parts.update(pretoken_chunk((path, start, end, end_token)))
        assert {word.encode(): count for word, count in parts.items()} == whole


def test_counts_of_a_spawned_pool_add_up_to_those_of_the_core(corpus):
    boundaries = find_chunk_boundaries(corpus, 4)
    chunks = [(str(corpus), start, end, END) for start, end in pairwise(boundaries)]
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        counts = sum(map(Counter, pool.imap(pretoken_chunk, chunks)), Counter())
    words = gm.count_words(corpus, special_tokens=[END])
    assert {word.encode("utf-8", "surrogateescape"): count for word, count in counts.items()} == dict(words.items())


def test_a_chunk_of_end_tokens_only_has_no_pieces(tmp_path):
    path = tmp_path / "corpus.txt"
    path.write_text(END * 3)
    assert pretoken_chunk((path, 0, len(END) * 3, END)) == {}


def test_a_chunk_beyond_the_file_is_an_error(corpus):
    with pytest.raises(OSError, match=r"ends at byte .* read it again"):
        pretoken_chunk((corpus, 0, corpus.stat().st_size + 1, END))
    with pytest.raises(ValueError, match="0 <= start <= end"):
        pretoken_chunk((corpus, 5, 4, END))


@pytest.mark.parametrize(("num_processes", "num_chunks"), [(1, 1), (8, 64), (2, 5)])
def test_merges_are_those_of_the_core(corpus, num_processes, num_chunks):
    rules = train_bpe(str(corpus), 500, num_processes=num_processes, num_chunks=num_chunks, progress=False)
    tok = gm.train_tokenizer(corpus, vocab_size=500, special_tokens=[END])
    assert list(rules) == list(map(tuple, tok.merge_ids.tolist()))
    assert list(rules.values()) == list(range(256, 499))


def test_rules_make_a_tokenizer_as_the_docstring_says(corpus):
    import numpy as np

    rules = train_bpe(corpus, 300, progress=False)
    tok = gm.Tokenizer(np.array(list(rules)), special_tokens=[END])
    assert tok == gm.train_tokenizer(corpus, vocab_size=300, special_tokens=[END])


def test_another_end_token_is_a_boundary_too(tmp_path):
    path = tmp_path / "corpus.txt"
    path.write_text("aa##bb##" * 10)
    assert (ord("a"), ord("#")) not in train_bpe(path, 259, end_token="##", progress=False)


def test_a_pickle_is_written_only_when_asked_for(corpus, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    train_bpe(corpus, 260, progress=False)
    assert list(tmp_path.iterdir()) == []
    rules = train_bpe(corpus, 260, progress=False, save_pickle="merge_rules.pkl")
    assert pickle.loads((tmp_path / "merge_rules.pkl").read_bytes()) == rules


def test_a_bar_goes_over_the_chunks(corpus, capsys):
    train_bpe(corpus, 260, num_chunks=3)
    assert "Pretokenizing" in capsys.readouterr().err
    train_bpe(corpus, 260, num_chunks=3, progress=False)
    assert capsys.readouterr().err == ""


def test_bad_arguments_are_errors(corpus, tmp_path):
    with pytest.raises(gm.VocabSizeError):
        train_bpe(corpus, 256, progress=False)
    for wrong in (0, -1, 1.5):
        with pytest.raises(ValueError, match="num_chunks"):
            train_bpe(corpus, 300, num_chunks=wrong, progress=False)
    with pytest.raises(ValueError, match="num_threads"):
        train_bpe(corpus, 300, num_processes=0, progress=False)
    with pytest.raises(FileNotFoundError):
        train_bpe(tmp_path / "missing.txt", 300, progress=False)
    (tmp_path / "empty.txt").touch()
    with pytest.raises(gm.EmptyCorpusError):
        train_bpe(tmp_path / "empty.txt", 300, progress=False)
