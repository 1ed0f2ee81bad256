"""`encode_file` on compressed files: the ids of the text inside, as if the file were not compressed."""

from __future__ import annotations

import gzip
import os

import numpy as np
import pytest

import gristmill as gm
from gristmill.corpus.packages import load_zstd
from gristmill.encode import compressed
from texts import STORY, random_story

zstd = load_zstd()
PACK = {".gz": gzip.compress, ".zst": zstd.compress}
TEXT = (STORY + "<|end|>" + random_story(3, 4000)).encode() + b"\xff\xfe  \n"
CUSTOM = r"\p{L}+|[^\p{L}]"

pytestmark = pytest.mark.filterwarnings("ignore::gristmill.SlowPatternWarning")


@pytest.fixture(scope="module", params=["gpt2", "cl100k", CUSTOM])
def tok(request):
    return gm.train_tokenizer(
        [STORY], vocab_size=400, pattern=request.param, special_tokens=["<|end|>"], num_threads=1, progress=None
    )


@pytest.fixture(params=[8 << 20, 1000, 7])
def block_bytes(request, monkeypatch):
    monkeypatch.setattr(compressed, "BLOCK_BYTES", request.param)
    return request.param


@pytest.mark.parametrize("suffix", PACK)
@pytest.mark.parametrize("allowed", [(), "all"])
@pytest.mark.parametrize("num_threads", [1, 2])
def test_the_ids_are_those_of_the_text_wherever_its_blocks_end(
    tok, suffix, allowed, num_threads, block_bytes, tmp_path
):
    text = TEXT if block_bytes > 7 else TEXT[:2000]
    path = tmp_path / f"tales.txt{suffix}"
    path.write_bytes(PACK[suffix](text))
    ids = tok.encode_file(path, allowed_special=allowed, num_threads=num_threads)
    assert np.array_equal(ids, tok.encode_array(text, allowed_special=allowed))
    assert ids.dtype == tok.encode_array(text).dtype
    assert tok.encode_file(str(path), dtype="int64").dtype == np.int64


def test_all_members_and_frames_are_read_and_an_empty_text_has_no_ids(tok, tmp_path):
    for suffix, pack in PACK.items():
        path = tmp_path / f"t{suffix.upper()}"  # the suffix decides, in upper or lower case
        path.write_bytes(pack(b"one two") + pack(b" three"))
        assert tok.encode_file(path).tolist() == tok.encode("one two three")
        path.write_bytes(pack(b""))
        assert tok.encode_file(path).tolist() == []


def test_a_text_larger_than_the_limit_is_refused_before_its_ids_fill_the_memory(tok, tmp_path):
    for suffix, pack in PACK.items():
        path = tmp_path / f"t{suffix}"
        path.write_bytes(pack(TEXT))
        ids = tok.encode_file(path, max_decompressed_bytes=len(TEXT))
        assert np.array_equal(ids, tok.encode_array(TEXT))
        with pytest.raises(gm.CorpusError, match=rf"t{suffix}: its text is larger than max_decompressed_bytes=99"):
            tok.encode_file(path, max_decompressed_bytes=99)
    with pytest.raises(gm.OptionError, match="max_decompressed_bytes"):
        tok.encode_file(path, max_decompressed_bytes="1GB")


def test_a_disallowed_special_is_found_with_its_place_in_the_text(tok, block_bytes, tmp_path):
    path = tmp_path / "{0}.gz"
    path.write_bytes(gzip.compress(b"word " * 500 + b"<|end|>"))
    with pytest.raises(gm.SpecialTokenError, match=r"\{0\}\.gz.*2,?500"):
        tok.encode_file(path, disallowed_special="all")


def test_a_truncated_or_damaged_file_is_the_error_of_a_corpus_without_advice_to_skip_it(tok, tmp_path):
    for suffix, pack in PACK.items():
        path, packed = tmp_path / f"t{suffix}", pack(TEXT)
        path.write_bytes(packed[:-5])
        with pytest.raises(gm.TruncatedInputError, match="truncated at byte") as truncated:
            tok.encode_file(path)
        path.write_bytes(packed[:40] + bytes(byte ^ 0x5A for byte in packed[40:80]) + packed[80:])
        with pytest.raises(gm.CorruptInputError, match="damaged in bytes") as corrupt:
            tok.encode_file(path)
        for caught in (truncated, corrupt):
            assert "on_error" not in str(caught.value)
            assert caught.value.path == str(path)


def test_progress_is_in_bytes_of_the_compressed_file(tok, monkeypatch, tmp_path):
    monkeypatch.setattr(compressed, "BLOCK_BYTES", 1000)
    path = tmp_path / "t.gz"
    path.write_bytes(gzip.compress(TEXT))
    reports = []
    tok.encode_file(path, progress=reports.append)
    assert {(report.stage, report.total, report.unit) for report in reports} == {
        ("encode", path.stat().st_size, "bytes")
    }
    assert reports[-1].done == path.stat().st_size


@pytest.mark.parametrize("name", ["t.parquet", "t.pq", "t.arrow", "t.feather.zst"])
def test_a_table_is_an_error_that_names_encode_corpus(tok, name, tmp_path):
    (tmp_path / name).write_bytes(b"PAR1")
    with pytest.raises(gm.CorpusError, match=rf"{name}: .* is a table, not one text.*encode_corpus"):
        tok.encode_file(tmp_path / name)


@pytest.mark.parametrize("name", ["t.zip", "t.tar.gz", "t.xz"])
def test_a_file_in_another_compression_is_an_error(tok, name, tmp_path):
    (tmp_path / name).write_bytes(b"packed")
    with pytest.raises(gm.CorpusError, match=r"only \.gz and \.zst are decompressed"):
        tok.encode_file(tmp_path / name)


@pytest.mark.parametrize("name", ["t.jsonl", "t.json", "t.md", "t", ".gz.txt"])
def test_any_other_file_is_taken_as_it_is(tok, name, tmp_path):
    (tmp_path / name).write_bytes(b'{"text": "a b"}\n')
    assert tok.encode_file(tmp_path / name).tolist() == tok.encode('{"text": "a b"}\n')
    (tmp_path / "t.jsonl.gz").write_bytes(gzip.compress(b'{"text": "a b"}\n'))
    assert tok.encode_file(tmp_path / "t.jsonl.gz").tolist() == tok.encode('{"text": "a b"}\n')


def test_a_missing_file_and_a_folder_are_errors_of_the_system_whatever_their_suffix(tok, tmp_path):
    with pytest.raises(FileNotFoundError):
        tok.encode_file(tmp_path / "none.gz")
    (tmp_path / "folder.gz").mkdir()
    with pytest.raises(IsADirectoryError):
        tok.encode_file(tmp_path / "folder.gz")


def test_a_device_and_a_pipe_are_refused_before_anything_is_read(tok, tmp_path):
    os.mkfifo(tmp_path / "pipe.txt")
    for path in (os.devnull, tmp_path / "pipe.txt"):
        with pytest.raises(gm.CorpusError, match="a pipe or device"):
            tok.encode_file(path)
