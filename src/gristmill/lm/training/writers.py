"""Writers: send the numbers of metrics.jsonl to Lightning loggers or Trackio.

The option `log` names a logger that writes to the folder of the run. The argument `loggers` of `train` takes objects
of Lightning's logger classes, or of any class with the same methods. Nothing is sent over the network unless the user
chooses a logger that does.

    tensorboard   run/tensorboard/       a resumed run continues the event files
    csv           run/csv/metrics.csv    a resumed run rewrites the file from metrics.jsonl
    wandb         run/wandb/             a resumed run continues the W&B run with the id in run/wandb_id.txt
    trackio       Trackio's own folder
"""

from __future__ import annotations

import contextlib
import importlib
import os
import secrets
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from gristmill.errors import CheckpointError, MissingPackageError
from gristmill.lm.training.records import Record, read_records
from gristmill.publish import publish
from gristmill.small_files import read_small_file

__all__ = ["LOGGER_FILES", "LightningWriter", "Writer", "check_loggers", "check_writer", "open_writer"]

_MODULES = {"tensorboard": "torch.utils.tensorboard", "trackio": "trackio", "wandb": "wandb"}
PROJECT = "gristmill"
WANDB_ID_FILE = "wandb_id.txt"
# Methods of a logger that a run calls.
LOGGER_METHODS = ("log_metrics", "log_hyperparams", "save", "finalize")
# Files that the loggers of the option `log` write to the folder of a run.
LOGGER_FILES = ("tensorboard", "csv", "wandb", WANDB_ID_FILE)


class Writer(Protocol):
    """Destination of records besides metrics.jsonl."""

    name: str  # for messages

    def add(self, record: Record) -> None:
        """Write a record."""

    def close(self) -> None:
        """Finish at the end of the run."""


def open_writer(name: str, run: Path, config: Record, *, up_to_step: int = -1) -> Writer | None:
    """Return the writer for the option `log`, or None for "none". A resumed run continues after `up_to_step`."""
    if name == "none":
        return None
    check_writer(name)
    with _installed(name):
        if name == "trackio":
            return _Trackio(run, config)
        return {"tensorboard": _tensorboard, "csv": _csv, "wandb": _wandb}[name](run, config, up_to_step)


def check_writer(name: str) -> None:
    """Raise `MissingPackageError` if the package of the writer is not installed. Writes nothing."""
    if name in _MODULES:
        with _installed(name):
            importlib.import_module(_MODULES[name])


def check_loggers(loggers: Any) -> list[Any]:
    """Return the passed loggers as a list; raise `TypeError` if one lacks the methods of Lightning's loggers."""
    given = list(loggers) if isinstance(loggers, Sequence) and not isinstance(loggers, str) else [loggers]
    for logger in given:
        missing = [name for name in LOGGER_METHODS if not hasattr(logger, name)]
        if missing or isinstance(logger, type):
            what = f"the class {logger.__name__}" if isinstance(logger, type) else f"a {type(logger).__name__}"
            advice = " To select a logger by name, pass log='csv'." if isinstance(logger, str) else ""
            raise TypeError(
                f"loggers contains {what}, which is not a Lightning logger. Pass objects such as "
                f"lightning_fabric.loggers.CSVLogger('logs').{advice}"
            )
    return given


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


def _tensorboard(run: Path, config: Record, up_to_step: int) -> Writer:
    from lightning_fabric.loggers import TensorBoardLogger

    # Drop later steps from TensorBoard, because the resumed run writes them again.
    resumed = {"purge_step": up_to_step + 1} if up_to_step >= 0 else {}
    logger = TensorBoardLogger(run, name="tensorboard", version="", **resumed)
    return LightningWriter(logger, config, name="log='tensorboard'", is_resumed=up_to_step >= 0)


def _csv(run: Path, config: Record, up_to_step: int) -> Writer:
    from lightning_fabric.loggers import CSVLogger

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the file of a resumed run is rewritten on purpose
        writer = LightningWriter(CSVLogger(run, name="csv", version=""), config, name="log='csv'")
        for record in read_records(run):
            if record["step"] <= up_to_step:
                writer.add(record)
    return writer


def _wandb(run: Path, config: Record, up_to_step: int) -> Writer:
    from pytorch_lightning.loggers import WandbLogger

    path = run / WANDB_ID_FILE
    if up_to_step < 0 or not path.exists():
        with publish(path) as file:
            file.write(secrets.token_hex(4).encode())
    id = read_small_file(path, what="the id of a run", max_bytes=256, error=CheckpointError).decode().strip()
    project = os.environ.get("WANDB_PROJECT", PROJECT)
    logger = WandbLogger(name=run.name, project=project, save_dir=str(run), id=id)
    return LightningWriter(logger, config, name="log='wandb'", finish=lambda: logger.experiment.finish())


class LightningWriter:
    """Writer for a logger with the methods of Lightning's loggers."""

    def __init__(
        self, logger: Any, config: Record, *, name: str = "", is_resumed: bool = False, finish: Any = None
    ) -> None:
        """Log the options of the run as hyperparameters, unless a resumed run has already logged them.

        finish: called after the logger is finalized, to close a logger that was opened here.
        """
        self.name = name or f"the logger {type(logger).__name__}"
        self._logger, self._finish = logger, finish
        if not is_resumed:
            with contextlib.suppress(NotImplementedError):  # Fabric's CSV logger does not support them
                logger.log_hyperparams(config)

    def add(self, record: Record) -> None:
        """Log the numbers of a record, and a sample as text if the logger supports text."""
        if scalars := _scalars(record):
            self._logger.log_metrics(scalars, step=record["step"])
        if record["kind"] == "sample":
            self._add_text(record["text"], record["step"])
        if record["kind"] == "val":
            self._logger.save()

    def _add_text(self, text: str, step: int) -> None:
        if hasattr(self._logger, "log_text"):
            self._logger.log_text("sample", columns=["text"], data=[[text]], step=step)
        elif hasattr(getattr(self._logger, "experiment", None), "add_text"):
            self._logger.experiment.add_text("sample", text, step)

    def close(self) -> None:
        """Write pending data and close the logger."""
        self._logger.finalize("success")
        if self._finish is not None:
            self._finish()


def _scalars(record: Record) -> Record:
    return {
        f"{record['kind']}/{key}": value
        for key, value in record.items()
        if key not in ("kind", "step") and isinstance(value, int | float) and not isinstance(value, bool)
    }


class _Trackio:
    """Writer for Trackio, for which Lightning has no logger."""

    name = "log='trackio'"

    def __init__(self, run: Path, config: Record) -> None:
        import trackio

        self._trackio: Any = trackio
        trackio.init(project=PROJECT, name=run.name, config=config)

    def add(self, record: Record) -> None:
        if scalars := _scalars(record):
            self._trackio.log({**scalars, "step": record["step"]})

    def close(self) -> None:
        self._trackio.finish()
