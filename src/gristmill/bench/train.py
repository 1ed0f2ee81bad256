"""Train a byte-level BPE tokenizer with gristmill and other systems on the same file; compare time and memory.

Every run is a fresh process; time is measured inside it, without imports. The systems run in alternation, round by
round. Before any time is shown, the merges are compared: gristmill's (tie_break="huggingface") must equal those of
`tokenizers`, and those of every other system must equal gristmill's on the same texts with the same tie-break rule.
Tables are written to benchmarks/results/ as Markdown and, with every single run, as JSON.

    python benchmarks/bench_train.py                                 English, 32,000 entries, two threads
    python benchmarks/bench_train.py --corpus code --vocab-size 10000 --systems gristmill,gigabpe
    python benchmarks/bench_train.py --quick                         a smoke test of a few seconds that writes nothing

A result for several threads counts only if they really ran: CPU time / wall time > 1.3. A disturbed run (gristmill
below 1.3, or other processes used more than a tenth of a CPU) is repeated, up to --extra times per system (a slow one
once).
"""

import argparse
import importlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import median
from types import ModuleType

import corpora
import reference_digests
from gristmill.bench.fresh_process import Sample, measure
from gristmill.bench.machine import describe_run, version
from gristmill.bench.rivals import SYSTEMS, Follows, TrainJob
from gristmill.bench.tables import RESULTS, markdown_table, middle_and_spread, write_result

OURS = "gristmill"
REFERENCE = "tokenizers"
LEAST_CPU_PER_WALL = 1.3


@dataclass
class Entry:
    """One system, its module and its runs; disturbed runs that were repeated are kept separately."""

    name: str
    module: ModuleType
    runs: list[Sample] = field(default_factory=list)
    repeated: list[Sample] = field(default_factory=list)

    @property
    def follows(self) -> Follows:
        follows: Follows = self.module.FOLLOWS
        return follows

    @property
    def seconds(self) -> float:
        return median(run.seconds for run in self.runs)

    @property
    def cpu_per_wall(self) -> float:
        return median(run.cpu_per_wall for run in self.runs)


def main() -> int:
    """Measure, compare, show, write."""
    options = _options()
    corpus = corpora.resolve(options.corpus)
    num_merges = options.vocab_size - 257
    job = TrainJob(str(corpus.path), num_merges, options.threads, corpus.distinct_byte_values())
    entries, missing = _find_systems(options.systems)
    _run_rounds(entries, job, options)
    equal, different = _compare_merges(entries, job, corpus)
    if different:
        print("\n".join(["MERGES DIFFER, no time is reported:", *different]), file=sys.stderr)
        return 1
    _report(entries, corpus, options, [_skipped(missing), f"Merges compared and equal: {'; '.join(equal)}."])
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", default="english", help=f"{' | '.join(corpora.NAMES)} | PATH (default: english)")
    parser.add_argument("--vocab-size", type=int, default=32_000, help="bytes, merges and one special (default: 32000)")
    parser.add_argument("--threads", type=int, default=2, help="for every system (default: 2)")
    parser.add_argument("--rounds", type=int, default=5, help="runs per system (default: 5)")
    parser.add_argument("--slow-rounds", type=int, default=3, help="runs of rustbpe and tokenizers (default: 3)")
    parser.add_argument("--extra", type=int, default=5, help="disturbed runs to repeat per system (default: 5)")
    parser.add_argument("--systems", type=lambda text: text.split(","), default=list(SYSTEMS), help=",".join(SYSTEMS))
    parser.add_argument(
        "--output", type=Path, default=RESULTS, help="folder for the tables (default: the committed one)"
    )
    parser.add_argument("--quick", action="store_true", help="5 MB sample corpus, 2000 entries, one round, no files")
    options = parser.parse_args()
    if unknown := set(options.systems) - set(SYSTEMS):
        parser.error(f"unknown system {', '.join(sorted(unknown))}. Known: {', '.join(SYSTEMS)}.")
    if options.quick:
        options.corpus, options.vocab_size, options.rounds, options.slow_rounds, options.extra = "quick", 2000, 1, 1, 0
    if options.vocab_size < 258:
        parser.error(f"--vocab-size {options.vocab_size} leaves no merge. Pass 258 or more.")
    return options


def _find_systems(names: Sequence[str]) -> tuple[list[Entry], list[str]]:
    entries, missing = [], []
    for name in names:
        try:
            entries.append(Entry(name, importlib.import_module(f"rivals.{name}")))
        except ImportError as error:
            missing.append(name)
            print(f"skipped: {name} cannot be imported ({error})", file=sys.stderr)
    if not entries:
        raise SystemExit("nothing to measure: none of the systems is installed.")
    return entries, missing


def _run_rounds(entries: Sequence[Entry], job: TrainJob, options: argparse.Namespace) -> None:
    for round_number in range(options.rounds):
        for entry in entries:
            if round_number < (options.slow_rounds if entry.module.SLOW else options.rounds):
                _run_once(entry, job, min(options.extra, 1) if entry.module.SLOW else options.extra)


def _run_once(entry: Entry, job: TrainJob, extra: int) -> None:
    while True:
        sample = measure(f"rivals.{entry.name}", asdict(job), num_threads=job.num_threads)
        print(
            f"{entry.name:10} {sample.seconds:8.3f} s  CPU/wall {sample.cpu_per_wall:.2f}  "
            f"{sample.peak_rss_bytes / 1e6:6.0f} MB{'' if sample.quiet else '  (disturbed)'}",
            file=sys.stderr,
        )
        if not _disturbed(entry, sample, job.num_threads) or len(entry.repeated) >= extra:
            entry.runs.append(sample)
            return
        entry.repeated.append(sample)


