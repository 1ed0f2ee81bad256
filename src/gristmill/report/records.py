"""Records: the recorded files of a run, as columns.

A run that is still active, or was killed, may end in an incomplete line; everything before it counts. Missing values
are NaN in their column: a CPU has no known peak, for example, and a loss may be NaN.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gristmill.errors import CheckpointError
from gristmill.small_files import parse_json, read_json_lines, read_small_file

CONFIG_FILE = "config.json"
MACHINE_FILE = "machine.json"
METRICS_FILE = "metrics.jsonl"
MAX_METRICS_BYTES = 1 << 30  # a million records
MAX_DEPTH = 50  # of lists and objects in them
MAX_OBJECT_BYTES = 16 << 20  # of config.json and machine.json, which normally have a few kilobytes

# Fields of every run; any other field of its training and validation records is a statistic of its model.
RUN_FIELDS = frozenset(
    {
        *("kind", "step", "loss", "lr", "grad_norm", "grad_norm_max", "tokens", "tokens_per_second", "mfu"),
        *("mfu_matmul", "data_wait", "memory_bytes", "seconds", "padding", "bits_per_byte", "num_tokens", "full"),
    }
)
MAX_STATISTICS = 50  # damaged records may have any number of names
LOSS_ON = "loss on "  # prefix of the column of a source of a mixture: "loss on wiki"

Column = NDArray[np.float64]


@dataclass(frozen=True)
class Table:
    """Records of one kind: the steps, and one column per metric, all of the same length."""

    steps: Column
    columns: Mapping[str, Column]

    def __len__(self) -> int:
        return len(self.steps)

    def __getitem__(self, name: str) -> Column:
        """Return the column; all NaN if no record has it."""
        return self.columns[name] if name in self.columns else np.full(len(self.steps), math.nan)

    def has(self, name: str) -> bool:
        """Whether at least one record has a finite number in this column."""
        return bool(np.isfinite(self[name]).any())

    def where(self, chosen: NDArray[np.bool_]) -> Table:
        """Return the chosen records."""
        return Table(self.steps[chosen], {name: column[chosen] for name, column in self.columns.items()})

    def last(self, name: str) -> float | None:
        """Return the last finite number of a column; None if it has none."""
        finite = self[name][np.isfinite(self[name])]
        return float(finite[-1]) if len(finite) else None


@dataclass(frozen=True)
class Sample:
    """A text that the model generated during training."""

    step: int
    prompt: str
    text: str  # without the prompt


@dataclass(frozen=True)
class Event:
    """Something that happened at a step."""

    step: int
    message: str


@dataclass(frozen=True)
class Span:
    """Steps in which an alarm was active."""

    kind: str
    first: int
    last: int
    message: str
    is_over: bool  # whether it was cleared


@dataclass(frozen=True)
class Posterior:
    """Records of the monitor of a variational autoencoder. S measurements, Z latent dimensions."""

    table: Table
    kl_SZ: Column  # NaN where unknown
    spans: list[Span]


@dataclass(frozen=True)
class Records:
    """All records of a run."""

    name: str  # of its folder
    config: Mapping[str, Any]
    machine: Mapping[str, Any]
    train: Table
    val: Table
    posterior: Posterior
    samples: list[Sample] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)

    @property
    def has_latents(self) -> bool:
        """Whether the loss has a KL part: it is then a bound, not the nats per token."""
        return len(self.posterior.table) > 0 or self.train.has("kl") or self.val.has("kl")

    @property
    def statistics(self) -> list[str]:
        """Names of the model's own statistics with at least one finite number."""
        names = dict.fromkeys([*self.train.columns, *self.val.columns])
        own = [name for name in names if name not in RUN_FIELDS and name.isprintable() and name.strip()]
        return [name for name in own if self.train.has(name) or self.val.has(name)][:MAX_STATISTICS]


def read_records(run_folder: Path) -> Records:
    """Return the records in the folder of a run."""
    metrics = run_folder / METRICS_FILE
    if not metrics.is_file():
        if not run_folder.exists():
            raise FileNotFoundError(2, "No such run folder", str(run_folder))
        raise CheckpointError(
            f"{run_folder} is not a run folder: it has no {METRICS_FILE}. Pass the folder that lm.train() wrote to."
        )
    kinds: dict[str, list[dict[str, Any]]] = {"train": [], "val": [], "posterior": [], "sample": [], "event": []}
    for record in read_json_lines(
        metrics, what="the record of a run", max_bytes=MAX_METRICS_BYTES, error=CheckpointError
    ):
        kinds.setdefault(str(record.get("kind")), []).append(record)
    return Records(
        name=run_folder.resolve().name,
        config=read_object(run_folder / CONFIG_FILE),
        machine=read_object(run_folder / MACHINE_FILE),
        train=_table(kinds["train"]),
        val=_table([with_sources(record) for record in kinds["val"]]),
        posterior=posterior_of(kinds["posterior"]),
        samples=[_sample(record) for record in kinds["sample"]],
        events=[Event(_step(record), _text(record, "message")) for record in kinds["event"]],
    )


