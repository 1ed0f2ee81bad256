"""The page of `bench_pipeline.py` on systems, and what it shares with `pipeline_inputs.py` and `pipeline_memory.py`."""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from gristmill.bench.corpora import Corpus
from gristmill.bench.machine import describe_run, version
from gristmill.bench.pipelines import Pipeline
from gristmill.bench.pipelines.contest import LEAST_CPU_PER_WALL, OURS, Entry
from gristmill.bench.pipelines.reference import ORACLE
from gristmill.bench.tables import markdown_table, middle_and_spread, write_result


@dataclass(frozen=True)
class Page:
    """The subject of the tables, and the output folder; None writes nothing."""

    corpus: Corpus
    scratch: Path
    folder: Path | None

    def publish(
        self,
        file_name: str,
        title: str,
        parts: Sequence[str],
        entries: Sequence[Entry],
        distributions: Sequence[str],
        *,
        times: Sequence[int] = (),
    ) -> None:
        """Print the page, and write it if there is a folder. `times`: of each entry, where the text is repeated."""
        body = "\n\n".join(filter(None, parts))
        print(f"{title}\n\n{body}\n")
        if self.folder is None:
            return
        about = {"corpus": self.corpus.what, "file system": file_system(self.scratch)} | describe_run(distributions)
        lines = [entry.as_data() for entry in entries]
        for line, repeated in zip(lines, times, strict=False):
            line["times"] = repeated
        data = {"num_bytes": self.corpus.num_bytes, "entries": lines}
        page = write_result(file_name, title=title, about=about, body=body, data=data, folder=self.folder)
        print(f"written: {page.name} and {page.with_suffix('.json').name}", file=sys.stderr)


def file_system(folder: Path) -> str:
    """Return the kind of file system that a folder is on, from /proc/mounts; "unknown" without that file."""
    mounts = Path("/proc/mounts")
    lines = mounts.read_text().splitlines() if mounts.exists() else []
    kinds = {Path(line.split()[1]): line.split()[2] for line in lines}
    return next((kinds[above] for above in [folder, *folder.parents] if above in kinds), "unknown")


def report_systems(
    entries: Sequence[Entry], pipelines: Mapping[str, Pipeline], missing: Sequence[str], page: Page, *, fsync: bool
) -> None:
    """The table of systems, for one number of threads."""
    num_threads = entries[0].num_threads
    right = right_entries(entries)
    title = (
        f"Text file to uint16 file: {page.corpus.name} ({page.corpus.megabytes:.1f} MB), gpt2, {threads(num_threads)}"
    )
    parts = [
        markdown_table(SYSTEMS_HEADER, [_system_row(entry, page, entries) for entry in right]) if right else "",
        _ratio_table(right),
        *_marks(right, entries),
        "s: from the path of the text, in the page cache, and a loaded tokenizer to a closed token file; every process "
        f"is limited to {num_threads} CPU{'s' if num_threads > 1 else ''}. CPU s: of the process and those it starts. "
        "load s: loading the tokenizer; part of no other column. peak MB: memory of the process and those it starts, "
        "interpreter, tokenizer and mapped files included, sampled every 20 ms in a separate run. "
        "anonymous MB: the same without the contents of mapped files.",
        _on_disk(pipelines, fsync=fsync),
        without_figure(entries),
        f"Not installed, skipped: {', '.join(missing)}." if missing else "",
        compared(right),
        explained(right, pipelines),
    ]
    name = f"pipeline_{page.corpus.name}_{num_threads}t{'_fsync' if fsync else ''}"
    distributions = [pipelines[system].DISTRIBUTION for system in pipelines]
    page.publish(name, title + (", fsync" if fsync else ""), parts, entries, distributions)


SYSTEMS_HEADER = [
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
]


def _system_row(entry: Entry, page: Page, entries: Sequence[Entry]) -> list[str]:
    marks = "".join(mark for mark, applies, _ in MARKS if applies(entry, entries))
    return [
        f"{entry.system}, {entry.form}{marks}",
        str(len(entry.runs)),
        *middle_and_spread(entry.seconds, digits=3),
        f"{speed(entry, page.corpus.megabytes):.1f}",
        f"{median(run.cpu_seconds for run in entry.runs):.3f}",
        f"{entry.cpu_per_wall:.2f}",
        f"{median(run.loading_seconds for run in entry.runs):.2f}",
        megabytes(entry.memory.get("peak_bytes")),
        megabytes(entry.memory.get("peak_anonymous_bytes")),
    ]


