"""Records: metrics.jsonl, the writers that show the same numbers elsewhere, and the line on the terminal.

metrics.jsonl holds one JSON object a line, with "kind" and "step"; it is the record of the run, all else is made from
it. A run that goes on drops the records of steps beyond its checkpoint first: they will come again.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import sys
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Protocol

from gristmill.errors import CheckpointError, MissingPackageError, OptionError
from gristmill.progress import bar_class
from gristmill.publish import publish
from gristmill.report.records import MAX_METRICS_BYTES, METRICS_FILE
from gristmill.small_files import read_json_lines

__all__ = ["METRICS_FILE", "MetricsFile", "open_display", "open_writer", "read_records", "spelled_by"]

Record = dict[str, Any]


class MetricsFile:
    """metrics.jsonl of a run, to which records are added."""

    def __init__(self, run: Path, *, up_to_step: int = -1) -> None:
        """Open it, without the records of steps beyond `up_to_step`."""
        path = run / METRICS_FILE
        kept = [record for record in read_records(run) if record["step"] <= up_to_step]
        with publish(path) as file:
            file.writelines(_line(record) for record in kept)
        self._file = path.open("ab")

    def add(self, record: Record) -> None:
        """Add a record; whoever follows the file sees it at once."""
        self._file.write(_line(record))
        self._file.flush()

    def flush(self) -> None:
        """Return when all records are on the disk."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Flush and close."""
        self.flush()
        self._file.close()


def _line(record: Record) -> bytes:
    # JSON has no NaN; null is what every reader understands.
    plain = {
        key: None if isinstance(value, float) and not math.isfinite(value) else value for key, value in record.items()
    }
    return json.dumps(plain, allow_nan=False).encode() + b"\n"


def read_records(run: Path) -> list[Record]:
    """The records of a run. Lines that an interrupted process did not finish are left out."""
    path = run / METRICS_FILE
    if not path.exists():
        return []
    records = read_json_lines(
        path, what="the record of a run", max_bytes=MAX_METRICS_BYTES, error=CheckpointError, skip_damaged=True
    )
    return [record for record in records if isinstance(record.get("step"), int)]


# Writers


class Writer(Protocol):
    """Where numbers are shown besides metrics.jsonl."""

    def add(self, record: Record) -> None:
        """Show a record."""

    def close(self) -> None:
        """The run is over."""


def open_writer(name: str, run: Path, config: Record) -> Writer | None:
    """The writer of that name: "tensorboard", "trackio" or "none"."""
    if name == "none":
        return None
    try:
        return _TensorBoard(run) if name == "tensorboard" else _Trackio(run, config)
    except ImportError as error:
        raise MissingPackageError(
            f"log={name!r} needs {name}, which is not installed. Install it with: pip install {name}, or pass "
            f"log='none'.",
            name=name,
        ) from error


def _scalars(record: Record) -> Record:
    return {
        f"{record['kind']}/{key}": value
        for key, value in record.items()
        if key not in ("kind", "step") and isinstance(value, int | float) and not isinstance(value, bool)
    }


class _TensorBoard:
    def __init__(self, run: Path) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer: Any = SummaryWriter(str(run / "tensorboard"))

    def add(self, record: Record) -> None:
        for name, value in _scalars(record).items():
            self._writer.add_scalar(name, value, record["step"])
        if record["kind"] == "sample":
            self._writer.add_text("sample", record["text"], record["step"])

    def close(self) -> None:
        self._writer.close()


class _Trackio:
    def __init__(self, run: Path, config: Record) -> None:
        import trackio

        self._trackio: Any = trackio
        trackio.init(project="gristmill", name=run.name, config=config)

    def add(self, record: Record) -> None:
        if scalars := _scalars(record):
            self._trackio.log({**scalars, "step": record["step"]})

    def close(self) -> None:
        self._trackio.finish()


# The terminal

_SPELLING: ContextVar[Callable[[str], str]] = ContextVar("_SPELLING", default=str)


@contextlib.contextmanager
def spelled_by(spelling: Callable[[str], str]) -> Iterator[None]:
    """Within the block, what is shown to a person goes through `spelling`: on the command line, options are flags."""
    token = _SPELLING.set(spelling)
    try:
        yield
    finally:
        _SPELLING.reset(token)


class Display:
    """What is told while a run goes on; this one keeps silent."""

    def show(self, record: Record) -> None:
        """A record was made."""

    def say(self, message: str) -> None:
        """Something that a person should know."""


@contextlib.contextmanager
def open_display(progress: Any, *, total: int, initial: int) -> Iterator[Display]:
    """The display that `progress` asks for: "auto", "bar", "jsonl", a callable that takes records, or None."""
    watched = "ipykernel" in sys.modules or (sys.stderr is not None and sys.stderr.isatty())
    if progress is None or (progress == "auto" and not watched):
        yield Display() if progress is None else _Messages()
    elif callable(progress):
        yield _Calls(progress)
    elif progress == "jsonl":
        yield _Calls(_print_json)
    elif progress in ("auto", "bar"):
        bar = _Bar(total, initial)
        try:
            yield bar
        finally:
            bar.close()
    else:
        raise OptionError(f"progress={progress!r} is not known. Pass 'auto', 'bar', 'jsonl', a callable, or None.")


def _print_json(record: Record) -> None:
    with contextlib.suppress(OSError, ValueError):
        print(_line(record).decode(), end="", file=sys.stderr, flush=True)


class _Messages(Display):
    def say(self, message: str) -> None:
        with contextlib.suppress(OSError, ValueError):
            print(f"gristmill: {_SPELLING.get()(message)}", file=sys.stderr, flush=True)


class _Calls(Display):
    def __init__(self, call: Callable[[Record], object]) -> None:
        self._call = call

    def show(self, record: Record) -> None:
        self._call(record)


class _Bar(Display):
    """One line: steps, time left, loss, speed; messages above it."""

    def __init__(self, total: int, initial: int) -> None:
        self._bar: Any = bar_class()(
            desc="train",
            total=total,
            initial=initial,
            # Without tqdm's own rate, which would push what follows it out of 80 columns.
            bar_format="{desc}: {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} [{elapsed}<{remaining}{postfix}]",
            dynamic_ncols=True,
            smoothing=0.1,
            file=sys.stderr,
        )
        self._val = ""

    def show(self, record: Record) -> None:
        if record["kind"] == "val":
            self._val = f", val {record['loss']:.3f}"
        elif record["kind"] == "train":
            self._bar.set_postfix_str(self._postfix(record), refresh=False)
            self._bar.update(record["step"] - self._bar.n)
        elif record["kind"] == "sample":
            self._bar.write(f"step {record['step']:,}: {record['prompt']}{record['text']}", file=sys.stderr)

    def _postfix(self, record: Record) -> str:
        mfu = record["mfu"] if record["mfu"] is not None else record["mfu_matmul"]
        share = f", MFU {mfu:.0%}" if mfu is not None else ""
        memory = f", {record['memory_bytes'] / 1e9:.1f} GB" if record["memory_bytes"] else ""
        loss = math.nan if record["loss"] is None else record["loss"]
        rate = record["tokens_per_second"]
        speed = f"{rate:,.0f}" if rate < 1e3 else f"{rate / 1e3:,.0f}k"
        return f"loss {loss:.3f}{self._val}, {speed} tokens/s{share}{memory}"

    def say(self, message: str) -> None:
        self._bar.write(f"gristmill: {_SPELLING.get()(message)}", file=sys.stderr)

    def close(self) -> None:
        self._bar.close()
