"""Run the fuzz targets that `make fuzz` built, each for its share of the time, and report the results.

Corpora, crashing inputs and the record of all runs are kept under build/fuzz, so that every run continues the last one:

    build/fuzz/corpus/scan/            inputs that reached new code
    build/fuzz/crashes/scan-crash-*    inputs that failed; empty after a clean run
    build/fuzz/runs.jsonl              one line per target and run
"""

import argparse
import json
import os
import re
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "cpp" / "fuzz"
FOLDER = ROOT / "build" / "fuzz"

# Longest input in bytes and dictionary. Short inputs keep the plain versions fast; kernels work on 64 bytes at once.
TARGETS = {
    "scan": (320, "text.dict"),
    "encode": (320, "text.dict"),
    "train": (200, None),
    "count": (320, "text.dict"),
    "json": (400, "json.dict"),
    "spans": (256, None),
    "vocabulary": (300, None),
}


@dataclass
class Run:
    target: str
    build: str
    executions: int
    seconds: float
    coverage: int
    corpus: int
    failed: bool


def fuzz(target: str, build: str, seconds: int) -> Run:
    max_len, dictionary = TARGETS[target]
    corpus, crashes = FOLDER / "corpus" / target, FOLDER / "crashes"
    corpus.mkdir(parents=True, exist_ok=True)
    crashes.mkdir(parents=True, exist_ok=True)
    regressions = SOURCES / "regressions" / target
    command = [
        str(FOLDER / build / f"fuzz_{target}"),
        f"-max_total_time={seconds}",
        f"-max_len={max_len}",
        f"-artifact_prefix={crashes}/{target}-",
        "-timeout=60",
        "-reload=0",
        "-print_final_stats=1",
        *([f"-dict={SOURCES / dictionary}"] if dictionary else []),
        str(corpus),
        str(SOURCES / "seeds"),
        *([str(regressions)] if regressions.is_dir() else []),
    ]
    process = subprocess.run(command, stderr=subprocess.PIPE, text=True, errors="replace", check=False)
    log = process.stderr
    (FOLDER / f"{target}.log").write_text(log, encoding="utf-8")

    def last(pattern: str) -> int:
        found = re.findall(pattern, log)
        return int(found[-1]) if found else 0

    run = Run(
        target,
        build,
        executions=last(r"number_of_executed_units:\s*(\d+)") or last(r"^#(\d+)\s"),
        seconds=seconds,
        coverage=last(r"cov: (\d+)"),
        corpus=last(r"corp: (\d+)"),
        failed=process.returncode != 0,
    )
    if run.failed:
        print("\n".join(line for line in log.splitlines() if not re.match(r"#\d+\s", line)), file=sys.stderr)
    return run


def table(runs: list[Run]) -> str:
    rows = [f"{'target':<12}{'build':<11}{'executions':>14}{'per second':>12}{'coverage':>10}{'corpus':>8}"]
    for run in runs:
        per_second = run.executions / max(run.seconds, 1)
        rows.append(
            f"{run.target:<12}{run.build:<11}{run.executions:>14,}{per_second:>12,.0f}{run.coverage:>10,}{run.corpus:>8,}"
            + ("  FAILED" if run.failed else "")
        )
    return "\n".join(rows)


def all_executions() -> int:
    lines = (FOLDER / "runs.jsonl").read_text(encoding="utf-8").splitlines()
    return sum(json.loads(line)["executions"] for line in lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", choices=["sanitized", "fast"], default="sanitized")
    parser.add_argument("--minutes", type=float, default=10, help="for all targets together")
    parser.add_argument("--target", choices=TARGETS, action="append", help="default: every target")
    options = parser.parse_args()

    targets = options.target or list(TARGETS)
    seconds = max(1, round(options.minutes * 60 / len(targets)))
    runs = []
    for target in targets:
        print(f"{target}: {seconds} s", flush=True)
        run = fuzz(target, options.build, seconds)
        runs.append(run)
        with (FOLDER / "runs.jsonl").open("a", encoding="utf-8") as record:
            record.write(json.dumps(asdict(run)) + "\n")
    print(table(runs))
    print(f"{all_executions():,} executions in all runs recorded in {os.path.relpath(FOLDER / 'runs.jsonl')}")
    if any(run.failed for run in runs):
        print(f"Failing inputs are in {os.path.relpath(FOLDER / 'crashes')}; docs/fuzzing.md says what to do with one.")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
