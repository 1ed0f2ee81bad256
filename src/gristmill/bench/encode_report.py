"""The tables of `bench_encode.py`: which systems have the right ids, and their speed."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from gristmill.bench.corpora import Corpus
from gristmill.bench.encoders.contest import LEAST_CPU_PER_WALL, OURS, REFERENCE, Entry
from gristmill.bench.machine import describe_run, version
from gristmill.bench.tables import markdown_table, middle_and_spread, write_result

GIGATOKEN = "gigatoken"
PASSES = ("cold", "warm")
DIFFERENT_IDS = "different ids"


@dataclass(frozen=True)
class Setting:
    """What was measured."""

    corpus: Corpus
    vocabulary: str
    num_threads: int
    num_rounds: int
    to_disk: bool

    @property
    def title(self) -> str:
        """For the head of the page."""
        threads = f"{self.num_threads} thread{'s' if self.num_threads > 1 else ''}"
        end = ", to a uint16 file on disk" if self.to_disk else ""
        return f"Encoding: {self.corpus.name} ({self.corpus.megabytes:.1f} MB), {self.vocabulary}, {threads}{end}"

    @property
    def file_name(self) -> str:
        """Without suffix."""
        start = "encode_to_disk" if self.to_disk else "encode"
        return f"{start}_{self.corpus.name}_{self.vocabulary}_{self.num_threads}t"


def judge(entries: Sequence[Entry], expected: str | None) -> None:
    """Mark every entry whose ids differ from tiktoken's (or gristmill's, if tiktoken is missing) as a problem."""
    measured = [entry for entry in entries if entry.problem is None and entry.runs]
    if expected is None:
        ours = [entry for entry in measured if entry.system == OURS] or measured
        expected = next((digest for entry in ours for digest in entry.digests), None)
    for entry in measured:
        if len(entry.digests) > 1:
            entry.problem = "ids change from run to run"
        elif expected not in entry.digests:
            entry.problem = DIFFERENT_IDS


def report(entries: Sequence[Entry], setting: Setting, missing: Sequence[str], *, folder: Path | None) -> None:
    """Print the tables, and write them if there is a folder."""
    right = [entry for entry in entries if entry.problem is None and entry.runs]
    body = "\n\n".join(
        part
        for part in [
            markdown_table(HEADER, [_row(entry, setting) for entry in right]) if right else "",
            _ratio_table(right),
            *_notes(entries, right, setting, missing),
        ]
        if part
    )
    print(f"{setting.title}\n\n{body}\n")
    if folder is None:
        return
    corpus = setting.corpus
    distributions = dict.fromkeys(entry.encoder.DISTRIBUTION for entry in entries)
    about = {"corpus": corpus.what, "vocabulary": setting.vocabulary} | describe_run(distributions)
    data = {
        "corpus_name": corpus.name,
        "num_bytes": corpus.num_bytes,
        "vocabulary": setting.vocabulary,
        "num_threads": setting.num_threads,
        "entries": [_as_data(entry) for entry in entries],
    }
    page = write_result(setting.file_name, title=setting.title, about=about, body=body, data=data, folder=folder)
    print(f"written: {page.name} and {page.with_suffix('.json').name}", file=sys.stderr)


HEADER = [
    "system, API",
    "runs",
    "cold MB/s",
    "min–max",
    "warm MB/s",
    "min–max ",
    "CPU/wall",
    "load s",
    "peak MB",
    "kept MB",
]


def _row(entry: Entry, setting: Setting) -> list[str]:
    marks = "".join(mark for mark, applies, _ in MARKS if applies(entry, setting))
    speeds: list[str] = []
    for passes in PASSES:
        speeds += middle_and_spread(speeds_of(entry, passes, setting.corpus.megabytes), digits=1)
    return [
        f"{entry.system}, {entry.api}{marks}",
        str(len(entry.runs)),
        *speeds,
        " / ".join(f"{entry.cpu_per_wall(passes):.2f}" for passes in PASSES),
        f"{median(run.facts['loading_seconds'] for run in entry.runs):.2f}",
        f"{median(run.facts['peak_bytes'] for run in entry.runs) / 1e6:.0f}",
        f"{median(run.facts['kept_bytes'] for run in entry.runs) / 1e6:.0f}",
    ]


def speeds_of(entry: Entry, passes: str, megabytes: float) -> list[float]:
    """Return MB/s of each run."""
    return [megabytes / seconds for seconds in entry.seconds(passes)]


def _ratio_table(right: Sequence[Entry]) -> str:
    """Compare each gristmill API with the fastest of gigatoken and of all systems, separately for cold and warm."""
    rivals = [entry for entry in right if entry.system != OURS]
    rows = []
    for ours in (entry for entry in right if entry.system == OURS):
        for passes in PASSES:
            theirs = fastest([entry for entry in rivals if entry.system == GIGATOKEN], passes)
            best = fastest(rivals, passes)
            rows.append(
                [
                    ours.api,
                    passes,
                    theirs.api if theirs else "–",
                    *_ratio_and_spread(ours, theirs, passes),
                    f"{best.system} {best.api}" if best else "–",
                    _ratio_and_spread(ours, best, passes)[0],
                ]
            )
    return markdown_table(RATIO_HEADER, rows) if rows and rivals else ""


RATIO_HEADER = ["ours", "passes", "fastest of gigatoken", "ratio", "round by round", "fastest rival", "ratio "]


def fastest(entries: Sequence[Entry], passes: str) -> Entry | None:
    """Return the entry with the best median, or None if there are no entries."""
    return max(entries, key=lambda entry: median(speeds_of(entry, passes, 1.0)), default=None)


def _ratio_and_spread(ours: Entry, rival: Entry | None, passes: str) -> tuple[str, str]:
    if rival is None:
        return "–", "–"
    own, theirs = (speeds_of(entry, passes, 1.0) for entry in (ours, rival))
    ratio = median(own) / median(theirs)
    by_round = [a / b for a, b in zip(own, theirs, strict=False)]  # a slow system has fewer rounds
    return f"{ratio:.2f}x", f"{min(by_round):.2f}–{max(by_round):.2f}"


def _few_cpus(entry: Entry, setting: Setting) -> bool:
    return setting.num_threads > 1 and min(map(entry.cpu_per_wall, PASSES)) <= LEAST_CPU_PER_WALL


def _many_cpus(entry: Entry, setting: Setting) -> bool:
    return setting.num_threads == 1 and max(map(entry.cpu_per_wall, PASSES)) > LEAST_CPU_PER_WALL


def _noisy(entry: Entry, _setting: Setting) -> bool:
    return not all(run.quiet for run in entry.runs)


Mark = tuple[str, Callable[[Entry, Setting], bool], str]
MARKS: tuple[Mark, ...] = (
    ("†", _few_cpus, "CPU/wall at most 1.3: not a figure for several threads, or the system has little parallel work"),
    ("*", _many_cpus, "CPU/wall over 1.3 although one thread was requested"),
    ("‡", _noisy, "some runs shared the machine with other processes (repeats were used up)"),
    ("§", lambda entry, setting: len(entry.runs) < setting.num_rounds, "fewer runs, because it is slow"),
)


def _notes(entries: Sequence[Entry], right: Sequence[Entry], setting: Setting, missing: Sequence[str]) -> list[str]:
    marks = [f"{mark} {what}." for mark, applies, what in MARKS if any(applies(entry, setting) for entry in right)]
    problems: dict[tuple[str, str], list[str]] = {}
    for entry in entries:
        if entry.problem:
            problems.setdefault((entry.system, entry.problem), []).append(entry.api)
    without = [f"* {system} ({'; '.join(apis)}): {problem}." for (system, problem), apis in problems.items()]
    threads = {entry.system: f"* {entry.system}: {entry.encoder.THREADS}." for entry in right}
    return [
        *marks,
        "CPU/wall: cold / warm. load s: until the tokenizer has encoded an empty text; part of no other column. "
        "peak MB: memory of the cold pass besides text and tokenizer, including the result. "
        "kept MB: memory still in use after the last pass without its result, mostly caches.",
        "No figure:\n" + "\n".join(without) if without else "",
        f"Not installed, skipped: {', '.join(missing)}." if missing else "",
        _compared(right),
        "How the number of threads is set:\n" + "\n".join(threads.values()),
        _caches(right),
    ]


def _compared(right: Sequence[Entry]) -> str:
    systems = list(dict.fromkeys(entry.system for entry in right))
    if not systems:
        return ""
    num_ids = right[0].runs[0].facts["num_ids"]
    reference = f"{REFERENCE} {version(REFERENCE)}" if version(REFERENCE) != "-" else OURS
    return f"Ids compared with those of {reference} and equal ({num_ids:,} ids): {', '.join(systems)}."


def _caches(right: Sequence[Entry]) -> str:
    """List the cache statistics of the tokenizers after the last pass."""
    found = {entry.api: entry.runs[0].facts["cache"] for entry in right if entry.runs[0].facts["cache"]}
    lines = [
        f"* {api}: {', '.join(f'{key} {value:,}' for key, value in facts.items())}" for api, facts in found.items()
    ]
    return "Caches after the last pass:\n" + "\n".join(lines) if lines else ""


def _as_data(entry: Entry) -> dict[str, object]:
    return {
        "system": entry.system,
        "api": entry.api,
        "problem": entry.problem,
        "runs": [asdict(run) for run in entry.runs],
        "disturbed_and_repeated": [asdict(run) for run in entry.repeated],
    }
