"""tools/soak.py: a few seconds of the work that `make soak` does for minutes, and each of its bars can fail."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
SCRIPT = Path(__file__).parents[2] / "tools" / "soak.py"


def soak(tmp_path, *kinds, minutes, **options):
    """Return (exit code, content of soak.json, content of soak.md)."""
    command = [sys.executable, str(SCRIPT), "--minutes", str(minutes), "--output", str(tmp_path), "--kinds", *kinds]
    command += [text for name, value in options.items() for text in (f"--{name}", str(value))]
    path = os.pathsep.join(filter(None, sys.path))
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, env={**os.environ, "PYTHONPATH": path})
    assert done.returncode in (0, 1), done.stderr
    return done.returncode, json.loads((tmp_path / "soak.json").read_text()), (tmp_path / "soak.md").read_text()


def failed(report):
    return [bar["bar"].partition(":")[0] for bar in report["bars"] if not bar["holds"]]


def test_some_seconds_of_each_kind_without_torch_find_no_error(tmp_path):
    pytest.importorskip("pyarrow")
    pytest.importorskip("uvicorn")
    kinds = ("tokenizers", "training", "encoding", "pages")
    # One pause: in the first seconds, a process still opens files and takes memory that it keeps.
    code, report, page = soak(tmp_path, *kinds, minutes=0.05, pauses=1)
    assert report["errors"] == [] and failed(report) == [] and code == 0, page
    assert report["operations"].keys() == set(kinds)
    assert all(sum(counts.values()) for counts in report["operations"].values())
    assert {"pipeline", "server of the pages"} < {process["process"] for process in report["processes"]}


def test_errors_and_everything_that_grows_or_is_left_fail_their_bars(tmp_path):
    kinds = [f"faults.broken_kinds:{name}" for name in ("Failing", "Leaking", "Littering", "Idle")]
    code, report, page = soak(tmp_path, *kinds, minutes=0.05, pauses=6)
    assert code == 1
    assert failed(report) == [bar["bar"].partition(":")[0] for bar in report["bars"]], page
    assert "ValueError: the third operation fails" in page and "broken_kinds.py" in page
    assert any("sleep 1000" in process for process in report["processes_left"])
    assert report["operations"][kinds[0]]["broken"] > 3, "the work continues after an error"


def test_all_processes_end_when_the_command_is_killed(tmp_path):
    kinds = [f"faults.broken_kinds:{name}" for name in ("Idle", "Waiting")]
    command = [sys.executable, str(SCRIPT), "--minutes", "10", "--pauses", "600", "--output", str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "TMPDIR": str(tmp_path)}
    with subprocess.Popen([*command, "--kinds", *kinds], env=environment) as process:
        wait_for(lambda: list(tmp_path.glob("*/run/kinds/*Waiting/works")))
        process.kill()
    wait_for(lambda: not processes_with(str(tmp_path)))


def processes_with(text):
    found = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    return [line for line in found.splitlines() if text in line]


def wait_for(condition):
    end = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("kind", "about"),
    [("Crashing", "ended with exit code -11"), ("Hanging", "hanging was not paused within 2")],
)
def test_a_process_that_crashes_or_hangs_is_an_error_that_shows_where(tmp_path, kind, about):
    code, report, page = soak(tmp_path, f"faults.broken_kinds:{kind}", minutes=0.02, pauses=1, patience=2)
    assert code == 1 and about in page and "in fail" in page
    assert "errors" in failed(report)
