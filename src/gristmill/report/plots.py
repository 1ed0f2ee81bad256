"""Plots: one plot per metric."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from gristmill.report import figures, validation
from gristmill.report.curves import thinned
from gristmill.report.drawing import (
    BLUE,
    RUST,
    TEAL,
    End,
    Plot,
    above,
    count_unit,
    diamonds,
    finite,
    name_lines,
    noisy_line,
    points,
    scale_y,
    stroke,
    threshold,
)
from gristmill.report.posterior import posterior_plots
from gristmill.report.records import LOSS_ON, Records, Table
from gristmill.report.summary import first_bad_step, last_step, own_statistics

WAIT_LIMIT = 0.05  # share of a step above which waiting for data should be fixed


def all_plots(records: Records) -> list[Plot]:
    """Return the plots that have records."""
    found = (
        _loss(records),
        _bits_per_byte(records),
        _reconstruction(records),
        _kl(records),
        *_own_statistics(records),
        *posterior_plots(records.posterior),
        _learning_rate(records),
        _gradient_norm(records),
        _throughput(records),
        _utilisation(records),
        _memory(records),
        _data_wait(records),
    )
    return [replace(plot, last_step=last_step(records)) for plot in found if plot is not None]


def _loss(records: Records) -> Plot | None:
    train, val = records.train, records.val
    if not train.has("loss") and not val.has("loss"):
        return None

    def draw(axes: Any) -> None:
        ends = []
        if train.has("loss"):
            x, y = noisy_line(axes, train.steps, train["loss"], BLUE)
            ends.append((x, y, f"training {figures.loss(y)}", BLUE))
        ends += validation_lines(axes, val, "loss", RUST)
        _mark_trouble(axes, records)
        scale_y(axes, finite(train["loss"]), finite(val["loss"]), enough=3)
        axes.set_ylabel("loss (nats per token)")
        name_lines(axes, ends)

    note = "Bold line: running mean; pale line: every record. " if len(train) > 2 else ""
    return Plot("loss", "Loss", (note + _about_full(val)).strip(), draw, wide=True)


def _bits_per_byte(records: Records) -> Plot | None:
    val = records.val
    if not val.has("bits_per_byte"):
        return None

    def draw(axes: Any) -> None:
        ends = validation_lines(axes, val, "bits_per_byte", RUST, between="\n")
        scale_y(axes, finite(val["bits_per_byte"]), enough=3)
        axes.set_ylabel("bits per byte")
        name_lines(axes, ends, lines=2)

    note = "On validation text; comparable between tokenizers. " + _about_full(val)
    return Plot("bits_per_byte", "Bits per byte", note.strip(), draw)


def _reconstruction(records: Records) -> Plot | None:
    note = "The loss without the KL term."
    return _part_of_loss(records, "reconstruction", "Reconstruction", "nats per token", note)


def _kl(records: Records) -> Plot | None:
    return _part_of_loss(
        records, "kl", "KL to the prior", "nats per sequence", "Upper limit of the information in the latents."
    )


def _own_statistics(records: Records) -> Iterator[Plot | None]:
    """Yield one plot per statistic of a user's model, on a linear axis: its unit is unknown."""
    for number, name in enumerate(own_statistics(records)):
        note = "One source of the mixture." if name.startswith(LOSS_ON) else "A statistic of the model."
        plot = _part_of_loss(records, name, name[:40], name[:40], note, enough=math.inf)
        if plot is not None:
            # The name comes from a file, and may not be a valid file name.
            is_plain = re.fullmatch(r"[A-Za-z0-9_]{1,80}", name)
            yield replace(plot, name=f"statistic_{name}" if is_plain else f"statistic-{number}")


def _part_of_loss(records: Records, name: str, title: str, unit: str, note: str, *, enough: float = 10) -> Plot | None:
    train, val = records.train, records.val
    if not train.has(name) and not val.has(name):
        return None

    def draw(axes: Any) -> None:
        ends = []
        if train.has(name):
            x, y = noisy_line(axes, train.steps, train[name], BLUE)
            ends.append((x, y, f"training\n{figures.loss(y)}", BLUE))
        ends += validation_lines(axes, val, name, RUST, between="\n")
        scale_y(axes, finite(train[name]), finite(val[name]), enough=enough)
        axes.set_ylabel(unit)
        name_lines(axes, ends, lines=2)

    return Plot(name, title, f"{note} {_about_full(val)}".strip(), draw)


def validation_lines(axes: Any, val: Table, name: str, colour: str, *, between: str = " ") -> list[End]:
    """Draw the validation curve, and diamonds for the whole split; return their ends with labels."""
    ends: list[End] = []
    on_subset = len(validation.apart(val)) > 0
    for stretch in validation.stretches(val):
        if stretch.has(name):
            x, y = points(axes, stretch.steps, stretch[name], colour)
            ends[:] = [(x, y, f"validation{between}{figures.loss(y)}", colour)]
    whole = validation.apart(val)
    if on_subset and whole.has(name):
        x, y = diamonds(axes, whole.steps, whole[name], colour)
        ends.append((x, y, f"full validation{between}{figures.loss(y)}", colour))
    return ends


def _about_full(val: Table) -> str:
    if not len(validation.apart(val)):
        return ""
    return "Diamond: full validation (the whole split). The curve uses a fixed subset, so the two are not comparable."


