"""Mutate valid files of every kind that Python parses, read them, and report what no file may cause.

    python tools/fuzz_files.py --files 10000 --seed 1 --kind words

tests/faults/mutated has the kinds, the mutations and the checks. Folders of findings are kept in build/fuzz/files, and
every run appends one line per kind to build/fuzz/files.jsonl. The exit code is 1 if there is a finding.
"""

import argparse
import datetime
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "tests"))

from faults.mutated.fuzzing import Report, fuzz  # noqa: E402
from faults.mutated.kinds import KIND_NAMES, find_kind, shares  # noqa: E402

KEPT = ROOT / "build" / "fuzz" / "files"
PAGE = ROOT / "docs" / "fuzzing.md"
BEGIN, END = "<!-- mutated files: begin -->\n", "<!-- mutated files: end -->\n"
RECORD = ROOT / "build" / "fuzz" / "files.jsonl"


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--files", type=int, default=100_000, help="number of mutated files, of all kinds together")
    parser.add_argument("--seed", type=int, default=0, help="the same seed gives the same files")
    parser.add_argument("--kind", choices=KIND_NAMES, action="append", help="only this kind; may be repeated")
    parser.add_argument("--first", type=int, default=0, help="number of the first file, to repeat a finding")
    parser.add_argument("--summary", action="store_true", help="write the sums of all recorded runs to docs/fuzzing.md")
    return parser.parse_args()


def main() -> int:
    options = parse_arguments()
    if options.summary:
        write_summary()
        return 0
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    folder = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    reports = []
    for name in options.kind or KIND_NAMES:
        find_kind(name)  # all modules are imported now, so that a change of one during a long run has no effect
    with tempfile.TemporaryDirectory(prefix="gristmill-fuzz-", dir=folder) as root:
        for name, files in shares(options.files, options.kind or KIND_NAMES).items():
            numbers = range(options.first, options.first + files)
            report = fuzz(name, numbers, seed=options.seed, root=Path(root), kept=KEPT)
            show(report)
            if options.first == 0:  # otherwise it repeats files of an earlier run
                record(report, options.seed)
            reports.append(report)
    total, findings = sum(report.files for report in reports), sum(len(report.findings) for report in reports)
    print(f"{total:,} files, {findings:,} findings" + (f"; see {KEPT.relative_to(ROOT)}" if findings else ""))
    return 1 if findings else 0


def summary() -> str:
    """Return a table in Markdown: the distinct files of each kind that were read since its last finding."""
    runs = [json.loads(line) for line in RECORD.read_text(encoding="utf-8").splitlines()] if RECORD.exists() else []
    longest: dict[str, dict[int, Any]] = {name: {} for name in KIND_NAMES}  # by seed: a shorter run has the same files
    for run in runs:
        by_seed = longest[run["kind"]]
        if run["findings"]:
            by_seed.clear()
        elif run["files"] > by_seed.get(run["seed"], {"files": 0})["files"]:
            by_seed[run["seed"]] = run
    sums = {
        name: (
            sum(run["files"] for run in by_seed.values()),
            sum(run["outcomes"].get("result", 0) for run in by_seed.values()),
            max((run["slowest_seconds"] for run in by_seed.values()), default=0.0),
        )
        for name, by_seed in longest.items()
    }
    rows = [("kind", "files", "accepted", "refused", "slowest"), ("---",) * 5]
    rows += [
        (f"`{name}`", f"{files:,}", f"{results:,}", f"{files - results:,}", f"{slowest:.2f} s")
        for name, (files, results, slowest) in sums.items()
    ]
    total = sum(files for files, _, _ in sums.values())
    return "\n".join("| " + " | ".join(row) + " |" for row in rows) + f"\n\nTogether {total:,} files."


def write_summary() -> None:
    """Write the table to the page, between its markers."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n{summary()}\n\n{END}{rest.partition(END)[2]}", encoding="utf-8")


def show(report: Report) -> None:
    rate = report.files / max(report.seconds, 1e-9)
    errors = sum(number for outcome, number in report.outcomes.items() if outcome != "result")
    print(
        f"{report.kind:24} {report.files:>10,} files  {report.outcomes['result']:>9,} results  {errors:>9,} errors  "
        f"{len(report.findings):>3} findings  {rate:>7,.0f}/s  slowest {report.slowest_seconds:.2f} s",
        flush=True,
    )
    seen = set()
    for finding in report.findings:
        shown = finding["finding"].strip()
        if (key := shown.splitlines()[-1][:60]) not in seen:
            seen.add(key)
            print(f"  file {finding['number']}, {finding.get('reader', '?')}: {shown}", flush=True)


def record(report: Report, seed: int) -> None:
    RECORD.parent.mkdir(parents=True, exist_ok=True)
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    with RECORD.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"date": now, "seed": seed, **json.loads(report.line())}) + "\n")


if __name__ == "__main__":
    sys.exit(main())
