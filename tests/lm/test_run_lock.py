"""Only one process at a time trains in a folder. However it ends, the next one can start."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading

import pytest

import gristmill as gm
from gristmill.lm.training import run_lock
from gristmill.lm.training.run_folder import claimed
from gristmill.lm.training.run_lock import LOCK_FILE, is_trained_here, locked
from lm.tiny_runs import train

HOLD = """
import sys, time
from pathlib import Path
from gristmill.lm.training.run_lock import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


@contextlib.contextmanager
def another_process(run):
    """A process that holds the lock of `run` until it is killed."""
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(run)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "held\n"
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_a_second_run_in_a_folder_is_refused_and_the_first_is_named(tiny_shards, tmp_path):
    train(tiny_shards, tmp_path / "run", max_steps=2)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "run").rglob("*") if path.is_file()}
    with another_process(tmp_path / "run") as process:
        named = rf"Another run is using this folder: process {process.pid} on \S+, since \d{{4}}-.*pass another folder"
        for how in ({"overwrite": True}, {"resume": "auto"}):
            with pytest.raises(BlockingIOError, match=named):
                train(tiny_shards, tmp_path / "run", max_steps=3, **how)
        after = {path: path.stat().st_mtime_ns for path in before}
        assert after == before
        assert gm.lm.evaluate(tmp_path / "run", tiny_shards).num_tokens  # reading needs no lock


def test_the_lock_of_a_killed_process_is_free(tiny_shards, tmp_path):
    with another_process(tmp_path / "run") as process:
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert train(tiny_shards, tmp_path / "run", max_steps=1).num_steps == 1
    assert not (tmp_path / "run/.lock").exists()


def test_a_worker_that_outlives_its_parent_does_not_keep_the_lock(tmp_path):
    read, write = os.pipe()
    with locked(tmp_path / "run"):
        worker = os.fork()
        if worker == 0:
            os.close(write)
            os.read(read, 1)  # until the parent closes its end
            os._exit(0)
    try:
        with locked(tmp_path / "run") as is_exclusive:
            assert is_exclusive
    finally:
        os.close(read)
        os.close(write)
        os.waitpid(worker, 0)


def test_two_runs_after_each_other_in_one_process(tiny_shards, tmp_path):
    for steps in (1, 2):
        assert train(tiny_shards, tmp_path / "run", max_steps=steps, overwrite=True).num_steps == steps


def test_of_many_that_start_at_once_one_holds_the_lock_at_a_time(tmp_path):
    inside, most, refused = [], [], []

    def try_it(_):
        for _ in range(50):
            try:
                with locked(tmp_path / "run"):
                    inside.append(1)
                    most.append(len(inside))
                    inside.pop()
            except BlockingIOError as error:
                refused.append(str(error))

    threads = [threading.Thread(target=try_it, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert max(most) == 1 and len(most) + len(refused) == 400
    assert all(re.search("process|has just started", message) for message in refused)


def test_a_lock_file_with_nonsense_in_it_is_taken_over(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run/.lock").write_bytes(b"\x00" * 9000)
    with locked(tmp_path / "run"), pytest.raises(BlockingIOError, match=f"process {os.getpid()} on"):
        locked(tmp_path / "run").__enter__()


@pytest.mark.parametrize("text", [b"[]", b"7", b'"x"', b"null", b'{"pid": 1e300}', b'{"pid": [], "host": {}}', b"\xff"])
def test_a_lock_file_of_other_json_names_no_holder(tmp_path, text):
    (tmp_path / ".lock").write_bytes(text)
    assert run_lock._holder(tmp_path / ".lock") == "a process that has just started"
    assert run_lock.where_trained(tmp_path) is None


def test_a_failed_start_leaves_no_empty_folder(tiny_shards, tmp_path):
    with pytest.raises(gm.CheckpointError, match="no such folder"):
        train(tiny_shards, tmp_path / "run", init_from=str(tmp_path / "nowhere"))
    assert not (tmp_path / "run").exists()
    (tmp_path / "mine").mkdir()
    with pytest.raises(gm.CheckpointError, match="no such folder"):
        train(tiny_shards, tmp_path / "mine", init_from=str(tmp_path / "nowhere"))
    assert list((tmp_path / "mine").iterdir()) == []


def test_what_killed_runs_have_left_is_removed_and_nothing_else(tmp_path):
    run = tmp_path / "run"
    left = [".metrics.jsonl.tmp.12.34", ".config.json.tmp.12.34", ".machine.json.tmp.1.2", ".tokenizer.json.tmp.1.2"]
    left += ["plots/.posterior.png.tmp.1.2", "checkpoints/step-000004/.model.safetensors.tmp.12"]
    folders = ["checkpoints/.step-000010.tmp.12", "checkpoints/.step-000004.removed.12", ".removed.12"]
    kept = [
        "notes.tmp.txt",
        ".report.html.tmp.1.2",
        "plots/mine.png",
        "checkpoints/notes/a.txt",
        "checkpoints/notes/.a.tmp.1",
    ]
    for name in [*left, *(f"{folder}/model.safetensors" for folder in folders), *kept]:
        (run / name).parent.mkdir(parents=True, exist_ok=True)
        (run / name).write_text("x")
    with another_process(run), pytest.raises(BlockingIOError), claimed(run, resume="auto", overwrite=False):
        pass
    assert all((run / name).exists() for name in left + folders)  # they may be in use
    with claimed(run, resume="auto", overwrite=False):
        assert sorted(str(path.relative_to(run)) for path in run.rglob("*") if path.is_file()) == sorted(
            [".lock", *kept]
        )
        assert not any((run / folder).exists() for folder in folders)


def test_a_symbolic_link_is_not_followed(tiny_shards, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "run").symlink_to(tmp_path / "elsewhere")
    for how in ({}, {"overwrite": True}, {"resume": "auto"}):
        with pytest.raises(FileExistsError, match=r"Is a symbolic link, which is not followed\. Pass a folder"):
            train(tiny_shards, tmp_path / "run", max_steps=1, **how)
    (tmp_path / "elsewhere").rmdir()  # nothing was written there
    with pytest.raises(FileExistsError, match="symbolic link"):
        train(tiny_shards, tmp_path / "run", max_steps=1)


def test_a_run_is_trained_here_while_its_lock_is_held_by_a_process_of_this_machine(tmp_path):
    assert not is_trained_here(tmp_path / "missing")
    with locked(tmp_path / "run"):
        assert is_trained_here(tmp_path / "run")
        content = json.loads((tmp_path / "run" / LOCK_FILE).read_text())
        for change in ({"host": "elsewhere"}, {"pid": 2**22 + 1}, {"pid": "x"}, {"pid": -1}, {"pid": 2**80}):
            (tmp_path / "run" / LOCK_FILE).write_text(json.dumps({**content, **change}))
            assert not is_trained_here(tmp_path / "run")
    assert not is_trained_here(tmp_path / "run")
