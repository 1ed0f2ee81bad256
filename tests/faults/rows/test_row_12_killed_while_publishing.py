"""Row 12: SIGKILL between temporary file, fsync, rename and manifest, at the system call, for every kind of output."""

from __future__ import annotations

import json
import os
import shutil
import signal
from functools import partial
from pathlib import Path

import pytest

import gristmill as gm
from faults.rows.children import command, needs_strace
from faults.rows.fault import Fault
from faults.rows.outputs import FILES, SHARDS, contents, copy_inputs, prepare, run
from scripts import run_script

FAULT = Fault(
    row=12,
    injected="SIGKILL at an `fsync`, `rename`, `link` or `unlink` of the command, by `strace -e inject`, for each kind "
    "of output: tokenizer, exports, words, trace, report, shards of every layout, checkpoint, exported model",
    promise="A reader finds the earlier output, the new one, or an error; never a part, and never files of two "
    "outputs. The same command run again writes the same bytes as an undisturbed run",
    undetectable="A killed process cannot remove its hidden temporary files (`.NAME.tmp.PID.NUMBER`). The next process "
    "that writes the same file, run or shards removes them; an exported folder does not",
    see_also=(
        "tests/faults/test_encode_corpus_killed.py",
        "tests/faults/test_encode_corpus_exchange.py",
        "tests/lm/test_run_folder.py",
        "tests/test_publish.py",
    ),
)
pytestmark = needs_strace

# Every name that a file gets or loses, and the flushes before and after.
RENAMES = "rename,renameat,renameat2,link,linkat"
REMOVALS = "unlink,unlinkat,rmdir"
SLOW = {"report of a tokenizer"}
SEVERAL = {"minbpe export"}  # two files, which are missing while both are replaced


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    return prepare(tmp_path_factory.mktemp("row-12") / "inputs")


def kills(calls: str, numbers) -> tuple[str, ...]:
    """Return one injection for each number: SIGKILL before the call with this number."""
    return tuple(f"{calls}:signal=KILL:when={number}" for number in numbers)


@pytest.mark.parametrize("output", FILES, ids=str)
def test_row_12_a_file_is_the_earlier_or_the_new_one(inputs, tmp_path, output):
    new, earlier = undisturbed(inputs, tmp_path, output)
    points = [*kills("fsync", (1,)), *kills(RENAMES, range(1, 20)), *kills(REMOVALS, (1,))]
    found, all_renamed = set(), False
    for number, point in enumerate(points[1:3] if output.name in SLOW else points):
        if all_renamed and point.startswith(RENAMES):
            continue
        folder = copy_inputs(earlier, tmp_path / f"{number}")
        ended = command(*output.again, inject=(point,), cwd=folder)
        if not ended.was_killed:
            assert ended.status == 0, ended
            all_renamed = all_renamed or point.startswith(RENAMES)
            continue
        found.add(state(folder / output.target, earlier / output.target, new / output.target, output))
    allowed = {"earlier", "new"} | ({"missing", "error"} if output.name in SEVERAL or output.is_folder else set())
    assert found & {"earlier", "new"} and found <= allowed
    assert command(*output.again, cwd=folder).status == 0
    assert state(folder / output.target, earlier / output.target, new / output.target, output) == "new"


def undisturbed(inputs, tmp_path, output) -> tuple[Path, Path]:
    """Return a folder with the output of an undisturbed run, and one with the output that it is to replace."""
    new, earlier = copy_inputs(inputs, tmp_path / "new"), copy_inputs(inputs, tmp_path / "earlier")
    run(new, *output.arguments)
    run(earlier, *output.earlier)
    return new, earlier


def state(path, earlier, new, output) -> str:
    """Return whose output a reader of `path` finds: earlier, new, missing, error (of a folder), or else mixture."""
    if output.name == "trace":  # its times differ
        json.loads(path.read_bytes())
        return "new" if path.read_bytes() != earlier.read_bytes() else "earlier"
    if not os.path.lexists(path):
        return "missing"
    visible = {name: digest for name, digest in contents(path).items() if not Path(name).name.startswith(".")}
    if visible == contents(new):
        return "new"
    if earlier.exists() and visible == contents(earlier):
        return "earlier"
    if path.is_file():
        return "mixture"
    with pytest.raises((gm.GristmillError, OSError)):
        gm.Tokenizer.load(path)
    return "error"


@pytest.mark.parametrize("output", FILES[:8], ids=str)
def test_row_12_a_first_output_is_complete_or_missing(inputs, tmp_path, output):
    new = copy_inputs(inputs, tmp_path / "new")
    run(new, *output.arguments)
    for point in kills(RENAMES, range(1, 3)):
        folder = copy_inputs(inputs, tmp_path / point)
        assert command(*output.arguments, inject=(point,), cwd=folder).was_killed or "when=2" in point
        assert state(folder / output.target, folder / "none", new / output.target, output) in (
            "new",
            "missing",
            "error",
        )
        ended = command(*output.again, cwd=folder)
        assert ended.status == 0, ended
        assert state(folder / output.target, folder / "none", new / output.target, output) == "new"


