"""Check count and merge on the GPU of this machine: `make check-gpu`.

    tests        the tests of tests/gpu that need a GPU
    suite        the CPU's tests of counting, merging and training, with every call that may use a GPU on the GPU
    models       the tests of Triton kernels, CUDA graphs and page-locked batches
    recount      training with GRISTMILL_GPU_CHECK=1: all pairs are counted again after every launch
    memcheck, racecheck, initcheck, synccheck
                 a short training under compute-sanitizer of the CUDA toolkit, if it is installed

The outcome, with machine, versions, commit and command, goes to benchmarks/results/gpu_checks.md.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from gristmill.bench.machine import describe_run
from gristmill.bench.tables import markdown_table, write_result
from gristmill.gpu import devices

ROOT = Path(__file__).resolve().parent.parent
SANITIZERS = ("memcheck", "racecheck", "initcheck", "synccheck")
SUITE = ("tests/count", "tests/merge", "tests/test_train.py", "tests/properties", "tests/test_reference.py")
MODELS = ("tests/lm/kernels", "tests/lm/test_graphed_step.py", "tests/lm/test_sequences_workers.py")
MOST_SECONDS = 1800
# Trains with every tie-break, and counts with every pattern, on the GPU and on the CPU.
TRAINING = """
import sys
import gristmill as gm
from gristmill import _core
from gristmill.arguments import TIE_BREAKS
from gristmill.sample_corpus import write_sample_corpus
path, num_bytes, vocab_size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
write_sample_corpus(path, num_bytes, 0)
for tie_break in TIE_BREAKS:
    on_gpu, on_cpu = (
        gm.train_tokenizer(path, vocab_size=vocab_size, tie_break=tie_break, device=device, progress=None)
        for device in ("cuda", "cpu")
    )
    assert on_gpu == on_cpu, tie_break
for pattern in _core.PATTERNS:
    on_gpu, on_cpu = (gm.count_words(path, pattern=pattern, device=device, progress=None) for device in ("cuda", "cpu"))
    assert on_gpu == on_cpu and list(on_gpu) == list(on_cpu), pattern
print("equal to the CPU")
"""


class Outcome(NamedTuple):
    """The outcome of one check."""

    check: str
    seconds: float
    has_passed: bool
    last_line: str


def run_check(check: str, command: list[str], **environment: str) -> Outcome:
    """Run a command. It has passed if its exit code is 0."""
    began = time.perf_counter()
    print(f"{check}: running", flush=True)
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=os.environ | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=MOST_SECONDS,
        )
        output, has_passed = done.stdout, done.returncode == 0
    except subprocess.TimeoutExpired:
        output, has_passed = f"stopped after {MOST_SECONDS} s", False
    lines = [line for line in output.splitlines() if line.strip()] or ["no output"]
    if not has_passed:
        print("\n".join(lines[-40:]), flush=True)
    outcome = Outcome(check, time.perf_counter() - began, has_passed, lines[-1].strip("= "))
    print(f"{check}: {'passed' if has_passed else 'FAILED'}, {outcome.last_line}", flush=True)
    return outcome


def checks(folder: Path, chosen: list[str]) -> list[Outcome]:
    """Run the chosen checks."""
    text = str(folder / "check.txt")
    training = [sys.executable, "-c", TRAINING, text]
    outcomes = []
    if "tests" in chosen:
        outcomes.append(run_check("tests", [sys.executable, "-m", "pytest", "-q", "tests/gpu", "-k", "cuda"]))
    if "suite" in chosen:
        outcomes.append(run_check("suite", [sys.executable, "-m", "pytest", "-q", "--device", "cuda", *SUITE]))
    if "models" in chosen:
        outcomes.append(run_check("models", [sys.executable, "-m", "pytest", "-q", *MODELS]))
    if "recount" in chosen:
        outcomes.append(run_check("recount", [*training, "20000000", "8000"], GRISTMILL_GPU_CHECK="1"))
    sanitizer = shutil.which("compute-sanitizer")
    for tool in SANITIZERS:
        if tool not in chosen:
            continue
        if sanitizer is None:
            outcomes.append(Outcome(tool, 0, False, "compute-sanitizer is not installed"))
            continue
        command = [sanitizer, "--tool", tool, "--error-exitcode", "9", *training, "300000", "400"]
        outcomes.append(run_check(tool, command, GRISTMILL_GPU_CHECK="1"))
    return outcomes


def main() -> int:
    """Parse the options, run the checks and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = ("tests", "suite", "models", "recount", *SANITIZERS)
    parser.add_argument("--checks", default=",".join(names), help="default: %(default)s")
    parser.add_argument("--folder", type=Path, default=ROOT / "build", help="folder for the text")
    parser.add_argument("--output", type=Path, default=ROOT / "benchmarks" / "results", help="folder for the table")
    options = parser.parse_args()
    chosen = options.checks.split(",")
    if unknown := sorted(set(chosen) - set(names)):
        sys.exit(f"--checks {unknown[0]} is not valid. Pass names from {', '.join(names)}.")
    if (reason := devices.missing_gpu()) is not None:
        sys.exit(f"check_gpu.py needs a GPU, but {reason}.")
    options.folder.mkdir(parents=True, exist_ok=True)
    outcomes = checks(options.folder, chosen)
    rows = [
        [each.check, "passed" if each.has_passed else "failed", f"{each.seconds:.0f}", each.last_line]
        for each in outcomes
    ]
    write_result(
        "gpu_checks",
        title="Checks of count and merge on a GPU",
        about={"GPU": devices.device_names(devices.open_gpus())}
        | describe_run(["gristmill", "numpy", "cupy-cuda12x", "cupy-cuda13x"]),
        body=markdown_table(["check", "outcome", "seconds", "last line"], rows),
        data={"rows": [each._asdict() for each in outcomes]},
        folder=options.output,
    )
    return 0 if all(each.has_passed for each in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
