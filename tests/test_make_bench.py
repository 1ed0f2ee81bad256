"""`make bench`: a package that cannot be installed, or a benchmark that fails, does not stop the next one."""

import os
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ACTIONS = ["train", "encode", "pipeline", "scaling", "ablation"]


def test_a_package_that_cannot_be_installed_is_reported_and_the_others_are_installed(monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import install_rivals

    calls = []

    def run(command):
        calls.append(command)
        return subprocess.CompletedProcess(command, int(command[-1].startswith("gigabpe")))

    monkeypatch.setattr(install_rivals.subprocess, "run", run)
    install_rivals.main(["--constraint", "constraints.txt"])
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert [command[-1] for command in calls] == project["optional-dependencies"]["bench"]
    assert all(command[1:4] == ["-m", "pip", "install"] and "constraints.txt" in command for command in calls)
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("not installed: gigabpe>=") and last.endswith("Continuing without them.")


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
@pytest.mark.parametrize(
    ("codes", "last", "worst"),
    [
        ({}, "ablation", 0),
        ({"train": 1, "pipeline": 2, "ablation": 1}, "ablation", 2),
        ({"train": 139}, "ablation", 139),
        ({"encode": 130}, "encode", 130),  # Ctrl-C
    ],
)
def test_every_benchmark_runs_and_the_worst_exit_code_is_reported(tmp_path, codes, last, worst):
    folder = tmp_path / "bin"
    folder.mkdir()
    cases = "".join(f"{action}) exit {code};; " for action, code in codes.items())
    scripts = {"python": 'echo "$@"', "gristmill": f'echo "ran $2"; case $2 in {cases} esac'}
    for name, script in scripts.items():
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)
    command = ["make", "bench", f"VENV={tmp_path}", f"--old-file={tmp_path}/.installed"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")} | {"LC_ALL": "C"}
    made = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert [line[4:] for line in made.stdout.splitlines() if line.startswith("ran ")] == [
        *ACTIONS[: ACTIONS.index(last) + 1]
    ]
    assert "tools/install_rivals.py --constraint constraints.txt" in made.stdout.splitlines()[0]
    assert (f"Error {worst}" in made.stderr, made.returncode) == (bool(worst), 2 if worst else 0)
