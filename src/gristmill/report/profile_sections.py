"""Profile sections: stage times, rates and memory of a training of a tokenizer, or of the encoding of a corpus."""

from __future__ import annotations

from gristmill.executors.summary import figures_by_node
from gristmill.profile import Profile, Stage
from gristmill.report import figures
from gristmill.report.document import Column, Plots, Section, Table, cells, full_rows
from gristmill.report.summary import Figure
from gristmill.report.token_plots import bar_plot, memory_plot, winners_plot
from gristmill.shards.run import STAGE_MEANINGS, WAITING_STAGES


def training_sections(profile: Profile) -> list[Section]:
    """Return the plots and the table about the training of a tokenizer: stage times, memory, winning pairs."""
    total = sum(stage.seconds for stage in profile.stages)
    bars = _bars(profile)
    plots = (
        winners_plot(profile.merge_counts),
        bar_plot(
            "stages", "Time by stage", f"Wall-clock time; {figures.duration(profile.seconds)} in all.", bars, "seconds"
        ),
        memory_plot(profile.memory),
    )
    rows = [
        cells(
            [stage.stage, figures.duration(stage.seconds), figures.percent(stage.seconds / total if total else 0), work]
        )
        for stage, work in ((stage, _work_in_words(stage)) for stage in profile.stages)
    ]
    columns = [Column("stage"), Column("time"), Column("of all"), Column("work", is_text=True)]
    return [
        Plots("Training", full_rows(plots)),
        Table("Stages of the training", columns, rows, f"{_threads(profile)}.{_peak(profile)}"),
    ]


def encoding_sections(profile: Profile) -> list[Section]:
    """Return the plots and the tables about the encoding of a corpus: stage times and rates, memory, machines."""
    total = figures.duration(profile.seconds)
    summed = "Sums over the workers" if profile.tasks else "find and encode are sums over the threads"
    note = f"{summed}. The whole run took {total}."
    plots = (bar_plot("stages", "Time by stage", note, _bars(profile), "seconds"), memory_plot(profile.memory))
    rows = []
    for stage in profile.stages:
        seconds = None if stage.stage in WAITING_STAGES else max(stage.seconds, 1e-9)
        text = "–" if seconds is None or not stage.num_bytes else f"{figures.size(stage.num_bytes / seconds)}/s"
        tokens = "–" if seconds is None or not stage.num_tokens else f"{figures.short(stage.num_tokens / seconds)}/s"
        rows.append(cells([stage.stage, figures.duration(stage.seconds), text, tokens, STAGE_MEANINGS[stage.stage]]))
    names = [Column(name) for name in ("stage", "time", "text", "tokens")]
    columns = [*names, Column("what the time measures", is_text=True)]
    return [
        Plots("Encoding", full_rows(plots)),
        Table("Stages of the encoding", columns, rows, f"{_threads(profile)}, {total}.{_peak(profile)}"),
        _machines(profile),
    ]


def encoding_figures(profile: Profile, *, source_bytes: int) -> list[Figure]:
    """Return the time and the throughput of the encoding.

    source_bytes: size of all texts of the shards. A resumed run encoded only a part of them.
    """
    encode = next(stage for stage in profile.stages if stage.stage == "encode")
    num_bytes, num_tokens = encode.num_bytes or 0, encode.num_tokens or 0
    seconds = max(profile.seconds, 1e-9)
    num_reused = sum(task.is_reused for task in profile.tasks)
    if num_reused:
        note = f"resumed; {num_reused:,} of {len(profile.tasks):,} tasks were done before"
    elif num_bytes < source_bytes:
        note = f"resumed; for the last {figures.size(num_bytes)} of text"
    else:
        note = _threads(profile)
    found = [Figure("time", figures.duration(profile.seconds), note)]
    if num_bytes and not num_reused:
        tokens = f"{figures.short(num_tokens / seconds)} tokens per second"
        found.append(Figure("throughput", f"{figures.size(num_bytes / seconds)}/s", tokens))
    return found


def _bars(profile: Profile) -> list[tuple[str, float, str]]:
    return [(stage.stage, stage.seconds, figures.duration(stage.seconds)) for stage in profile.stages]


def _threads(profile: Profile) -> str:
    return f"{profile.num_threads:,} {'worker' if profile.tasks else 'thread'}{'s' * (profile.num_threads != 1)}"


def _peak(profile: Profile) -> str:
    peak = profile.peak_memory_bytes
    return f" Peak memory of the process: {figures.size(peak)}." if peak is not None else ""


def _machines(profile: Profile) -> Table:
    """Return the figures of each machine, if an executor ran tasks."""
    names = ["machine", "workers", "tasks", "reused", "retries", "input", "each worker", "peak memory"]
    rows = [
        cells(
            [
                node.node,
                f"{node.num_workers:,}",
                f"{node.num_tasks:,}",
                f"{node.num_reused:,}",
                f"{node.num_retries:,}",
                figures.size(node.num_bytes),
                f"{figures.size(node.bytes_per_second)}/s" if node.bytes_per_second else "–",
                "–" if node.peak_memory_bytes is None else figures.size(node.peak_memory_bytes),
            ]
        )
        for node in figures_by_node(profile.tasks)
    ]
    note = "Reused tasks were done by an earlier run. The peak memory is that of the largest worker."
    return Table("Machines", [Column(name) for name in names], rows, note)


def _work_in_words(stage: Stage) -> str:
    seconds = max(stage.seconds, 1e-9)
    parts = []
    if stage.num_bytes is not None:
        parts.append(f"{figures.size(stage.num_bytes)} at {figures.size(stage.num_bytes / seconds)}/s")
    if stage.num_pieces is not None:
        parts.append(f"{figures.short(stage.num_pieces)} pieces")
    if stage.num_words is not None:
        parts.append(f"{figures.short(stage.num_words)} words")
    if stage.num_merges is not None:
        parts.append(f"{stage.num_merges:,} merges at {figures.short(stage.num_merges / seconds)}/s")
    return ", ".join(parts)
