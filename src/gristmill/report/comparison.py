"""Comparison: several runs side by side: their numbers with the best marked, and the options that differ."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gristmill.report import figures, validation
from gristmill.report.drawing import BLUE, RUST, TEAL
from gristmill.report.options import flat, model_options
from gristmill.report.records import Records
from gristmill.report.summary import (
    SHOWN_APART,
    epochs,
    final_training_loss,
    greatest,
    has_perplexity,
    last_step,
    median,
    num_parameters,
    total_steps,
    trouble,
)
from gristmill.report.validation import Validation

COLOURS = (BLUE, RUST, TEAL, "#7e22ce", "#a16207", "#be185d", "#4d7c0f", "#475569")
DASHES = ("solid", "dashed", "dotted")  # the next one is used when the colours run out
SAME = 1e-6  # relative: the ratio of bits per byte and loss is equal for the same tokens of the same texts


@dataclass(frozen=True)
class ComparedRun:
    """A run in a comparison, with its name and line style."""

    name: str
    records: Records
    colour: str
    dash: str

    @property
    def trouble(self) -> str:
        """What went wrong in the run, as one line; empty if nothing did."""
        return trouble(self.records)


@dataclass(frozen=True)
class Cell:
    """A value of one run."""

    value: str
    note: str = ""
    is_best: bool = False


@dataclass(frozen=True)
class Row:
    """A metric or an option, with its value for every run."""

    name: str
    note: str
    cells: list[Cell]


@dataclass(frozen=True)
class Comparison:
    """Everything on the page except the plots."""

    runs: list[ComparedRun]
    result: str  # one sentence
    figures: list[Row]
    options: list[Row]  # those that differ
    machines: list[Row]  # properties that differ
    some_are_absent: bool  # whether some run lacks one of the options

    @property
    def title(self) -> str:
        """Names of the runs."""
        names = [run.name for run in self.runs]
        return f"{', '.join(names[:-1])} and {names[-1]}"


def compare(runs: Sequence[ComparedRun]) -> Comparison:
    """Return the comparison of the runs as text and numbers."""
    records = [run.records for run in runs]
    options, machines = _differences(map(model_options, records)), _differences(map(_machine, records))
    return Comparison(
        runs=list(runs),
        result=_result(runs),
        figures=[row for row in (_row(measure, records) for measure in MEASURES) if row is not None],
        options=options,
        machines=machines,
        some_are_absent=any(not cell.value for row in options for cell in row.cells),
    )


def compared_runs(folders: Sequence[Path], records: Sequence[Records]) -> list[ComparedRun]:
    """Return the runs, each with a distinct name and line style."""
    return [
        ComparedRun(name, each, COLOURS[i % len(COLOURS)], DASHES[i // len(COLOURS) % len(DASHES)])
        for i, (name, each) in enumerate(zip(distinct_names(folders), records, strict=True))
    ]


def distinct_names(folders: Sequence[Path]) -> list[str]:
    """Return the name of each folder, with as many parent folders as needed to be unique.

    >>> distinct_names([Path("/a/x/run"), Path("/b/x/run"), Path("/b/other")])
    ['a/x/run', 'b/x/run', 'other']
    """
    parts = [folder.resolve().parts for folder in folders]

    def name(own: tuple[str, ...]) -> str:
        others = [other for other in parts if other != own]
        length = next(n for n in range(1, len(own) + 1) if n == len(own) or not any(o[-n:] == own[-n:] for o in others))
        return "/".join(own[-length:])

    return [name(own) for own in parts]


# What can be compared


def losses_compare(records: Sequence[Records]) -> bool:
    """Whether a lower loss means a better model: the same tokens, as far as recorded, and the same kind of loss."""
    sizes = (dict(flat(each.config)).get("vocab_size") for each in records)
    vocabularies = {size for size in sizes if isinstance(size, int)}
    rates = [rate for rate in map(_bits_per_nat, records) if rate is not None]
    same_tokens = all(math.isclose(rate, rates[0], rel_tol=SAME) for rate in rates)
    return len(vocabularies) <= 1 and same_tokens and len(set(map(has_perplexity, records))) == 1


def _bits_per_nat(records: Records) -> float | None:
    """Return bits per byte divided by nats per token, which measures how many tokens the texts of the split take."""
    now = validation.latest(records.val)
    return now.bits_per_byte / now.loss if now and now.bits_per_byte and now.loss else None


def _subsets_compare(records: Sequence[Records]) -> bool:
    """Whether the validation curves are also on subsets of the same size."""
    found = [best for best in (validation.best(each.val) for each in records) if best is not None]
    return losses_compare(records) and len({(best.full, best.num_tokens) for best in found}) <= 1


def _always(_: Sequence[Records]) -> bool:
    return True


Number = Callable[[Records], float | None]


@dataclass(frozen=True)
class Measure:
    """A row of the table: where its numbers come from, how they are shown, and which of them is best."""

    name: str
    number: Number
    show: Callable[[float], str]
    note: str = ""
    about: Callable[[Records], str] = lambda _: ""  # note on the number of one run
    best: Callable[[Iterable[float]], float] | None = None  # min or max
    compares: Callable[[Sequence[Records]], bool] = _always


def _row(measure: Measure, records: Sequence[Records]) -> Row | None:
    numbers = [measure.number(each) for each in records]
    known = [number for number in numbers if number is not None]
    if not known:
        return None
    is_ranked = measure.best is not None and measure.compares(records)
    best = measure.show(measure.best(known)) if is_ranked and measure.best else None
    shown = [None if number is None else measure.show(number) for number in numbers]
    if len({value for value in shown if value is not None}) < 2:
        best = None  # values that look the same have no best
    cells = [
        Cell("–") if value is None else Cell(value, measure.about(each), value == best)
        for value, each in zip(shown, records, strict=True)
    ]
    return Row(measure.name, measure.note, cells)


def _of(choose: Callable[[Any], Validation | None], field: str) -> Number:
    def number(records: Records) -> float | None:
        found = choose(records.val)
        value: float | None = None if found is None else getattr(found, field)
        return value

    return number


def _perplexity(records: Records) -> float | None:
    found = validation.last_full(records.val)
    return found.loss if found and has_perplexity(records) else None


def _when(choose: Callable[[Any], Validation | None], *, unless_last: bool = False) -> Callable[[Records], str]:
    def words(records: Records) -> str:
        found = choose(records.val)
        return f"step {found.step:,}" if found and not (unless_last and found.step == last_step(records)) else ""

    return words


def _to_go(records: Records) -> str:
    total = total_steps(records)
    return f"of {total:,}: unfinished" if total is not None and last_step(records) < total else ""


def _train(name: str, number: Callable[[Records, str], float]) -> Number:
    return lambda records: number(records, name) if records.train.has(name) else None


def _last(table: str, name: str) -> Number:
    tables: dict[str, Callable[[Records], Any]] = {
        "train": lambda records: records.train,
        "val": lambda records: validation.curve(records.val),
        "posterior": lambda records: records.posterior.table,
    }
    return lambda records: tables[table](records).last(name)


best_of, full_of = validation.best, validation.last_full
MEASURES = (
    Measure("Parameters", num_parameters, figures.short),
    Measure("Steps", lambda records: last_step(records) or None, "{:,.0f}".format, about=_to_go),
    Measure("Tokens", _last("train", "tokens"), figures.short),
    Measure("Epochs", epochs, "{:.3g}".format),
    Measure("Time", _last("train", "seconds"), figures.duration),
    Measure(
        "Full validation loss",
        _of(full_of, "loss"),
        figures.loss,
        "on the whole split",
        about=_when(full_of, unless_last=True),
        best=min,
        compares=losses_compare,
    ),
    Measure("Perplexity", _perplexity, figures.perplexity, "full validation", best=min, compares=losses_compare),
    Measure("Bits per byte", _of(full_of, "bits_per_byte"), figures.loss, "full validation", best=min),
    Measure(
        "Best validation loss",
        _of(best_of, "loss"),
        figures.loss,
        "on a fixed subset",
        about=_when(best_of),
        best=min,
        compares=_subsets_compare,
    ),
    Measure(
        "Training loss",
        final_training_loss,
        figures.loss,
        "mean of the last records",
        best=min,
        compares=losses_compare,
    ),
    Measure("KL", _last("val", "kl"), figures.loss, "nats per sequence, validation"),
    Measure("Mutual information", _last("posterior", "mutual_information"), figures.loss, "nats per sequence"),
    Measure("Active units", _last("posterior", "active_units"), "{:.0f}".format),
    Measure("Throughput", _train("tokens_per_second", median), figures.short, "tokens per second, median", best=max),
    Measure("MFU", _train("mfu", median), figures.percent, "of the device's peak, median", best=max),
    Measure("Memory", _train("memory_bytes", greatest), figures.size, "peak", best=min),
    Measure("Gradient norm", _train("grad_norm_max", greatest), figures.loss, "largest of all steps"),
)


# What differs


def _machine(records: Records) -> dict[str, Any]:
    return {name: value for name, value in flat(records.machine) if name not in SHOWN_APART}


def _differences(contents: Iterable[Mapping[str, Any]]) -> list[Row]:
    """Return a row for each name whose values differ; empty contents do not count."""
    shown = [{name: figures.setting(value) for name, value in content.items()} for content in contents]
    known = [content for content in shown if content]
    names = dict.fromkeys(name for content in known for name in content)
    return [
        Row(name, "", [Cell(content.get(name, "")) for content in shown])
        for name in names
        if len({content.get(name) for content in known}) > 1
    ]


# Text


def _result(runs: Sequence[ComparedRun]) -> str:
    """Return a sentence that names the best run by the first of these metrics that ranks the runs."""
    for name in ("Full validation loss", "Best validation loss", "Bits per byte"):
        measure = next(measure for measure in MEASURES if measure.name == name)
        row = _row(measure, [run.records for run in runs])
        winners = (
            [(run.name, cell.value) for run, cell in zip(runs, row.cells, strict=True) if cell.is_best] if row else []
        )
        if winners:
            names = " and ".join(winner for winner, _ in winners)
            return f"Lowest {name[0].lower()}{name[1:]}: {names}, {winners[0][1]}."
    if not losses_compare([run.records for run in runs]):
        return "The losses of these runs are not comparable: their tokenizers, data or kinds of loss differ."
    return "No two of these runs have comparable validation losses."
