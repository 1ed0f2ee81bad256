"""Row 13: a disk that is full at any write, or whose flush fails, for every kind of output."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import gristmill as gm
from faults.rows.children import Ended, command, needs_strace
from faults.rows.fault import Fault
from faults.rows.outputs import FILES, SHARDS, Output, contents, copy_inputs, prepare, run
from scripts import run_script

FAULT = Fault(
    row=13,
    injected="A tmpfs of 1 MB with 0, 1, 2, … pages free; `fsync` that returns EIO (`strace -e inject`); `/dev/full` "
    "as standard output; for each kind of output, also checkpoints, exported models and reports",
    promise="Exit status 1 and one message that names the file; temporary files are removed; the earlier output is "
    "intact; with space, the same command succeeds",
    undetectable="When only the flush of the folder fails, the new output is already complete under its name",
    see_also=(
        "tests/faults/test_encode_corpus_limits.py",
        "tests/faults/test_encode_corpus_early_failures.py",
        "tests/faults/test_limits.py",
        "tests/test_publish.py",
        "tests/lm/test_failed_saves.py",
    ),
)

PAGE = 4096
needs_tmpfs = pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("mount"), reason="only root can mount a tmpfs")
SLOW = {"report of a tokenizer"}


@contextmanager
def tmpfs(place: Path, size: str = "1m") -> Iterator[Path]:
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", place], capture_output=True).returncode:
        pytest.skip("mounting is not allowed here")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", place], check=True)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    return prepare(tmp_path_factory.mktemp("row-13") / "inputs")


@pytest.fixture
def disk(tmp_path):
    with tmpfs(tmp_path / "disk") as place:
        yield place


def fill(disk: Path, *, free_pages: int) -> None:
    """Leave so much space on the disk."""
    there = os.statvfs(disk)
    (disk / "filler").write_bytes(bytes((there.f_bavail - free_pages) * there.f_frsize))
    assert os.statvfs(disk).f_bavail == free_pages


def check_failed(ended: Ended, message: str, folder: Path) -> None:
    """One message, no traceback, and no temporary files."""
    assert ended.status == 1, ended
    assert len(ended.errors) == 1, ended
    assert message in ended.errors[0], ended
    assert [path.name for path in folder.rglob(".*")] == []


def check_is_earlier(path: Path, before: dict[str, str], output: Output) -> None:
    if output.name == "trace":  # a command that fails writes its trace up to then
        assert json.loads(path.read_bytes())["traceEvents"]
    else:
        assert contents(path) == before


@needs_tmpfs
@pytest.mark.parametrize("output", FILES, ids=str)
def test_row_13_a_full_disk_leaves_the_earlier_file(inputs, disk, output):
    shutil.copytree(inputs, disk, dirs_exist_ok=True)
    run(disk, *output.earlier)
    before = contents(disk / output.target)
    num_full = 0
    for free_pages in (0, 2) if output.name in SLOW else range(6):
        fill(disk, free_pages=free_pages)
        ended = command(*output.again, cwd=disk)
        (disk / "filler").unlink()
        if ended.status == 0:
            break
        num_full += 1
        check_failed(ended, "No space left on device", disk)
        assert output.target.partition(".")[0] in ended.errors[0] or output.name == "trace"
        check_is_earlier(disk / output.target, before, output)
    assert num_full
    assert command(*output.again, cwd=disk).status == 0
    assert contents(disk / output.target) != before


@needs_tmpfs
@pytest.mark.parametrize("output", SHARDS, ids=str)
def test_row_13_a_full_disk_leaves_the_earlier_shards(inputs, disk, output):
    if output.name.startswith("parquet"):
        pytest.importorskip("pyarrow")
    shutil.copytree(inputs, disk, dirs_exist_ok=True)
    run(disk, *output.earlier)
    before = contents(disk / "out")
    num_full = 0
    for free_pages in (1, 4, 7, 9):
        fill(disk, free_pages=free_pages)
        ended = command(*output.again, cwd=disk)
        (disk / "filler").unlink()
        if ended.status:
            num_full += 1
            assert len(ended.errors) == 1 and "No space left on device" in ended.errors[0], ended
            visible = {name: digest for name, digest in contents(disk / "out").items() if not name.startswith(".")}
            assert visible == before
            assert gm.verify_shards(disk / "out").is_sound
            assert [path for path in (disk / "out").rglob("*") if ".tmp." in path.name] == []
    assert num_full
    assert command(*output.again, cwd=disk).status == 0
    assert [path.name for path in (disk / "out").rglob(".*")] == []
    shutil.rmtree(disk / "out")
    fill(disk, free_pages=3)
    check_failed(command(*output.arguments, cwd=disk), "No space left on device", disk)
    assert not (disk / "out").exists()


@needs_strace
@pytest.mark.parametrize("output", FILES, ids=str)
def test_row_13_a_flush_that_fails_names_the_file_and_leaves_a_complete_one(inputs, tmp_path, output):
    new, folder = copy_inputs(inputs, tmp_path / "new"), copy_inputs(inputs, tmp_path / "folder")
    run(new, *output.arguments)
    run(folder, *output.earlier)
    before = contents(folder / output.target)
    for number in (1,) if output.name in SLOW else (1, 2):
        ended = command(*output.again, inject=(f"fsync:error=EIO:when={number}",), cwd=folder)
        check_failed(ended, "Input/output error", folder)
        assert ": Input/output error" in ended.errors[0].removeprefix("gristmill: error")
        if number == 1 or contents(folder / output.target) != contents(new / output.target):
            check_is_earlier(folder / output.target, before, output)
    assert command(*output.again, cwd=folder).status == 0


@needs_strace
@pytest.mark.parametrize("output", SHARDS, ids=str)
def test_row_13_shards_whose_flush_fails_are_not_visible(inputs, tmp_path, output):
    if output.name.startswith("parquet"):
        pytest.importorskip("pyarrow")
    new, folder = copy_inputs(inputs, tmp_path / "new"), copy_inputs(inputs, tmp_path / "folder")
    run(new, *output.arguments)
    for number in (2, 5 + len(output.name) % 5):
        ended = command(*output.arguments, inject=(f"fsync:error=EIO:when={number}+",), cwd=folder)
        assert ended.status == 1 and len(ended.errors) == 1, ended
        assert "Input/output error" in ended.errors[0] and "out" in ended.errors[0]
        assert not (folder / "out" / "manifest.json").exists()
        assert command(*output.arguments, cwd=folder).status == 0
        assert contents(folder / "out") == contents(new / "out")
        shutil.rmtree(folder / "out")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
@pytest.mark.parametrize(
    "arguments",
    [
        ("tokenize", "-t", "big.json", "--file", "a.txt"),
        ("inspect", "big.json"),
        ("completion", "bash"),
        ("--help",),
        ("encode", "--help"),
        ("train-tokenizer", "a.txt", "--vocab-size", "260", "-o", "new.json", "--progress", "none"),
    ],
    ids=" ".join,
)
def test_row_13_a_full_standard_output_is_one_message(inputs, tmp_path, arguments):
    def redirect():
        os.dup2(os.open("/dev/full", os.O_WRONLY), 1)

    folder = copy_inputs(inputs, tmp_path / "folder")
    ended = command(*arguments, cwd=folder, before=redirect)
    assert ended.status == 1, ended
    assert ended.errors == ["gristmill: error: standard output: No space left on device"], ended


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
@pytest.mark.parametrize("option", [(), ("--overwrite",)])
def test_row_13_a_device_is_never_replaced(inputs, tmp_path, option):
    folder = copy_inputs(inputs, tmp_path / "folder")
    for output in FILES:
        if output.name == "minbpe export":  # writes two files, named after the path
            continue
        arguments = [*("/dev/full" if argument == output.target else argument for argument in output.arguments)]
        ended = command(*dict.fromkeys([*arguments, *option]), cwd=folder)
        assert ended.status in (1, 2) and len(ended.errors) == 1, (output, ended)
        assert "/dev/full" in ended.errors[0]
        assert Path("/dev/full").is_char_device()


@needs_tmpfs
def test_row_13_a_full_disk_leaves_the_earlier_checkpoint_and_model(tmp_path):
    with tmpfs(tmp_path / "disk", "2m"):
        done = run_script(
            "import sys; from faults.rows.test_row_13_full_and_failing_disks import *; fill_models(sys.argv[1])",
            tmp_path,
            environment={"OMP_NUM_THREADS": "1"},
        )
    assert done.returncode == 0, done.stdout + done.stderr


def fill_models(place: str) -> None:
    """Fill the disk of commands that need torch. Needs a separate process, as torch's threads are not in children."""
    import torch

    from gristmill.lm.training.checkpoint import list_checkpoints, load_model
    from lm.exported_runs import new_tokenizer, write_run
    from lm.tiny_runs import build_shards

    torch.set_num_threads(1)
    folder, disk = Path(place), Path(place, "disk")
    build_shards(folder / "shards", number=30)
    small = ("--context-length", "8", "--num-layers", "1", "--num-heads", "1", "--d-model", "8", "--batch-size", "2")
    steps = ("--max-steps", "6", "--checkpoint-interval", "2", "--val-check-interval", "0", "--keep", "9")
    train = ("train-model", "../shards", *small, *steps, "--device", "cpu", "--progress", "none", "--resume")
    run(disk, *train, "-o", "judge")
    expected = contents(disk / "judge" / "checkpoints")
    one = sum(path.stat().st_blocks for path in (disk / "judge/checkpoints/step-000002").iterdir()) * 512 // PAGE
    shutil.rmtree(disk / "judge")
    for room in (0.5, 1.5):  # checkpoints that fit, beside the small files
        fill(disk, free_pages=int(6 + one * room))
        ended = command(*train, "-o", "run", cwd=disk)
        (disk / "filler").unlink()
        check_failed(ended, "No space left on device", disk)
        assert len(list_checkpoints(disk / "run")) == int(room), (room, ended)
        for checkpoint in list_checkpoints(disk / "run"):
            load_model(disk / "run", which=checkpoint.name)
    assert command(*train, "-o", "run", cwd=disk).status == 0
    there = contents(disk / "run" / "checkpoints")
    assert {name for name in expected if there[name] != expected[name]} <= {
        name for name in expected if name.endswith("state.json")
    }

    write_run(disk / "model", new_tokenizer(), num_layers=1, d_model=16, num_heads=1, d_ff=16)
    for format, target in (("huggingface", "hf"), ("gguf", "model.gguf")):
        export = ("export-model", "model", "-f", format, "-o", target)
        run(disk, *export, "--dtype", "bfloat16")
        before = contents(disk / target)
        for free_pages in (0, 3, 9):
            fill(disk, free_pages=free_pages)
            ended = command(*export, "--overwrite", cwd=disk)
            (disk / "filler").unlink()
            check_failed(ended, "", disk)
            assert target in ended.errors[0] and ("No space left" in ended.errors[0] or "disk" in ended.errors[0])
            assert contents(disk / target) == before
        assert command(*export, "--overwrite", cwd=disk).status == 0
        assert contents(disk / target) != before
