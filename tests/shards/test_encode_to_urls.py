"""Shards at URLs: made by tasks, the same bytes as in a folder of this machine."""

from __future__ import annotations

import hashlib

import fsspec
import pytest
from shard_corpora import digest, documents, tokenizer, write_text

from gristmill import encode_corpus
from gristmill.errors import OptionError, ShardsMismatchError
from gristmill.executors import Local, Processes
from gristmill.shards import tasks

URL = "memory://shards-of-tests/out"


@pytest.fixture(scope="module")
def tok():
    return tokenizer()


@pytest.fixture
def path(tmp_path):
    fsspec.filesystem("memory").store.clear()
    yield write_text(tmp_path / "a.txt", documents(1))
    fsspec.filesystem("memory").store.clear()


def encode(path, tok, out, **options):
    return encode_corpus(path, tok, out=out, progress=None, **{"shard_tokens": 2000, **options})


def digest_at_url():
    memory = fsspec.filesystem("memory")
    return {name.rpartition("/")[2]: hashlib.sha256(memory.cat(name)).hexdigest() for name in memory.find(URL)}


@pytest.mark.parametrize("layout", ["gristmill", "llmc", "parquet"])
def test_shards_at_a_url_are_the_bytes_of_those_in_a_folder(tok, path, tmp_path, layout):
    plain = encode(path, tok, tmp_path / "out", format=layout, val_fraction=0.2)
    run = encode(path, tok, URL, format=layout, val_fraction=0.2, executor=Local(part_bytes=2000))
    assert digest_at_url() == digest(tmp_path / "out")
    assert (run.folder, run.manifest) == (URL, plain.manifest)
    assert encode(path, tok, URL, format=layout, val_fraction=0.2).profile is None


def test_other_options_are_refused_or_replace_what_is_at_the_url(tok, path, tmp_path):
    encode(path, tok, URL, shard_tokens=500)
    with pytest.raises(ShardsMismatchError, match="shard_tokens was 500 and is now 2000"):
        encode(path, tok, URL)
    encode(path, tok, tmp_path / "out")
    encode(path, tok, URL, overwrite=True)
    assert digest_at_url() == digest(tmp_path / "out")


def test_an_interrupted_run_at_a_url_resumes(tok, path, tmp_path, monkeypatch):
    encode(path, tok, tmp_path / "out")
    with monkeypatch.context() as patch:
        patch.setattr(tasks, "assemble", lambda folder, number, check: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            encode(path, tok, URL, executor=Local(part_bytes=2000))
    run = encode(path, tok, URL)
    assert run.resumed
    assert all(task.is_reused == (task.stage == "encode") for task in run.profile.tasks)
    assert digest_at_url() == digest(tmp_path / "out")


def test_a_url_with_other_files_is_refused(tok, path):
    fsspec.filesystem("memory").pipe(f"{URL}/notes.txt", b"mine")
    with pytest.raises(FileExistsError, match=r"other files \(notes\.txt\)"):
        encode(path, tok, URL, overwrite=True)


def test_memory_of_this_process_is_no_place_for_other_processes(tok, path):
    with pytest.raises(OptionError, match="memory of this process"):
        encode(path, tok, URL, executor=Processes(num_workers=1))


def test_a_file_url_is_the_folder_it_names(tok, path, tmp_path):
    run = encode(path, tok, f"file://{tmp_path}/out")
    assert run.folder == tmp_path / "out"
    assert (tmp_path / "out" / "manifest.json").exists()
