"""Measure the boundary scan: GB/s of each kernel for each pattern, one thread, text in memory.

Builds bench_pretokenize.cpp against the sources of this repository (needs cmake and a C++20 compiler; Release flags, no
-march=native), checks that all kernels find the same pieces, and writes benchmarks/results/pretokenize_CORPUS.md.

    python benchmarks/bench_pretokenize.py
    python benchmarks/bench_pretokenize.py --corpus multilingual --patterns gpt2,cl100k
    python benchmarks/bench_pretokenize.py --quick                     5 MB sample corpus, 3 passes, nothing written
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from gristmill.bench import corpora
from gristmill.bench.machine import describe_run
from gristmill.bench.tables import markdown_table, write_result
from results_folder import RESULTS

PATTERNS = ("gpt2", "cl100k", "o200k", "llama3", "qwen2", "whitespace")
HEADER = ["pattern, kernel", "median GB/s", "best GB/s", "worst GB/s", "median GB/CPU s", "bytes/piece", "passes"]


def main() -> int:
    """Build, measure, compare, show, write."""
    options = _options()
    corpus = corpora.resolve(options.corpus)
    program = _build()
    rows = _measure(program, corpus.path, options.passes, options.patterns)
    if wrong := _kernels_that_differ(rows):
        print("\n".join(["PIECES DIFFER, no time is reported:", *wrong]), file=sys.stderr)
        return 1
    title = f"Boundary scan: {corpus.name} ({corpus.megabytes:.1f} MB), one thread"
    table = markdown_table(HEADER, [_row(row) for row in rows])
    print(f"{title}\n\n{table}")
    if not options.quick:
        about = {"corpus": corpus.what} | describe_run([])
        name = f"pretokenize_{corpus.name}"
        write_result(name, title=title, about=about, body=table, data={"kernels": rows}, folder=options.output)
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", default="english", help=f"{' | '.join(corpora.NAMES)} | PATH (default: english)")
    parser.add_argument("--patterns", type=lambda t: t.split(","), default=list(PATTERNS), help=",".join(PATTERNS))
    parser.add_argument("--passes", type=int, default=9, help="passes over the whole text (default: 9)")
    parser.add_argument(
        "--output", type=Path, default=RESULTS, help="folder for the tables (default: the committed one)"
    )
    parser.add_argument("--quick", action="store_true", help="5 MB sample corpus, 3 passes, no files")
    options = parser.parse_args()
    if options.quick:
        options.corpus, options.passes = "sample:5MB", 3
    return options


def _build() -> Path:
    cmake = shutil.which("cmake", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]))
    if cmake is None:
        raise SystemExit("cmake is not installed. Run `pip install cmake` and try again.")
    source = Path(__file__).resolve().parent
    build = source.parent / "build" / "benchmarks"
    for arguments in (["-S", str(source), "-B", str(build)], ["--build", str(build), "--parallel", "2"]):
        subprocess.run([cmake, *arguments], check=True, stdout=subprocess.DEVNULL)
    return build / "bench_pretokenize"


def _measure(program: Path, text: Path, num_passes: int, patterns: Sequence[str]) -> list[dict[str, Any]]:
    command = [str(program), str(text), str(num_passes), *patterns]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return [json.loads(line) for line in output.splitlines()]


def _kernels_that_differ(rows: Sequence[dict[str, Any]]) -> list[str]:
    scalar = {row["pattern"]: row["checksum"] for row in rows if row["kernel"] == "scalar"}
    return [f"{row['pattern']}, {row['kernel']}" for row in rows if row["checksum"] != scalar[row["pattern"]]]


def _row(row: dict[str, Any]) -> list[str]:
    speeds = [row["num_bytes"] / run["seconds"] / 1e9 for run in row["passes"]]
    cpu_speeds = [row["num_bytes"] / run["cpu_seconds"] / 1e9 for run in row["passes"]]
    return [
        f"{row['pattern']}, {row['kernel']}",
        *(f"{speed:.2f}" for speed in (median(speeds), max(speeds), min(speeds), median(cpu_speeds))),
        f"{row['num_bytes'] / row['num_pieces']:.2f}",
        str(len(speeds)),
    ]


if __name__ == "__main__":
    sys.exit(main())
