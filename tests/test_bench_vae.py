"""benchmarks/bench_vae.py: every row is measured in every round, and the documentation shows what was measured."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

ROOT = Path(__file__).parent.parent
SCRIPT = ROOT / "benchmarks" / "bench_vae.py"


def bench(*arguments):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(SCRIPT), "--device", "cpu", "--small", "--eager", *map(str, arguments)]
    return subprocess.run(command, check=True, timeout=400, env=environment, capture_output=True, text=True)


@pytest.mark.skipif(os.environ.get("GRISTMILL_SOAK", "") in ("", "0"), reason="minutes; GRISTMILL_SOAK=1 runs it")
def test_every_row_of_the_ladder_is_measured_in_the_rounds_that_there_is_time_for(tmp_path):
    options = ["--documents", 80, "--rounds", 2, "--share", 0.2, "--seconds", 0, "--output", tmp_path]
    assert "no time for round 2" in bench("--parts", "ladder", *options).stdout
    found = json.loads((tmp_path / "vae_ladder.json").read_text())
    assert {len(blocks) for blocks in found["rungs"].values()} == {1}
    assert all(block["tokens_per_second"] > 0 for blocks in found["rungs"].values() for block in blocks)
    (first, *_) = next(iter(found["rungs"].values()))
    assert first["validations"] > 0 and first["monitored"] > 0
    padding = {name: blocks[0]["padding"] for name, blocks in found["rungs"].items()}
    assert padding["length limit 1,000"] < padding["pinned memory"]
    assert padding["dynamic padding"] < padding["accumulation 2"]
    assert all(name in (tmp_path / "vae_ladder.md").read_text() for name in found["rungs"])


def test_the_step_and_the_monitor_are_measured_in_blocks_of_one_run(tmp_path):
    options = ["--documents", 80, "--rounds", 2, "--step-block", 3, "--blocks", 1, "--block-steps", 3]
    bench("--parts", "step,monitor", *options, "--output", tmp_path)
    blocks = json.loads((tmp_path / "vae_step.json").read_text())["blocks"]
    assert {name: len(each) for name, each in blocks.items()} == {"eager, without graphs": 2}
    assert all(block["ms"] > 0 and block["cpu_ms"] > 0 for each in blocks.values() for block in each)
    assert "eager, without graphs" in (tmp_path / "vae_step.md").read_text()
    assert len(json.loads((tmp_path / "vae_monitor.json").read_text())["overheads"]["every 100 steps"]) == 1


def test_the_table_of_the_documentation_is_that_of_the_committed_results(monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    import bench_vae

    found = json.loads((SCRIPT.parent / "results" / "vae_ladder.json").read_text())
    shown = (ROOT / "docs" / "vae.md").read_text(encoding="utf-8")
    begin, end = bench_vae.MARKS
    assert shown.partition(begin)[2].partition(end)[0].strip() == bench_vae.ladder_table(found["rungs"])