def _disturbed(entry: Entry, sample: Sample, num_threads: int) -> bool:
    """Return whether a run should be repeated. Other systems may leave CPUs idle."""
    starved = entry.name == OURS and num_threads > 1 and sample.cpu_per_wall <= LEAST_CPU_PER_WALL
    return starved or not sample.quiet


def _compare_merges(entries: Sequence[Entry], job: TrainJob, corpus: corpora.Corpus) -> tuple[list[str], list[str]]:
    """Return the equal and the different comparisons, one sentence each."""
    digests = {entry.name: {str(run.facts["digest"]) for run in entry.runs + entry.repeated} for entry in entries}
    found = [(False, f"{name} with itself") for name, own in digests.items() if len(own) > 1]
    reference = reference_digests.tokenizers_digest(job, corpus, digests.get(REFERENCE))
    ours = _our_digests(entries, job)
    for entry in entries:
        if reference is not None and entry.follows == Follows() and entry.name != REFERENCE:
            found.append((reference in digests[entry.name], f"{entry.name} with {REFERENCE} {version(REFERENCE)}"))
        if entry.follows in ours and entry.name != OURS:
            found.append((ours[entry.follows] in digests[entry.name], f"{entry.name} with {OURS} ({entry.follows})"))
    return [what for equal, what in found if equal], [what for equal, what in found if not equal]


def _our_digests(entries: Sequence[Entry], job: TrainJob) -> dict[Follows, str]:
    """Return the digest of gristmill's merges for every text feed and rule of the systems; {} without gristmill."""
    if all(entry.name != OURS for entry in entries):
        print(f"{OURS} is not among the systems: rivals' merges are not compared with it", file=sys.stderr)
        return {}
    digests: dict[Follows, str] = {}
    for follows in {entry.follows for entry in entries}:
        check = replace(job, **asdict(follows))
        sample = measure(f"rivals.{OURS}", asdict(check), num_threads=job.num_threads)
        digests[follows] = str(sample.facts["digest"])
    return digests


def _report(
    entries: Sequence[Entry], corpus: corpora.Corpus, options: argparse.Namespace, remarks: Sequence[str]
) -> None:
    setting = f"vocabulary {options.vocab_size:,}, {options.threads} thread{'s' if options.threads > 1 else ''}"
    title = f"Training: {corpus.name} ({corpus.megabytes:.1f} MB), {setting}"
    table = markdown_table(HEADER, [_row(entry, entries, corpus, options) for entry in entries])
    body = "\n\n".join([table, *_notes(entries, options), *filter(None, remarks)])
    print(f"{title}\n\n{body}")
    if options.quick:
        return
    about = {"corpus": corpus.what} | describe_run([entry.module.DISTRIBUTION for entry in entries])
    runs = {entry.name: [asdict(run) for run in entry.runs] for entry in entries}
    repeated = {entry.name: [asdict(run) for run in entry.repeated] for entry in entries if entry.repeated}
    name = f"train_{corpus.name}_{options.vocab_size}_{options.threads}t"
    data = {"num_bytes": corpus.num_bytes, "remarks": list(remarks), "runs": runs, "disturbed_and_repeated": repeated}
    page = write_result(name, title=title, about=about, body=body, data=data, folder=options.output)
    print(f"written: {page.name} and {page.with_suffix('.json').name}", file=sys.stderr)


HEADER = ["system", "runs", "median s", "min–max", "MB/s", "time / ours", "CPU s", "CPU/wall", "peak MB", "merges"]


def _row(entry: Entry, entries: Sequence[Entry], corpus: corpora.Corpus, options: argparse.Namespace) -> list[str]:
    middle, spread = middle_and_spread([run.seconds for run in entry.runs], digits=3)
    ours = next((other.seconds for other in entries if other.name == OURS), None)
    marks = "".join(mark for mark, applies, _ in MARKS if applies(entry, options))
    return [
        f"{entry.name}{marks}",
        str(len(entry.runs)),
        middle,
        spread,
        f"{corpus.megabytes / entry.seconds:.1f}",
        "–" if ours is None else f"{entry.seconds / ours:.2f}x",
        f"{median(run.cpu_seconds for run in entry.runs):.3f}",
        f"{entry.cpu_per_wall:.2f}",
        f"{median(run.peak_rss_bytes for run in entry.runs) / 1e6:.0f}",
        f"{entry.runs[0].facts['num_merges']:,}",
    ]


def _few_cpus(entry: Entry, options: argparse.Namespace) -> bool:
    return options.threads > 1 and entry.cpu_per_wall <= LEAST_CPU_PER_WALL


def _noisy(entry: Entry, _options: argparse.Namespace) -> bool:
    return not all(run.quiet for run in entry.runs)


Mark = tuple[str, Callable[[Entry, argparse.Namespace], bool], str]
MARKS: tuple[Mark, ...] = (
    ("†", _few_cpus, "CPU/wall at most 1.3: not a figure for several threads, or the system has little parallel work"),
    ("‡", _noisy, "some runs shared the machine with other processes (repeats were used up)"),
    ("§", lambda entry, options: len(entry.runs) < options.rounds, "fewer runs, because it is slow"),
)


def _skipped(missing: Sequence[str]) -> str:
    return f"Not installed, skipped: {', '.join(missing)}." if missing else ""


def _notes(entries: Sequence[Entry], options: argparse.Namespace) -> list[str]:
    marks = [f"{mark} {what}." for mark, applies, what in MARKS if any(applies(entry, options) for entry in entries)]
    timed = [f"* {entry.name}: {entry.module.TIMED}. Threads: {entry.module.THREADS}." for entry in entries]
    return [*marks, "In the timed region, imports excluded:\n" + "\n".join(timed)]


if __name__ == "__main__":
    sys.exit(main())
