"""`pytest --device emulator` runs the CPU's tests on a GPU: here some of merging, so that the option keeps working."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Passes only if the option has an effect.
PROBE = """
import gristmill as gm

def test_probe():
    stages = gm.train_tokenizer(["low low lower"], vocab_size=260, progress=None).profile.stages
    assert {stage.device for stage in stages} == {"the emulator"}
"""


def test_the_tests_of_the_cpu_pass_on_a_gpu(kernel_folder, tmp_path):
    probe = tmp_path / "test_probe.py"
    probe.write_text(PROBE)
    tests = ["tests/merge/test_merge_counts.py"]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "--rootdir", ROOT, "--device", "emulator"]
    run = subprocess.run(
        [*command, "-c", ROOT / "pyproject.toml", *tests, probe], cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-1000:]
