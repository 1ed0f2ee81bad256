"""Measure the latency of one call with a short text: the median of many, in fresh processes, systems in alternation.

    python benchmarks/bench_encode_latency.py                      20 characters, gpt2 and cl100k, 5 rounds
    python benchmarks/bench_encode_latency.py --characters 200 --systems gristmill,tiktoken

Each system uses the call that its users write (`tok.encode(text)`, with `.ids` if that is the list). "same" repeats one
text, "different" cycles through a thousand texts.
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

from gristmill.bench import corpora
from gristmill.bench.contest import OURS
from gristmill.bench.encode import PACKAGE, REFERENCE
from gristmill.bench.encoders import SYSTEMS, vocabularies
from gristmill.bench.fresh_process import ChildFailed, measure
from gristmill.bench.machine import describe_run
from gristmill.bench.tables import markdown_table, write_result
from latency import LatencyJob
from results_folder import RESULTS

Facts = dict[str, Any]


def main() -> int:
    """Measure, compare, show, write."""
    options = _options()
    corpus = corpora.resolve(options.corpus)
    status = 0
    for vocabulary in options.vocabulary:
        with tempfile.TemporaryDirectory() as folder:
            files = vocabularies.prepare(vocabulary, Path(folder))
            runs, problems = _run_rounds(str(files.description), corpus, options)
        different = _different_ids(runs)
        problems |= dict.fromkeys(different, "different ids")
        _report({name: found for name, found in runs.items() if name not in different}, problems, vocabulary, options)
        status |= OURS in different
    return status


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--corpus", default="english:1MB", help="source of the texts (default: english:1MB)")
    add("--vocabulary", type=lambda text: text.split(","), default=["gpt2", "cl100k"], help="default: gpt2,cl100k")
    add("--systems", type=lambda text: text.split(","), default=list(SYSTEMS), help=",".join(SYSTEMS))
    add("--characters", type=int, default=20, help="characters per text (default: 20)")
    add("--rounds", type=int, default=5, help="processes per system (default: 5)")
    add("--blocks", type=int, default=50, help="measurements per process (default: 50)")
    add("--output", type=Path, default=RESULTS, help="folder for the tables (default: the committed one)")
    options = parser.parse_args()
    if unknown := set(options.systems) - set(SYSTEMS):
        parser.error(f"unknown system {', '.join(sorted(unknown))}. Known: {', '.join(SYSTEMS)}.")
    return options


def _run_rounds(
    vocabulary: str, corpus: corpora.Corpus, options: argparse.Namespace
) -> tuple[dict[str, list[Facts]], dict[str, str]]:
    runs: dict[str, list[Facts]] = {}
    problems: dict[str, str] = {}
    for _ in range(options.rounds):
        for system in options.systems:
            if system in problems:
                continue
            job = LatencyJob(f"{PACKAGE}.{system}", str(corpus.path), vocabulary, options.characters, options.blocks)
            try:
                facts = measure("latency", asdict(job), num_threads=1, timeout_seconds=120).facts
            except ChildFailed as failure:
                facts = {"refused": str(failure)}
            if "refused" in facts:
                problems[system] = str(facts["refused"])
            else:
                runs.setdefault(system, []).append(facts)
    return runs, problems


def _different_ids(runs: dict[str, list[Facts]]) -> list[str]:
    reference = next((runs[name][0]["ids"] for name in (REFERENCE, OURS) if name in runs), None)
    return [name for name, found in runs.items() if reference is not None and any(f["ids"] != reference for f in found)]


def _report(
    runs: dict[str, list[Facts]], problems: dict[str, str], vocabulary: str, options: argparse.Namespace
) -> None:
    title = f"Latency: encode of {options.characters} characters, {vocabulary}, microseconds per call"
    base = runs.get(REFERENCE)
    rows = [
        [name, str(len(found)), *_cells(found, base, "same"), *_cells(found, base, "different")]
        for name, found in runs.items()
    ]
    parts = [
        markdown_table(HEADER, rows),
        "min–max: of the medians of the processes. / tiktoken: time as a multiple of tiktoken's.",
        "No figure:\n" + "\n".join(f"* {name}: {why}." for name, why in problems.items()) if problems else "",
    ]
    body = "\n\n".join(filter(None, parts))
    print(f"{title}\n\n{body}\n")
    distributions = [system.replace("_", "-") for system in runs]
    about = {"vocabulary": vocabulary} | describe_run(distributions)
    for found in runs.values():
        for facts in found:
            facts.pop("ids")
    name = f"encode_latency_{vocabulary}"
    data = {"runs": runs, "problems": problems}
    write_result(name, title=title, about=about, body=body, data=data, folder=options.output)


HEADER = ["system", "runs", "same µs", "min–max", "/ tiktoken", "different µs", "min–max ", "/ tiktoken "]


def _cells(found: Sequence[Facts], base: Sequence[Facts] | None, texts: str) -> list[str]:
    medians = [1e6 * facts[texts][0] for facts in found]
    middle = median(medians)
    ratio = "–" if base is None else f"{middle / median(1e6 * facts[texts][0] for facts in base):.2f}x"
    return [f"{middle:.2f}", f"{min(medians):.2f}–{max(medians):.2f}", ratio]


if __name__ == "__main__":
    sys.exit(main())
