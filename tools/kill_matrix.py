"""Kill every long command many times at random, run it again, and compare its files with those of an undisturbed run.

    python tools/kill_matrix.py --kills 50                              every scenario of tests/faults/kills.py
    python tools/kill_matrix.py --kills 50 --scenario "encode, llmc"    one of them, or several with a common beginning
    python tools/kill_matrix.py --list                                  the names of the scenarios

Prints one line per scenario. With `--record`, writes the table to benchmarks/results/kill_matrix.md, and every kill to
kill_matrix.json: scenarios that were not played keep their last result. The exit code is 1 if a rerun differed, left
a file or a process, or did not end.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "benchmarks")]

from faults.kill_cluster import KillCluster  # noqa: E402
from faults.kill_inputs import make_inputs  # noqa: E402
from faults.kill_play import Result, Stage, play, private_folder  # noqa: E402
from faults.kill_runners import ColdRunner, WarmRunner, warm_modules  # noqa: E402
from faults.kills import SCENARIOS  # noqa: E402
from gristmill.bench.machine import describe_run  # noqa: E402
from gristmill.bench.tables import markdown_table, write_result  # noqa: E402
from results_folder import RESULTS  # noqa: E402

NAME = "kill_matrix"
HEADER = ("command", "kills", "victims", "ended before", "sequences", "identical", "files left", "s per run", "start")
BODY = """\
Each command was killed with SIGKILL at random times, once or several times in a row, and then ran until it was done.
A sequence is identical if every file that it left has the SHA-256 of an undisturbed run, and nothing else was left:
neither beside the output, nor in the temporary folder, nor a running process.

* *victims*: the driver with all its processes (group), the driver alone, or a worker or node while the driver continues
* *ended before*: runs that ended before the chosen time
* *s per run*: the shortest undisturbed run
* *start*: *cold* is a fresh Python for each run; *warm* is a process forked from one that has imported all packages"""


def main() -> int:
    arguments = parse()
    chosen = [one for one in SCENARIOS if not arguments.scenario or one.name.startswith(tuple(arguments.scenario))]
    if arguments.list:
        print("\n".join(one.name for one in chosen))
        return 0
    if not chosen:
        print(f"No scenario begins with {arguments.scenario}. Pass --list to see their names.", file=sys.stderr)
        return 2
    results: list[Result] = []
    cluster: KillCluster | None = None
    with private_folder() as folder, contextlib.ExitStack() as stack:
        inputs = make_inputs(folder / "in", num_bytes=arguments.bytes, num_words=arguments.words)
        for one in chosen:
            missing = [name for name in one.needs if importlib.util.find_spec(name) is None]
            if missing:
                print(f"{one.name}: skipped, because {', '.join(missing)} is not installed")
                continue
            if one.on_cluster and cluster is None:
                cluster = KillCluster(num_cpus=1, object_store_memory=80_000_000)
                stack.callback(cluster.close)
            runner = WarmRunner(warm_modules(one)) if arguments.warm else ColdRunner()
            with contextlib.closing(runner):
                stage = Stage(folder / f"{len(results)}", runner, inputs, cluster if one.on_cluster else None)
                limit = 60 * arguments.minutes
                result = play(one, stage, num_kills=arguments.kills, seed=arguments.seed, limit_seconds=limit)
            results.append(result)
            print(line(result), flush=True)
            for problem in [*result.problems, *(f"left: {name}" for name in result.leftovers)]:
                print(f"    {problem}", flush=True)
            if arguments.record is not None:
                record(results, arguments.record)
    return 0 if all(result.is_good for result in results) else 1


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=50, help="kills of each command")
    parser.add_argument("--scenario", action="append", help="only scenarios whose names begin with this")
    parser.add_argument("--seed", type=int, default=0, help="seed of the kill times")
    parser.add_argument("--bytes", type=int, default=4_000_000, help="size of each input")
    parser.add_argument("--minutes", type=float, default=60, help="limit for each scenario")
    parser.add_argument("--words", type=int, default=700_000, help="number of words to count with a memory limit")
    parser.add_argument(
        "--warm", action="store_true", help="fork each command from a process that has imported everything"
    )
    parser.add_argument("--list", action="store_true", help="print the names of the scenarios")
    parser.add_argument(
        "--record", type=Path, nargs="?", const=RESULTS, help="write the table and the record to benchmarks/results"
    )
    return parser.parse_args()


def line(result: Result) -> str:
    verdict = "ok" if result.is_good else "FAILED"
    return f"{verdict}  {' | '.join(cells(dataclasses.asdict(result)))}"


def cells(result: dict[str, Any]) -> list[str]:
    kinds = result["kills"]
    return [
        result["scenario"],
        str(sum(kinds.values())),
        ", ".join(f"{number} {kind}" for kind, number in sorted(kinds.items())),
        str(result["num_survived"]),
        str(result["num_reruns"]),
        str(result["num_equal"]),
        str(len(result["leftovers"])),
        f"{result['undisturbed_seconds']:.1f}",
        result["start"],
    ]


def record(results: list[Result], folder: Path) -> None:
    """Add these results to those in the folder, in the order of the scenarios. Each has its own commit and date."""
    path = folder / f"{NAME}.json"
    known = json.loads(path.read_text())["scenarios"] if path.exists() else []
    about = describe_run(["gristmill", "numpy", "pyarrow", "ray", "torch"])
    source = {"commit": about.pop("commit", ""), "date": about.pop("date")}
    new = [{**dataclasses.asdict(one), **source} for one in results]
    found = {(one["scenario"], one["start"]): one for one in [*known, *new]}
    ordered = [found[one.name, start] for start in ("warm", "cold") for one in SCENARIOS if (one.name, start) in found]
    total = sum(sum(one["kills"].values()) for one in ordered)
    equal = sum(one["num_equal"] for one in ordered)
    sequences = sum(one["num_reruns"] for one in ordered)
    about["command"] = f"`python tools/{NAME}.py --record`, with `--kills`, `--seed`, `--warm` and `--scenario` by row"
    sums = f"In all: {total:,} kills, {equal:,} of {sequences:,} sequences identical."
    rows = [[*cells(one), str(one["seed"]), one["commit"], one["date"].partition(" ")[0]] for one in ordered]
    table = markdown_table([*HEADER, "seed", "commit", "date"], rows)
    write_result(
        NAME,
        title="Commands killed at random times",
        about=about,
        body=f"{BODY}\n\n{table}\n\n{sums}",
        data={"scenarios": ordered},
        folder=folder,
    )


if __name__ == "__main__":
    sys.exit(main())
