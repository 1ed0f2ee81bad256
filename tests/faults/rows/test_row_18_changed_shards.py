"""Row 18: a shard byte is flipped, a manifest edited, a name leads out of the folder, or a file is no file."""

from __future__ import annotations

import json
import os
import shutil

import pytest

import gristmill as gm
from faults.rows.children import call
from faults.rows.fault import Fault
from faults.rows.outputs import contents
from gristmill.cli import main
from gristmill.shards.layouts import LAYOUTS
from shards.builder import build_folder, train
from shards.test_manifest import resealed

FAULT = Fault(
    row=18,
    injected="A flipped byte in each file of a folder of shards; a manifest that is edited, or edited and given a "
    "matching checksum; file names `../x`, `/x`, `a/b`; links, pipes and devices in the place of files",
    promise="`verify` names the file. Every reader, and every command that replaces shards, refuses a name that leads "
    "out of the folder before it opens a file. No reader waits for a pipe",
    undetectable="Readers other than `verify` compare sizes, not checksums, so they do not see a flipped byte. They "
    "follow a link in the folder, as in the cache of a model hub; `verify` reports it",
    see_also=(
        "tests/shards/test_verify.py",
        "tests/shards/test_manifest.py",
        "tests/faults/test_forged_files.py",
        "tests/lm/test_data_faults.py",
    ),
)

TEXTS = ["low lower", "", "newest widest newer", "the lowest low low low lower", "wider"] * 3
FORMATS = [layout for layout in LAYOUTS if layout != "parquet"]


@pytest.fixture(scope="module")
def tokenizer():
    return train()


@pytest.fixture
def folder(tokenizer, tmp_path):
    build_folder(tmp_path / "shards", TEXTS, tokenizer=tokenizer, shard_tokens=20, val_texts=["wide", "low"])
    (tmp_path / "corpus.txt").write_text("low lower")
    return tmp_path / "shards"


