"""Metrics tail: what metrics.jsonl of a run contains, kept up to date while the run appends to it.

Only complete lines that were added since the last look are read. A file that was replaced (a resumed run drops the
steps after its checkpoint), truncated or rewritten is read again from the start, as a new generation.
"""

from __future__ import annotations

import os
import stat
import threading
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec
import numpy as np

from gristmill.errors import FormatError
from gristmill.report.records import (
    MAX_METRICS_BYTES,
    METRICS_FILE,
    Column,
    Event,
    Posterior,
    Sample,
    posterior_of,
    with_sources,
    without_surrogates,
)
from gristmill.small_files import parse_json
from gristmill.view.run_columns import Columns

__all__ = ["TABLES", "Kept", "MetricsTail"]

TABLES = ("train", "val", "full", "posterior")  # "full": validations on the whole split, which are not a curve
BLOCK_BYTES = 1 << 18  # small blocks keep the decoded records in the cache: 0.2 s for 100,000 records, 0.35 s at once
POLL_BYTES = 64 << 20  # read per call, so that a page shows the start of a very long run early
MAX_LINE_BYTES = POLL_BYTES
MARK_BYTES = 64  # bytes before the position that must not have changed
MAX_SAMPLES, MAX_EVENTS, MAX_TEXT = 100, 500, 20_000
MAX_CELLS = 4_000_000  # of the KL per dimension
_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOCTTY", 0)
_DECODER = msgspec.json.Decoder(dict[str, Any])

T = TypeVar("T")


class Kept(Generic[T]):
    """The last items of a growing list; `count` includes those that were dropped.

    >>> kept = Kept(2)
    >>> kept.extend("abc")
    >>> kept.count, kept.since(0), kept.since(2)
    (3, ['b', 'c'], ['c'])
    """

    def __init__(self, most: int) -> None:
        self.count = 0
        self._items: deque[T] = deque(maxlen=most)

    def extend(self, items: Iterable[T]) -> None:
        """Append items."""
        for item in items:
            self._items.append(item)
            self.count += 1

    def since(self, number: int) -> list[T]:
        """Return the kept items from this number on."""
        items = list(self._items)
        return items[max(0, number - (self.count - len(items))) :]


