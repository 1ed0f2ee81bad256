"""Runs: the routes of the room of runs, and one follower of all runs that every page shares.

The page opens one stream of events. It starts with a snapshot per run and continues with the new records. The id of
each event holds the position in every run, so a page that reconnects gets only what it missed.
"""

from __future__ import annotations

import asyncio
import functools
import math
import re
import secrets
import threading
import time
from collections.abc import AsyncGenerator
from typing import Any

import anyio
import anyio.to_thread
import numpy as np
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from gristmill.report import figures
from gristmill.report.comparison import ComparedRun, compare
from gristmill.report.options import flat, model_options
from gristmill.report.posterior import KIND_WORDS, heat_map
from gristmill.report.records import Posterior, Records
from gristmill.report.summary import SHOWN_APART, summarise
from gristmill.view.artefacts import Artefact, Artefacts
from gristmill.view.events import Event, event_stream
from gristmill.view.metrics_tail import TABLES, MetricsTail
from gristmill.view.replies import Refusal, pick, reply
from gristmill.view.run_state import Description, Status, records_of, status_of, unreadable

__all__ = ["routes"]

POLL_SECONDS = 2.0
NUM_THREADS = 4  # of all event streams together: they may wait for each other, and other requests must not
STATE_SECONDS = 2.0  # between two looks at the lock of a run and its config.json
MAX_ROWS = 4_000  # new records of a page that reconnects; with more, a new snapshot is smaller
MAX_SPANS = 200
MAX_DETAILS = 50  # runs in the tables of options

Position = tuple[int, ...]  # generation, records per table, samples, events, version of the status
_NO_GENERATION = 0  # of a page that got no records: the generations of a tail count from 1


def routes(artefacts: Artefacts) -> list[BaseRoute]:
    """Return the routes of the room."""
    follower = Follower(artefacts)

    async def events(request: Request) -> Response:
        since = request.headers.get("last-event-id") or request.query_params.get("since", "")
        return event_stream(request, follower.events(since))

    def window(request: Request) -> Response:
        run = pick(tuple(follower.runs), request.path_params["number"], "run")
        first, last = (_number(request, name) for name in ("first", "last"))
        return reply(run.window(first, last))

    def details(request: Request) -> Response:
        numbers = request.query_params.get("runs", "").split(",")[:MAX_DETAILS]
        runs = [pick(tuple(follower.runs), number, "run") for number in dict.fromkeys(numbers) if number]
        return reply(_details([(run.artefact.name, run.records()) for run in runs]))

    return [
        Route("/api/runs/events", events),
        Route("/api/runs/details", details),
        Route("/api/runs/{number}/window", window),
    ]


def _number(request: Request, name: str) -> float:
    text = request.query_params.get(name, "")
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise Refusal(f"{name} must be a step, got {text[:40]!r}.")
    return number