@pytest.mark.parametrize("output", SHARDS, ids=str)
def test_row_12_only_complete_shards_are_visible(inputs, tmp_path, output):
    if output.name.startswith("parquet"):
        pytest.importorskip("pyarrow")
    new, earlier = undisturbed(inputs, tmp_path, output)
    checksums = {contents(folder / "out")["manifest.json"]: folder / "out" for folder in (new, earlier)}
    layout = len(output.name)
    for overwrites in (False, True):
        num_killed = 0
        folder = copy_inputs(earlier if overwrites else inputs, tmp_path / f"{overwrites}")
        arguments = output.again if overwrites else output.arguments
        # The calls differ by layout, so that all layouts together cover most of them.
        for point in (*kills(RENAMES, (1, 2 + layout % 4)), *kills("fsync", (1 + layout % 7,))):
            killed = command(*arguments, inject=(point,), cwd=folder)
            assert killed.was_killed or killed.status == 0, killed
            num_killed += killed.was_killed
            check_visible(folder / "out", checksums)
        assert num_killed
        assert command(*arguments, cwd=folder).status == 0
        assert contents(folder / "out") == contents(new / "out")


def check_visible(out, checksums):
    """A manifest is that of one run, with all files of this run; without a manifest, no reader opens the folder."""
    there = contents(out) if out.exists() else {}
    if "manifest.json" in there:
        assert contents(checksums[there["manifest.json"]]).items() <= there.items()
        assert gm.verify_shards(out).is_sound
    else:
        with pytest.raises((gm.ShardsFormatError, FileNotFoundError)):
            gm.Shards(out)


def test_row_12_a_checkpoint_and_an_exported_model_are_complete_or_missing(tmp_path):
    done = run_script(
        "import sys; from faults.rows.test_row_12_killed_while_publishing import kill_models; kill_models(sys.argv[1])",
        tmp_path,
        environment={"OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stdout + done.stderr


def kill_models(place: str) -> None:
    """Kill the commands that need torch. Needs a separate process: torch's threads do not exist in forked children."""
    import torch

    from lm.exported_runs import new_tokenizer, write_run
    from lm.tiny_runs import build_shards

    torch.set_num_threads(1)
    folder = Path(place)
    build_shards(folder / "shards", number=30)
    write_run(folder / "model", new_tokenizer(), num_layers=1, d_model=16, num_heads=1, d_ff=16)
    _kill_a_run(folder)
    for format, target in (("huggingface", "hf"), ("gguf", "model.gguf")):
        _kill_an_export(folder, format, target)


def _kill_a_run(folder: Path) -> None:
    from gristmill.lm.training.checkpoint import list_checkpoints, load_model

    small = ("--context-length", "8", "--num-layers", "1", "--num-heads", "1", "--d-model", "8", "--batch-size", "2")
    steps = ("--max-steps", "4", "--checkpoint-interval", "2", "--val-check-interval", "0", "--log-interval", "2")
    train = ("train-model", "shards", *small, *steps, "--device", "cpu", "--progress", "none", "--resume", "-o")
    run(folder, *train, "judge")
    expected = _weights(folder / "judge" / "checkpoints")
    starts = [(inject, None) for inject in kills(RENAMES, (2, 3, 4))]
    for number, (inject, name) in enumerate([*starts, (None, "step-000002"), (None, "step-000004")]):
        out = folder / f"run{number}"
        points = {"inject": (inject,)} if inject else {"before": partial(_die_at_rename, name)}
        ended = command(*train, out.name, **points, cwd=folder)
        assert ended.was_killed, (number, ended)
        for checkpoint in list_checkpoints(out):
            load_model(out, which=checkpoint.name)  # compares the checksums of all files
        ended = command(*train, out.name, cwd=folder)
        assert ended.status == 0, ended
        assert _weights(out / "checkpoints") == expected, number
        assert not [path for path in out.rglob("*") if ".tmp." in path.name], number


def _die_at_rename(name: str) -> None:
    """Let this process be killed before it gives a folder this name. A separate thread writes the checkpoints."""
    rename = Path.rename

    def watched(path: Path, target: Path) -> Path:
        if Path(target).name == name:
            os.kill(os.getpid(), signal.SIGKILL)
        return rename(path, target)

    Path.rename = watched


def _weights(checkpoints: Path) -> dict[str, str]:
    """Return the checksums of weights and optimizer states. state.json also has the seconds that the run took."""
    return {name: digest for name, digest in contents(checkpoints).items() if name.endswith(".safetensors")}


def _kill_an_export(folder: Path, format: str, target: str) -> None:
    arguments = ("export-model", "model", "-f", format, "-o", target)
    bfloat16 = (*arguments, "--dtype", "bfloat16")
    run(folder, *bfloat16)  # in this process, so that children inherit the imports
    run(folder, *arguments[:-1], "expected")
    earlier, new = contents(folder / target), contents(folder / "expected")
    _remove(folder / "expected")
    seen = set()
    for point in (*kills("fsync", (2,)), *kills(RENAMES, (1,)), *kills(REMOVALS, (1,))):
        ended = command(*arguments, "--overwrite", inject=(point,), cwd=folder)
        assert contents(folder / target) in (earlier, new), (format, point)
        if not ended.was_killed:
            assert ended.status == 0, ended
        seen.add(contents(folder / target) == new)
        _remove(folder / target)
        run(folder, *bfloat16)
    assert seen == {False, True}, (format, seen)


def _remove(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink()
