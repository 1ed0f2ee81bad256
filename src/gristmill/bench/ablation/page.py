"""The table, the chart and the files of an ablation."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from gristmill.bench.ablation.contest import Ablation, Measured, Result
from gristmill.bench.ablation.rows import CORE, GPU
from gristmill.bench.ablation.suites import Case
from gristmill.bench.charts import Bar, bar_chart
from gristmill.bench.contest import LEAST_CPU_PER_WALL
from gristmill.bench.machine import describe_run
from gristmill.bench.pages import Page, plural, publish_page
from gristmill.bench.published import TRAINING, PublishedTraining, training_table
from gristmill.bench.tables import markdown_table
from gristmill.reference.ablation.rare_words import MIN_COUNT

__all__ = ["chart_of", "notes_of", "publish_ablation", "table_of"]

HEADER = ["program", "pretokenize s", "merges/s", "total s", "speed-up", "peak MB", "same merges"]
BASE = "a"
MARK = "~"  # before every number that is extrapolated
FEW_CPUS = "†"  # after the name of a row whose threads or processes kept at most 1.3 CPUs busy


def table_of(ablation: Ablation) -> str:
    """Return the rows as a Markdown table. A row without times has its outcome in the last column."""
    base = _base(ablation)
    return markdown_table(HEADER, [_cells(result, base, ablation.num_merges) for result in ablation.results])


def notes_of(ablation: Ablation) -> list[str]:
    """Return the sentences below the table: what was extrapolated, what differs, what was disturbed."""
    notes = ["Speed-up is the total time of (a) divided by the total time of the row."]
    if ablation.num_merges < ablation.num_wanted:
        notes.append(
            f"The corpus has {ablation.num_merges:,} merges; the vocabulary asks for {ablation.num_wanted:,}. Then "
            "no pair is left."
        )
    notes += [
        f"{result.row.label}: {result.reason}."
        for result in ablation.results
        if _outcome(result.reason) != result.reason
    ]
    measured = [(result.row, result.measured) for result in ablation.results if result.measured is not None]
    if any(_is_extrapolated(each) for _, each in measured):
        notes.append(
            f"`{MARK}` marks extrapolated numbers. A row learns merges for {ablation.time_limit:g} s. The time of "
            "each remaining merge is `x + y * tokens` for (a) to (e), and `x * pairs + y * changes` for (f) and (g); "
            "`x` and `y` are fitted to the measured merges. Rows and measured merges: "
            + ", ".join(
                f"({row.letter}) {each.num_measured_merges:,}" for row, each in measured if each.is_extrapolated
            )
            + "."
        )
    if any(each.is_pretokenize_extrapolated for _, each in measured):
        notes.append(
            "Where pretokenizing would take longer than the time limit, its time is extrapolated from the first 8 MB, "
            "and the peak memory, marked with `>`, is that of the merges only."
        )
    checked = [(row, each.rule_check) for row, each in measured if each.rule_check is not None]
    if checked:
        errors = ", ".join(f"({row.letter}) {check['error']:+.0%}" for row, check in checked)
        notes.append(
            "Check of the rule for extrapolated times, on the rows that learned all merges: from the first tenth of "
            f"the merges, the estimated time of all merges is off by {errors}."
        )
    for row, each in measured:
        if not row.is_exact:
            notes.append(_difference(row.letter, each))
        if each.num_merges < ablation.num_merges:
            notes.append(
                f"({row.letter}) learned {each.num_merges:,} of {ablation.num_merges:,} merges: then its words have no "
                "pair left. It did less work than the others, so it has no speed-up."
            )
    if measured:
        busy = ", ".join(f"({row.letter}) {each.cpu_per_wall:.2f}" for row, each in measured)
        notes.append(f"CPU time / wall time: {busy}.")
    if any(result.has_few_cpus for result in ablation.results):
        notes.append(
            f"{FEW_CPUS} CPU time / wall time at most {LEAST_CPU_PER_WALL} on several threads or processes: little of "
            "the work is parallel, the corpus is too small, or the threads had to wait for a CPU. Such a row does not "
            "show what more threads are worth."
        )
    noisy = [f"({row.letter})" for row, each in measured if not each.is_quiet]
    if noisy:
        notes.append(f"Other processes used the CPU during {', '.join(dict.fromkeys(noisy))}.")
    return notes


def chart_of(ablation: Ablation, about: Mapping[str, str]) -> str:
    """Return the total times as a bar chart with a logarithmic scale. `about` names the machine, for the caption."""
    base = _base(ablation)
    bars = []
    for result in ablation.results:
        each = result.measured
        if each is None:
            text = result.reason
        else:
            text = f"{_number(each.total_seconds, _is_extrapolated(each))} s"
            is_short = each.num_merges < ablation.num_merges
            text += f", {_speed_up(each, base)}" if base and not is_short else ""
            text += ", other merges" if each.num_differing or is_short else ""
        seconds = None if each is None else each.total_seconds
        bars.append(
            Bar(_name(result), [seconds], [text], is_ours=each is not None and result.row.letter in (CORE, GPU))
        )
    caption = "Seconds from the file to all merges, logarithmic scale."
    if base:
        caption += f" The factor is the speed-up against ({BASE})."
    if any(result.measured and _is_extrapolated(result.measured) for result in ablation.results):
        caption += f" {MARK}: extrapolated from the first merges."
    if any(result.has_few_cpus for result in ablation.results):
        caption += f" {FEW_CPUS}: kept at most {LEAST_CPU_PER_WALL} CPUs busy."
    caption += f" {about['CPU']}, {plural(int(about['cores']), 'core')}; {about['versions']}; {about['date']}."
    title = f"What each optimization of BPE training is worth: {_corpus(ablation)}"
    return bar_chart(title, bars, caption=caption, log_scale=True)


def publish_ablation(ablation: Ablation, folder: Path, *, case: Case | None = None) -> Path:
    """Print the table, then write it to `folder` with the chart and every number; return the path of the table."""
    corpus = {"corpus": f"{ablation.corpus.what}, {ablation.corpus.num_bytes:,} bytes"}
    about = corpus | describe_run(["gristmill", "regex"])
    heading = f"{case.title}: what" if case is not None and case.title else "What"
    parts = [table_of(ablation), "\n".join(f"* {note}" for note in notes_of(ablation))]
    published = case.published if case is not None and case.published else similar_figures(ablation)
    if published:
        parts.append("Published times of other programs, on other machines and other text:")
        parts.append(training_table(published))
    page = Page(
        name=f"ablation_{ablation.corpus.name}_{ablation.vocab_size}",
        title=f"{heading} each optimization of BPE training is worth, {_corpus(ablation)}",
        about=about,
        parts=parts,
        data=ablation.as_json(),
        chart=chart_of(ablation, about),
    )
    return publish_page(page, folder, is_interrupted=ablation.interruption is not None)


def similar_figures(ablation: Ablation) -> tuple[PublishedTraining, ...]:
    """Return the published figures for this vocabulary size and about this size of corpus."""
    return tuple(
        figure
        for figure in TRAINING
        if figure.vocab_size == ablation.vocab_size and 0.5 < ablation.corpus.num_bytes / figure.num_bytes < 2
    )


def _corpus(ablation: Ablation) -> str:
    return f"{ablation.corpus.megabytes:,.0f} MB, vocabulary {ablation.vocab_size:,}"


def _cells(result: Result, base: Measured | None, num_merges: int) -> list[str]:
    each = result.measured
    if each is None:
        return [result.row.label, *["–"] * 5, _outcome(result.reason)]
    return [
        _name(result),
        _number(each.pretokenize_seconds, each.is_pretokenize_extrapolated),
        _number(each.merges_per_second, each.is_extrapolated),
        _number(each.total_seconds, _is_extrapolated(each)),
        _speed_up(each, base) if base and each.num_merges == num_merges else "–",
        f"{'>' * each.is_pretokenize_extrapolated}{each.peak_bytes / 1e6:,.0f}",
        _agreement(each, num_merges),
    ]


def _name(result: Result) -> str:
    return result.row.label + FEW_CPUS * result.has_few_cpus


def _outcome(reason: str) -> str:
    """Return the start of a reason, which fits in a column.

    >>> _outcome("skipped: trains on the CPU only"), _outcome("other merges than the native core; no time is shown")
    ('skipped', 'other merges')
    """
    return re.split(r"[:;,]| than ", reason)[0]


def _agreement(each: Measured, num_merges: int) -> str:
    if each.num_differing:
        return f"no: {each.num_differing:,} of {each.num_measured_merges:,} differ"
    if each.num_merges < num_merges:
        return f"no: {num_merges - each.num_merges:,} of {num_merges:,} missing"
    return f"yes, first {each.num_measured_merges:,}" if each.is_extrapolated else "yes"


def _difference(letter: str, each: Measured) -> str:
    learned = f"{each.num_measured_merges:,} merges"
    if each.first_difference is None:
        return f"({letter}) drops words that occur fewer than {MIN_COUNT} times. Its {learned} are the exact ones here."
    return (
        f"({letter}) is not exact: it drops words that occur fewer than {MIN_COUNT} times. Of its {learned}, "
        f"{each.num_differing:,} differ from the exact merge at the same position, the first at position "
        f"{each.first_difference:,}, and {each.num_not_learned:,} are not among the exact merges at all."
    )


def _base(ablation: Ablation) -> Measured | None:
    return next((result.measured for result in ablation.results if result.row.letter == BASE), None)


def _is_extrapolated(each: Measured) -> bool:
    return each.is_extrapolated or each.is_pretokenize_extrapolated


def _speed_up(each: Measured, base: Measured) -> str:
    return _number(base.total_seconds / each.total_seconds, _is_extrapolated(each) or _is_extrapolated(base)) + "x"


def _number(value: float, is_extrapolated: bool) -> str:
    return MARK * is_extrapolated + _digits(value)


def _digits(value: float) -> str:
    """Return a number with about three significant digits.

    >>> [_digits(value) for value in (0.0312, 0.6, 1.234, 45.67, 1234.5)]
    ['0.031', '0.60', '1.23', '45.7', '1,234']
    """
    if value >= 100:
        return f"{value:,.0f}"
    if value >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}" if value >= 0.1 else f"{value:.2g}"
