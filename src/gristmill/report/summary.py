"""Summary of a run as text and numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from gristmill.report import figures, validation
from gristmill.report.curves import smoothed
from gristmill.report.options import flat, model_options
from gristmill.report.records import Event, Records, Sample

NUM_SAMPLES = 6
NUM_EVENTS = 60
STOP_WORDS = "The run is stopped"  # part of the event of a run that stopped itself
KNOWN_STATISTICS = ("reconstruction", "kl")  # of the VAE: the page has plots with their units
# Entries of machine.json that do not describe the machine: they are among the figures of the run.
SHOWN_APART = ("num_parameters", "num_train_tokens", "has_perplexity")


@dataclass(frozen=True)
class Figure:
    """One number of the run, with a note."""

    name: str
    value: str
    note: str = ""


@dataclass(frozen=True)
class Summary:
    """Everything on the page and in the Markdown file except the plots."""

    title: str
    result: str  # one sentence
    trouble: str  # a sentence if something went wrong
    figures: list[Figure]
    samples: list[Sample]  # the last one last
    num_samples: int
    events: list[Event]
    num_events: int
    config: list[tuple[str, str]]
    machine: list[tuple[str, str]]


def summarise(records: Records) -> Summary:
    """Return the summary of a run."""
    return Summary(
        title=records.name,
        result=_result(records),
        trouble=trouble(records),
        figures=list(_figures(records)),
        samples=_spread(records.samples, NUM_SAMPLES),
        num_samples=len(records.samples),
        events=records.events[-NUM_EVENTS:],
        num_events=len(records.events),
        config=_settings(model_options(records)),
        machine=_settings({name: value for name, value in flat(records.machine) if name not in SHOWN_APART}),
    )


def final_training_loss(records: Records) -> float | None:
    """Return the mean training loss of the last records: a single one is noisy."""
    mean = smoothed(records.train["loss"])
    finite = mean[np.isfinite(mean)]
    return float(finite[-1]) if len(finite) else None


def first_bad_step(records: Records) -> int | None:
    """Return the first step whose loss is not a number."""
    if "loss" not in records.train.columns:
        return None
    bad = np.flatnonzero(~np.isfinite(records.train["loss"]))
    return int(records.train.steps[bad[0]]) if len(bad) else None


def last_step(records: Records) -> int:
    """Return the last recorded step."""
    tables = (records.train, records.val, records.posterior.table)
    return int(max([0.0, *(step for table in tables for step in table.steps[-1:])]))


def total_steps(records: Records) -> int | None:
    """Return the number of steps that the run is configured for."""
    steps = records.config.get("max_steps")
    return steps if isinstance(steps, int) and not isinstance(steps, bool) else None


def _result(records: Records) -> str:
    step, total = last_step(records), total_steps(records)
    if not len(records.train) and not len(records.val):
        return "No records yet: the run has not finished a step."
    unfinished = total is not None and step < total
    progress = f"{step:,} of {_steps(total or 0)}" if unfinished else _steps(step)
    tokens, seconds = records.train.last("tokens"), records.train.last("seconds")
    amount = f" and {figures.short(tokens)} tokens" if tokens else ""
    time = f", in {figures.duration(seconds)}" if seconds else ""
    return f"{_loss_words(records)} after {progress}{amount}{time}{' (unfinished)' * unfinished}."


def _steps(number: int) -> str:
    return f"{number:,} step{'s' * (number != 1)}"


def _loss_words(records: Records) -> str:
    now = validation.latest(records.val)
    if now is not None:
        known = [] if now.bits_per_byte is None else [f"{figures.loss(now.bits_per_byte)} bits per byte"]
        if has_perplexity(records):
            known.insert(0, f"perplexity {figures.perplexity(now.loss)}")
        return f"Validation loss {figures.loss(now.loss)} {now.words}" + (f" ({', '.join(known)})" if known else "")
    loss = final_training_loss(records)
    return "No finite loss" if loss is None else f"Training loss {figures.loss(loss)}"


def has_perplexity(records: Records) -> bool:
    """Whether exp(loss) is the perplexity, as recorded by the run.

    Older versions did not record it: there, a loss with a KL part is a bound, which has no perplexity.
    """
    recorded = records.machine.get("has_perplexity")
    return recorded if isinstance(recorded, bool) else not records.has_latents


def trouble(records: Records) -> str:
    """Describe what went wrong and lasted to the end, in a line; empty if nothing did."""
    step = first_bad_step(records)
    found = [] if step is None else [f"The loss is NaN or infinite at step {step:,}."]
    found += _stop(records)
    found += [
        f"Since step {span.first:,}: {span.message.rstrip('.')}."
        for span in records.posterior.spans
        if not span.is_over and span.message
    ]
    return " ".join(found)


def _stop(records: Records) -> list[str]:
    """Return why the run stopped itself, unless it was resumed since: the first sentence of its last event."""
    stops = [event for event in records.events if STOP_WORDS in event.message]
    if not stops or stops[-1].step < last_step(records):
        return []
    return [f"Stopped at step {stops[-1].step:,}: {stops[-1].message.partition('. ')[0].rstrip('.')}."]


def _figures(records: Records) -> Iterator[Figure]:
    yield from _loss_figures(records)
    yield from _statistic_figures(records)
    yield from _posterior_figures(records)
    yield from _size_figures(records)
    train = records.train
    if train.has("tokens_per_second"):
        yield Figure("Throughput", figures.short(median(records, "tokens_per_second")), "tokens per second, median")
    small = "8-bit " if records.machine.get("mfu_relative_to") == "float8" else ""
    if train.has("mfu"):
        yield Figure("MFU", figures.percent(median(records, "mfu")), f"of the device's {small}peak")
    elif train.has("mfu_matmul"):
        yield Figure("MFU", figures.percent(median(records, "mfu_matmul")), f"of a measured {small}matmul")
    if train.has("memory_bytes"):
        yield Figure("Memory", figures.size(greatest(records, "memory_bytes")), "peak")
    if train.has("grad_norm_max"):
        yield Figure("Gradient norm", figures.loss(greatest(records, "grad_norm_max")), "largest of all steps")


def _loss_figures(records: Records) -> Iterator[Figure]:
    now, whole, best = (f(records.val) for f in (validation.latest, validation.last_full, validation.best))
    if now is not None:
        name = "Full validation loss" if now.full else "Validation loss"
        yield Figure(name, figures.loss(now.loss), now.words)
        if has_perplexity(records):
            yield Figure("Perplexity", figures.perplexity(now.loss), f"validation, {now.words}")
        if now.bits_per_byte is not None:
            yield Figure("Bits per byte", figures.loss(now.bits_per_byte), f"validation, {now.words}")
    if whole is not None and whole != now:
        yield Figure("Full validation loss", figures.loss(whole.loss), f"{whole.words}, at step {whole.step:,}")
    if best is not None and len(validation.curve(records.val)) > 1:
        yield Figure("Best validation loss", figures.loss(best.loss), f"{best.words}, at step {best.step:,}")
    loss = final_training_loss(records)
    if loss is not None:
        yield Figure("Training loss", figures.loss(loss), "mean of the last records")


def own_statistics(records: Records) -> list[str]:
    """Return the statistics of a user's model: those that Gristmill's models do not have."""
    return [name for name in records.statistics if name not in KNOWN_STATISTICS]


def _statistic_figures(records: Records) -> Iterator[Figure]:
    for name in own_statistics(records):
        for words, table in (("Validation", records.val), ("Training", records.train)):
            value = table.last(name)
            if value is not None:
                yield Figure(f"{words} {name}", figures.loss(value), "last record")


def _size_figures(records: Records) -> Iterator[Figure]:
    parameters, tokens, seconds = num_parameters(records), records.train.last("tokens"), records.train.last("seconds")
    if parameters is not None:
        yield Figure("Parameters", figures.short(parameters), f"{parameters:,}")
    if tokens:
        yield Figure("Tokens", figures.short(tokens), _steps(last_step(records)))
    passes = epochs(records)
    if passes is not None:
        yield Figure("Epochs", f"{passes:.3g}", "passes over the training data")
    if seconds:
        yield Figure("Time", figures.duration(seconds))


def num_parameters(records: Records) -> int | None:
    """Return the number of parameters of the model; None in folders of older versions, which did not record it."""
    return _count(records, "num_parameters")


def epochs(records: Records) -> float | None:
    """Return how often the run has seen its training data; None in folders of older versions."""
    size, tokens = _count(records, "num_train_tokens"), records.train.last("tokens")
    return tokens / size if tokens and size else None


def _count(records: Records, name: str) -> int | None:
    """Return a count in machine.json; None if it is not a valid count."""
    number = records.machine.get(name)
    return number if isinstance(number, int) and not isinstance(number, bool) and 0 <= number < 2**63 else None


def _posterior_figures(records: Records) -> Iterator[Figure]:
    table, latent_dim = records.posterior.table, records.posterior.kl_SZ.shape[1]
    information, units = table.last("mutual_information"), table.last("active_units")
    if information is not None:
        limit = table.last("mutual_information_limit")
        note = "nats per sequence" + (f"; at most {limit:.1f} can be measured" if limit else "")
        yield Figure("Mutual information", figures.loss(information), note)
    if units is not None:
        yield Figure("Active units", f"{units:.0f}", f"of {latent_dim} latent dimensions")


def median(records: Records, name: str) -> float:
    """Return the median of a column of the training records."""
    return float(np.nanmedian(records.train[name]))


def greatest(records: Records, name: str) -> float:
    """Return the greatest finite number of a column of the training records."""
    column = records.train[name]
    return float(column[np.isfinite(column)].max())


def _spread(samples: list[Sample], number: int) -> list[Sample]:
    """Return at most `number` of the samples: the first, the last, and some evenly between them."""
    if len(samples) <= number:
        return samples
    return [samples[round(i * (len(samples) - 1) / (number - 1))] for i in range(number)]


def _settings(options: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(name, figures.setting(value)) for name, value in options.items()]
