"""gristmill verify."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import gristmill as gm
from shards.builder import build_folder, change_shard, rehash, train

TEXTS = ["low lower", "", "newest widest newer"] * 20


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "corpus.txt").write_bytes(b"low lower")
    build_folder(
        tmp_path / "s", TEXTS, shard_tokens=60, tokenizer=train(), val_texts=["x"], inputs=[tmp_path / "corpus.txt"]
    )
    return tmp_path / "s"


def test_a_sound_folder_is_a_table_and_exit_code_0(gristmill, folder):
    code, out, err = gristmill("verify", folder)
    assert (code, err) == (0, "")
    rows = {line.split()[0]: line.split() for line in out.split("\n\n")[0].splitlines()}
    assert list(rows) == ["check", "manifest", "tokenizer", "files", "ids", "documents", "inputs"]
    assert all(row[-1] == "ok" for name, row in rows.items() if name != "check")
    assert rows["documents"][1:3] == ["61", "documents"]
    assert rows["inputs"][1:3] == ["1", "file"]
    assert f"{folder}: no problems found; checked in " in out
    assert max(map(len, out.split("\n\n")[0].splitlines())) <= 80


def test_every_problem_is_a_line_that_names_the_shard(gristmill, folder):
    for name in ("shard-00001.bin", "shard-00002.idx"):
        data = bytearray((folder / name).read_bytes())
        data[0] ^= 1
        (folder / name).write_bytes(data)
    (folder / "val-00000.bin").unlink()
    code, out, err = gristmill("verify", folder)
    assert (code, err) == (1, "")
    lines = out.split("\n\n")[1].splitlines()
    assert [line.partition(": ")[0] for line in lines] == ["val-00000.bin", "shard-00001.bin", "shard-00002.idx"]
    assert "3 problems" in out.split("\n\n")[0]
    assert out.endswith(" s\n")
    assert f"{folder}: 3 problems found" in out


def test_a_path_that_leads_out_of_the_folder_is_a_problem_of_the_manifest(gristmill, folder):
    content = json.loads((folder / "manifest.json").read_bytes())
    content["splits"]["train"]["shards"][0]["file"] = "../corpus.txt"
    (folder / "manifest.json").write_bytes(json.dumps(content).encode())
    code, out, _ = gristmill("verify", folder)
    assert code == 1
    assert 'manifest.json: splits.train.shards[0].file is "../corpus.txt"; it must be the name of a file' in out
    assert "tokenizer" not in out


def test_a_changed_input_is_a_problem_unless_inputs_are_left_out(gristmill, folder):
    (folder.parent / "corpus.txt").write_bytes(b"low lowest")
    code, out, _ = gristmill("verify", folder)
    assert code == 1
    assert "corpus.txt: the file has changed since it was read: its size is 10 bytes instead of 9" in out
    code, out, _ = gristmill("verify", folder, "--no-inputs")
    assert code == 0
    assert "inputs" not in out


def test_a_missing_input_is_reported_but_is_not_a_problem(gristmill, folder):
    (folder.parent / "corpus.txt").unlink()
    code, out, _ = gristmill("verify", folder)
    assert code == 0
    assert f"not checked: {folder.parent / 'corpus.txt'}: the file is missing." in out
    assert "0 of 1 file " in out


def test_hundreds_of_missing_inputs_are_not_all_listed(gristmill, tmp_path):
    paths = [tmp_path / f"{i}.txt" for i in range(300)]
    for path in paths:
        path.touch()
    build_folder(tmp_path / "s", TEXTS, tokenizer=train(), inputs=paths)
    for path in paths:
        path.unlink()
    _, out, _ = gristmill("verify", tmp_path / "s")
    assert out.count("not checked: ") == 11
    assert "not checked: … 300 in total" in out


def test_a_layout_without_documents_says_so(gristmill, tmp_path):
    build_folder(tmp_path / "s", TEXTS, layout="nanogpt", tokenizer=train())
    code, out, _ = gristmill("verify", tmp_path / "s")
    assert code == 0
    assert "none: nanogpt does not store boundaries" in out


def test_a_folder_that_is_not_shards_is_an_error_of_one_line(gristmill, tmp_path):
    code, out, err = gristmill("verify", tmp_path)
    assert (code, out) == (1, "")
    assert err.startswith(f"gristmill: error: {tmp_path}: not a folder of shards")
    assert err.count("\n") == 1


def test_progress_in_json_goes_to_stderr(gristmill, folder):
    code, _, err = gristmill("verify", folder, "--progress", "jsonl")
    assert code == 0
    reports = [json.loads(line) for line in err.splitlines()]
    assert reports[-1]["stage"] == "verify"
    assert reports[-1]["done"] == reports[-1]["total"] > 0


def test_ctrl_c_ends_it_at_once_and_in_one_line(gristmill_process, tmp_path):
    build_folder(tmp_path / "s", ["low"], tokenizer=train())
    path = tmp_path / "s" / "shard-00000.bin"
    num_tokens = 2_000_000_000
    with path.open("r+b") as file:
        file.truncate(2 * num_tokens)  # a sparse file: seconds to check, no disk space needed
    np.array([num_tokens], "<i8").tofile(tmp_path / "s" / "shard-00000.idx")
    change_shard(tmp_path / "s", tokens=num_tokens, bytes=2 * num_tokens)
    process = gristmill_process("verify", tmp_path / "s", "--progress", "jsonl")
    assert b'"verify"' in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    began = time.perf_counter()
    out, err = process.communicate(timeout=30)
    assert time.perf_counter() - began < 1
    assert process.returncode == 130
    assert (out, err.splitlines()[-1]) == (b"", b"gristmill: interrupted")


def test_a_forged_shard_is_found_by_its_ids(gristmill, folder):
    tokens = np.fromfile(folder / "shard-00000.bin", "<u2")
    tokens[7] = 60_000
    tokens.tofile(folder / "shard-00000.bin")
    rehash(folder)
    code, out, _ = gristmill("verify", folder)
    assert code == 1
    assert "shard-00000.bin: token 7 is 60000; ids must be 0 to 274." in out


@pytest.mark.skipif(sys.platform != "linux", reason="names that are no UTF-8")
@pytest.mark.parametrize("command", ["verify", "inspect"])
def test_an_input_and_a_folder_whose_names_are_no_utf8_are_printed_with_escapes(command, tmp_path):
    """A check of paths that rejects every surrogate would reject output of `encode`."""
    name = os.fsdecode(b"b\xffad")
    (tmp_path / f"{name}.txt").write_text("low lower")
    tokenizer = train()
    gm.encode_corpus([tmp_path / f"{name}.txt"], tokenizer, out=tmp_path / name, format="llmc", progress=None)
    assert gm.Manifest.read(tmp_path / name).inputs[0].path.endswith(f"{name}.txt")
    (tmp_path / f"{name}.txt").unlink()
    run = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys; from gristmill.cli import main; sys.exit(main())",
            command,
            tmp_path / name,
        ],
        capture_output=True,
        env=os.environ | {"PYTHONIOENCODING": "utf-8:strict"},
    )
    assert run.returncode == 0, run.stderr.decode()
    assert rb"b\udcffad" in run.stdout
