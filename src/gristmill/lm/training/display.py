"""Display of a run: a progress bar on a terminal, log lines elsewhere.

| progress | shows |
|---|---|
| `"auto"` | the bar on a terminal or in a notebook, otherwise log lines |
| `"bar"` | the bar on stderr, always |
| `"jsonl"` | every record of metrics.jsonl on stderr, for programs |
| a callable | called with every record |
| `None` | nothing |

The loop calls `tick` after every step. It redraws the bar at a fixed rate that does not depend on `log_interval`, and
never waits for the device, because steps are counted on the host. Losses and rates change when a record arrives.

This module does not import torch, which takes seconds: the command line shows its first line before that.
"""

from __future__ import annotations

import contextlib
import math
import sys
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from importlib.util import find_spec
from typing import Any

from gristmill.errors import OptionError
from gristmill.lm.training.launchers import is_first_process
from gristmill.lm.training.records import Record, json_line
from gristmill.lm.training.run_status import RunStatus, clock_time, shown_loss
from gristmill.notebook import shortened
from gristmill.progress import bar_class
from gristmill.report import figures

__all__ = ["Display", "open_display", "say_starting", "spelled_by", "starting"]

BAR_SECONDS = 0.5  # between two drawings of the bar
LINE_SECONDS = 10.0  # minimum time between two log lines
SILENT_SECONDS = 30.0  # time without a record after which a log line is printed anyway
MIN_BAR_COLUMNS = 5
SAMPLE_CHARACTERS = 200  # maximum length of a sample in a log line

_SPELLING: ContextVar[Callable[[str], str]] = ContextVar("_SPELLING", default=str)


@contextlib.contextmanager
def spelled_by(spelling: Callable[[str], str]) -> Iterator[None]:
    """Apply `spelling` to messages shown within the block. The command line writes options as flags this way."""
    token = _SPELLING.set(spelling)
    try:
        yield
    finally:
        _SPELLING.reset(token)


# Before the first step


class _StartingLine:
    """A line that shows what a run is doing before its first step. The next output overwrites it."""

    def __init__(self) -> None:
        self._num_columns = 0

    def show(self, text: str) -> None:
        self.clear()
        _write(f"{text}\r")  # the next output, such as a warning, starts at the first column
        self._num_columns = len(text)

    def clear(self) -> None:
        if self._num_columns:
            _write(" " * self._num_columns + "\r")
            self._num_columns = 0


_starting_line = _StartingLine()  # one per process, as is stderr


def say_starting(progress: Any, what: str = "loading torch") -> None:
    """Show what a run is doing before its first step: a line that is overwritten, or a log line without a terminal.

    Only the first of several processes shows it.
    """
    if progress not in ("auto", "bar") or not is_first_process() or _in_notebook():
        return
    if progress == "bar" or _on_terminal():
        _starting_line.show(f"gristmill: {what} …")
    else:
        _print_line(what)


@contextlib.contextmanager
def starting(progress: Any) -> Iterator[None]:
    """Show that torch is being loaded, and clear the line at the end of the block, also after an error.

    Shows nothing if torch is not installed, so that the following error is the only line.
    """
    if _has_torch():
        say_starting(progress)
    try:
        yield
    finally:
        _starting_line.clear()


def _has_torch() -> bool:
    try:
        return find_spec("torch") is not None
    except (ImportError, ValueError):
        return False


def _in_notebook() -> bool:
    return "ipykernel" in sys.modules


def _on_terminal() -> bool:
    return sys.stderr is not None and sys.stderr.isatty()


def _write(text: str) -> None:
    """Write to stderr. Errors are ignored, because they must not end hours of training."""
    with contextlib.suppress(OSError, ValueError):
        print(text, end="", file=sys.stderr, flush=True)


def _print_line(text: str) -> None:
    _write(f"gristmill: {_one_line(text)}\n")


# From the first step on


class Display:
    """Display of a run in progress. This base class shows nothing."""

    def tick(self, step: int) -> None:
        """Count a step that has ended on the host. Called after every step, so it must be very cheap."""

    def show(self, record: Record) -> None:
        """Show a new record."""

    def say(self, message: str) -> None:
        """Show a message to the user."""

    def busy(self, what: str) -> None:
        """Show an activity other than training steps, such as "validating", until the next `tick`."""

    def close(self, *, finished: bool) -> None:
        """Close the display. `finished` is False when an error or a signal ends the run."""


@contextlib.contextmanager
def open_display(progress: Any, *, total: int, initial: int, compiles: bool = False) -> Iterator[Display]:
    """Yield the display for the option `progress`, of a run at step `initial` of `total`.

    compiles: whether the first step compiles the model, which takes long and is therefore shown.
    """
    display = _new_display(progress, RunStatus(total, initial), compiles=compiles)
    try:
        yield display
    except BaseException:
        display.close(finished=False)
        raise
    display.close(finished=True)


def _new_display(progress: Any, status: RunStatus, *, compiles: bool) -> Display:
    if progress is None:
        return Display()
    if callable(progress):
        return _Calls(progress)
    if progress == "jsonl":
        return _Calls(lambda record: _write(json_line(record).decode()))
    if progress not in ("auto", "bar"):
        raise OptionError(f"progress={progress!r} is not valid. Pass 'auto', 'bar', 'jsonl', a callable, or None.")
    _starting_line.clear()
    if progress != "bar" and not _in_notebook() and not _on_terminal():
        return _Lines(status, compiles=compiles)
    try:
        return _Bar(status, compiles=compiles)
    except (OSError, ValueError, AttributeError):  # stderr is closed, or cannot be written to
        return Display()


