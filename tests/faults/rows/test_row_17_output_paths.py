"""Row 17: the output path is a link, a file, a folder, a pipe, read-only, or already there."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import signal
import tempfile
from pathlib import Path

import pytest

from faults.rows.children import Ended, command
from faults.rows.fault import Fault
from faults.rows.outputs import FILES, SHARDS, Output, contents, copy_inputs, prepare, run
from gristmill.cli import main
from scripts import run_script

FAULT = Fault(
    row=17,
    injected="An output path that is a file, a folder, a link to a file or folder, a dangling or cyclic link, or a "
    "pipe; a read-only file or folder, as a user without privileges; for each command that writes",
    promise="Refused with one message, without waiting and before anything is changed. `--overwrite` replaces a file, "
    "and a link itself; what a link leads to is never changed",
    undetectable="A link among the parent folders of the path is followed, as the system does",
    see_also=(
        "tests/faults/test_encode_corpus_folder.py",
        "tests/faults/test_encode_corpus_exchange.py",
        "tests/test_publish.py",
        "tests/lm/test_run_lock.py",
        "tests/lm/test_export_files.py",
    ),
)

PRECIOUS = b"precious"
UNPRIVILEGED = 65534
QUICK = [output for output in FILES if output.name != "report of a tokenizer"]
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


@pytest.fixture(scope="module")
def inputs():
    """Inputs in a folder that every user can read. Those of pytest are private."""
    place = Path(tempfile.mkdtemp(prefix="gristmill-row-17-"))
    place.chmod(0o755)
    yield prepare(place / "inputs")
    shutil.rmtree(place)


@pytest.fixture
def folder(inputs):
    folder = copy_inputs(inputs, inputs.parent / "folder")
    yield folder
    shutil.rmtree(folder)


OBSTACLES = {
    "file": lambda path, other: path.write_bytes(PRECIOUS),
    "folder": lambda path, other: [path.mkdir(), (path / "thesis.tex").write_bytes(PRECIOUS)],
    "link to a file": lambda path, other: path.symlink_to(other / "file"),
    "link to a folder": lambda path, other: path.symlink_to(other / "folder"),
    "dangling link": lambda path, other: path.symlink_to(other / "nothing"),
    "cyclic link": lambda path, other: path.symlink_to(path.name),
    "pipe": lambda path, other: os.mkfifo(path),
}
LINKS = [name for name in OBSTACLES if "link" in name]


def put(obstacle: str, path: Path) -> Path:
    """Put the obstacle at `path`; return the folder to which links lead."""
    other = path.parent / "other"
    (other / "folder").mkdir(parents=True)
    (other / "file").write_bytes(PRECIOUS)
    OBSTACLES[obstacle](path, other)
    return other


def check_refused(ended: Ended, name: str) -> None:
    assert ended.status in (1, 2), ended
    assert len(ended.errors) == 1 and name in ended.errors[0], ended
    assert "Traceback" not in ended.errors[0] and ".tmp." not in ended.text


@pytest.mark.parametrize("obstacle", OBSTACLES)
@pytest.mark.parametrize("output", [*QUICK, SHARDS[0]], ids=str)
def test_row_17_whatever_is_at_the_path_is_refused(folder, output, obstacle):
    if output.name == "trace" and obstacle == "dangling link":
        pytest.skip("a trace replaces the link")
    if output.is_folder and obstacle == "folder" and "shards" not in output.name:
        pytest.skip("a tokenizer is added to the files of a folder, such as those of a model")
    put(obstacle, folder / output.target)
    before = contents(folder)
    check_refused(command(*output.arguments, cwd=folder), output.target)
    after = contents(folder)
    if output.name == "trace":
        after.pop("w.gmw", None)
    assert after == before


@pytest.mark.parametrize("obstacle", [*LINKS, "folder", "pipe"])
@pytest.mark.parametrize("output", [*QUICK, SHARDS[0]], ids=str)
def test_row_17_overwrite_replaces_a_link_and_never_what_it_leads_to(folder, output, obstacle):
    if output.is_folder and obstacle == "folder" and "shards" not in output.name:
        pytest.skip("a tokenizer is added to the files of a folder, such as those of a model")
    other = put(obstacle, folder / output.target)
    before, there = contents(folder), contents(other)
    ended = command(*output.again, cwd=folder)
    if is_replaced(output, obstacle):
        assert ended.status == 0, ended
        assert (folder / output.target).is_file() and not (folder / output.target).is_symlink()
    else:
        check_refused(ended, output.target)
        assert {name: digest for name, digest in contents(folder).items() if name != "w.gmw"} == before
    assert contents(other) == there


def is_replaced(output: Output, obstacle: str) -> bool:
    if output.name == "trace":  # only another trace is replaced, and a link to nothing
        return obstacle == "dangling link"
    return obstacle in LINKS and not output.is_folder


def drop_privileges() -> None:
    os.setgroups([])
    os.setgid(UNPRIVILEGED)
    os.setuid(UNPRIVILEGED)


@needs_root
@pytest.mark.parametrize("output", [*FILES, SHARDS[0]], ids=str)
def test_row_17_a_user_without_privileges_cannot_write_to_a_read_only_folder(folder, output):
    if output.name != "report of a tokenizer":
        run(folder, *output.earlier)
    folder.chmod(0o555)
    before = contents(folder)
    for arguments in (output.arguments, output.again):
        ended = command(*arguments, cwd=folder, before=drop_privileges)
        if "shards" in output.name and arguments == output.arguments:
            assert ended.status in (0, 1), ended  # the shards are there, but with other options
        check_refused(ended, "")
    assert contents(folder) == before


@needs_root
@pytest.mark.parametrize("output", [output for output in QUICK if not output.is_folder], ids=str)
def test_row_17_a_read_only_file_in_a_writable_folder(folder, output):
    """The rename needs a writable folder only, so `--overwrite` replaces the file; its permissions stay."""
    folder.chmod(0o777)
    run(folder, *output.earlier)
    target = folder / output.target
    os.chown(target, UNPRIVILEGED, UNPRIVILEGED)
    target.chmod(0o440)
    (folder / "w.gmw").unlink(missing_ok=True)
    before = contents(target)
    if output.name != "trace":
        check_refused(command(*output.arguments, cwd=folder, before=drop_privileges), "already exists")
        assert contents(target) == before
    ended = command(*output.again, cwd=folder, before=drop_privileges)
    assert ended.status == 0, ended
    assert contents(target) != before
    assert target.stat().st_mode & 0o777 == 0o440


@needs_root
def test_row_17_a_file_of_another_user_in_a_folder_with_the_sticky_bit(folder):
    """As in /tmp: only its owner may replace the file."""
    output = FILES[0]
    run(folder, *output.earlier)
    folder.chmod(0o1777)
    before = contents(folder)
    check_refused(command(*output.again, cwd=folder, before=drop_privileges), output.target)
    assert contents(folder) == before


def test_row_17_runs_and_exported_models_refuse_the_same_paths(inputs):
    place = inputs.parent / "models"
    place.mkdir(mode=0o755)
    done = run_script(
        "import sys; from faults.rows.test_row_17_output_paths import try_models; try_models(sys.argv[1])",
        place,
        environment={"OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stdout + done.stderr


def try_models(place: str) -> None:
    """Try the commands that need torch. Needs a separate process: torch's threads do not exist in forked children."""
    import torch

    from lm.exported_runs import new_tokenizer, write_run
    from lm.tiny_runs import build_shards

    torch.set_num_threads(1)
    folder = Path(place)
    build_shards(folder / "shards", number=30)
    write_run(folder / "model", new_tokenizer(), num_layers=1, d_model=16, num_heads=1, d_ff=16)
    small = ("--context-length", "8", "--num-layers", "1", "--num-heads", "1", "--d-model", "8", "--batch-size", "2")
    train = ("train-model", "shards", *small, "--max-steps", "1", "--device", "cpu", "--progress", "none", "-o", "run")
    exports = [("export-model", "model", "-f", format, "-o", "run") for format in ("huggingface", "gguf")]
    signal.alarm(100)  # a command that waits for the writer of a pipe would wait forever
    for arguments in (train, *exports):
        for obstacle in OBSTACLES:
            other = put(obstacle, folder / "run")
            before = contents(folder)
            if arguments == train and obstacle == "folder":  # a run keeps the files of others in its folder
                run(folder, *arguments)
                assert before.items() <= contents(folder).items()
            else:
                check_refused(_call_here(folder, *arguments), "run")
                if arguments == exports[1] and obstacle in ("dangling link", "cyclic link"):
                    run(folder, *arguments, "--overwrite")  # replaces the link
                    assert (folder / "run").is_file() and not (folder / "run").is_symlink()
                else:
                    check_refused(_call_here(folder, *arguments, "--overwrite"), "run")
                    assert contents(folder) == before, (arguments, obstacle)
            shutil.rmtree(other)
            target = folder / "run"
            shutil.rmtree(target) if target.is_dir() and not target.is_symlink() else target.unlink()
        if os.geteuid() == 0:
            folder.chmod(0o555)
            before = contents(folder)
            check_refused(command(*arguments, cwd=folder, before=drop_privileges), "")
            assert contents(folder) == before
            folder.chmod(0o755)


def _call_here(folder: Path, *arguments: str) -> Ended:
    """Run a command in this process: a fork of a process with torch costs more than the command."""
    with contextlib.redirect_stderr(io.StringIO()) as text, contextlib.chdir(folder):
        return Ended(main(list(arguments)), text.getvalue())