@pytest.mark.parametrize("layout", LAYOUTS)
def test_row_18_verify_names_the_file_with_a_flipped_byte(tokenizer, tmp_path, capsys, layout):
    if layout == "parquet":
        pytest.importorskip("pyarrow")
    folder = tmp_path / "shards"
    build_folder(folder, TEXTS, layout=layout, tokenizer=tokenizer, val_texts=["wide", "low"])
    for path in sorted(folder.iterdir()):
        data = path.read_bytes()
        for position in {0, len(data) // 2, len(data) - 1}:
            path.write_bytes(data[:position] + bytes([data[position] ^ 0x10]) + data[position + 1 :])
            assert any(problem.where == path.name for problem in verified(folder, path.name)), (path, position)
        assert main(["verify", str(folder)]) == 1
        captured = capsys.readouterr()
        assert path.name in captured.out + captured.err
        path.write_bytes(data)
    assert main(["verify", str(folder)]) == 0


def verified(folder, name):
    try:
        return gm.verify_shards(folder).problems
    except gm.ShardsFormatError as error:  # only for the manifest
        assert name == "manifest.json" and name in str(error)
        return [gm.shards.verify_files.Problem("manifest", name, str(error))]


def test_row_18_an_edited_manifest_is_refused_by_every_reader(folder):
    path = folder / "manifest.json"
    path.write_bytes(path.read_bytes().replace(b'"tokens": ', b'"tokens": 1', 1))
    check_all_refuse(folder, "manifest.json")


@pytest.mark.parametrize("name", ["../secret", "{tmp}/secret", "a/../../secret", "sub/secret", "..", "~/x", ".hidden"])
@pytest.mark.parametrize("key", ["file", "index", "tokenizer_file"])
def test_row_18_a_name_that_leads_out_of_the_folder_is_refused_by_every_reader(folder, tmp_path, key, name):
    name = name.format(tmp=tmp_path)
    (tmp_path / "secret").write_bytes((folder / "shard-00000.bin").read_bytes())
    content = json.loads((folder / "manifest.json").read_bytes())
    (content if key == "tokenizer_file" else content["splits"]["train"]["shards"][0])[key] = name
    (folder / "manifest.json").write_bytes(resealed(content))
    before = contents(tmp_path)
    check_all_refuse(folder, "without a path and not hidden")
    assert contents(tmp_path) == before


def check_all_refuse(folder, message):
    for name, use in users(folder).items():
        with pytest.raises((gm.ShardsFormatError, AssertionError), match=message):
            use()
            pytest.fail(f"{name} accepted the folder", pytrace=False)


def users(folder):
    """Return everything that trusts a manifest: readers, and the commands that replace or complete shards."""
    tokenizer = train()
    options = {"out": folder, "progress": None}
    corpus = folder.parent / "corpus.txt"

    def verify():
        report = gm.verify_shards(folder)
        assert report.is_sound, report.problems

    return {
        "Manifest.read": lambda: gm.Manifest.read(folder),
        "Shards": lambda: gm.Shards(folder),
        "Shards of val": lambda: gm.Shards(folder, split="val"),
        "verify": verify,
        "report": lambda: gm.report.write_shards_report(folder, out=folder.parent / "page.html"),
        "encode": lambda: gm.encode_corpus(corpus, tokenizer, **options),
        "encode with overwrite": lambda: gm.encode_corpus(corpus, tokenizer, overwrite=True, **options),
    }


def test_row_18_a_manifest_of_replaced_shards_cannot_remove_other_files(folder, tmp_path, tokenizer):
    """An interrupted overwrite leaves .replaced.json, whose files the next run removes."""
    (tmp_path / "precious").write_bytes(b"precious")
    gm.encode_corpus(tmp_path / "corpus.txt", tokenizer, out=tmp_path / "new", progress=None)
    content = json.loads((folder / "manifest.json").read_bytes())
    content["splits"]["train"]["shards"][0]["file"] = "../precious"
    (folder / "manifest.json").unlink()
    (folder / ".replaced.json").write_bytes(resealed(content))
    shutil.move(tmp_path / "new", folder / ".new")
    before = contents(tmp_path)
    with pytest.raises(gm.ShardsFormatError, match="without a path and not hidden"):
        gm.encode_corpus(tmp_path / "corpus.txt", tokenizer, out=folder, overwrite=True, progress=None)
    assert contents(tmp_path) == before


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
@pytest.mark.parametrize("name", ["shard-00000.bin", "shard-00000.idx", "tokenizer.json", "manifest.json"])
def test_row_18_no_reader_waits_for_a_pipe(folder, tmp_path, name):
    """The pipe has the size 0 that the manifest promises."""
    content = json.loads((folder / "manifest.json").read_bytes())
    shard = content["splits"]["train"]["shards"][0]
    for key in ("tokens", "documents"):
        content["splits"]["train"][key] -= shard[key]
        shard[key] = 0
    shard["bytes"] = 0
    for file in ("shard-00000.bin", "shard-00000.idx"):
        (folder / file).write_bytes(b"")
    (folder / "manifest.json").write_bytes(resealed(content))
    (folder / name).unlink()
    os.mkfifo(folder / name)
    ended = call(lambda: read_everything(folder), log=tmp_path / "log")
    assert ended.status == 0, ended


def read_everything(folder) -> None:
    """Read a folder in all ways. Each of them ends, with an error or without."""
    from gristmill.lm.data.checked_file import CheckedFile  # as model training reads shards

    def read(split):
        shards = gm.Shards(folder, split=split)
        for document in shards:
            len(document)
        assert shards.tokenizer is not None

    CheckedFile(folder / "shard-00001.bin", (folder / "shard-00001.bin").stat().st_size, remedy="").read(0, 1)
    if not (folder / "shard-00000.bin").is_file():
        with pytest.raises(gm.ShardsFormatError, match="pipe"):
            CheckedFile(folder / "shard-00000.bin", 0, remedy="")
    for use in (lambda: read("train"), lambda: read("val"), *users(folder).values()):
        try:
            use()
        except (gm.GristmillError, OSError, AssertionError) as error:
            assert "Traceback" not in str(error)
    for arguments in (["inspect", str(folder)], ["report", str(folder), "-o", str(folder.parent / "a.html")]):
        assert main(arguments) in (0, 1, 2)


@pytest.mark.parametrize("name", ["shard-00001.bin", "shard-00001.idx", "tokenizer.json"])
@pytest.mark.parametrize("kind", ["link", "device", "missing", "folder"])
def test_row_18_verify_names_what_is_no_file(folder, tmp_path, name, kind):
    (folder / name).rename(tmp_path / name)
    if kind == "link":
        (folder / name).symlink_to(tmp_path / name)
    elif kind == "device":
        (folder / name).symlink_to("/dev/zero")
    elif kind == "folder":
        (folder / name).mkdir()
    assert [problem.where for problem in gm.verify_shards(folder).problems] == [name]
    if kind != "link":
        with pytest.raises((gm.ShardsFormatError, OSError)):
            shards = gm.Shards(folder)
            assert shards.tokenizer is not None
            for document in shards:
                len(document)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
@pytest.mark.parametrize("layout", FORMATS)
def test_row_18_a_pipe_in_a_folder_of_another_program_is_refused(tokenizer, tmp_path, layout):
    """A folder without a manifest is recognized by the names and first bytes of its files."""
    folder = tmp_path / "shards"
    build_folder(folder, TEXTS, layout=layout, tokenizer=tokenizer)
    (folder / "manifest.json").unlink()
    files = sorted(path.name for path in folder.iterdir() if path.name != "tokenizer.json")

    def read():
        for name in files:
            (folder / name).rename(tmp_path / "kept")
            os.mkfifo(folder / name)
            try:
                for document in gm.Shards(folder):
                    len(document)
            except (gm.GristmillError, OSError):
                pass
            (tmp_path / "kept").replace(folder / name)

    ended = call(read, log=tmp_path / "log")
    assert ended.status == 0, ended
