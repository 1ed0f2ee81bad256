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
import resource
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

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
    "runs": (300, None),
    "characters": (32, None),
}

# Otherwise glibc maps and unmaps every array of 128 KiB, which takes longer than the work of an execution.
ENVIRONMENT = {"GLIBC_TUNABLES": "glibc.malloc.mmap_threshold=1073741824:glibc.malloc.trim_threshold=1073741824"}


@dataclass
class Run:
    target: str
    build: str
    executions: int
    seconds: float
    cpu_seconds: float
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
        "-timeout=10",
        "-reload=0",
        "-print_final_stats=1",
        *([f"-dict={SOURCES / dictionary}"] if dictionary else []),
        str(corpus),
        str(SOURCES / "seeds"),
        *([str(regressions)] if regressions.is_dir() else []),
    ]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    process = subprocess.run(
        command, env=os.environ | ENVIRONMENT, stderr=subprocess.PIPE, text=True, errors="replace", check=False
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
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
        cpu_seconds=round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 1),
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


def recorded() -> list[dict[str, Any]]:
    lines = (FOLDER / "runs.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def all_executions() -> int:
    return sum(run["executions"] for run in recorded())


def write_summary(path: Path) -> None:
    """Write one line per target and build: the sums of all recorded runs."""
    sums: dict[tuple[str, str], dict[str, Any]] = {}
    for run in recorded():
        key = (run["target"], run["build"])
        line = sums.setdefault(key, {"target": key[0], "build": key[1], "runs": 0, "executions": 0, "failed_runs": 0})
        line["runs"] += 1
        line["executions"] += run["executions"]
        line["failed_runs"] += run["failed"]
    path.write_text("".join(json.dumps(sums[key]) + "\n" for key in sorted(sums)), encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", choices=["sanitized", "fast"], default="sanitized")
    parser.add_argument("--minutes", type=float, default=10, help="for all targets together")
    parser.add_argument("--target", choices=TARGETS, action="append", help="default: every target")
    parser.add_argument("--summary", type=Path, help="run nothing; write the sums of the record to this file")
    options = parser.parse_args()
    if options.summary:
        write_summary(options.summary)
        return 0

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
