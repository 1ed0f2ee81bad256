"""The folder of a run: checks before a run starts in it, its lock, and the files written before the first step."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import platform
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from gristmill.errors import CheckpointError, OptionError
from gristmill.lm.data.chat_jinja import CHAT_TEMPLATE_FILE
from gristmill.lm.explain import CHECKPOINTS, CONFIG_FILE, REPLACED_FOLDER, has_foreign_weights, why_no_run
from gristmill.lm.training.checkpoint import TOKENIZER_FILE, list_checkpoints
from gristmill.lm.training.config import TrainConfig
from gristmill.lm.training.launchers import num_restarts
from gristmill.lm.training.meters import device_name
from gristmill.lm.training.pretrained import is_pretrained
from gristmill.lm.training.records import METRICS_FILE
from gristmill.lm.training.replacing import ASIDE_FOLDER, MACHINE_FILE, PLOT_FOLDER, put_back, remove_entry
from gristmill.lm.training.run_lock import holder_of, in_use, locked, seen_lock
from gristmill.posterior.drawing import FIGURES_FILE, PICTURE_FILE
from gristmill.publish import publish
from gristmill.shards.manifest import MANIFEST_FILE

if TYPE_CHECKING:
    from lightning_fabric import Fabric

    from gristmill.encode.tokenizer import Tokenizer

__all__ = ["check_folder", "check_shared", "claimed", "write_description"]

# On a network file system, a new file may become visible to other machines only after half a minute.
SHARED_SECONDS = 60.0


def check_folder(
    run: Path, *, resume: str, overwrite: bool, init_from: str | None = None, is_locked: bool = False
) -> None:
    """Raise if a run cannot start in this folder, for example because it has a run to keep. Changes nothing.

    is_locked: this process already holds the lock of the folder.
    """
    if resume not in ("never", "auto"):
        raise OptionError(f"resume={resume!r} is not valid. Pass 'auto' to resume an existing run, or 'never'.")
    if not isinstance(overwrite, bool):
        raise OptionError(f"overwrite={overwrite!r} is of type {type(overwrite).__name__}. Pass True or False.")
    if resume == "auto" and overwrite:
        raise OptionError(
            "resume and overwrite exclude each other: resume continues the existing run, overwrite replaces it. Pass "
            "one of them."
        )
    if overwrite and init_from is not None and run.exists() and Path(init_from).resolve() == run.resolve():
        raise OptionError(
            f"init_from={str(init_from)!r} is the run that overwrite=True replaces. If the new run were interrupted "
            f"before its first checkpoint, no weights would be left. Pass another folder for the new run."
        )
    found = list_checkpoints(run)
    if overwrite and found and num_restarts():
        raise OptionError(
            f"overwrite=True: torchrun has restarted the processes after a failure, and {run} has checkpoints "
            f"({found[-1].name}), possibly from the previous attempt. They are kept. To resume from them, start "
            f"torchrun again with resume='auto' and without overwrite=True."
        )
    if resume == "never" and not overwrite and found:
        if not is_locked and (holder := holder_of(run)) is not None:
            raise in_use(run, holder)
        raise FileExistsError(
            errno.EEXIST,
            f"Already contains a run (last checkpoint: {found[-1].name}). Pass resume='auto' to resume it, "
            f"overwrite=True to replace it, or another folder",
            str(run),
        )
    if run.is_symlink():
        raise FileExistsError(errno.EEXIST, "Is a symbolic link, which is not followed. Pass a folder", str(run))
    _check_no_links(run)
    if run.exists() and not run.is_dir():
        raise FileExistsError(errno.EEXIST, "Is a file, but a run needs a folder. Pass another path", str(run))
    if (run / MANIFEST_FILE).exists():  # a run would overwrite tokenizer.json of the shards
        raise FileExistsError(errno.EEXIST, "Contains token shards. Pass another folder for the run", str(run))
    if has_foreign_weights(run):  # a run would overwrite config.json and tokenizer.json, which the weights need
        raise FileExistsError(errno.EEXIST, "Contains a Hugging Face model. Pass another folder for the run", str(run))
    if run.exists() and not os.access(run, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, "No permission to write in this folder. Pass another folder", str(run))
    if init_from is not None and not (resume == "auto" and (found or (run / REPLACED_FOLDER).is_dir())):
        _check_base(Path(init_from))


def _check_no_links(run: Path) -> None:
    """Raise if a folder inside of the run is a link: files of another folder would be moved, replaced or removed."""
    for name in (CHECKPOINTS, PLOT_FOLDER, REPLACED_FOLDER, ASIDE_FOLDER):
        if (run / name).is_symlink():
            message = "Is a symbolic link, which is not followed. Remove it, or pass another folder for the run"
            raise FileExistsError(errno.EEXIST, message, str(run / name))


def _check_base(folder: Path) -> None:
    """Raise `CheckpointError` if there are no weights to start from, before the data is read."""
    if not is_pretrained(folder) and not list_checkpoints(folder):
        raise CheckpointError(why_no_run(folder))


@contextlib.contextmanager
def claimed(run: Path, *, resume: str, overwrite: bool, world: str = "") -> Iterator[None]:
    """Lock the folder of a run for this process within the block. Creates the folder if it is missing.

    Only the first process of a run calls this, before it changes anything in the folder. This is the only place that
    cleans up after killed processes, because here no other process can be using the folder.
    """
    with locked(run, world=world) as is_exclusive:
        _check_no_links(run)
        put_back(run)  # the run that an interrupted overwrite=True would have replaced
        check_folder(run, resume=resume, overwrite=overwrite, is_locked=True)
        if is_exclusive:
            remove_leftovers(run)
        yield


def check_shared(run: Path, fabric: Fabric) -> None:
    """Raise `OptionError` in a process on another machine that does not see the folder locked by the first process.

    Without this check, the other processes would fail only when they read the folder, possibly at the end of the run.
    Collective.
    """
    first = fabric.broadcast(seen_lock(run))
    deadline = time.monotonic() + SHARED_SECONDS
    while seen_lock(run) != first:
        if time.monotonic() > deadline:
            raise OptionError(
                f"{run}: on {socket.gethostname()} (rank {fabric.global_rank}) this is not the folder that the first "
                f"process writes to. All machines of a run need the same folder. Pass a folder on a shared disk."
            )
        time.sleep(0.1)


def remove_leftovers(run: Path) -> None:
    """Remove the temporary files of killed runs. The caller holds the lock of the folder."""
    published = (METRICS_FILE, CONFIG_FILE, MACHINE_FILE, TOKENIZER_FILE, CHAT_TEMPLATE_FILE)
    drawn = (f"{PLOT_FOLDER}/.{name}.tmp.*" for name in (FIGURES_FILE, PICTURE_FILE))
    saved = (f"{CHECKPOINTS}/.step-*", f"{CHECKPOINTS}/step-*/.*.tmp.*")
    for pattern in (*(f".{name}.tmp.*" for name in published), *drawn, *saved, ".removed.*"):
        for leftover in run.glob(pattern):
            remove_entry(leftover)


def write_description(
    run: Path,
    config: TrainConfig,
    tokenizer: Tokenizer | None,
    machine: dict[str, Any],
    *,
    chat_template: str | None = None,
) -> None:
    """Write config.json, machine.json, and the tokenizer and chat template if the run has them."""
    if tokenizer is not None:
        tokenizer.save(run / TOKENIZER_FILE, overwrite=True)
    if chat_template is not None:
        with publish(run / CHAT_TEMPLATE_FILE) as file:
            file.write(chat_template.encode())
    for name, content in ((CONFIG_FILE, config.to_json()), (MACHINE_FILE, machine)):
        with publish(run / name) as file:
            file.write(json.dumps(content, indent=1).encode() + b"\n")


def describe_machine(device: torch.device, *, world_size: int) -> dict[str, Any]:
    """Return the hardware and software versions of this machine."""
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
