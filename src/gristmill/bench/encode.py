"""Encode the same text with gristmill and other systems: MB/s of the first (cold) and further (warm) passes.

Every run is a fresh process that builds its tokenizer, then encodes the whole text once cold and several times warm.
The systems run in alternation, round by round. Ids are compared before any result is shown, with tiktoken's if it is
installed. A system with other ids is listed without a result. Tables are written to benchmarks/results/ as Markdown
and, with every single run, as JSON; the plot is drawn from the JSON file.

    python benchmarks/bench_encode.py                                English, gpt2, one thread
    python benchmarks/bench_encode.py --corpus english,english:5MB,code,multilingual --vocabulary gpt2,cl100k
    python benchmarks/bench_encode.py --systems gristmill,gigatoken:encode_batch --rounds 9 --threads 1,2
    python benchmarks/bench_encode.py --to-disk                      from the text to a uint16 file
    python benchmarks/bench_encode.py --quick                        a smoke test of a few seconds that writes nothing

A system has several APIs; all are measured, and ratios refer to the fastest. A result for several threads counts only
if they really ran: CPU time / wall time > 1.3. A disturbed run (gristmill below 1.3, or other processes used more than
a tenth of a CPU) is repeated, up to --extra times per API.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from itertools import product
from pathlib import Path

import corpora
import encode_report
import plots
import slices
from gristmill.bench.encoders import SYSTEMS, vocabularies
from gristmill.bench.encoders.contest import OURS, Entry, find_entries, run_once, tiktoken_digest
from gristmill.bench.encoders.passes import EncodeJob
from gristmill.bench.tables import RESULTS


def main() -> int:
    """Measure, compare, show and write every requested combination."""
    options = _options()
    statuses = [
        _contest(slices.resolve(corpus), vocabulary, num_threads, options)
        for corpus, vocabulary, num_threads in product(options.corpus, options.vocabulary, options.threads)
    ]
    if not options.quick:
        plots.draw_encode(options.output)
    return max(statuses)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--corpus", type=_names, default=["english"], help=f"{','.join(corpora.NAMES)} | NAME:5MB | PATH")
    add("--vocabulary", type=_names, default=["gpt2"], help=",".join(vocabularies.NAMES))
    add(
        "--threads", type=lambda text: [int(n) for n in _names(text)], default=[1], help="for every system (default: 1)"
    )
    add("--systems", type=_names, default=list(SYSTEMS), help="NAME or NAME:API, of " + ",".join(SYSTEMS))
    add("--rounds", type=int, default=5, help="runs per API (default: 5)")
    add("--warm", type=int, default=3, help="warm passes per run (default: 3)")
    add("--slow-rounds", type=int, default=1, help="runs of tokenizers, with one warm pass each (default: 1)")
    add("--extra", type=int, default=5, help="how many disturbed runs to repeat per API (default: 5)")
    add("--timeout", type=float, default=900, help="time limit of one run in seconds (default: 900)")
    add("--to-disk", action="store_true", help="also write the ids to a uint16 file, within the timed region")
    add("--output", type=Path, default=RESULTS, help="folder for the tables (default: the committed one)")
    add("--quick", action="store_true", help="1 MB of the sample corpus, one round, no files")
    options = parser.parse_args()
    if unknown := {name.partition(":")[0] for name in options.systems} - set(SYSTEMS):
        parser.error(f"unknown system {', '.join(sorted(unknown))}. Known: {', '.join(SYSTEMS)}.")
    if unknown := set(options.vocabulary) - set(vocabularies.NAMES):
        parser.error(f"unknown vocabulary {', '.join(sorted(unknown))}. Known: {', '.join(vocabularies.NAMES)}.")
    if options.to_disk and options.vocabulary != ["gpt2"]:
        parser.error("--to-disk writes uint16, which fits only the ids of gpt2. Pass --vocabulary gpt2.")
    if options.quick:
        options.corpus, options.rounds, options.warm, options.extra = ["quick:1MB"], 1, 1, 0
    return options


def _names(text: str) -> list[str]:
    return text.split(",")


def _contest(corpus: corpora.Corpus, vocabulary: str, num_threads: int, options: argparse.Namespace) -> int:
    vocabularies.find(vocabulary)
    with tempfile.TemporaryDirectory() as folder:
        ids_path = str(Path(folder) / "ids.bin") if options.to_disk else None
        job = EncodeJob("", "", str(corpus.path), vocabulary, num_threads, options.warm, ids_path)
        entries, missing = find_entries(options.systems, num_threads)
        _run_rounds(entries, job, options)
        expected = tiktoken_digest(entries, job)
    encode_report.judge(entries, expected)
    setting = encode_report.Setting(corpus, vocabulary, num_threads, options.rounds, options.to_disk)
    encode_report.report(entries, setting, missing, folder=None if options.quick else options.output)
    wrong = [entry for entry in entries if entry.system == OURS and entry.problem]
    for entry in wrong:
        print(f"{entry.system} {entry.api}: {entry.problem}", file=sys.stderr)
    return 1 if wrong else 0


def _run_rounds(entries: Sequence[Entry], job: EncodeJob, options: argparse.Namespace) -> None:
    for round_number in range(options.rounds):
        for entry in _in_turn(entries, round_number):
            slow = entry.encoder.SLOW
            if entry.problem is None and round_number < (options.slow_rounds if slow else options.rounds):
                extra = 0 if slow else options.extra
                warm = min(job.num_warm, 1) if slow else job.num_warm
                run_once(entry, EncodeJob(**asdict(job) | {"num_warm": warm}), extra=extra, timeout=options.timeout)


def _in_turn(entries: Sequence[Entry], round_number: int) -> Iterable[Entry]:
    """Return the entries, in reverse order in every other round, so that no system always follows the same one."""
    return reversed(entries) if round_number % 2 else entries


if __name__ == "__main__":
    sys.exit(main())
