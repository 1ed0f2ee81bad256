"""Summary: what the page says about a run in words and figures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from gristmill.report import figures
from gristmill.report.curves import smoothed
from gristmill.report.options import flat, model_options
from gristmill.report.records import Event, Records, Sample

NUM_SAMPLES = 6
NUM_EVENTS = 60


@dataclass(frozen=True)
class Figure:
    """One number of the run, with what there is to know about it."""

    name: str
    value: str
    note: str = ""


@dataclass(frozen=True)
class Summary:
    """All that the page and the Markdown file hold besides the plots."""

    title: str
    result: str  # one sentence
    trouble: str  # a sentence, where something went wrong
    figures: list[Figure]
    samples: list[Sample]  # the last one last
    num_samples: int
    events: list[Event]
    num_events: int
    config: list[tuple[str, str]]
    machine: list[tuple[str, str]]


def summarise(records: Records) -> Summary:
    """The run in words and figures."""
    return Summary(
        title=records.name,
        result=_result(records),
        trouble=_trouble(records),
        figures=list(_figures(records)),
        samples=_spread(records.samples, NUM_SAMPLES),
        num_samples=len(records.samples),
        events=records.events[-NUM_EVENTS:],
        num_events=len(records.events),
        config=_settings(model_options(records)),
        machine=_settings(dict(flat(records.machine))),
    )


def final_validation(records: Records) -> int | None:
    """The place of the validation record that counts: the last one on the whole split, else the last one."""
    finite = np.flatnonzero(np.isfinite(records.val["loss"]))
    if not len(finite):
        return None
    whole = finite[records.val["full"][finite] == 1]
    return int(whole[-1] if len(whole) else finite[-1])


def final_training_loss(records: Records) -> float | None:
    """The mean of the last records: a single one is noisy."""
    mean = smoothed(records.train["loss"])
    finite = mean[np.isfinite(mean)]
    return float(finite[-1]) if len(finite) else None


def first_bad_step(records: Records) -> int | None:
    """The first step with a loss that is not a number."""
    if "loss" not in records.train.columns:
        return None
    bad = np.flatnonzero(~np.isfinite(records.train["loss"]))
    return int(records.train.steps[bad[0]]) if len(bad) else None


def last_step(records: Records) -> int:
    """How far the run has come."""
    tables = (records.train, records.val, records.posterior.table)
    return int(max([0.0, *(step for table in tables for step in table.steps[-1:])]))


def total_steps(records: Records) -> int | None:
    """How far the run is to go."""
    steps = records.config.get("max_steps")
    return steps if isinstance(steps, int) and not isinstance(steps, bool) else None


def _result(records: Records) -> str:
    step, total = last_step(records), total_steps(records)
    if not len(records.train) and not len(records.val):
        return "Nothing is recorded yet: the run has not finished a step."
    unfinished = total is not None and step < total
    progress = f"{step:,} of {_steps(total or 0)}" if unfinished else _steps(step)
    tokens, seconds = records.train.last("tokens"), records.train.last("seconds")
    amount = f" and {figures.short(tokens)} tokens" if tokens else ""
    time = f", in {figures.duration(seconds)}" if seconds else ""
    return f"{_loss_words(records)} after {progress}{amount}{time}{' (unfinished)' * unfinished}."


def _steps(number: int) -> str:
    return f"{number:,} step{'s' * (number != 1)}"


def _loss_words(records: Records) -> str:
    place = final_validation(records)
    if place is not None:
        bits = records.val["bits_per_byte"][place]
        known = f" ({figures.loss(bits)} bits per byte)" if np.isfinite(bits) else ""
        return f"Validation loss {figures.loss(records.val['loss'][place])}{known}"
    loss = final_training_loss(records)
    return "No loss that is a number" if loss is None else f"Training loss {figures.loss(loss)}"


def _trouble(records: Records) -> str:
    step = first_bad_step(records)
    found = [] if step is None else [f"The loss is not a number at step {step:,}."]
    found += [
        f"Since step {span.first:,}: {span.message.rstrip('.')}."
        for span in records.posterior.spans
        if not span.is_over and span.message
    ]
    return " ".join(found)


def _figures(records: Records) -> Iterator[Figure]:
    yield from _loss_figures(records)
    yield from _posterior_figures(records)
    train = records.train
    parameters = records.config.get("num_parameters") or records.machine.get("num_parameters")
    if isinstance(parameters, int):
        yield Figure("Parameters", figures.short(parameters))
    tokens, seconds = train.last("tokens"), train.last("seconds")
    if tokens:
        yield Figure("Tokens", figures.short(tokens), _steps(last_step(records)))
    if seconds:
        yield Figure("Time", figures.duration(seconds))
    if train.has("tokens_per_second"):
        yield Figure("Throughput", figures.short(_median(records, "tokens_per_second")), "tokens per second, median")
    if train.has("mfu"):
        yield Figure("MFU", figures.percent(_median(records, "mfu")), "of the device's peak")
    elif train.has("mfu_matmul"):
        yield Figure("MFU", figures.percent(_median(records, "mfu_matmul")), "of a measured matmul")
    if train.has("memory_bytes"):
        yield Figure("Memory", figures.size(float(np.nanmax(train["memory_bytes"]))), "peak")


def _loss_figures(records: Records) -> Iterator[Figure]:
    place = final_validation(records)
    if place is not None:
        note = "the whole split" if records.val["full"][place] == 1 else "a fixed part of the split"
        yield Figure("Validation loss", figures.loss(records.val["loss"][place]), note)
        bits = records.val["bits_per_byte"][place]
        if np.isfinite(bits):
            yield Figure("Bits per byte", figures.loss(bits), "validation")
    loss = final_training_loss(records)
    if loss is not None:
        yield Figure("Training loss", figures.loss(loss), "mean of the last records")


def _posterior_figures(records: Records) -> Iterator[Figure]:
    table, latent_dim = records.posterior.table, records.posterior.kl_SZ.shape[1]
    information, units = table.last("mutual_information"), table.last("active_units")
    if information is not None:
        limit = table.last("mutual_information_limit")
        note = "nats a sequence" + (f"; at most {limit:.1f} can be seen" if limit else "")
        yield Figure("Mutual information", figures.loss(information), note)
    if units is not None:
        yield Figure("Active units", f"{units:.0f}", f"of {latent_dim} latent dimensions")


def _median(records: Records, name: str) -> float:
    return float(np.nanmedian(records.train[name]))


def _spread(samples: list[Sample], number: int) -> list[Sample]:
    """At most `number` of the samples: the first, the last, and some evenly between them."""
    if len(samples) <= number:
        return samples
    return [samples[round(i * (len(samples) - 1) / (number - 1))] for i in range(number)]


def _settings(options: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(name, figures.setting(value)) for name, value in options.items()]
