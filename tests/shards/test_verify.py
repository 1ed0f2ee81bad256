"""verify: every change in a folder of shards is found and named, and nothing else is reported."""

import dataclasses
import json
import os
import sys
import time
import tracemalloc

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import gristmill as gm
from gristmill.cli.inspect_shards import inspect_shards
from gristmill.shards import Shards, verify_files, verify_shards
from gristmill.shards.layouts import LAYOUTS
from gristmill.shards.manifest import Manifest
from shards.builder import build_folder, change_shard, rehash, train, write_manifest

TEXTS = ["low lower", "", "newest widest newer", "x", "the lowest low low low lower", "é\x00\r\n", "wider"]
TOKENIZER = train()


def build(folder, **options):
    options = {"tokenizer": TOKENIZER, "val_texts": ["wide", "low"]} | options
    if LAYOUTS[options.get("layout", "gristmill")].shard_tokens is not None:
        options.setdefault("shard_tokens", 6)
    return build_folder(folder, TEXTS, **options)


@pytest.fixture
def folder(tmp_path):
    build(tmp_path / "s")
    return tmp_path / "s"


def problems(folder, **options):
    report = verify_shards(folder, **options)
    assert report.is_sound == (not report.problems)
    return [str(problem) for problem in report.problems]


def only_problem(folder, **options):
    found = problems(folder, **options)
    assert len(found) == 1, found
    return found[0]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("position", ["after", "before"])
def test_a_sound_folder_of_every_layout(layout, position, tmp_path):
    manifest = build(tmp_path / "s", layout=layout, position=position)
    report = verify_shards(tmp_path / "s")
    assert (report.problems, report.unchecked) == ((), ())
    splits = manifest.splits.values()
    assert report.num_tokens == sum(split.tokens for split in splits)
    if layout in ("gristmill", "megatron", "datatrove", "parquet"):
        assert report.num_documents == sum(split.documents for split in splits)
    names = {path.name for path in (tmp_path / "s").iterdir()} - {"manifest.json", "tokenizer.json", "meta.pkl"}
    assert report.num_files == len(names)
    assert report.num_bytes == sum((tmp_path / "s" / name).stat().st_size for name in names)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_empty_corpus_and_documents_without_end_of_text(layout, tmp_path):
    build_folder(tmp_path / "empty", [], layout=layout, tokenizer=TOKENIZER)
    assert problems(tmp_path / "empty") == []
    build(tmp_path / "plain", layout=layout, end_of_text=False)
    assert problems(tmp_path / "plain") == []


def test_verifying_changes_nothing(folder):
    before = {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.iterdir()}
    verify_shards(folder)
    assert {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.iterdir()} == before