class _Calls(Display):
    def __init__(self, call: Callable[[Record], object]) -> None:
        self._call = call

    def show(self, record: Record) -> None:
        self._call(record)


def _printable(text: str) -> str:
    """Return the text without terminal control characters, which a model may generate."""
    return "".join(c if c.isprintable() or c == "\n" else "\ufffd" for c in text)


def _one_line(text: str) -> str:
    return " ".join(_printable(text).split())


class _Lines(Display):
    """Log lines: the first record, then at most one every ten seconds; all validations, samples and messages."""

    def __init__(self, status: RunStatus, *, compiles: bool) -> None:
        self._status = status
        self._began = self._printed = time.monotonic()
        self._has_shown_a_record = False
        _print_line(f"training from step {status.steps}{', compiling the model first' * compiles}")

    def tick(self, step: int) -> None:
        now = time.monotonic()
        self._status.tick(step, now)
        if now - self._printed >= SILENT_SECONDS:
            self._print_status(now)

    def show(self, record: Record) -> None:
        self._status.show(record)
        now = time.monotonic()
        if record["kind"] == "train":
            is_due = now - self._printed >= LINE_SECONDS or record["step"] >= self._status.total
            if is_due or not self._has_shown_a_record:
                self._print_status(now)
            self._has_shown_a_record = True
        elif record["kind"] == "val":
            _print_line(f"step {self._status.steps}: {_validation(record)}")
        elif record["kind"] == "sample":
            text = shortened(_one_line(record["prompt"] + record["text"]), SAMPLE_CHARACTERS)
            _print_line(f"step {self._status.steps}: sample: {text}")

    def _print_status(self, now: float) -> None:
        self._printed = now
        _print_line(f"step {self._status.steps}: {', '.join(self._status.parts(val_name='val loss').values())}")

    def say(self, message: str) -> None:
        _print_line(_SPELLING.get()(message))

    def close(self, *, finished: bool) -> None:
        if finished:
            _print_line(f"finished at step {self._status.steps} after {clock_time(time.monotonic() - self._began)}")


def _validation(record: Record) -> str:
    bits = record.get("bits_per_byte")
    parts = [
        f"val loss {shown_loss(record['loss'])}",
        "on the whole validation split" if record.get("full") else None,
        None if bits is None else f"{bits:.3f} bits per byte",
        f"in {figures.duration(record['seconds'])}" if "seconds" in record else None,
    ]
    return ", ".join(part for part in parts if part is not None)


def _narrower(shape: tuple[int | None, int | None]) -> tuple[int | None, int | None]:
    """Return (columns, rows) with room for the ^C that the terminal prints: a wrapped line could not be redrawn."""
    num_columns, num_rows = shape
    return num_columns and max(num_columns - 2, 1), num_rows


class _Bar(Display):
    """One line that is redrawn at a fixed rate. Messages and samples are printed above it."""

    # Most important first. On a narrow terminal, the last ones are omitted.
    PRIORITY = ("doing", "loss", "left", "val", "rate", "pace", "memory", "mfu")

    def __init__(self, status: RunStatus, *, compiles: bool) -> None:
        self._status = status
        self._doing = "compiling the model" if compiles else "first step"
        self._drawn = -math.inf
        self._bar: Any = bar_class()(
            total=status.total,
            initial=status.step,
            bar_format=self._format(None),
            dynamic_ncols=True,
            file=sys.stderr,
        )
        if callable(shape := self._bar.dynamic_ncols):
            self._bar.dynamic_ncols = lambda file: _narrower(shape(file))

    def tick(self, step: int) -> None:
        now = time.monotonic()
        self._status.tick(step, now)
        self._doing = ""
        if now - self._drawn >= BAR_SECONDS:
            self._draw()

    def show(self, record: Record) -> None:
        self._status.show(record)
        if record["kind"] == "sample":
            text = _printable(f"{record['prompt']}{record['text']}")
            self._write_above(f"step {record['step']:,}: {text}")
        elif record["kind"] == "val" or time.monotonic() - self._drawn >= BAR_SECONDS:
            self._draw()

    def say(self, message: str) -> None:
        self._write_above(f"gristmill: {_SPELLING.get()(message)}")

    def busy(self, what: str) -> None:
        self._doing = what
        self._draw()

    def close(self, *, finished: bool) -> None:
        self._doing = ""
        self._draw()
        with contextlib.suppress(OSError, ValueError):
            self._bar.close()

    def _draw(self) -> None:
        self._drawn = time.monotonic()
        with contextlib.suppress(OSError, ValueError):
            self._bar.n = self._status.step
            self._bar.bar_format = self._format(self._bar.format_dict["ncols"])
            self._bar.refresh()

    def _write_above(self, text: str) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._bar.write(text, file=sys.stderr)

    def _format(self, num_columns: int | None) -> str:
        """Return the line as a tqdm format, with the most important parts that fit in the columns."""
        parts = self._status.parts()
        if self._doing:
            parts = {**parts, "doing": self._doing}
        steps = self._status.steps
        free = math.inf if num_columns is None else num_columns - len(f"100%|| {steps}") - MIN_BAR_COLUMNS
        chosen = set()
        for name in self.PRIORITY:
            if name in parts and len(parts[name]) + 2 <= free:
                free -= len(parts[name]) + 2
                chosen.add(name)
        text = ", ".join([steps, *(text for name, text in parts.items() if name in chosen)])
        return "{percentage:3.0f}%|{bar}| " + text.replace("{", "{{").replace("}", "}}")
