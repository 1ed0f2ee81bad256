"""Recorder: writes and shows the records of a run. Only the first process writes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from gristmill.errors import MissingPackageError
from gristmill.lm.training.config import TrainConfig
from gristmill.lm.training.display import Display
from gristmill.lm.training.records import MetricsFile, Record, read_records
from gristmill.lm.training.writers import LightningWriter, Writer, open_writer

__all__ = ["Recorder"]


class Recorder:
    """Sends the records of a run to metrics.jsonl, loggers and the display."""

    def __init__(self, folder: Path, *, is_first: bool) -> None:
        """Open nothing yet: messages wait until `open` and `show_on`."""
        self.display = Display()
        self._folder, self._is_first = folder, is_first
        self._waiting: list[str] = []
        self._metrics: MetricsFile | None = None
        self._writers: list[Writer] = []  # besides metrics.jsonl
        self._shown: set[str] = set()  # kinds of advice shown so far

    def open(self, config: TrainConfig, *, up_to_step: int, loggers: Sequence[Any] = ()) -> None:
        """Open metrics.jsonl and the loggers, and drop records of steps after `up_to_step`."""
        if not self._is_first:
            return
        self._metrics = MetricsFile(self._folder, up_to_step=up_to_step)
        options = config.to_json()
        openings: list[Callable[[], Writer | None]] = [
            lambda: open_writer(config.log, self._folder, options, up_to_step=up_to_step),
            *(functools.partial(LightningWriter, logger, options) for logger in loggers),
        ]
        names = [f"log={config.log!r}", *(f"the logger {type(logger).__name__}" for logger in loggers)]
        for name, opening in zip(names, openings, strict=True):
            try:
                writer = opening()
            except MissingPackageError:
                raise
            except Exception as error:
                self.notify_later(_left_out(name, error))
            else:
                self._writers += [] if writer is None else [writer]

    def show_on(self, display: Display, messages: list[str], *, step: int) -> None:
        """Show `messages` and the waiting ones on the display, and use it from now on."""
        self.display = display
        waiting, self._waiting = messages + self._waiting, []
        for message in waiting:
            self.notify(message, step=step)

    def notify_later(self, message: str) -> None:
        """Keep a message until there is a display."""
        self._waiting.append(message)

    def add(self, record: Record) -> None:
        """Write and show a record."""
        if self._is_first:
            self._write(record)
            self.display.show(record)
            if record["kind"] == "event":
                self.display.say(record["message"])

    def notify(self, message: str, *, step: int) -> None:
        """Record and show a message to the user."""
        self.add({"kind": "event", "step": step, "message": message})

    def record_only(self, message: str, *, step: int) -> None:
        """Record a message without showing it, because an error with the same text follows."""
        self._write({"kind": "event", "step": step, "message": message})

    def _write(self, record: Record) -> None:
        """Write a record to metrics.jsonl and all loggers. A logger that fails is dropped: it must not end the run."""
        if self._metrics is not None:
            self._metrics.add(record)
        for writer in tuple(self._writers):
            try:
                writer.add(record)
            except Exception as error:
                self._writers.remove(writer)
                self.notify(_left_out(writer.name, error), step=record["step"])

    def advise(self, advice: dict[str, str], *, step: int) -> None:
        """Record and show each kind of advice once."""
        for trouble, message in advice.items():
            if trouble not in self._shown:
                self._shown.add(trouble)
                self.notify(message, step=step)

    def flush(self) -> None:
        """Flush all records to disk."""
        if self._metrics is not None:
            self._metrics.flush()

    def read(self) -> list[Record]:
        """Return all records of the run."""
        return read_records(self._folder)

    def close(self) -> None:
        """Close all files, each even if closing another one fails."""
        for writer in self._writers:
            try:
                writer.close()
            except Exception as error:
                self.display.say(_left_out(writer.name, error))
        self._writers = []
        if self._metrics is not None:
            self._metrics.close()


def _left_out(name: str, error: Exception) -> str:
    reason = " ".join(str(error).split()) or type(error).__name__
    return f"{name} failed and is no longer used: {reason}. metrics.jsonl has all records."