def posterior_of(records: list[dict[str, Any]]) -> Posterior:
    """Return records of kind "posterior" as columns, with the steps of their alarms."""
    records = sorted(records, key=_step)
    rows = [_list(record, "kl_per_dimension") for record in records]
    kl_SZ = np.full((len(rows), max(map(len, rows), default=0)), math.nan)
    for s, row in enumerate(rows):
        kl_SZ[s, : len(row)] = [_number(value) for value in row]
    return Posterior(_table(records), kl_SZ, _spans(records))


def _spans(records: list[dict[str, Any]]) -> list[Span]:
    end = max(map(_step, records), default=0)
    is_on: dict[str, Span] = {}
    spans = []
    changes = [change for record in records for change in _list(record, "alarms") if isinstance(change, dict)]
    for change in changes:
        kind, step = _text(change, "kind"), _step(change)
        if change.get("change") == "raised":
            is_on[kind] = Span(kind, step, end, _text(change, "message"), is_over=False)
        elif kind in is_on:
            spans.append(replace(is_on.pop(kind), last=step, is_over=True))
    return sorted([*spans, *is_on.values()], key=lambda span: (span.first, span.kind))


def read_object(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file; empty if the file is missing."""
    try:
        data = read_small_file(path, what="the description of a run", max_bytes=MAX_OBJECT_BYTES, error=CheckpointError)
    except FileNotFoundError:
        return {}
    content = parse_json(data, source=path, error=CheckpointError)
    if not isinstance(content, dict):
        raise CheckpointError(f"{path}: not a JSON object. The file is damaged.")
    try:
        return {without_surrogates(key): _cleaned(value) for key, value in content.items()}
    except RecursionError:
        raise CheckpointError(f"{path}: nested more than {MAX_DEPTH} levels deep. The file is damaged.") from None


def _cleaned(value: Any, depth: int = 1) -> Any:
    """Return the value with texts that can be written; raise RecursionError below `MAX_DEPTH`."""
    if depth > MAX_DEPTH:
        raise RecursionError
    if isinstance(value, dict):
        return {without_surrogates(key): _cleaned(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list):
        return [_cleaned(item, depth + 1) for item in value]
    return without_surrogates(value) if isinstance(value, str) else value


def without_surrogates(text: str) -> str:
    """Return the text with escapes for lone surrogates, which files cannot hold."""
    return text.encode("utf-8", "backslashreplace").decode()


def with_sources(record: dict[str, Any]) -> dict[str, Any]:
    """Return the record with the losses on the sources of a mixture as separate numbers."""
    sources = record.get("sources")
    if not isinstance(sources, dict):
        return record
    return {**record, **{f"{LOSS_ON}{without_surrogates(name)}": loss for name, loss in sources.items()}}


def _table(records: list[dict[str, Any]]) -> Table:
    records = sorted(records, key=_step)
    names = dict.fromkeys(name for record in records for name in record if name not in ("kind", "step"))
    columns = {name: np.array([_number(record.get(name)) for record in records], np.float64) for name in names}
    return Table(np.array([_step(record) for record in records], np.float64), columns)


def _number(value: Any) -> float:
    """Return the number; NaN for anything else."""
    try:
        return float(value) if isinstance(value, (int, float)) else math.nan
    except OverflowError:  # an integer beyond the range of a float
        return math.nan


def _step(record: Mapping[str, Any]) -> int:
    step = _number(record.get("step"))
    return int(step) if abs(step) < 2**63 else 0


def _list(record: Mapping[str, Any], name: str) -> list[Any]:
    value = record.get(name)
    return value if isinstance(value, list) else []


def _text(record: Mapping[str, Any], name: str) -> str:
    return without_surrogates(str(record.get(name, "")))


def _sample(record: Mapping[str, Any]) -> Sample:
    prompt, text = _text(record, "prompt"), _text(record, "text")
    return Sample(_step(record), prompt, text.removeprefix(prompt))