def speed(entry: Entry, megabytes: float) -> float:
    """Return MB/s of text, by the median time."""
    return megabytes / median(entry.seconds)


def megabytes(num_bytes: float | None) -> str:
    """Format a size for a table; a dash if it could not be measured."""
    return f"{num_bytes / 1e6:.0f}" if num_bytes else "–"


def _ratio_table(right: Sequence[Entry]) -> str:
    """Compare each form of gristmill with the fastest form of each other system."""
    fastest: dict[str, Entry] = {}
    for entry in right:
        if entry.system != OURS and (best := fastest.get(entry.system, entry)):
            fastest[entry.system] = min(entry, best, key=lambda each: median(each.seconds))
    rows = [
        [ours.form, f"{rival.system}, {rival.form}", *_ratio_and_spread(ours, rival)]
        for ours in right
        if ours.system == OURS
        for rival in fastest.values()
    ]
    return markdown_table(["ours", "fastest form of a rival", "ratio", "round by round"], rows) if rows else ""


def _ratio_and_spread(ours: Entry, rival: Entry) -> tuple[str, str]:
    by_round = [b / a for a, b in zip(ours.seconds, rival.seconds, strict=False)]  # a slow system has fewer rounds
    ratio = median(rival.seconds) / median(ours.seconds)
    return f"{ratio:.2f}x", f"{min(by_round):.2f}–{max(by_round):.2f}"


def _few_cpus(entry: Entry, _entries: Sequence[Entry]) -> bool:
    return entry.num_threads > 1 and entry.cpu_per_wall <= LEAST_CPU_PER_WALL


def _noisy(entry: Entry, _entries: Sequence[Entry]) -> bool:
    return not all(run.quiet for run in entry.runs)


def _fewer_runs(entry: Entry, entries: Sequence[Entry]) -> bool:
    return len(entry.runs) < max(len(each.runs) for each in entries)


Mark = tuple[str, Callable[[Entry, Sequence[Entry]], bool], str]
MARKS: tuple[Mark, ...] = (
    ("†", _few_cpus, "CPU/wall at most 1.3: the system has little parallel work, or waits for the disk"),
    ("‡", _noisy, "some runs shared the machine with other processes (repeats were used up)"),
    ("§", _fewer_runs, "fewer runs, because it is slow"),
)


def _marks(right: Sequence[Entry], entries: Sequence[Entry]) -> list[str]:
    return [f"{mark} {what}." for mark, applies, what in MARKS if any(applies(entry, entries) for entry in right)]


def _on_disk(pipelines: Mapping[str, Pipeline], *, fsync: bool) -> str:
    if fsync:
        return "The tokens of every system are on the disk (fsync) when the clock stops."
    on_disk = [system for system, pipeline in pipelines.items() if pipeline.SYNCS]
    in_cache = [system for system, pipeline in pipelines.items() if not pipeline.SYNCS]
    places = [("on the disk (fsync)", on_disk), ("in the page cache only", in_cache)]
    where = "; ".join(f"{place}: {', '.join(systems)}" for place, systems in places if systems)
    return f"Where the tokens are when the clock stops: {where}."


def without_figure(entries: Sequence[Entry]) -> str:
    """List every entry with a problem."""
    lines = [f"* {entry.system}, {entry.form}: {entry.problem}." for entry in entries if entry.problem]
    return "No figure:\n" + "\n".join(dict.fromkeys(lines)) if lines else ""


def compared(right: Sequence[Entry]) -> str:
    """List the systems with the ids of the reference."""
    systems = ", ".join(dict.fromkeys(entry.system for entry in right))
    return f"Token files compared with the ids of {ORACLE} {version(ORACLE)} and equal: {systems}." if systems else ""


def explained(right: Sequence[Entry], pipelines: Mapping[str, Pipeline]) -> str:
    """Describe each form."""
    lines = [
        f"* {entry.system}, {entry.form}: {pipelines[entry.system].FORMS[entry.form].what}; "
        f"threads by {pipelines[entry.system].THREADS}."
        for entry in right
    ]
    return "\n".join(dict.fromkeys(lines))


def right_entries(entries: Sequence[Entry]) -> list[Entry]:
    """Return the entries with results."""
    return [entry for entry in entries if entry.problem is None and entry.runs]


def threads(num_threads: int) -> str:
    """Return "1 thread", "2 threads"."""
    return f"{num_threads} thread{'s' if num_threads > 1 else ''}"
