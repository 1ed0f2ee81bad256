"""Shards at URLs: made by tasks, with the same bytes as in a local folder."""

from __future__ import annotations

import hashlib
from pathlib import Path

import fsspec
import pytest
from shard_corpora import digest, documents, tokenizer, write_text

from gristmill import Tokenizer, encode_corpus, verify_shards
from gristmill.errors import OptionError, ShardsFormatError, ShardsMismatchError
from gristmill.executors import Local, Processes
from gristmill.executors.remote_folder import RemoteWorkFolder
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
    assert (run.location, run.manifest) == (URL, plain.manifest)
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


def test_a_run_that_ended_right_after_the_manifest_leaves_no_parts(tok, path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("gristmill.executors.remote_folder.RemoteWorkFolder.remove", lambda self: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            encode(path, tok, URL)
    assert fsspec.filesystem("memory").exists(f"{URL}/.parts/job.json")
    assert encode(path, tok, URL).profile is None
    assert not fsspec.filesystem("memory").exists(f"{URL}/.parts")


@pytest.mark.parametrize("overwrite", [False, True])
def test_an_overwrite_that_was_interrupted_while_it_removed_the_old_shards_is_finished(
    tok, path, tmp_path, monkeypatch, overwrite
):
    encode(path, tok, URL, shard_tokens=500)
    discard = RemoteWorkFolder.discard

    def fail_at_an_index(folder, name):
        discard(folder, name)
        if name == "shard-00001.idx":
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(RemoteWorkFolder, "discard", fail_at_an_index)
        with pytest.raises(KeyboardInterrupt):
            encode(path, tok, URL, overwrite=True)
    encode(path, tok, URL, overwrite=overwrite)
    encode(path, tok, tmp_path / "out")
    assert digest_at_url() == digest(tmp_path / "out")


def test_what_differs_from_the_tokenizer_at_the_url_is_named(tok, path):
    encode(path, tok, URL)
    other = Tokenizer(tok.merges[:-1], pattern=tok.pattern, special_tokens=list(tok.special_tokens))
    with pytest.raises(ShardsMismatchError, match="vocab_size was"):
        encode(path, other, URL)


@pytest.mark.parametrize("name", ["shard-00000.bin", "shard-00001.idx", "tokenizer.json"])
def test_a_file_that_is_missing_at_the_url_is_named(tok, path, name):
    encode(path, tok, URL)
    fsspec.filesystem("memory").rm_file(f"{URL}/{name}")
    with pytest.raises(ShardsFormatError, match=f"{URL}/{name}: .* missing"):
        encode(path, tok, URL)


def test_a_damaged_manifest_is_named_by_its_url(tok, path):
    fsspec.filesystem("memory").pipe(f"{URL}/manifest.json", b"{")
    with pytest.raises(ShardsFormatError, match=f"{URL}/manifest.json: .* remove the folder yourself"):
        encode(path, tok, URL, overwrite=True)


def test_shards_at_a_url_named_after_it_have_letters_of_any_language(tok, path, tmp_path):
    encode(path, tok, "memory://shards-of-tests/größe", format="llmc")
    encode(path, tok, tmp_path / "größe", format="llmc")
    memory = fsspec.filesystem("memory")
    names = {name.rpartition("/")[2] for name in memory.find("memory://shards-of-tests/größe")}
    assert names == set(digest(tmp_path / "größe"))


@pytest.mark.parametrize("out", ["memory://", "s3://bucket/my shards"])
def test_what_only_looks_like_a_url_is_refused(tok, path, out):
    with pytest.raises(OptionError, match="is not a valid URL"):
        encode(path, tok, out)


def test_documents_of_this_process_are_refused_for_a_url(tok):
    with pytest.raises(OptionError, match=r"shards at a URL are written by tasks.* a local folder as out="):
        encode(["one", "two"], tok, URL)


def test_readers_advise_to_copy_shards_from_a_url(tok, path):
    run = encode(path, tok, URL)
    with pytest.raises(OptionError, match=f"{URL} is a URL.* Copy the whole folder"):
        run.shards()
    with pytest.raises(OptionError, match=f"{URL} is a URL"):
        verify_shards(Path(URL))
    with pytest.raises(OptionError, match=f"at the URL {URL}, not in a local folder"):
        assert run.folder