# Every byte (row 18 of the faults)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_flipped_bit_in_any_byte_of_any_file_is_found_and_the_file_named(layout, tmp_path):
    build(tmp_path / "s", layout=layout)
    names = sorted(path.name for path in (tmp_path / "s").iterdir())
    for name in names:
        path = tmp_path / "s" / name
        data = path.read_bytes()
        for position in sorted({*range(0, len(data), max(len(data) // 12, 1)), len(data) - 1} if data else ()):
            flipped = bytearray(data)
            flipped[position] ^= 1
            path.write_bytes(flipped)
            found = problems(tmp_path / "s")
            assert found and found[0].startswith(f"{name}: "), (name, position, found)
        path.write_bytes(data)
    assert problems(tmp_path / "s") == []


def test_a_flipped_byte_names_the_shard_and_both_checksums(folder):
    path = folder / "shard-00002.bin"
    path.write_bytes(bytes([path.read_bytes()[0] ^ 1]) + path.read_bytes()[1:])
    assert only_problem(folder).startswith("shard-00002.bin: its content has changed (checksum ")


def test_an_edited_manifest_is_found_and_the_shards_are_still_checked(folder):
    path = folder / "manifest.json"
    path.write_bytes(path.read_bytes().replace(b'"command": "gristmill encode"', b'"command": "something else"'))
    (folder / "shard-00001.idx").write_bytes(bytes(8))
    found = problems(folder)
    assert found[0].startswith("manifest.json: the checksum does not match the contents")
    assert found[1].startswith("shard-00001.idx: ")
    assert len(found) == 2


@pytest.mark.parametrize("name", ["../secret.bin", "/etc/passwd", ".shard-00000.bin", "a/b"])
def test_a_path_that_leads_out_of_the_folder_is_refused_before_anything_is_opened(name, folder, monkeypatch):
    content = json.loads((folder / "manifest.json").read_bytes())
    content["splits"]["train"]["shards"][0]["file"] = name
    (folder / "manifest.json").write_bytes(json.dumps(content).encode())
    monkeypatch.setattr(verify_files, "_open", lambda path: pytest.fail(f"{path} was opened"))
    report = verify_shards(folder)
    assert [problem.check for problem in report.problems] == ["manifest"]
    assert f'splits.train.shards[0].file is "{name}"' in str(report.problems[0])
    assert report.manifest is None
    assert report.num_files == 0


@pytest.mark.parametrize("name", ["shard-00001.bin", "val-00000.idx", "tokenizer.json"])
def test_a_symbolic_link_is_not_followed(name, folder, tmp_path):
    (folder / name).rename(tmp_path / name)
    (folder / name).symlink_to(tmp_path / name)
    assert only_problem(folder).startswith(f"{name}: it is a symbolic link")


def test_a_folder_and_a_pipe_in_place_of_a_shard_are_no_files(folder):
    (folder / "shard-00000.bin").unlink()
    (folder / "shard-00000.bin").mkdir()
    (folder / "shard-00001.bin").unlink()
    os.mkfifo(folder / "shard-00001.bin")
    assert problems(folder) == [
        "shard-00000.bin: it is not a regular file.",
        "shard-00001.bin: it is not a regular file.",
    ]


# Files


@pytest.mark.parametrize("name", ["shard-00001.bin", "shard-00001.idx", "tokenizer.json"])
def test_a_missing_file(name, folder):
    (folder / name).unlink()
    assert only_problem(folder) == f"{name}: the file is missing."


@pytest.mark.parametrize("name", ["shard-00001.bin", "shard-00001.idx"])
@pytest.mark.parametrize("size", [-1, 1])
def test_a_file_of_another_size(name, size, folder):
    data = (folder / name).read_bytes()
    (folder / name).write_bytes(data[:size] if size < 0 else data + b"x")
    assert only_problem(folder) == f"{name}: its size is {len(data) + size} bytes, expected {len(data)}."


@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_extra_shard_that_the_manifest_does_not_name(layout, tmp_path):
    build(tmp_path / "s", layout=layout)
    extra = LAYOUTS[layout].token_file("extra", "train", 0 if LAYOUTS[layout].shard_tokens is None else 99)
    if LAYOUTS[layout].shard_tokens is None:
        extra = "extra" + extra
    (tmp_path / "s" / extra).write_bytes(b"xx")
    (tmp_path / "s" / ".hidden.bin").touch()
    (tmp_path / "s" / "README.md").touch()
    assert only_problem(tmp_path / "s").startswith(f"{extra}: the file looks like a shard but is not in the manifest")


# Content that is wrong although every checksum matches


def test_an_id_beyond_the_vocabulary_names_the_token(folder):
    tokens = np.fromfile(folder / "shard-00001.bin", "<u2")
    tokens[3] = TOKENIZER.vocab_size
    tokens.tofile(folder / "shard-00001.bin")
    rehash(folder, 1)
    assert only_problem(folder) == "shard-00001.bin: token 3 is 275; ids must be 0 to 274."


def test_ids_are_looked_at_in_every_chunk_and_after_a_header(tmp_path, monkeypatch):
    monkeypatch.setattr(verify_files, "CHUNK_BYTES", 128)
    build_folder(tmp_path / "s", ["low lower"] * 100, layout="npy", tokenizer=TOKENIZER)
    path = tmp_path / "s" / "train-00000.npy"
    data = bytearray(path.read_bytes())
    data[128 + 2 * 200 : 128 + 2 * 201] = b"\xff\xff"
    path.write_bytes(data)
    rehash(tmp_path / "s")
    assert only_problem(tmp_path / "s") == "train-00000.npy: token 200 is 65535; ids must be 0 to 274."


def test_a_negative_id_is_a_problem(tmp_path):
    tokenizer = train()
    build_folder(tmp_path / "s", TEXTS, layout="megatron", tokenizer=tokenizer)
    path = tmp_path / "s" / "train.bin"
    tokens = np.fromfile(path, "<u2").astype("<i4")
    tokens[1] = -1
    tokens.tofile(path)
    manifest = Manifest.read(tmp_path / "s")
    write_manifest(tmp_path / "s", dataclasses.replace(manifest, dtype="int32"))
    rehash(tmp_path / "s")
    found = problems(tmp_path / "s")
    assert found[0] == "train.bin: token 1 is 4294967295; ids must be 0 to 274."
    assert found[1].startswith("train.idx: its header")


@pytest.mark.parametrize(("layout", "old", "new"), [("llmc", b"\x01\0\0\0", b"\x02\0\0\0"), ("npy", b"<u2", b">u2")])
def test_a_header_of_something_else(layout, old, new, tmp_path):
    build(tmp_path / "s", layout=layout)
    path = next(path for path in sorted((tmp_path / "s").iterdir()) if "train" in path.name)
    path.write_bytes(path.read_bytes().replace(old, new, 1))
    rehash(tmp_path / "s")
    assert only_problem(tmp_path / "s") == f"{path.name}: its header does not match 6 uint16 tokens."


@pytest.mark.parametrize(
    ("ends", "message"),
    [
        ([5, 5, 12], "document 1 ends at token 5 of the shard but begins at 5."),
        ([5, 4, 12], "document 1 ends at token 4 of the shard but begins at 5."),
        ([0, 4, 12], "document 0 ends at token 0 of the shard but begins at 0."),
        ([-3, 4, 12], "document 0 ends at token -3"),
        ([5, 6, 2**63 - 1], "its last document ends at token 9,223,372,036,854,775,807, but the shard has"),
        ([1, 2, 3], "its last document ends at token 3, but the shard has"),
    ],
)
@pytest.mark.parametrize("layout", ["gristmill", "datatrove"])
def test_document_ends_that_make_no_sense(layout, ends, message, tmp_path, monkeypatch):
    monkeypatch.setattr("gristmill.shards.layouts.layout.CHUNK_ITEMS", 2)
    manifest = build_folder(tmp_path / "s", TEXTS[:3], layout=layout, tokenizer=TOKENIZER)
    index = manifest.splits["train"].shards[0].index
    np.array(ends, "<i8").tofile(tmp_path / "s" / index)
    rehash(tmp_path / "s")
    found = only_problem(tmp_path / "s")
    assert found.startswith(f"{index}: ")
    assert message in found


def test_a_document_that_continues_in_the_next_shard_does_not_end_in_this_one(tmp_path):
    build_folder(tmp_path / "s", ["low " * 40], shard_tokens=3, tokenizer=TOKENIZER)
    assert len(Shards(tmp_path / "s").paths) > 10
    assert problems(tmp_path / "s") == []


@pytest.mark.parametrize(
    ("place", "message"), [(34, "byte pointers"), (34 + 28, "byte pointers"), (-8, "document index")]
)
def test_a_megatron_index_that_contradicts_itself(place, message, tmp_path):
    build(tmp_path / "s", layout="megatron")
    data = bytearray((tmp_path / "s" / "train.idx").read_bytes())
    data[place] ^= 1
    (tmp_path / "s" / "train.idx").write_bytes(data)
    rehash(tmp_path / "s")
    found = only_problem(tmp_path / "s")
    assert found.startswith("train.idx: ")
    assert message in found


def test_parquet_rows_are_counted_and_their_ids_looked_at(tmp_path):
    build_folder(tmp_path / "s", TEXTS, layout="parquet", tokenizer=TOKENIZER)
    path = tmp_path / "s" / "train-00000.parquet"
    rows = [*pq.read_table(path)["tokens"].to_pylist(), [500]]
    pq.write_table(pa.table({"tokens": pa.array(rows, pa.list_(pa.uint16()))}), path)
    rehash(tmp_path / "s")
    found = problems(tmp_path / "s")
    assert [problem.partition(": ")[0] for problem in found] == [path.name] * 3
    assert "is 500; ids must be 0 to 274" in found[0]
    assert "tokens; the manifest records" in found[1]
    assert "it has 8 documents; the manifest records 7." in found[2]


def test_a_file_that_is_not_parquet_and_one_without_the_column(tmp_path):
    build_folder(tmp_path / "s", TEXTS, layout="parquet", tokenizer=TOKENIZER)
    path = tmp_path / "s" / "train-00000.parquet"
    for content in (b"PAR1", None):
        if content is None:
            pq.write_table(pa.table({"ids": [1]}), path)
        else:
            path.write_bytes(content)
        rehash(tmp_path / "s")
        assert only_problem(tmp_path / "s").startswith(f"{path.name}: its rows cannot be read")


@pytest.mark.parametrize(
    "content, message",
    [
        (b"PAR1", "damaged Parquet file"),
        (None, "the column 'tokens' is not one of lists of ids"),
        (pa.array(["a"]), "the column 'tokens' is not one of lists of ids"),
        (pa.array([1]), "the column 'tokens' is not one of lists of ids"),
        (pa.array([["a"]]), "the column 'tokens' is not one of lists of ids"),
    ],
)
def test_inspecting_damaged_parquet_is_an_error_that_names_the_file(content, message, tmp_path):
    build_folder(tmp_path / "s", TEXTS, layout="parquet", tokenizer=TOKENIZER)
    path = tmp_path / "s" / "train-00000.parquet"
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        pq.write_table(pa.table({"ids": [1]} if content is None else {"tokens": content}), path)
    with pytest.raises(gm.ShardsFormatError, match=f"{path.name}: {message}"):
        inspect_shards(tmp_path / "s", 0)


def test_parquet_without_pyarrow_is_checked_by_its_checksum_and_reported(tmp_path, monkeypatch):
    build_folder(tmp_path / "s", TEXTS, layout="parquet", tokenizer=TOKENIZER)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    report = verify_shards(tmp_path / "s")
    assert report.problems == ()
    assert "pip install 'gristmill[data]'" in report.unchecked[0]


@pytest.mark.parametrize(("key", "number"), [("tokens", 3), ("documents", 2)])
def test_totals_that_are_not_the_sum_of_the_shards(key, number, folder):
    manifest = Manifest.read(folder)
    there = getattr(manifest.splits["train"], key)
    split = dataclasses.replace(manifest.splits["train"], **{key: number})
    write_manifest(folder, dataclasses.replace(manifest, splits=manifest.splits | {"train": split}))
    assert only_problem(folder) == f"manifest.json: splits.train.{key} is {number}, but its shards add up to {there}."


def test_counts_of_a_shard_that_its_files_do_not_bear_out(folder):
    change_shard(folder, 0, tokens=5)
    found = problems(folder)
    assert found[0].startswith("manifest.json: splits.train.tokens is")
    assert found[1] == "shard-00000.bin: 5 tokens need 10 bytes, not 12."
    build(folder.parent / "other")
    change_shard(folder.parent / "other", 0, documents=9)
    found = problems(folder.parent / "other")
    assert found[0].startswith("manifest.json: splits.train.documents is")
    assert found[1].endswith("bytes, expected 72.")


def test_a_shard_of_more_tokens_than_its_layout_allows(tmp_path, monkeypatch):
    build(tmp_path / "s", layout="llmc")
    monkeypatch.setattr(type(LAYOUTS["llmc"]), "max_tokens", 5)
    assert "6 tokens are too many; the format allows 5 per file." in problems(tmp_path / "s")[0]


# The tokenizer


def test_another_tokenizer_and_a_damaged_one(folder):
    train(270).save(folder / "tokenizer.json")
    assert only_problem(folder).startswith("tokenizer.json: not the tokenizer that made the shards")
    (folder / "tokenizer.json").write_text("{}")
    assert only_problem(folder).startswith("tokenizer.json: the tokenizer of the shards cannot be read")


def test_a_manifest_that_contradicts_its_tokenizer(folder):
    manifest = Manifest.read(folder)
    mark = dataclasses.replace(manifest.end_of_text, id=5)
    write_manifest(folder, dataclasses.replace(manifest, end_of_text=mark, vocab_size=400))
    assert problems(folder) == [
        "tokenizer.json: its vocabulary has 275 ids; the manifest records 400.",
        "tokenizer.json: its special token '<|endoftext|>' does not have the id 5.",
    ]


# Inputs


@pytest.fixture
def corpus(tmp_path):
    paths = [tmp_path / name for name in ("a.txt", "b.txt")]
    for path in paths:
        path.write_bytes(b"low lower " * 20_000)
        os.utime(path, ns=(10**18, 10**18))
    build(tmp_path / "s", inputs=paths)
    return tmp_path / "s", *paths


def test_inputs_that_are_unchanged(corpus):
    report = verify_shards(corpus[0])
    assert (report.problems, report.num_inputs, report.unchecked) == ((), 2, ())


def test_an_input_that_is_gone_is_reported_but_no_problem(corpus):
    folder, a, _ = corpus
    a.unlink()
    report = verify_shards(folder)
    assert (report.problems, report.num_inputs) == ((), 1)
    assert report.unchecked == (f"{a}: the file is missing.",)


def test_an_input_that_differs_says_how(corpus):
    folder, a, _ = corpus
    data = a.read_bytes()
    a.write_bytes(data[:-1] + b"!")
    os.utime(a, ns=(10**18, 10**18))
    assert only_problem(folder) == f"{a}: the file has changed since it was read: its content differs."
    a.write_bytes(data + b"!")
    os.utime(a, ns=(10**18, 10**18))
    assert (
        only_problem(folder)
        == f"{a}: the file has changed since it was read: its size is 200,001 bytes instead of 200,000."
    )
    a.write_bytes(data)
    assert only_problem(folder) == f"{a}: the file has changed since it was read: its modification time differs."
    assert problems(folder, inputs=False) == []
    a.unlink()
    a.mkdir()
    assert only_problem(folder) == f"{a}: the file has changed since it was read: it is no longer a regular file."


def test_inputs_that_cannot_be_compared(corpus):
    folder, a, _ = corpus
    manifest = Manifest.read(folder)
    first, second = manifest.inputs
    url = dataclasses.replace(first, path="s3://bucket/tales.txt")
    skipped = dataclasses.replace(second, skipped="it is truncated")
    below = dataclasses.replace(first, path=f"{a}/below.txt")
    plain = dataclasses.replace(first, modified_ns=None, samples="")
    write_manifest(folder, dataclasses.replace(manifest, inputs=(url, skipped, below, plain)))
    a.write_bytes(b"x" * 200_000)  # without time and samples, only the size can be compared
    report = verify_shards(folder)
    assert (report.problems, report.num_inputs) == ((), 1)
    assert [note.partition(": ")[2] for note in report.unchecked] == [
        "not a local file.",
        "skipped when the shards were made.",
        "the file is missing.",
    ]


# Folders that cannot be verified


def test_a_folder_that_is_unfinished_missing_or_something_else_is_an_error(tmp_path):
    with pytest.raises(gm.ShardsFormatError, match="not a folder of shards"):
        verify_shards(tmp_path)
    (tmp_path / "progress.json").touch()
    with pytest.raises(gm.ShardsFormatError, match="unfinished"):
        verify_shards(tmp_path)
    with pytest.raises(FileNotFoundError):
        verify_shards(tmp_path / "missing")


# Progress, speed, memory


def test_progress_is_in_bytes_and_ends_at_the_end(folder):
    reports = []
    report = verify_shards(folder, progress=reports.append)
    assert {(one.stage, one.unit) for one in reports} == {("verify", "bytes")}
    assert (reports[-1].done, reports[-1].total) == (report.num_bytes, report.num_bytes)


def test_a_gigabyte_would_take_seconds_and_megabytes(tmp_path):
    manifest = build_folder(tmp_path / "s", ["low"], tokenizer=TOKENIZER)
    end = manifest.end_of_text.id
    tokens = np.full(60_000_000, 100, "<u2")
    tokens[-1] = end
    tokens.tofile(tmp_path / "s" / "shard-00000.bin")
    np.array([len(tokens)], "<i8").tofile(tmp_path / "s" / "shard-00000.idx")
    change_shard(tmp_path / "s", tokens=len(tokens))
    split = dataclasses.replace(Manifest.read(tmp_path / "s").splits["train"], tokens=len(tokens))
    write_manifest(tmp_path / "s", dataclasses.replace(Manifest.read(tmp_path / "s"), splits={"train": split}))
    rehash(tmp_path / "s")
    began = time.perf_counter()
    assert problems(tmp_path / "s") == []
    assert time.perf_counter() - began < 5
    tracemalloc.start()
    verify_shards(tmp_path / "s")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 30_000_000
