"""The page of `gristmill bench encode`: the speed of every system, and the speed-up of gristmill with workers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from gristmill.bench.adapters import Adapter
from gristmill.bench.charts import Bar, bar_chart
from gristmill.bench.contest import LEAST_CPU_PER_WALL, OURS, Entry, Mark, fewer_runs, marks_of, noisy, notes_of
from gristmill.bench.corpora import Corpus
from gristmill.bench.machine import describe_run
from gristmill.bench.pages import Page, chart_caption, plural, short
from gristmill.bench.published import encoding_table
from gristmill.bench.tables import markdown_table, middle_and_spread

PASSES = ("cold", "warm")


@dataclass(frozen=True)
class Setting:
    """What was measured."""

    corpus: Corpus
    vocabulary: str
    vocab_size: int
    num_threads: int
    to_disk: bool
    source: str  # of the expected ids

    @property
    def title(self) -> str:
        """For the head of the page."""
        end = ", to a uint16 file on disk" if self.to_disk else ""
        vocabulary = f"{self.vocabulary} {self.vocab_size:,}" if self.vocabulary == "trained" else self.vocabulary
        return (
            f"Encoding: {self.corpus.name} ({self.corpus.megabytes:.1f} MB), {vocabulary}, "
            f"{plural(self.num_threads, 'thread')}{end}"
        )

    @property
    def file_name(self) -> str:
        """Without suffix."""
        start = "encode_to_disk" if self.to_disk else "encode"
        return f"{start}_{self.corpus.name}_{self.vocabulary}_{self.num_threads}t"


def make_page(
    entries: Sequence[Entry], workers: Sequence[Entry], adapters: Sequence[Adapter], setting: Setting
) -> Page:
    """Return the page of one number of threads; the table of workers is left out if `workers` is empty."""
    right = [entry for entry in entries if entry.is_measured]
    threads = {adapter.system: adapter.facts.get("THREADS") for adapter in adapters}
    parts = [
        markdown_table(HEADER, [_row(entry, entries, setting) for entry in entries]),
        _ratio_table(right),
        *notes_of(entries, MARKS),
        "CPU/wall: cold / warm. load s: until the tokenizer has encoded an empty text; part of no other column. "
        "peak MB: memory of the cold pass besides text and tokenizer, including the result. "
        "kept MB: memory still in use after the last pass without its result, mostly caches.",
        f"Ids compared with those of {setting.source}.",
        "How the number of threads is set:\n"
        + "\n".join(f"* {system}: {threads[system]}." for system in dict.fromkeys(entry.system for entry in right))
        if right
        else "",
        _caches(right),
        *_worker_parts(workers),
    ]
    corpus = setting.corpus
    about = {"corpus": corpus.what, "vocabulary": f"{setting.vocabulary}, {setting.vocab_size:,} ids"}
    about |= describe_run(adapter.distribution for adapter in adapters)
    data = {
        "corpus_name": corpus.name,
        "num_bytes": corpus.num_bytes,
        "vocabulary": setting.vocabulary,
        "num_threads": setting.num_threads,
        "entries": [entry.as_data() for entry in entries],
        "workers": [entry.as_data() for entry in workers],
    }
    chart = bar_chart(
        f"{setting.title}: MB/s",
        [_bar(entry, corpus.megabytes) for entry in entries if entry.is_charted],
        series=["first pass (cold)", "further passes (warm)"],
        caption=chart_caption(about),
    )
    return Page(setting.file_name, setting.title, about, parts, data, chart)


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
    "ids",
]


def _row(entry: Entry, entries: Sequence[Entry], setting: Setting) -> list[str]:
    if not entry.is_measured:
        return [entry.name, str(len(entry.runs)), *["–"] * (len(HEADER) - 3), entry.outcome]
    speeds: list[str] = []
    for passes in PASSES:
        each = speeds_of(entry, passes, setting.corpus.megabytes)
        speeds += middle_and_spread(each, digits=1) if each else ("–", "–")
    facts = [run.facts for run in entry.runs]
    return [
        f"{entry.name}{marks_of(entry, entries, MARKS)}",
        str(len(entry.runs)),
        *speeds,
        " / ".join(f"{_cpu_per_wall(entry, passes):.2f}" for passes in PASSES if seconds_of(entry, passes)),
        f"{median(each['loading_seconds'] for each in facts):.2f}",
        f"{median(each['peak_bytes'] for each in facts) / 1e6:.0f}",
        f"{median(each['kept_bytes'] for each in facts) / 1e6:.0f}",
        f"{facts[0]['num_ids']:,} equal",
    ]


def _bar(entry: Entry, megabytes: float) -> Bar:
    if not entry.is_measured:
        return Bar(entry.name, [None, None], [entry.outcome, ""], entry.is_ours)
    speeds = [speeds_of(entry, passes, megabytes) for passes in PASSES]
    return Bar(
        entry.name,
        [median(each) if each else None for each in speeds],
        [f"{short(median(each))} MB/s" if each else "not measured" for each in speeds],
        entry.is_ours,
        [(min(each), max(each)) if each else None for each in speeds],
    )


def _passes(entry: Entry, passes: str) -> list[list[dict[str, float]]]:
    """Return the passes of each run; a run without warm passes has none."""
    found = [run.facts[passes] for run in entry.runs]
    return [each if isinstance(each, list) else [each] for each in found if each]


def seconds_of(entry: Entry, passes: str) -> list[float]:
    """Return the cold pass of each run, or the median of its warm passes."""
    return [median(one["seconds"] for one in each) for each in _passes(entry, passes)]


def speeds_of(entry: Entry, passes: str, megabytes: float) -> list[float]:
    """Return MB/s of each run."""
    return [megabytes / seconds for seconds in seconds_of(entry, passes)]


def _cpu_per_wall(entry: Entry, passes: str) -> float:
    """Return the number of CPUs that were busy, the median over the runs."""
    return median(
        sum(one["cpu_seconds"] for one in each) / sum(one["seconds"] for one in each) for each in _passes(entry, passes)
    )


def _ratio_table(right: Sequence[Entry]) -> str:
    """Compare the fastest API of gristmill with the fastest one of each other system, for cold and warm passes."""
    rows = []
    for passes in PASSES:
        fastest: dict[str, tuple[float, Entry]] = {}
        for entry in right:
            if seconds := seconds_of(entry, passes):
                best = fastest.get(entry.system)
                if best is None or median(seconds) < best[0]:
                    fastest[entry.system] = median(seconds), entry
        _, ours = fastest.pop(OURS, (0.0, None))
        if ours is not None:
            for _, rival in sorted(fastest.values(), key=lambda found: found[0]):
                rows.append([passes, ours.form, rival.name, *_ratio_and_spread(ours, rival, passes)])
    return markdown_table(["passes", "ours", "rival", "ratio", "round by round"], rows) if rows else ""


def _ratio_and_spread(ours: Entry, rival: Entry, passes: str) -> tuple[str, str]:
    own, theirs = (seconds_of(entry, passes) for entry in (ours, rival))
    by_round = [b / a for a, b in zip(own, theirs, strict=False)]  # a slow system has fewer rounds
    return f"{median(theirs) / median(own):.2f}x", f"{min(by_round):.2f}–{max(by_round):.2f}"


def _few_cpus(entry: Entry, _entries: Sequence[Entry]) -> bool:
    return entry.num_threads > 1 and _cpu_per_wall(entry, "cold") <= LEAST_CPU_PER_WALL


def _many_cpus(entry: Entry, _entries: Sequence[Entry]) -> bool:
    return entry.num_threads == 1 and _cpu_per_wall(entry, "cold") > LEAST_CPU_PER_WALL


MARKS: tuple[Mark, ...] = (
    ("†", _few_cpus, "CPU/wall at most 1.3: the system has little parallel work, or its threads had to wait"),
    ("*", _many_cpus, "CPU/wall over 1.3 although one thread was requested"),
    ("‡", noisy, "some runs shared the machine with other processes"),
    ("§", fewer_runs, "fewer runs, because it is slow or the run was interrupted"),
)


def _caches(right: Sequence[Entry]) -> str:
    """List the cache statistics of the tokenizers after the last pass."""
    found = {entry.name: entry.runs[0].facts["cache"] for entry in right if entry.runs[0].facts["cache"]}
    lines = [
        f"* {name}: {', '.join(f'{key} {value:,}' for key, value in facts.items())}" for name, facts in found.items()
    ]
    return "Caches after the last pass:\n" + "\n".join(lines) if lines else ""


def _worker_parts(workers: Sequence[Entry]) -> list[str]:
    """Return the table of gristmill's speed-up, and the published figures in the same shape."""
    measured = [entry for entry in workers if entry.is_measured]
    if not workers:
        return []
    base = next((median(entry.seconds) for entry in measured if entry.num_threads == 1), None)
    rows = [_worker_row(entry, workers, base) for entry in workers]
    return [
        "gristmill, `encode_file` from path to ids, by number of workers (threads):\n\n"
        + markdown_table(["workers", "tokens", "s", "k tokens/s", "speed-up", "CPU/wall"], rows),
        *notes_of(workers, MARKS),
        "Published figures, from other machines:\n\n" + encoding_table(),
    ]


def _worker_row(entry: Entry, workers: Sequence[Entry], base: float | None) -> list[str]:
    if not entry.is_measured:
        return [str(entry.num_threads), "–", "–", "–", "–", entry.outcome]
    seconds, num_ids = median(entry.seconds), entry.runs[0].facts["num_ids"]
    return [
        f"{entry.num_threads}{marks_of(entry, workers, MARKS)}",
        f"{num_ids / 1e6:,.1f}M",
        f"{seconds:.3f}",
        f"{num_ids / seconds / 1e3:,.0f}",
        "–" if base is None else f"{base / seconds:.2f}x",
        f"{entry.cpu_per_wall:.2f}",
    ]
