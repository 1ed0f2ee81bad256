"""The folder of a run: what is written there before the first step, and whether a run may begin in it."""

from __future__ import annotations

import errno
import json
import os
import platform
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from gristmill.errors import OptionError
from gristmill.lm.explain import CHECKPOINTS, CONFIG_FILE
from gristmill.lm.training.checkpoint import list_checkpoints
from gristmill.lm.training.config import TrainConfig
from gristmill.lm.training.meters import device_name
from gristmill.lm.training.records import METRICS_FILE
from gristmill.posterior.drawing import FIGURES_FILE, PICTURE_FILE
from gristmill.publish import publish
from gristmill.shards.manifest import MANIFEST_FILE

if TYPE_CHECKING:
    from gristmill.encode.tokenizer import Tokenizer

__all__ = ["check_folder", "make_folder", "write_description"]

MACHINE_FILE = "machine.json"
TOKENIZER_FILE = "tokenizer.json"


def check_folder(run: Path, *, resume: str, overwrite: bool) -> None:
    """Refuse a folder with a run in it, unless it is to go on or to be replaced. Nothing is changed yet."""
    if resume not in ("never", "auto"):
        raise OptionError(f"resume={resume!r} is not known. Pass 'auto' to go on with what is there, or 'never'.")
    if resume == "auto" and overwrite:
        raise OptionError(
            "resume and overwrite exclude each other: one keeps the run that is there, the other does not."
        )
    if resume == "never" and not overwrite and (found := list_checkpoints(run)):
        raise FileExistsError(
            errno.EEXIST,
            f"Holds a run already (its last checkpoint is {found[-1].name}). Pass resume='auto' to resume it, "
            f"overwrite=True to start again, or another folder",
            str(run),
        )
    if run.exists() and not run.is_dir():
        raise FileExistsError(errno.EEXIST, "Is a file, and a run needs a folder. Pass another one", str(run))
    if (run / MANIFEST_FILE).exists():  # a run would write its own tokenizer.json over that of the shards
        raise FileExistsError(errno.EEXIST, "Holds token shards, and a run needs a folder of its own", str(run))
    if run.exists() and not os.access(run, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, "No permission to write in this folder", str(run))


def make_folder(run: Path, *, overwrite: bool) -> None:
    """Make the folder, without the run that is in it, if that is to be replaced."""
    run.mkdir(parents=True, exist_ok=True)
    if overwrite:
        _remove_run(run)


def _remove_run(run: Path) -> None:
    shutil.rmtree(run / CHECKPOINTS, ignore_errors=True)
    plots = (f"plots/{name}" for name in (FIGURES_FILE, PICTURE_FILE))
    for name in (METRICS_FILE, CONFIG_FILE, MACHINE_FILE, TOKENIZER_FILE, *plots):
        (run / name).unlink(missing_ok=True)


def write_description(run: Path, config: TrainConfig, tokenizer: Tokenizer | None, machine: dict[str, Any]) -> None:
    """Write config.json, machine.json and the tokenizer, if there is one."""
    if tokenizer is not None:
        tokenizer.save(run / TOKENIZER_FILE, overwrite=True)
    for name, content in ((CONFIG_FILE, config.to_json()), (MACHINE_FILE, machine)):
        with publish(run / name) as file:
            file.write(json.dumps(content, indent=1).encode() + b"\n")


def describe_machine(device: torch.device, *, world_size: int) -> dict[str, Any]:
    """What the run is computed on."""
    from gristmill.version import __version__

    return {
        "device": device_name(device),
        "num_devices": world_size,
        "processor": platform.processor() or platform.machine(),
        "num_threads": torch.get_num_threads(),
        "system": platform.platform(),
        "python": sys.version.split()[0],
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "gristmill": __version__,
    }