class MetricsTail:
    """The records of a run so far. Hold `lock` while reading them: `poll` runs in another thread."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / METRICS_FILE
        self.lock = threading.Lock()
        self.generation = 0
        self.problem = ""  # why there is nothing (new) to read, as a sentence
        self.modified: float | None = None  # time of the last change of the file
        self._clear()

    def _clear(self) -> None:
        self.generation += 1
        self.tables = {name: Columns() for name in TABLES}
        self.samples: Kept[Sample] = Kept(MAX_SAMPLES)
        self.events: Kept[Event] = Kept(MAX_EVENTS)
        self.num_damaged = 0
        self._latents = _Latents()
        self._offset, self._mark = 0, b""
        self._file: tuple[int, int] | None = None  # device and inode
        self._seen: tuple[int, int] | None = None  # size and time of the last change; None: look again

    @property
    def posterior(self) -> Posterior:
        """The records of the monitor of a variational autoencoder."""
        return Posterior(self.tables["posterior"].table(), self._latents.kl_SZ, self._latents.spans())

    @property
    def kl_steps(self) -> Column:
        """The steps of the rows of `posterior.kl_SZ`."""
        return self._latents.steps

    def poll(self) -> bool:
        """Read what is new. Returns whether there is more to read at once."""
        with self.lock:
            try:
                return self._poll()
            except OSError as error:
                self._seen = None
                self.problem = f"{METRICS_FILE} cannot be read: {error.strerror or error}."
                return False
            except Exception:
                self._clear()  # the block may have been added in part, and must not be added twice
                raise

    def _lose(self, why: str) -> None:
        self.problem = f"The run folder {why}."
        if self._file is not None:
            self._clear()
        self.modified = None

    def _poll(self) -> bool:
        try:
            status = self.path.stat()
        except FileNotFoundError:
            self._lose("has no records yet" if self.path.parent.is_dir() else "no longer exists")
            return False
        file, seen = (status.st_dev, status.st_ino), (status.st_size, status.st_mtime_ns)
        if (file, seen) == (self._file, self._seen):
            return False
        if not stat.S_ISREG(status.st_mode):
            self.problem = f"{METRICS_FILE} is not a regular file."
            return False
        if self._file not in (None, file) or status.st_size < self._offset:
            self._clear()
        descriptor = os.open(self.path, _FLAGS)
        try:
            if self._mark and os.pread(descriptor, len(self._mark), self._offset - len(self._mark)) != self._mark:
                self._clear()
            self._file, self.modified = file, status.st_mtime
            has_more = self._read(descriptor)
        finally:
            os.close(descriptor)
        self._seen = None if has_more else seen
        return has_more

    def _read(self, descriptor: int) -> bool:
        """Read complete lines up to the end of the file; return whether the limit per call came first."""
        self.problem = ""
        rest, num_bytes = bytearray(), 0
        while num_bytes < POLL_BYTES:
            if self._offset >= MAX_METRICS_BYTES:
                self.problem = f"{METRICS_FILE} has more than {MAX_METRICS_BYTES:,} bytes. Later records are not shown."
                return False
            block = os.pread(descriptor, BLOCK_BYTES, self._offset + len(rest))
            if not block:
                return False
            num_bytes += len(block)
            end = block.rfind(b"\n") + 1
            if not end:
                rest += block
                # Not more than a call reads: a longer line would be read again from its start in every call.
                if len(rest) >= MAX_LINE_BYTES:
                    self.problem = f"{METRICS_FILE} has a line of more than {MAX_LINE_BYTES:,} bytes. It is damaged."
                    return False
                continue
            lines = bytes(rest) + block[:end]
            self._add(self._records(lines))
            self._offset += len(lines)
            self._mark = lines[-MARK_BYTES:]
            rest.clear()
        return True

    def _records(self, lines: bytes) -> list[dict[str, Any]]:
        try:
            return _DECODER.decode_lines(lines)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            found = [_record(line) for line in lines.split(b"\n") if line.strip()]
        self.num_damaged += found.count(None)
        return [record for record in found if record is not None]

    def _add(self, records: list[dict[str, Any]]) -> None:
        kinds: dict[str, list[dict[str, Any]]] = {}
        for record in records:
            kinds.setdefault(str(record.get("kind")), []).append(record)
        vals = [with_sources(record) for record in kinds.get("val", ())]
        in_order = True
        for name, chosen in (
            ("train", kinds.get("train", ())),
            ("val", [record for record in vals if record.get("full") is not True]),
            ("full", [record for record in vals if record.get("full") is True]),
            ("posterior", kinds.get("posterior", ())),
        ):
            if chosen:
                in_order &= self.tables[name].extend(chosen)
        self._latents.extend(kinds.get("posterior", ()))
        self.samples.extend(_sample(record) for record in kinds.get("sample", ()))
        self.events.extend(
            Event(_step(record), _text(record, "message")[:MAX_TEXT]) for record in kinds.get("event", ())
        )
        if not in_order:
            self.generation += 1  # pages have the records in another order


class _Latents:
    """KL per latent dimension over the steps, and the alarms of the monitor. Shapes: S measurements, Z dimensions."""

    def __init__(self) -> None:
        self.kl_SZ: Column = np.empty((0, 0))
        self.steps: Column = np.empty(0)
        self._alarms: deque[dict[str, Any]] = deque(maxlen=2_000)
        self._last: dict[str, Any] = {}

    def extend(self, records: Iterable[dict[str, Any]]) -> None:
        records = list(records)
        if not records:
            return
        found = posterior_of(records)
        self._alarms.extend(
            {"step": record.get("step"), "alarms": record["alarms"]} for record in records if record.get("alarms")
        )
        self._last = {"step": float(found.table.steps[-1])}
        width = max(self.kl_SZ.shape[1], found.kl_SZ.shape[1])
        if not width:
            return
        rows = [_widened(each, width) for each in (self.kl_SZ, found.kl_SZ)]
        steps, kl_SZ = np.concatenate([self.steps, found.table.steps]), np.concatenate(rows)
        order = np.argsort(steps, kind="stable")
        if kl_SZ.size > MAX_CELLS:
            order = order[::2]
        self.steps, self.kl_SZ = steps[order], kl_SZ[order]

    def spans(self) -> Any:
        return posterior_of([*self._alarms, self._last]).spans if self._alarms else []


def _widened(kl_SZ: Column, width: int) -> Column:
    return np.pad(kl_SZ, ((0, 0), (0, width - kl_SZ.shape[1])), constant_values=np.nan)


def _record(line: bytes) -> dict[str, Any] | None:
    """Return the object of a line that msgspec refuses, such as one with NaN; None if it is damaged."""
    try:
        record = parse_json(line, error=FormatError, allow_nan=True)
    except FormatError:
        return None
    return record if isinstance(record, dict) else None


def _step(record: dict[str, Any]) -> int:
    step = record.get("step")
    is_known = isinstance(step, (int, float)) and abs(step) < 2**63
    return int(step) if is_known and step is not None else 0


def _text(record: dict[str, Any], name: str) -> str:
    return without_surrogates(str(record.get(name, "")))


def _sample(record: dict[str, Any]) -> Sample:
    prompt, text = _text(record, "prompt"), _text(record, "text")
    return Sample(_step(record), prompt[:MAX_TEXT], text.removeprefix(prompt)[:MAX_TEXT])
