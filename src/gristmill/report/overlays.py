"""Overlays: the curves of several runs in one plot per metric."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gristmill.report import figures, validation
from gristmill.report.comparison import ComparedRun
from gristmill.report.curves import smoothed, thinned
from gristmill.report.drawing import End, Plot, above, count_unit, diamonds, finite, name_lines, scale_y
from gristmill.report.records import Column, Records, Table

NAME_LENGTH = 18  # characters of a run's name in a plot
PALE_RUNS = 3  # with more runs, the pale lines of the records would hide each other


@dataclass(frozen=True)
class Axis:
    """The horizontal axis of a plot: position of a run at its steps, and the end of the longest run."""

    name: str  # for the file name of a plot
    words: str
    end: float
    place: Callable[[Records, Column], Column]


def all_overlays(runs: Sequence[ComparedRun]) -> list[Plot]:
    """Return the plots for which at least one run has records."""
    by_step = _steps(runs)
    by_token = _tokens(runs)
    found = [_training_loss(runs, by_step, wide=True), _validation(runs, by_step, "loss", wide=True)]
    if by_token.end:
        found += [_training_loss(runs, by_token), _validation(runs, by_token, "loss")]
        found += [_validation(runs, by_token, "bits_per_byte")]
    found += [_learning_rate(runs, by_step), _throughput(runs, by_step)]
    return [plot for plot in found if plot is not None]


# Horizontal axes


def _steps(runs: Sequence[ComparedRun]) -> Axis:
    tables = [table for run in runs for table in (run.records.train, run.records.val)]
    end = max([0.0, *(float(table.steps[-1]) for table in tables if len(table))])
    return Axis("step", "step", end, lambda _, steps: steps)


def _tokens(runs: Sequence[ComparedRun]) -> Axis:
    end = max([0.0, *(run.records.train.last("tokens") or 0.0 for run in runs)])
    scale, unit = count_unit(end)

    def place(records: Records, steps: Column) -> Column:
        train = records.train.where(np.isfinite(records.train["tokens"]))
        if not len(train):
            return np.full(len(steps), np.nan)
        # Validations record only their step; steps before the first record are interpolated from 0.
        tokens: Column = np.interp(steps, [0.0, *train.steps], [0.0, *train["tokens"]])
        return tokens / scale

    return Axis("tokens", f"{unit}tokens", end / scale, place)


# The plots


def _training_loss(runs: Sequence[ComparedRun], axis: Axis, *, wide: bool = False) -> Plot | None:
    def lines(axes: Any) -> list[End]:
        return [
            end
            for run in runs
            for end in _noisy(axes, run, axis, run.records.train, "loss", pale=len(runs) <= PALE_RUNS)
        ]

    return _plot(
        f"training_loss_by_{axis.name}",
        "Training loss",
        "Running means.",
        [run.records.train["loss"] for run in runs],
        axis,
        "loss (nats per token)",
        lines,
        wide=wide,
    )


def _validation(runs: Sequence[ComparedRun], axis: Axis, name: str, *, wide: bool = False) -> Plot | None:
    def lines(axes: Any) -> list[End]:
        return [end for run in runs for end in _validated(axes, run, axis, name)]

    is_loss = name == "loss"
    has_full = any(len(validation.apart(run.records.val)) for run in runs)
    notes = ["Comparable between tokenizers."] * (not is_loss)
    notes += ["Curves: a fixed subset; diamonds: full validation, on the whole split."] * has_full
    return _plot(
        f"validation_{name}_by_{axis.name}",
        "Validation loss" if is_loss else "Bits per byte",
        " ".join(notes),
        [run.records.val[name] for run in runs],
        axis,
        "loss (nats per token)" if is_loss else "bits per byte",
        lines,
        wide=wide,
    )


def _learning_rate(runs: Sequence[ComparedRun], axis: Axis) -> Plot | None:
    columns = [run.records.train["lr"] for run in runs]

    def draw(axes: Any) -> None:
        ends = [end for run in runs for end in _noisy(axes, run, axis, run.records.train, "lr", raw=True)]
        axes.set_ylim(0, above(np.concatenate([finite(column) for column in columns])))
        axes.set_ylabel("learning rate")
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:.7f}".rstrip("0").rstrip("."))
        name_lines(axes, ends, at_right=True)

    return _if_any(Plot("learning_rate", "Learning rate", "", draw, last_step=axis.end, across=axis.words), columns)


def _throughput(runs: Sequence[ComparedRun], axis: Axis) -> Plot | None:
    columns = [run.records.train["tokens_per_second"] for run in runs]
    scale, unit = count_unit(max([0.0, *np.concatenate([finite(column) for column in columns])]))

    def draw(axes: Any) -> None:
        ends: list[End] = []
        for run in runs:
            ends += _noisy(axes, run, axis, run.records.train, "tokens_per_second", scale=scale)
        axes.set_ylim(0, above(np.concatenate([finite(column) for column in columns])) / scale)
        axes.set_ylabel(f"{unit}tokens per second")
        name_lines(axes, ends, at_right=True)

    return _if_any(
        Plot("throughput", "Throughput", "Running means.", draw, last_step=axis.end, across=axis.words), columns
    )


def _plot(
    name: str,
    title: str,
    note: str,
    columns: Sequence[Column],
    axis: Axis,
    unit: str,
    lines: Callable[[Any], list[End]],
    *,
    wide: bool,
) -> Plot | None:
    def draw(axes: Any) -> None:
        ends = lines(axes)
        scale_y(axes, *(finite(column) for column in columns), enough=3)
        axes.set_ylabel(unit)
        if ends:
            name_lines(axes, ends, at_right=True)

    title += "" if axis.name == "step" else " by tokens"
    return _if_any(Plot(name, title, note, draw, wide=wide, last_step=axis.end, across=axis.words), columns)


def _if_any(plot: Plot, columns: Sequence[Column]) -> Plot | None:
    return plot if any(np.isfinite(column).any() for column in columns) else None


# The line of one run


def _noisy(
    axes: Any,
    run: ComparedRun,
    axis: Axis,
    table: Table,
    name: str,
    *,
    pale: bool = False,
    raw: bool = False,
    scale: float = 1.0,
) -> list[End]:
    """Draw the running mean of a column, or the column itself if `raw`; with `pale`, also every record below it."""
    x, y = axis.place(run.records, table.steps), table[name] / scale
    x, y = x[np.isfinite(x)], y[np.isfinite(x)]
    if not np.isfinite(y).any():
        return []
    if pale and len(y) > 2:
        axes.plot(*thinned(x, y), color=run.colour, alpha=0.15, linewidth=0.7)
    thin_x, thin_y = thinned(x, y if raw or len(y) <= 2 else smoothed(y))
    axes.plot(thin_x, thin_y, **_style(run, len(thin_x)))
    return [_end(run, thin_x, thin_y, None if raw or scale != 1 else figures.loss(float(thin_y[-1])))]


def _validated(axes: Any, run: ComparedRun, axis: Axis, name: str) -> list[End]:
    """Draw the validation curve on the subset, and a diamond for the whole split."""
    val, ends = run.records.val, list[End]()
    for stretch in validation.stretches(val):
        x, y = thinned(axis.place(run.records, stretch.steps), stretch[name])
        x, y = x[np.isfinite(x)], y[np.isfinite(x)]
        if len(x):
            style = _style(run, len(x)) | ({"marker": "o", "markersize": 3.5} if len(x) <= 60 else {})
            axes.plot(x, y, **style)
            ends = [_end(run, x, y, figures.loss(float(y[-1])))]
    whole = validation.apart(val)
    places = axis.place(run.records, whole.steps)
    if np.isfinite(whole[name]).any() and np.isfinite(places).any():
        diamonds(axes, places, whole[name], run.colour)
    return ends


def _style(run: ComparedRun, num_points: int) -> dict[str, Any]:
    marker = {"marker": "o", "markersize": 4} if num_points == 1 else {}
    return {"color": run.colour, "linewidth": 1.6, "linestyle": run.dash, "zorder": 3, **marker}


def _end(run: ComparedRun, x: Column, y: Column, number: str | None) -> End:
    words = _shortened(run.name) + (f" {number}" if number else "")
    return float(x[-1]), float(y[-1]), words, run.colour


def _shortened(name: str) -> str:
    """Return the beginning and the end of a long name: names of runs often differ in their last letters.

    >>> _shortened("tinystories-17m-lr-0.003-seed-1")
    'tinystor…03-seed-1'
    """
    half = (NAME_LENGTH - 1) / 2
    return name if len(name) <= NAME_LENGTH else f"{name[: int(half)]}…{name[-round(half + 0.5) :]}"