class FollowedRun:
    """A run with its records so far and its status."""

    def __init__(self, number: int, artefact: Artefact) -> None:
        self.number, self.artefact = number, artefact
        self.status: Status | None = None
        self.version = 0  # of the status
        self._tail = MetricsTail(artefact.path)
        self._description = Description(artefact.path)
        self._counted: Any = None
        self._shared: tuple[Any, ...] = ()  # the last event: positions before and after it, and its content
        self._polling = threading.Lock()

    def poll(self, *, look_at_state: bool) -> bool:
        """Read what is new. Returns whether there is more to read at once.

        An error becomes the status of the run, because the other runs must be followed in any case.
        """
        has_more = False
        with self._polling:
            try:
                has_more = self._tail.poll()
                status = self._look(look_at_state)
            except Exception as error:
                status = unreadable(error, self.status)
            if status != self.status:
                self.status, self.version = status, self.version + 1
        return has_more

    def _look(self, look_at_state: bool) -> Status | None:
        """Return the status, which is read again only if it is time or the records have changed."""
        tail = self._tail
        counted = (tail.generation, tail.problem, tail.modified)
        if not look_at_state and counted == self._counted:
            return self.status
        self._counted = None  # until the status has been read
        self._description.refresh()
        with tail.lock:
            status = status_of(self.artefact.name, self.artefact.path, self._description, tail)
        self._counted = counted
        return status

    def position(self) -> Position:
        """Return where the run is now."""
        with self._tail.lock:
            return self._position()

    def _position(self) -> Position:
        tail = self._tail
        counts = (tail.tables[name].count for name in TABLES)
        return (tail.generation, *counts, tail.samples.count, tail.events.count, self.version)

    def event_after(self, position: Position | None) -> tuple[str, dict[str, Any], Position] | None:
        """Return the event that brings a page at `position` up to date and the new position; None if it is up to date.

        The event is a name and its content. If its content cannot be made, it has an error as the status and no
        records, and the next change of the run gives a snapshot.
        """
        with self._tail.lock:
            now = self._position()
            without_records = (_NO_GENERATION, *now[1:])
            if position in (now, without_records):
                return None
            if self._shared[:2] != (position, now):  # the other open pages ask for the same
                try:
                    event = (*self._event(position, now), now)
                except Exception as error:  # the events of the other runs must be sent in any case
                    event = ("snapshot", self._no_records(error), without_records)
                self._shared = (position, now, event)
            found: tuple[str, dict[str, Any], Position] = self._shared[2]
            return found

    def _event(self, position: Position | None, now: Position) -> tuple[str, dict[str, Any]]:
        content: dict[str, Any] = {"run": self.number, "status": self.status}
        if position is None or not self._can_append(position, now):
            return "snapshot", {**content, **self._snapshot()}
        return "append", {**content, **self._appended(position, now)}

    def _no_records(self, error: Exception) -> dict[str, Any]:
        empty: dict[str, Any] = {"tables": {}, "samples": [], "events": [], "posterior": None}
        return {"run": self.number, "status": unreadable(error, self.status), **empty}

    def _can_append(self, position: Position, now: Position) -> bool:
        if position[0] != now[0] or len(position) != len(now):
            return False
        added = [new - old for old, new in zip(position[1:-1], now[1:-1], strict=True)]
        return min(added) >= 0 and sum(added) <= MAX_ROWS

    def _snapshot(self) -> dict[str, Any]:
        tail = self._tail
        return {
            "tables": {name: tail.tables[name].buckets() for name in TABLES},
            "samples": tail.samples.since(0),
            "events": tail.events.since(0),
            "posterior": _posterior(tail.posterior, tail.kl_steps),
        }

    def _appended(self, position: Position, now: Position) -> dict[str, Any]:
        tail = self._tail
        *counts, samples, events = position[1:-1]
        new = {name: tail.tables[name].rows(count) for name, count in zip(TABLES, counts, strict=True)}
        has_posterior = position[TABLES.index("posterior") + 1] != now[TABLES.index("posterior") + 1]
        return {
            "tables": {name: rows for name, rows in new.items() if rows["step"]},
            "samples": tail.samples.since(samples),
            "events": tail.events.since(events),
            **({"posterior": _posterior(tail.posterior, tail.kl_steps)} if has_posterior else {}),
        }

    def window(self, first: float, last: float) -> dict[str, Any]:
        """Return the records of some steps, as finer buckets than those of the whole run."""
        with self._tail.lock:
            tables = self._tail.tables
            found = {name: tables[name].buckets(*tables[name].between(first, last)) for name in TABLES}
            return {"tables": found}

    def records(self) -> Records:
        """Return the records as the report reads them."""
        self.poll(look_at_state=True)
        with self._tail.lock:
            return records_of(self.artefact.name, self._description, self._tail)


def _posterior(posterior: Posterior, steps: Any) -> dict[str, Any] | None:
    """Return the alarms and the KL per dimension as cells, for the page."""
    spans = [
        {
            "words": KIND_WORDS.get(span.kind, span.kind)[:80],
            "first": span.first,
            "last": span.last,
            "message": span.message[:1_000],
            "is_over": span.is_over,
        }
        for span in posterior.spans[-MAX_SPANS:]
    ]
    kl_SZ = np.where(np.isfinite(posterior.kl_SZ), posterior.kl_SZ, 0.0)
    if not kl_SZ.size:
        return {"spans": spans} if spans else None
    edges, cells_RS = heat_map(steps, kl_SZ)
    return {
        "spans": spans,
        "latent_dim": kl_SZ.shape[1],
        "num_used": int((kl_SZ[-1] > 0.1).sum()),
        "edges": edges.tolist(),
        "cells": np.round(cells_RS, 4).tolist(),
    }


