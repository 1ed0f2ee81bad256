"""The page of `gristmill bench pipeline`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from gristmill.bench.adapters import Adapter
from gristmill.bench.charts import Bar, bar_chart
from gristmill.bench.contest import MARKS, Entry, marks_of, notes_of
from gristmill.bench.corpora import Corpus
from gristmill.bench.machine import describe_run
from gristmill.bench.pages import Page, chart_caption, plural, short
from gristmill.bench.tables import markdown_table, middle_and_spread


@dataclass(frozen=True)
class Setting:
    """What was measured."""

    corpus: Corpus
    vocabulary: str
    vocab_size: int
    num_threads: int
    fsync: bool
    source: str  # of the expected ids
    scratch: Path

    @property
    def title(self) -> str:
        """For the head of the page."""
        vocabulary = f"{self.vocabulary} {self.vocab_size:,}" if self.vocabulary == "trained" else self.vocabulary
        return (
            f"Text file to uint16 file: {self.corpus.name} ({self.corpus.megabytes:.1f} MB), {vocabulary}, "
            f"{plural(self.num_threads, 'thread')}{', fsync' * self.fsync}"
        )


def make_page(entries: Sequence[Entry], adapters: Sequence[Adapter], setting: Setting) -> Page:
    """Return the page of one number of threads."""
    right = [entry for entry in entries if entry.is_measured]
    parts = [
        markdown_table(HEADER, [_row(entry, setting, entries) for entry in entries]),
        _ratio_table(right),
        *notes_of(entries),
        "s: from the path of the text, in the page cache, and a loaded tokenizer to a closed token file; every process "
        f"is limited to {plural(setting.num_threads, 'CPU')}. CPU s: of the process and those it starts. "
        "load s: loading the tokenizer; part of no other column. peak MB: memory of the process and those it starts, "
        "interpreter, tokenizer and mapped files included, sampled every 20 ms in a separate run. "
        "anonymous MB: the same without the contents of mapped files.",
        _on_disk(adapters, fsync=setting.fsync),
        f"Token files compared with the ids of {setting.source}.",
        explained(right, adapters),
    ]
    corpus = setting.corpus
    about = {"corpus": corpus.what, "file system": file_system(setting.scratch)}
    about |= describe_run(adapter.distribution for adapter in adapters)
    name = f"pipeline_{corpus.name}_{setting.num_threads}t{'_fsync' * setting.fsync}"
    data = {
        "num_bytes": corpus.num_bytes,
        "vocabulary": setting.vocabulary,
        "entries": [entry.as_data() for entry in entries],
    }
    bars = [_bar(entry, corpus.megabytes) for entry in entries if entry.is_charted]
    chart = bar_chart(f"{setting.title}: MB/s", bars, caption=chart_caption(about))
    return Page(name, setting.title, about, parts, data, chart)


HEADER = [
    "system, form",
    "runs",
    "s",
    "min–max",
    "MB/s",
    "CPU s",
    "CPU/wall",
    "load s",
    "peak MB",
    "anonymous MB",
    "ids",
]


def _row(entry: Entry, setting: Setting, entries: Sequence[Entry]) -> list[str]:
    if not entry.is_measured:
        return [entry.name, str(len(entry.runs)), *["–"] * (len(HEADER) - 3), entry.outcome]
    return [
        f"{entry.name}{marks_of(entry, entries, MARKS)}",
        str(len(entry.runs)),
        *middle_and_spread(entry.seconds, digits=3),
        f"{setting.corpus.megabytes / median(entry.seconds):.1f}",
        f"{median(run.cpu_seconds for run in entry.runs):.3f}",
        f"{entry.cpu_per_wall:.2f}",
        f"{median(run.facts['loading_seconds'] for run in entry.runs):.2f}",
        megabytes(entry.memory.get("peak_bytes")),
        megabytes(entry.memory.get("peak_anonymous_bytes")),
        "equal",
    ]


def _bar(entry: Entry, text_megabytes: float) -> Bar:
    if not entry.is_measured:
        return Bar(entry.name, [None], [entry.outcome], entry.is_ours)
    speeds = [text_megabytes / seconds for seconds in entry.seconds]
    return Bar(
        entry.name, [median(speeds)], [f"{short(median(speeds))} MB/s"], entry.is_ours, [(min(speeds), max(speeds))]
    )


def megabytes(num_bytes: float | None) -> str:
    """Format a size for a table; a dash if it could not be measured."""
    return f"{num_bytes / 1e6:.0f}" if num_bytes else "–"


def file_system(folder: Path) -> str:
    """Return the kind of file system that a folder is on, from /proc/mounts; "unknown" without that file."""
    mounts = Path("/proc/mounts")
    lines = mounts.read_text(encoding="utf-8", errors="replace").splitlines() if mounts.exists() else []
    kinds = {Path(line.split()[1]): line.split()[2] for line in lines}
    return next((kinds[above] for above in [folder, *folder.parents] if above in kinds), "unknown")


def _ratio_table(right: Sequence[Entry]) -> str:
    """Compare each form of gristmill with the fastest form of each other system."""
    fastest: dict[str, Entry] = {}
    for entry in right:
        if not entry.is_ours and (best := fastest.get(entry.system, entry)):
            fastest[entry.system] = min(entry, best, key=lambda each: median(each.seconds))
    rows = [
        [ours.form, rival.name, *_ratio_and_spread(ours, rival)]
        for ours in right
        if ours.is_ours
        for rival in fastest.values()
    ]
    return markdown_table(["ours", "fastest form of a rival", "ratio", "round by round"], rows) if rows else ""


def _ratio_and_spread(ours: Entry, rival: Entry) -> tuple[str, str]:
    by_round = [b / a for a, b in zip(ours.seconds, rival.seconds, strict=False)]  # a slow system has fewer rounds
    ratio = median(rival.seconds) / median(ours.seconds)
    return f"{ratio:.2f}x", f"{min(by_round):.2f}–{max(by_round):.2f}"


def _on_disk(adapters: Sequence[Adapter], *, fsync: bool) -> str:
    if fsync:
        return "The tokens of every system are on the disk (fsync) when the clock stops."
    installed = [adapter for adapter in adapters if adapter.problem is None]
    on_disk = [adapter.system for adapter in installed if adapter.facts["SYNCS"]]
    in_cache = [adapter.system for adapter in installed if not adapter.facts["SYNCS"]]
    places = [("on the disk (fsync)", on_disk), ("in the page cache only", in_cache)]
    where = "; ".join(f"{place}: {', '.join(systems)}" for place, systems in places if systems)
    return f"Where the tokens are when the clock stops: {where}."


def explained(right: Sequence[Entry], adapters: Sequence[Adapter]) -> str:
    """Describe each form."""
    facts = {adapter.system: adapter.facts for adapter in adapters}
    lines = [
        f"* {entry.name}: {facts[entry.system]['FORMS'][entry.form]['what']}; threads by "
        f"{facts[entry.system]['THREADS']}."
        for entry in right
    ]
    return "\n".join(dict.fromkeys(lines))
