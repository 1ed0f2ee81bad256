"""Shards that are replaced while a reader has them open: a reader never mixes two corpora."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import shutil
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import pytest

import gristmill as gm
from faults.broken_runs import run_and_die
from gristmill import encode_corpus

NUM_DOCUMENTS = 12
TOKENIZER = gm.Tokenizer([], special_tokens=["<|endoftext|>"])


def make(folder, letter, number=NUM_DOCUMENTS, **options):
    """Documents of this letter alone. Every letter gives the same number of tokens, documents and shards."""
    texts = [letter * (5 + i) for i in range(number)]
    encode_corpus(texts, TOKENIZER, out=folder, shard_tokens=10, progress=None, **options)
    return folder


@pytest.fixture
def folder(tmp_path):
    return make(tmp_path / "shards", "a")


def letters(shards):
    """Return the letters of all documents that can be read, one by one, and the error of the first that cannot."""
    found, refused = set(), None
    for i in range(len(shards)):
        try:
            found |= set(shards[i].tolist()) - {256}
        except gm.InputChangedError as error:
            refused = refused or str(error)
    return "".join(map(chr, sorted(found))), refused


def test_sizes_alone_would_not_distinguish_the_two_corpora(folder, tmp_path):
    sizes = [[path.stat().st_size for path in gm.Shards(f).paths] for f in (folder, make(tmp_path / "other", "b"))]
    assert sizes[0] == sizes[1]


def test_after_an_overwrite_an_open_reader_gives_the_old_documents_or_an_error(folder):
    shards = gm.Shards(folder)
    first = shards[0].tolist()
    make(folder, "b", overwrite=True)
    assert shards[0].tolist() == first  # its map is still that of the old file
    found, refused = letters(shards)
    assert found == "a"
    assert "shards" in refused and "gm.Shards" in refused
    for read in (
        lambda: np.asarray(shards.tokens),
        lambda: shards.tokens[:],
        lambda: shards.document_ends,
        lambda: list(shards),
        lambda: shards.tokenizer,
    ):
        with pytest.raises(gm.InputChangedError, match="Open the folder again"):
            read()
    assert letters(gm.Shards(folder)) == ("b", None)


def test_at_every_step_of_an_overwrite_an_open_reader_gives_the_old_documents_or_an_error(tmp_path):
    folder = make(tmp_path / "shards", "a", 5)  # more shards repeat the same steps
    seen_errors = 0
    for step in range(1000):
        out = tmp_path / "runs" / f"{step}"
        shutil.copytree(folder, out)
        shards, half_read = gm.Shards(out), gm.Shards(out)
        half_read[2]
        was_killed = run_and_die(step, lambda out=out: make(out, "b", 5, overwrite=True))
        for reader in (shards, half_read):
            found, refused = letters(reader)
            assert found in ("a", "")
            assert (found, refused) != ("", None)
            seen_errors += refused is not None
        shutil.rmtree(out)
        if not was_killed:
            break
    assert seen_errors > 10


def test_a_folder_that_is_removed_under_a_reader(folder):
    shards = gm.Shards(folder)
    shutil.rmtree(folder)
    with pytest.raises(gm.InputChangedError, match="replaced or removed"):
        shards[0]


def test_a_pickle_of_a_reader_does_not_open_another_corpus(folder):
    shards = gm.Shards(folder)
    pickles = [pickle.dumps(shards), pickle.dumps(shards.tokens)]
    assert pickle.loads(pickles[0])[0].tolist() == pickle.loads(pickles[1])[:6].tolist() == shards[0].tolist()
    make(folder, "b", overwrite=True)
    for data in pickles:
        with pytest.raises(gm.InputChangedError, match="Open the folder again"):
            pickle.loads(data)[0]


SHARED = None


def shared_letters(_):
    return letters(SHARED)


def letters_of_pickle(data):
    return letters(pickle.loads(data))


def test_forked_workers_of_a_reader_do_not_read_another_corpus(folder):
    global SHARED
    SHARED = gm.Shards(folder)
    SHARED[0]
    with ProcessPoolExecutor(2, multiprocessing.get_context("fork")) as pool:
        assert list(pool.map(shared_letters, range(4))) == [("a", None)] * 4
        make(folder, "b", overwrite=True)
        for found, _ in pool.map(shared_letters, range(4)):
            assert found in ("a", "")
    with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as pool:
        found, refused = pool.submit(shared_letters, 0).result()
        assert found == "a" and refused is not None
        with pytest.raises(gm.InputChangedError):
            pool.submit(letters_of_pickle, pickle.dumps(SHARED)).result()


def test_an_overwrite_that_gives_the_same_shards_disturbs_no_reader(folder):
    shards = gm.Shards(folder)
    shards[0]
    make(folder, "a", overwrite=True)
    assert letters(shards) == ("a", None)


def test_a_manifest_that_is_touched_or_copied_is_still_the_same(folder, tmp_path):
    shards = gm.Shards(folder)
    shards[0]
    os.utime(folder / "manifest.json", ns=(1, 1))
    assert shards[1].tolist() == [97] * 6 + [256]
    shutil.copytree(folder, tmp_path / "copy")
    shutil.rmtree(folder)
    (tmp_path / "copy").rename(folder)
    assert letters(shards) == ("a", None)


def test_a_reader_keeps_no_file_of_the_manifest_open_and_needs_no_permission_to_write(folder):
    for path in (*folder.iterdir(), folder):
        path.chmod(path.stat().st_mode & ~0o222)
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    readers = [gm.Shards(folder) for _ in range(50)]
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208
    assert [letters(reader) for reader in readers[:2]] == [("a", None)] * 2
    folder.chmod(0o755)


def test_another_split_is_that_of_the_same_shards_or_an_error(tmp_path):
    folder = make(tmp_path / "split", "a", val_fraction=0.5)
    train = gm.Shards(folder)
    val = train.other_split("val")
    assert (val.split, len(train) + len(val)) == ("val", NUM_DOCUMENTS)
    make(folder, "b", val_fraction=0.5, overwrite=True)
    with pytest.raises(gm.InputChangedError, match="were replaced"):
        train.other_split("val")
