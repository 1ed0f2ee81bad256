"""Recorder: what a run records and shows. Only the first process writes; the others keep silent."""

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
    """The records of a run: metrics.jsonl, loggers, and what a person sees."""

    def __init__(self, folder: Path, *, is_first: bool) -> None:
        """Nothing is opened yet: messages wait until `open` and `show_on`."""
        self.display = Display()
        self._folder, self._is_first = folder, is_first
        self._waiting: list[str] = []
        self._metrics: MetricsFile | None = None
        self._writers: list[Writer] = []  # beside metrics.jsonl
        self._shown: set[str] = set()  # kinds of advice

    def open(self, config: TrainConfig, *, up_to_step: int, loggers: Sequence[Any] = ()) -> None:
        """Open what is written to, without the records of steps beyond `up_to_step`."""
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
                self.wait_to_tell(_left_out(name, error))
            else:
                self._writers += [] if writer is None else [writer]

    def show_on(self, display: Display, messages: list[str], *, step: int) -> None:
        """Show `messages` and those that waited on the display, and from now on everything."""
        self.display = display
        waiting, self._waiting = messages + self._waiting, []
        for message in waiting:
            self.tell(message, step=step)

    def wait_to_tell(self, message: str) -> None:
        """Keep a message until there is a display."""
        self._waiting.append(message)

    def add(self, record: Record) -> None:
        """Write a record down, and show it."""
        if self._is_first:
            self._write(record)
            self.display.show(record)
            if record["kind"] == "event":
                self.display.say(record["message"])

    def tell(self, message: str, *, step: int) -> None:
        """Record something that a person should know, and show it."""
        self.add({"kind": "event", "step": step, "message": message})

    def write_down(self, message: str, *, step: int) -> None:
        """Record a message without showing it: an error with the same words follows."""
        self._write({"kind": "event", "step": step, "message": message})

    def _write(self, record: Record) -> None:
        """Write a record everywhere. A logger that fails is left out from then on: it must not end the run."""
        if self._metrics is not None:
            self._metrics.add(record)
        for writer in tuple(self._writers):
            try:
                writer.add(record)
            except Exception as error:
                self._writers.remove(writer)
                self.tell(_left_out(writer.name, error), step=record["step"])

    def advise(self, advice: dict[str, str], *, step: int) -> None:
        """Record and show each kind of advice once."""
        for trouble, message in advice.items():
            if trouble not in self._shown:
                self._shown.add(trouble)
                self.tell(message, step=step)

    def flush(self) -> None:
        """Return when all records are on the disk."""
        if self._metrics is not None:
            self._metrics.flush()

    def read(self) -> list[Record]:
        """All records of the run."""
        return read_records(self._folder)

    def close(self) -> None:
        """Close all files; each, whatever becomes of the others."""
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
    return f"{name} failed and is left out from here on: {reason}. metrics.jsonl has all records."