class Follower:
    """Follows all runs while at least one page is open."""

    def __init__(self, artefacts: Artefacts) -> None:
        self.runs = [FollowedRun(number, artefact) for number, artefact in enumerate(artefacts.runs)]
        self.num_pages = 0
        self._epoch = secrets.token_hex(4)  # positions of another server mean nothing
        self._task: asyncio.Task[None] | None = None
        self._threads: anyio.CapacityLimiter | None = None
        self._ready = self._changed = asyncio.Event()
        self._announced: list[Position] = []

    async def events(self, since: str) -> AsyncGenerator[Event]:
        """Yield the events of a page that has seen everything up to the id `since`."""
        positions = self._parsed(since)
        self.num_pages += 1
        try:
            if self._has_ended():
                self._ready, self._changed = asyncio.Event(), asyncio.Event()
                self._threads = anyio.CapacityLimiter(NUM_THREADS)
                self._task = asyncio.create_task(self._follow())
                self._task.add_done_callback(self._wake_pages)
            await self._ready.wait()
            while not self._has_ended():  # otherwise the stream ends, and the browser connects again
                changed = self._changed
                for run in self.runs:
                    found = await anyio.to_thread.run_sync(
                        run.event_after, positions[run.number], limiter=self._threads
                    )
                    if found is not None:
                        name, content, positions[run.number] = found
                        yield Event(name, content, id=self._id(positions))
                await changed.wait()
        finally:
            self.num_pages -= 1
            if not self.num_pages and self._task is not None:
                self._task.cancel()
                self._task = None

    def _has_ended(self) -> bool:
        return self._task is None or self._task.done()

    def _wake_pages(self, task: asyncio.Task[None]) -> None:
        """Wake the pages that wait for records when nothing follows the runs any more."""
        if task is self._task:  # otherwise no page waited for it, and the events belong to a new task
            self._ready.set()
            self._changed.set()

    async def _follow(self) -> None:
        looked = -math.inf
        while True:
            now = time.monotonic()
            look_at_state = now - looked >= STATE_SECONDS
            looked = now if look_at_state else looked
            has_more, has_changed = await anyio.to_thread.run_sync(
                functools.partial(self._poll, look_at_state=look_at_state)
            )
            self._ready.set()
            if has_changed:
                self._changed.set()
                self._changed = asyncio.Event()
            await asyncio.sleep(0.0 if has_more else POLL_SECONDS)

    def _poll(self, *, look_at_state: bool) -> tuple[bool, bool]:
        has_more = [run.poll(look_at_state=look_at_state) for run in self.runs]
        # Compared with the last announcement: a request for details may have read the new records.
        before, self._announced = self._announced, [run.position() for run in self.runs]
        return any(has_more), before != self._announced

    def _id(self, positions: list[Position | None]) -> str:
        return ";".join([self._epoch, *(".".join(map(str, position or ())) for position in positions)])

    def _parsed(self, id: str) -> list[Position | None]:
        epoch, *parts = id.split(";")
        nothing: list[Position | None] = [None] * len(self.runs)
        if epoch != self._epoch or len(parts) != len(self.runs):
            return nothing
        if not all(re.fullmatch(r"[0-9]{0,15}(\.[0-9]{1,15}){0,12}", part, re.ASCII) for part in parts):
            return nothing
        return [tuple(map(int, part.split("."))) if part else None for part in parts]


def _details(runs: list[tuple[str, Records]]) -> dict[str, Any]:
    """Return the figures, options and machines of the runs, with those that differ marked."""
    records = [each for _, each in runs]
    if len(runs) > 1:
        compared = compare([ComparedRun(name, each, "", "") for name, each in runs])
        result = compared.result
        found = [{"name": row.name, "note": row.note, "cells": row.cells} for row in compared.figures]
    else:
        summary = summarise(records[0]) if records else None
        result = summary.result if summary else ""
        found = [
            {"name": figure.name, "note": figure.note, "cells": [{"value": figure.value}]}
            for figure in (summary.figures if summary else ())
        ]
    return {
        "names": [name for name, _ in runs],
        "result": result,
        "figures": found,
        "options": _rows([model_options(each) for each in records]),
        "machine": _rows([{k: v for k, v in flat(each.machine) if k not in SHOWN_APART} for each in records]),
    }


def _rows(contents: list[dict[str, Any]]) -> list[dict[str, Any]]:
    shown = [{name: figures.setting(value) for name, value in content.items()} for content in contents]
    known = [content for content in shown if content]
    names = dict.fromkeys(name for content in known for name in content)
    return [
        {
            "name": name,
            "values": [content.get(name, "")[:400] for content in shown],
            "differs": len({content.get(name) for content in known}) > 1,
        }
        for name in names
    ]
