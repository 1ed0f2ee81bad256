"""Writers: the numbers of metrics.jsonl shown elsewhere, in TensorBoard or Trackio."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from gristmill.errors import MissingPackageError
from gristmill.lm.training.records import Record

__all__ = ["Writer", "check_writer", "open_writer"]

_MODULES = {"tensorboard": "torch.utils.tensorboard", "trackio": "trackio"}


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
    with _installed(name):
        return _TensorBoard(run) if name == "tensorboard" else _Trackio(run, config)


def check_writer(name: str) -> None:
    """Raise `MissingPackageError` where the package of the writer is not installed. Nothing is written."""
    if name != "none":
        with _installed(name):
            importlib.import_module(_MODULES[name])


@contextlib.contextmanager
def _installed(name: str) -> Iterator[None]:
    try:
        yield
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
