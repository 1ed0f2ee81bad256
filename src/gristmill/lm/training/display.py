"""Display: what a person sees of a run: a bar on a terminal, log lines elsewhere.

| progress | shows |
|---|---|
| `"auto"` | the bar on a terminal or in a notebook, otherwise log lines |
| `"bar"` | the bar on stderr, always |
| `"jsonl"` | every record of metrics.jsonl on stderr, for programs |
| a callable | it is called with every record |
| `None` | nothing |

The loop calls `tick` after every step. That moves the bar by time, whatever `log_interval` is, and never waits for the
device: the step is counted on the host. Losses and rates change when a record arrives.

This module needs no torch: the command line shows its first line before torch is imported, which takes seconds.
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
from gristmill.lm.training.standing import Standing, clock_time, shown_loss
from gristmill.notebook import shortened
from gristmill.progress import bar_class
from gristmill.report import figures

__all__ = ["Display", "open_display", "say_starting", "spelled_by", "starting"]

BAR_SECONDS = 0.5  # between two drawings of the bar
LINE_SECONDS = 10.0  # between two log lines, at least
SILENT_SECONDS = 30.0  # without a record, after which a log line comes without one
MIN_BAR_COLUMNS = 5
SAMPLE_CHARACTERS = 200  # of a sample in a log line

_SPELLING: ContextVar[Callable[[str], str]] = ContextVar("_SPELLING", default=str)


@contextlib.contextmanager
def spelled_by(spelling: Callable[[str], str]) -> Iterator[None]:
    """Within the block, what is shown to a person goes through `spelling`: on the command line, options are flags."""
    token = _SPELLING.set(spelling)
    try:
        yield
    finally:
        _SPELLING.reset(token)


# Before the first step


class _StartingLine:
    """The line that shows what a run is doing before its first step; the next output takes its place."""

    def __init__(self) -> None:
        self._num_columns = 0

    def show(self, text: str) -> None:
        self.clear()
        _write(f"{text}\r")  # whatever is written next, such as a warning, starts at the first column
        self._num_columns = len(text)

    def clear(self) -> None:
        if self._num_columns:
            _write(" " * self._num_columns + "\r")
            self._num_columns = 0


_starting_line = _StartingLine()  # one per process, as is stderr


def say_starting(progress: Any, what: str = "loading torch") -> None:
    """Show what a run is doing before its first step, at once: a line that is replaced, or a log line off a terminal.

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
    """Show that torch is being loaded; leaves no half line on the terminal, whatever happens in the block.

    Where torch is not installed nothing is shown: the error that follows is one line.
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
    """Write to stderr; one that cannot be written to does not end hours of work."""
    with contextlib.suppress(OSError, ValueError):
        print(text, end="", file=sys.stderr, flush=True)


def _print_line(text: str) -> None:
    _write(f"gristmill: {_one_line(text)}\n")


# From the first step on


class Display:
    """What is shown while a run trains; this one shows nothing."""

    def tick(self, step: int) -> None:
        """A step has ended on the host. Called after every step, so it must cost next to nothing."""

    def show(self, record: Record) -> None:
        """A record was made."""

    def say(self, message: str) -> None:
        """Show a message that a person should read."""

    def busy(self, what: str) -> None:
        """The run does something other than training steps, until the next `tick`: "validating", for one."""

    def close(self, *, finished: bool) -> None:
        """Close it; `finished` is False when an error or a signal ends the run."""


@contextlib.contextmanager
def open_display(progress: Any, *, total: int, initial: int, compiles: bool = False) -> Iterator[Display]:
    """The display that `progress` asks for, of a run that is at step `initial` of `total`.

    compiles: whether the first step compiles the model, which takes long and is announced.
    """
    display = _new_display(progress, Standing(total, initial), compiles=compiles)
    try:
        yield display
    except BaseException:
        display.close(finished=False)
        raise
    display.close(finished=True)


def _new_display(progress: Any, standing: Standing, *, compiles: bool) -> Display:
    if progress is None:
        return Display()
    if callable(progress):
        return _Calls(progress)
    if progress == "jsonl":
        return _Calls(lambda record: _write(json_line(record).decode()))
    if progress not in ("auto", "bar"):
        raise OptionError(f"progress={progress!r} is not known. Pass 'auto', 'bar', 'jsonl', a callable, or None.")
    _starting_line.clear()
    if progress != "bar" and not _in_notebook() and not _on_terminal():
        return _Lines(standing, compiles=compiles)
    try:
        return _Bar(standing, compiles=compiles)
    except (OSError, ValueError, AttributeError):  # stderr is closed, or cannot be written to
        return Display()


class _Calls(Display):
    def __init__(self, call: Callable[[Record], object]) -> None:
        self._call = call

    def show(self, record: Record) -> None:
        self._call(record)


def _printable(text: str) -> str:
    """A text without what would steer a terminal: a model may write any character."""
    return "".join(c if c.isprintable() or c == "\n" else "\ufffd" for c in text)


def _one_line(text: str) -> str:
    return " ".join(_printable(text).split())


class _Lines(Display):
    """Log lines: the first record, then one in ten seconds; every validation, sample and message, and the end."""

    def __init__(self, standing: Standing, *, compiles: bool) -> None:
        self._standing = standing
        self._began = self._printed = time.monotonic()
        self._has_shown_a_record = False
        _print_line(f"training from step {standing.steps}{', compiling the model first' * compiles}")

    def tick(self, step: int) -> None:
        now = time.monotonic()
        self._standing.tick(step, now)
        if now - self._printed >= SILENT_SECONDS:
            self._print_standing(now)

    def show(self, record: Record) -> None:
        self._standing.show(record)
        now = time.monotonic()
        if record["kind"] == "train":
            is_due = now - self._printed >= LINE_SECONDS or record["step"] >= self._standing.total
            if is_due or not self._has_shown_a_record:
                self._print_standing(now)
            self._has_shown_a_record = True
        elif record["kind"] == "val":
            _print_line(f"step {self._standing.steps}: {_validation(record)}")
        elif record["kind"] == "sample":
            text = shortened(_one_line(record["prompt"] + record["text"]), SAMPLE_CHARACTERS)
            _print_line(f"step {self._standing.steps}: sample: {text}")

    def _print_standing(self, now: float) -> None:
        self._printed = now
        _print_line(f"step {self._standing.steps}: {', '.join(self._standing.parts(val_name='val loss').values())}")

    def say(self, message: str) -> None:
        _print_line(_SPELLING.get()(message))

    def close(self, *, finished: bool) -> None:
        if finished:
            _print_line(f"finished at step {self._standing.steps} after {clock_time(time.monotonic() - self._began)}")


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
    """Columns and rows of a terminal with room for the ^C that it writes itself: a line that wraps stays there."""
    num_columns, num_rows = shape
    return num_columns and max(num_columns - 2, 1), num_rows


class _Bar(Display):
    """One line that moves by time; messages and samples stay above it."""

    # What is left out first where the terminal is narrow comes last.
    PRIORITY = ("doing", "loss", "left", "val", "rate", "pace", "memory", "mfu")

    def __init__(self, standing: Standing, *, compiles: bool) -> None:
        self._standing = standing
        self._doing = "compiling the model" if compiles else "first step"
        self._drawn = -math.inf
        self._bar: Any = bar_class()(
            total=standing.total,
            initial=standing.step,
            bar_format=self._format(None),
            dynamic_ncols=True,
            file=sys.stderr,
        )
        if callable(shape := self._bar.dynamic_ncols):
            self._bar.dynamic_ncols = lambda file: _narrower(shape(file))

    def tick(self, step: int) -> None:
        now = time.monotonic()
        self._standing.tick(step, now)
        self._doing = ""
        if now - self._drawn >= BAR_SECONDS:
            self._draw()

    def show(self, record: Record) -> None:
        self._standing.show(record)
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
            self._bar.n = self._standing.step
            self._bar.bar_format = self._format(self._bar.format_dict["ncols"])
            self._bar.refresh()

    def _write_above(self, text: str) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._bar.write(text, file=sys.stderr)

    def _format(self, num_columns: int | None) -> str:
        """The line in the format of tqdm: as much as fits into the columns, the most important first."""
        parts = self._standing.parts()
        if self._doing:
            parts = {**parts, "doing": self._doing}
        steps = self._standing.steps
        free = math.inf if num_columns is None else num_columns - len(f"100%|| {steps}") - MIN_BAR_COLUMNS
        chosen = set()
        for name in self.PRIORITY:
            if name in parts and len(parts[name]) + 2 <= free:
                free -= len(parts[name]) + 2
                chosen.add(name)
        text = ", ".join([steps, *(text for name, text in parts.items() if name in chosen)])
        return "{percentage:3.0f}%|{bar}| " + text.replace("{", "{{").replace("}", "}}")
