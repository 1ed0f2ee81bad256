"""Writers: the numbers of metrics.jsonl shown elsewhere, by loggers of Lightning or by Trackio.

`log` names one that lives in the folder of the run; `loggers` of `train` are objects of Lightning's own classes, or of
any class with their methods. Nothing reaches the network unless the user chose a logger that uses it.

    tensorboard   run/tensorboard/       the same event files, continued when the run is resumed
    csv           run/csv/metrics.csv    written again from metrics.jsonl when the run is resumed
    wandb         run/wandb/             the same run of Weights & Biases, by the id in run/wandb_id.txt
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
# What a run calls of a logger.
LOGGER_METHODS = ("log_metrics", "log_hyperparams", "save", "finalize")
# What the loggers by name leave in the folder of a run.
LOGGER_FILES = ("tensorboard", "csv", "wandb", WANDB_ID_FILE)


class Writer(Protocol):
    """Where numbers are shown besides metrics.jsonl."""

    name: str  # what messages call it

    def add(self, record: Record) -> None:
        """Show a record."""

    def close(self) -> None:
        """The run is over."""


def open_writer(name: str, run: Path, config: Record, *, up_to_step: int = -1) -> Writer | None:
    """The writer that `log` names, "none" for none; a resumed run continues after `up_to_step`."""
    if name == "none":
        return None
    check_writer(name)
    with _installed(name):
        if name == "trackio":
            return _Trackio(run, config)
        return {"tensorboard": _tensorboard, "csv": _csv, "wandb": _wandb}[name](run, config, up_to_step)


def check_writer(name: str) -> None:
    """Raise `MissingPackageError` where the package of the writer is not installed. Nothing is written."""
    if name in _MODULES:
        with _installed(name):
            importlib.import_module(_MODULES[name])


def check_loggers(loggers: Any) -> list[Any]:
    """The loggers that are passed, as a list; `TypeError` for one that has not the methods of Lightning's."""
    given = list(loggers) if isinstance(loggers, Sequence) and not isinstance(loggers, str) else [loggers]
    for logger in given:
        missing = [name for name in LOGGER_METHODS if not hasattr(logger, name)]
        if missing or isinstance(logger, type):
            what = f"the class {logger.__name__}" if isinstance(logger, type) else f"a {type(logger).__name__}"
            advice = " For a logger by its name, pass log='csv'." if isinstance(logger, str) else ""
            raise TypeError(
                f"loggers holds {what}, which is no logger of Lightning. Pass objects such as "
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

    # What TensorBoard has of later steps is dropped: the resumed run writes it again.
    resumed = {"purge_step": up_to_step + 1} if up_to_step >= 0 else {}
    logger = TensorBoardLogger(run, name="tensorboard", version="", **resumed)
    return LightningWriter(logger, config, name="log='tensorboard'", is_resumed=up_to_step >= 0)


def _csv(run: Path, config: Record, up_to_step: int) -> Writer:
    from lightning_fabric.loggers import CSVLogger

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that the file of a resumed run is written again, which is meant
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
    """A logger with the methods of Lightning's."""

    def __init__(
        self, logger: Any, config: Record, *, name: str = "", is_resumed: bool = False, finish: Any = None
    ) -> None:
        """Log the options of the run as its hyperparameters, unless a resumed run has logged them already.

        finish: what ends a logger that was opened here, after it is finalized.
        """
        self.name = name or f"the logger {type(logger).__name__}"
        self._logger, self._finish = logger, finish
        if not is_resumed:
            with contextlib.suppress(NotImplementedError):  # a CSV file of Fabric has no place for them
                logger.log_hyperparams(config)

    def add(self, record: Record) -> None:
        """Log the numbers of a record, and a sample as text where the logger has a way."""
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
        """Write what is left."""
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
    """Trackio, for which Lightning has no class."""

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