def _learning_rate(records: Records) -> Plot | None:
    train = records.train
    if not train.has("lr"):
        return None

    def draw(axes: Any) -> None:
        x, y = thinned(train.steps, train["lr"])
        axes.plot(x, y, **stroke(BLUE, len(x)))
        axes.set_ylim(0, above(y))
        axes.set_ylabel("learning rate")
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:.7f}".rstrip("0").rstrip("."))
        name_lines(axes, [(x[-1], y[-1], f"{y[-1]:.2g}", BLUE)])

    return Plot("learning_rate", "Learning rate", f"Peak {float(np.nanmax(train['lr'])):.3g}.", draw)


def _gradient_norm(records: Records) -> Plot | None:
    train = records.train
    if not train.has("grad_norm"):
        return None
    limit = records.config.get("clip_norm")

    def draw(axes: Any) -> None:
        ends = []
        if train.has("grad_norm_max"):
            steps, largest = thinned(train.steps, train["grad_norm_max"])
            axes.plot(steps, largest, **{**stroke(RUST, len(steps)), "linewidth": 0.9, "alpha": 0.6})
            ends.append((float(steps[-1]), float(largest[-1]), "largest", RUST))
        x, y = noisy_line(axes, train.steps, train["grad_norm"], TEAL)
        ends.append((x, y, figures.loss(y), TEAL))
        scale_y(axes, finite(train["grad_norm"]), finite(train["grad_norm_max"]), enough=10)
        axes.set_ylabel("gradient norm")
        if isinstance(limit, (int, float)) and axes.get_ylim()[0] < limit < axes.get_ylim()[1]:
            threshold(axes, limit, f"clipped at {limit:g}")
        name_lines(axes, ends)

    note = "Norm over all parameters, before clipping."
    if train.has("grad_norm_max"):
        note += " Thin line: the largest since the previous record."
    return Plot("gradient_norm", "Gradient norm", note, draw)


def _throughput(records: Records) -> Plot | None:
    train = records.train
    if not train.has("tokens_per_second"):
        return None
    speeds = train["tokens_per_second"]
    scale, unit = count_unit(float(np.nanmax(speeds)))
    median = float(np.nanmedian(speeds))

    def draw(axes: Any) -> None:
        noisy_line(axes, train.steps, speeds / scale, BLUE)
        axes.set_ylim(0, above(speeds / scale))
        axes.set_ylabel(f"{unit}tokens per second")

    return Plot("throughput", "Throughput", f"Median {figures.short(median)} tokens per second.", draw)


def _utilisation(records: Records) -> Plot | None:
    train = records.train
    kinds = [("mfu", "of the peak", BLUE), ("mfu_matmul", "of a matmul", TEAL)]
    present = [(name, words, colour) for name, words, colour in kinds if train.has(name)]
    if not present:
        return None

    def draw(axes: Any) -> None:
        ends, top = [], 0.0
        for name, words, colour in present:
            x, y = noisy_line(axes, train.steps, 100 * train[name], colour)
            ends.append((x, y, f"{words}\n{100 * np.nanmedian(train[name]):.3g} %", colour))
            top = max(top, above(100 * train[name]))
        axes.set_ylim(0, top)
        axes.set_ylabel("% of FLOP/s")
        name_lines(axes, ends, lines=2)

    medians = " and ".join(f"{figures.percent(float(np.nanmedian(train[name])))} {words}" for name, words, _ in present)
    return Plot("utilisation", "Model FLOPs utilisation", f"Median {medians}.", draw)


def _memory(records: Records) -> Plot | None:
    train = records.train
    if not train.has("memory_bytes"):
        return None
    peak = float(np.nanmax(train["memory_bytes"]))
    scale, unit = figures.byte_unit(peak)

    def draw(axes: Any) -> None:
        x, y = thinned(train.steps, train["memory_bytes"] / scale)
        axes.plot(x, y, **stroke(BLUE, len(x)))
        axes.set_ylim(0, above(y))
        axes.set_ylabel(f"memory ({unit})")

    return Plot("memory", "Memory", f"Peak {figures.size(peak)}.", draw)


def _data_wait(records: Records) -> Plot | None:
    train = records.train
    if not train.has("data_wait"):
        return None
    mean = float(np.nanmean(train["data_wait"]))

    def draw(axes: Any) -> None:
        noisy_line(axes, train.steps, 100 * train["data_wait"], TEAL)
        axes.set_ylim(0, max(above(100 * train["data_wait"]), 120 * WAIT_LIMIT))
        axes.set_ylabel("% of a step")
        threshold(axes, 100 * WAIT_LIMIT, f"above {100 * WAIT_LIMIT:g} %: data too slow")

    return Plot("data_wait", "Waiting for data", f"Mean {figures.percent(mean)} of a step.", draw)


def _mark_trouble(axes: Any, records: Records) -> None:
    step = first_bad_step(records)
    if step is not None:
        axes.axvline(step, color=RUST, linewidth=0.9, linestyle=(0, (4, 3)))
        axes.annotate(
            "not a number",
            (step, 1),
            (-4, -2),
            xycoords=("data", "axes fraction"),
            textcoords="offset points",
            ha="right",
            va="top",
            color=RUST,
            fontsize=8,
        )
