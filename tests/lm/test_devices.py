"""Several devices: checks before they start, one error for all, and no process that outlives the first."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from gristmill.errors import OptionError
from gristmill.lm.training.processes import error_line
from lm.tiny_runs import train

# `{trouble}` runs in every process, with access to `rank` and the names it may patch.
SCRIPT = """
import json, os, sys, time
sys.path[:0] = json.loads(sys.argv[1])
from gristmill.lm.training.run import Run
from lm.tiny_runs import train
rank, log = int(os.environ.get("LOCAL_RANK", "0")), Run.log
{trouble}
if __name__ == "__main__":
    print("before training")
    train(sys.argv[2], sys.argv[3], **json.loads(sys.argv[4]))
    print("after training")
"""

needs_two_cores = pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="one core, one device")
needs_proc = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="children are found in /proc")


def start_on_two(folder, shards, *, trouble="", **options):
    """Start a process that trains on two devices and starts the second process itself."""
    script = folder / "script.py"
    script.write_text(SCRIPT.format(trouble=textwrap.dedent(trouble)))
    environment = {key: value for key, value in os.environ.items() if key not in ("LOCAL_RANK", "RANK", "WORLD_SIZE")}
    options = {"devices": 2, "strategy": "ddp", "log_interval": 1, **options}
    paths = json.dumps([path for path in sys.path if path])
    return subprocess.Popen(
        [sys.executable, str(script), paths, str(shards), str(folder / "run"), json.dumps(options)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**environment, "OMP_NUM_THREADS": "1"},
    )


def outcome(process):
    """Return (exit code, stdout, stderr). A process that hangs fails the test."""
    try:
        output, errors = process.communicate(timeout=120)
    except subprocess.TimeoutExpired:
        process.kill()
        pytest.fail("the run hangs")
    return process.returncode, output, errors


def children(process):
    return [int(pid) for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_until(condition, what):
    for _ in range(600):
        if condition():
            return
        time.sleep(0.1)
    pytest.fail(f"{what} does not come")


# Checked before anything is started


def test_more_devices_than_cores_are_refused_before_the_folder_is_made(tiny_shards, tmp_path):
    too_many = (os.cpu_count() or 1) + 1
    with pytest.raises(OptionError, match=f"devices={too_many} is more than the {too_many - 1} cores? of kind 'cpu'"):
        train(tiny_shards, tmp_path / "run", devices=too_many)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("length", [{"max_steps": 20}, {"max_steps": None, "epochs": 0.1}])
def test_a_warm_up_longer_than_the_run_is_refused_before_the_folder_is_made(tiny_shards, tmp_path, length):
    with pytest.raises(OptionError, match="warmup_steps=500 is longer than the run"):
        train(tiny_shards, tmp_path / "run", warmup_steps=500, **length)
    assert not (tmp_path / "run").exists()


def test_a_warm_up_longer_than_the_run_keeps_the_run_that_was_to_be_overwritten(tiny_shards, tmp_path):
    train(tiny_shards, tmp_path / "run", max_steps=2)
    with pytest.raises(OptionError, match="warmup_steps"):
        train(tiny_shards, tmp_path / "run", warmup_steps=500, overwrite=True)
    assert list((tmp_path / "run" / "checkpoints").glob("step-*"))


# Output and errors of one program


@needs_two_cores
def test_a_program_on_two_devices_prints_everything_once(tiny_shards, tmp_path):
    trouble = "import warnings; warnings.warn('a warning of the script')"
    code, output, errors = outcome(start_on_two(tmp_path, tiny_shards, max_steps=2, trouble=trouble))
    assert code == 0, errors
    assert output.split("\n") == ["before training", "after training", ""]
    assert errors.count("UserWarning: a warning of the script") == 1


@needs_two_cores
def test_an_error_of_all_processes_is_shown_once(tiny_shards, tmp_path):
    code, _, errors = outcome(start_on_two(tmp_path, tiny_shards, init_from=str(tmp_path / "nowhere")))
    assert code == 1
    assert errors.count("Traceback") == 1, errors
    assert errors.count("nowhere") == 1, errors


@needs_two_cores
def test_an_error_of_the_second_process_is_raised_by_the_first(tiny_shards, tmp_path):
    trouble = """
        def fail(run):
            raise ValueError("the second device is on strike")
        if rank == 1:
            Run.log = fail
    """
    code, _, errors = outcome(start_on_two(tmp_path, tiny_shards, trouble=trouble))
    assert code == 1
    assert errors.count("Traceback") == 1, errors
    assert errors.rstrip().endswith(
        "TrainingError: the process of device 1 (of 0 to 1) failed: ValueError: the second device is on strike"
    )


@needs_two_cores
def test_an_error_of_the_first_process_is_not_hidden_by_that_of_the_second(tiny_shards, tmp_path):
    trouble = """
        def fail(run):
            raise ValueError("the first device is on strike")
        if rank == 0:
            Run.log = fail
    """
    code, _, errors = outcome(start_on_two(tmp_path, tiny_shards, trouble=trouble))
    assert code == 1
    assert errors.count("Traceback") == 1, errors
    assert errors.rstrip().endswith("ValueError: the first device is on strike")


@needs_two_cores
def test_a_second_process_that_never_joins_ends_the_run_with_its_message(tiny_shards, tmp_path):
    trouble = "if rank == 1: sys.exit('no room on the second device')"
    code, _, errors = outcome(start_on_two(tmp_path, tiny_shards, trouble=trouble))
    assert code == 1
    assert (
        errors.strip() == "gristmill: error: the process of device 1 (of 0 to 1) failed: no room on the second device"
    )


@needs_two_cores
@needs_proc
def test_a_second_process_that_was_killed_ends_the_run_and_is_named(tiny_shards, tmp_path):
    process = start_on_two(tmp_path, tiny_shards, max_steps=10**6)
    metrics = tmp_path / "run" / "metrics.jsonl"
    wait_until(lambda: metrics.exists() and metrics.stat().st_size, "the first step")
    for pid in children(process):
        os.kill(pid, signal.SIGKILL)
    code, _, errors = outcome(process)
    assert code == 1
    assert errors.count("the process of device 1 (of 0 to 1) was killed by SIGKILL") == 1, errors


@needs_two_cores
@needs_proc
@pytest.mark.parametrize("asked", [False, True], ids=["at_work", "after_a_noted_sigterm"])
def test_the_second_process_ends_when_the_first_is_killed(tiny_shards, tmp_path, asked):
    trouble = """
        def busy(run):
            if run.step > 2:
                time.sleep(3600)
            log(run)
        if rank == 1:
            Run.log = busy
    """
    process = start_on_two(tmp_path, tiny_shards, max_steps=10**6, trouble=trouble)
    metrics = tmp_path / "run" / "metrics.jsonl"
    wait_until(lambda: metrics.exists() and metrics.read_text().count('"train"') >= 2, "the second step")
    (child,) = children(process)
    if asked:  # the loop handles it between two steps, which never happens again
        os.kill(child, signal.SIGTERM)
    process.kill()
    process.communicate()
    wait_until(lambda: not is_running(child), "the end of the second process")


# Output of a process


@pytest.mark.parametrize(
    "printed, line",
    [
        ("", ""),
        ("gristmill: warning: small\ngristmill: error: too large", "too large"),
        ("Traceback (most recent call last):\n  File 'a'\nKeyError: 3\n", "KeyError: 3"),
        ("Traceback (most recent call last):\n  x\ngristmill.errors.OptionError: no\n[W] a warning at exit", "no"),
        ("Traceback (…):\n  x\nKeyError: 3\n\nDuring …:\n\nTraceback (…):\n  x\nOSError: 4", "OSError: 4"),
        ("[rank1]: Traceback (…):\n[rank1]:   File 'a'\n[rank1]: KeyError: 3", "KeyError: 3"),
        ("one\ntwo\n\n", "two"),
    ],
)
def test_the_line_of_an_error_is_found_in_what_a_process_printed(printed, line):
    assert error_line(printed.split("\n")) == line
