"""Recorder: what a run records and shows. Only the first process writes; the others keep silent."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from gristmill.lm.training.config import TrainConfig
from gristmill.lm.training.display import Display
from gristmill.lm.training.records import MetricsFile, Record, read_records
from gristmill.lm.training.writers import Writer, open_writer

__all__ = ["Recorder"]


class Recorder:
    """The records of a run: metrics.jsonl, other writers, and what a person sees."""

    def __init__(self, folder: Path, *, is_first: bool) -> None:
        """Nothing is opened yet: messages wait until `open` and `show_on`."""
        self.display = Display()
        self._folder, self._is_first = folder, is_first
        self._waiting: list[str] = []
        self._writers: list[Any] = []
        self._shown: set[str] = set()  # kinds of advice

    def open(self, config: TrainConfig, *, up_to_step: int) -> None:
        """Open what is written to, without the records of steps beyond `up_to_step`."""
        if self._is_first:
            self._metrics = MetricsFile(self._folder, up_to_step=up_to_step)
            self._writers = [self._metrics]
            other: Writer | None = open_writer(config.log, self._folder, config.to_json())
            self._writers += [] if other is None else [other]

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
            for writer in self._writers:
                writer.add(record)
            self.display.show(record)
            if record["kind"] == "event":
                self.display.say(record["message"])

    def tell(self, message: str, *, step: int) -> None:
        """Record something that a person should know, and show it."""
        self.add({"kind": "event", "step": step, "message": message})

    def write_down(self, message: str, *, step: int) -> None:
        """Record a message without showing it: an error with the same words follows."""
        for writer in self._writers:
            writer.add({"kind": "event", "step": step, "message": message})

    def advise(self, advice: dict[str, str], *, step: int) -> None:
        """Record and show each kind of advice once."""
        for trouble, message in advice.items():
            if trouble not in self._shown:
                self._shown.add(trouble)
                self.tell(message, step=step)

    def flush(self) -> None:
        """Return when all records are on the disk."""
        if self._is_first:
            self._metrics.flush()

    def read(self) -> list[Record]:
        """All records of the run."""
        return read_records(self._folder)

    def close(self) -> None:
        """Close all files; each, whatever becomes of the others."""
        with contextlib.ExitStack() as closed:
            for writer in self._writers:
                closed.callback(writer.close)
