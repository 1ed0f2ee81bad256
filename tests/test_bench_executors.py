"""benchmarks/bench_executors.py runs, compares results and gives every figure; without Ray, whose start takes long."""

import os
import subprocess
import sys
from pathlib import Path

from gristmill.sample_corpus import write_sample_corpus

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "bench_executors.py"


def test_it_measures_each_executor_on_the_same_file_and_the_driver_alone(tmp_path):
    write_sample_corpus(tmp_path / "corpus.txt", 300_000, 0)
    command = [sys.executable, SCRIPT, "--quick", "--executors", "local,processes", "--tasks", "encode"]
    run = subprocess.run(
        [*command, "--corpus", tmp_path / "corpus.txt", "--folder", tmp_path],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert run.returncode == 0, run.stderr[-2000:]
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in run.stdout.splitlines() if line[:1] == "|"]
    local, processes = (dict(zip(lines[0], line, strict=True)) for line in lines[2:])
    assert (local["executor"], local["of local"], local["worker MB"]) == ("local", "1.00", "")
    assert processes["executor"] == "processes" and float(processes["worker MB"]) > 10
    assert "The driver alone, 100 parts" in run.stdout
