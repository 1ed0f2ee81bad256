"""Checkpoints: everything that a run needs to resume, in a folder that is written atomically.

    run/checkpoints/step-000100/model.safetensors      the weights
                                optimizer.safetensors  moments and step counts
                                monitor.safetensors    VAE only: the posteriors that the monitor watches
                                state.json             step, config, fingerprints, checksums of the files above

A sharded run (strategy fsdp) stores weights and optimizer in parts, one per process (see parts.py):

                                model.parts.json       which rows of a weight are in which part
                                model.part-00001-of-00002.safetensors, model.part-00002-of-00002.safetensors
                                optimizer.parts.json, optimizer.part-00001-of-00002.safetensors, ...

At the end of the run the parts of the model are merged into model.safetensors. All readers of checkpoints support both
forms, on any number of devices.

A checkpoint is written to a hidden folder, flushed to disk and renamed. To remove a checkpoint, it is renamed first. So
after a crash at any moment, every checkpoint with a final name is complete. Reading a checkpoint executes no code:
tensors are safetensors, everything else is JSON, and the checksums of both are verified before use.

Checkpoints have no random generator state, because each step seeds the generator from (seed, step, rank).
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from gristmill.errors import CheckpointError, NotFiniteError, warn_user
from gristmill.lm.data.identity import json_checksum
from gristmill.lm.explain import CHECKPOINTS, CONFIG_FILE, STATE_FILE, why_no_run
from gristmill.lm.models.model import Model
from gristmill.lm.models.registry import build_model
from gristmill.lm.option_types import option_fields
from gristmill.lm.training.config import TrainConfig, config_of_run, load_config
from gristmill.lm.training.parts import OpenFiles, index_name, is_in_parts, part_names, stored_tensors
from gristmill.lm.training.size_check import check_sizes, compare_shapes
from gristmill.lm.training.tensor_files import DamagedFileError, check_file, kinds_of, write_tensors
from gristmill.publish import flush_folder, temporary_name
from gristmill.publish import publish as publish_file
from gristmill.small_files import parse_json, read_small_file
from gristmill.trace import spanned

__all__ = ["CheckpointWriter", "find_checkpoint", "list_checkpoints", "load_model", "read_state", "read_tensors"]

FORMAT = "gristmill-checkpoint"
VERSION = 1
VERSION_WITH_PARTS = 2  # so that an older Gristmill reports the version, not damage
MODEL_FILE = "model.safetensors"
TOKENIZER_FILE = "tokenizer.json"
OPTIMIZER_FILE = "optimizer.safetensors"
MONITOR_FILE = "monitor.safetensors"

_NAME = re.compile(r"step-([0-9]{6,})")
_MAX_STATE_BYTES = 1 << 28
_MAX_STATE_ITEMS = 1 << 22


# Writing


def write_checkpoint(run: Path, state: Mapping[str, Any], files: Mapping[str, Mapping[str, Tensor]]) -> Path:
    """Write a checkpoint of `state["step"]` and return its folder. Tensors must be in main memory.

    An existing checkpoint of this step is kept, because steps are deterministic. Raises `NotFiniteError` for weights
    that are not finite: they are useless, and saving them would remove an older checkpoint.
    """
    check_finite(run, state["step"], files.get(MODEL_FILE, {}))
    folder = run / CHECKPOINTS / name_of(state["step"])
    if folder.exists():
        return folder
    temporary = new_hidden_folder(folder)
    try:
        entries = {name: write_tensors(temporary / name, kinds_of(t), t.__getitem__) for name, t in files.items()}
        publish(temporary, folder, {"format": FORMAT, "version": VERSION, **state, "files": entries})
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    return folder


def new_hidden_folder(folder: Path) -> Path:
    """Create and return an empty hidden folder next to `folder`, in which a checkpoint is written."""
    folder.parent.mkdir(exist_ok=True)
    temporary = temporary_name(folder)
    temporary.mkdir()
    return temporary


def publish(temporary: Path, folder: Path, state: Mapping[str, Any]) -> None:
    """Write the state of a checkpoint whose other files are on disk, and rename it to its final name."""
    _write_state(temporary / STATE_FILE, state)
    flush_folder(temporary)
    temporary.rename(folder)
    flush_folder(folder.parent)


def check_finite(run: Path, step: int, weights: Mapping[str, Tensor]) -> None:
    """Raise `NotFiniteError` if a weight is NaN or infinite."""
    if bad := first_not_finite(weights):
        raise NotFiniteError(
            f"the weights of step {step:,} are not finite: {bad!r} contains NaN or infinity. No checkpoint of this "
            f"step was written. {_last_good(run)} Try a lower learning_rate, more warmup_steps, or clip_norm=1."
        )


def first_not_finite(tensors: Mapping[str, Tensor]) -> str | None:
    """Return the name of the first tensor that contains NaN or infinity; None if all are finite.

    Ignores masks of 0 and -inf, which a model may have among its buffers.
    """
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()) and not _is_mask(tensor):
            return name
    return None


def _is_mask(tensor: Tensor) -> bool:
    return bool(((tensor == 0) | (tensor == -math.inf)).all())


def _last_good(run: Path) -> str:
    there = list_checkpoints(run)
    return f"The last good checkpoint is {there[-1].name}." if there else "No checkpoint was saved yet."


def _write_state(path: Path, state: Mapping[str, Any]) -> None:
    with publish_file(path) as file:
        content = {**state, "checksum": json_checksum(state)}
        file.write(json.dumps(content, indent=1, allow_nan=False).encode())  # readers reject NaN


def update_state(folder: Path, changes: Mapping[str, Any]) -> None:
    """Change some values in state.json of a checkpoint, atomically."""
    _write_state(folder / STATE_FILE, {**read_state(folder), **changes})


class CheckpointWriter:
    """Writes checkpoints in a background thread. The run waits only while the tensors are copied.

    `notify` receives messages about damaged older checkpoints, in the thread that calls `write`, `wait` or `close`.
    """

    def __init__(self, run: Path, *, keep: int, notify: Callable[[str], None] | None = None) -> None:
        self._run, self._keep, self._notify = run, keep, notify
        self._damaged: dict[Path, bool] = {}  # damaged older checkpoints, and whether each was reported
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._pending: Future[None] | None = None

    def write(self, state: Mapping[str, Any], files: Mapping[str, Mapping[str, Tensor]]) -> None:
        """Start writing a checkpoint after the previous one is complete. The tensors must be copies."""
        self.wait()
        self._pending = self._pool.submit(self._write, state, files)

    @spanned("write checkpoint")
    def _write(self, state: Mapping[str, Any], files: Mapping[str, Mapping[str, Tensor]]) -> None:
        try:
            self._write_files(state, files)
        except OSError as error:
            error.filename = error.filename or str(self._run)  # the error for a full disk names no file
            raise
        self._prune()

    def _write_files(self, state: Mapping[str, Any], files: Mapping[str, Mapping[str, Tensor]]) -> None:
        write_checkpoint(self._run, state, files)

    def _prune(self) -> None:
        for folder in prune(self._run, keep=self._keep):
            self._damaged.setdefault(folder, False)

    def wait(self) -> None:
        """Wait until all checkpoints are on disk; raise the error of a failed write."""
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()
        for folder in [folder for folder, is_reported in self._damaged.items() if not is_reported]:
            self._damaged[folder] = True
            if self._notify is not None:
                self._notify(f"the checkpoint {folder} is damaged. It is kept but not used. You can remove it.")

    @property
    def has_failed(self) -> bool:
        """Whether a write has failed, so that `wait` would raise immediately."""
        pending = self._pending
        return pending is not None and pending.done() and pending.exception() is not None

    def merge(self) -> None:
        """Merge weights in parts into one file at the end of a run. Here they already are in one file."""

    def close(self) -> None:
        """Wait, and stop the thread."""
        try:
            self.wait()
        finally:
            self._pool.shutdown()


def prune(run: Path, *, keep: int) -> list[Path]:
    """Remove all checkpoints except the latest `keep` and the best; return the damaged ones.

    Damaged checkpoints do not count and are not removed, because the user may want to recover data from them.
    """
    states, damaged = _read_states(list_checkpoints(run))
    best = _best(states)
    for folder in list(states)[:-keep]:
        if folder != best:
            _remove(folder)
    return list(damaged)


def _remove(folder: Path) -> None:
    hidden = folder.with_name(f".{folder.name}.removed.{os.getpid()}")
    folder.rename(hidden)
    shutil.rmtree(hidden, ignore_errors=True)


# Merging parts into one file


def merge_model(folder: Path) -> bool:
    """Merge the parts of the weights of a checkpoint into model.safetensors; return whether there were any.

    Only one tensor at a time is in memory. After a crash, state.json names either the parts or the merged file.
    """
    state = read_state(folder)
    if not is_in_parts(MODEL_FILE, state["files"]):
        _remove_parts(folder)
        return False
    temporary = temporary_name(folder / MODEL_FILE)
    try:
        with damaged_files():
            stored = stored_tensors(folder, MODEL_FILE, checked_files(folder, MODEL_FILE, state))
            with OpenFiles(folder) as files:
                kinds = {name: each.kind for name, each in stored.items()}
                entry = write_tensors(temporary, kinds, lambda name: files.whole(name, stored[name]))
        temporary.rename(folder / MODEL_FILE)
    finally:
        temporary.unlink(missing_ok=True)
    parts = [index_name(MODEL_FILE), *part_names(MODEL_FILE, state["files"])]
    others = {name: there for name, there in state["files"].items() if name not in parts}
    update_state(folder, {"files": {MODEL_FILE: entry, **others}})
    _remove_parts(folder)
    return True


def _remove_parts(folder: Path) -> None:
    """Remove the parts of merged weights. A killed merge may have left some."""
    there = [path.name for path in folder.iterdir()]
    for name in part_names(MODEL_FILE, dict.fromkeys(there)):
        (folder / name).unlink(missing_ok=True)
    (folder / index_name(MODEL_FILE)).unlink(missing_ok=True)


# Finding


def list_checkpoints(run: Path) -> list[Path]:
    """Return the checkpoint folders of a run, the latest last."""
    there = (run / CHECKPOINTS).iterdir() if (run / CHECKPOINTS).is_dir() else ()
    return sorted((folder for folder in there if _NAME.fullmatch(folder.name) and folder.is_dir()), key=step_of)


def step_of(folder: Path) -> int:
    """Return the step in the name of a checkpoint."""
    return int(folder.name.removeprefix("step-"))


def name_of(step: int) -> str:
    """Return the name of the checkpoint of a step.

    >>> name_of(100)
    'step-000100'
    """
    return f"step-{step:06d}"


def find_checkpoint(run: Path, which: str = "latest") -> Path:
    """Return the "latest" checkpoint of a run, the "best" by validation loss, or one by name, such as "step-000100".

    "best" skips damaged checkpoints with a warning, as long as there is another. "latest" and a name are not checked
    for damage; reading a damaged checkpoint raises `CheckpointError`.
    """
    folders = list_checkpoints(run)
    if not folders:
        raise CheckpointError(why_no_run(Path(run)))
    if which == "latest":
        return folders[-1]
    if which == "best":
        return _find_best(folders)
    for folder in folders:
        if folder.name == which:
            return folder
    there = ", ".join(folder.name for folder in folders)
    raise CheckpointError(f"{run}: has no checkpoint {which!r}. Pass 'latest', 'best', or one of {there}.")


def _find_best(folders: list[Path]) -> Path:
    states, damaged = _read_states(folders)
    if not states:
        raise damaged.get(folders[-1]) or CheckpointError(why_no_run(folders[0].parent.parent))
    best = _best(states) or list(states)[-1]
    if damaged:
        names = ", ".join(folder.name for folder in damaged)
        warn_user(f"{folders[0].parent}: skipped damaged checkpoints: {names}. Using {best.name}.", UserWarning)
    return best


def _read_states(folders: list[Path]) -> tuple[dict[Path, dict[str, Any]], dict[Path, CheckpointError]]:
    """Return (states of the readable checkpoints, errors of the others), in the order of `folders`."""
    states, damaged = {}, {}
    for folder in folders:
        try:
            states[folder] = read_state(folder)
        except CheckpointError as error:
            if folder.exists():  # otherwise the run has removed it in the meantime and has newer ones
                damaged[folder] = error
        except OSError as error:
            damaged[folder] = damage_error(folder / STATE_FILE, f"cannot be read ({error.strerror})")
    return states, damaged


def _best(states: Mapping[Path, Mapping[str, Any]]) -> Path | None:
    """Return the checkpoint with the lowest loss among those validated on the same sequences as the newest."""
    validated = {folder: state for folder, state in states.items() if state.get("val_loss") is not None}
    newest: Mapping[str, Any] = next(reversed(validated.values()), {})
    losses = {folder: state["val_loss"] for folder, state in validated.items() if _same_subset(state, newest)}
    return min(losses, key=lambda folder: float(losses[folder]), default=None)


def _same_subset(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether two checkpoints were validated on the same sequences. Version 0.1 did not save their number."""
    sizes = [state.get("val_sequences") for state in (one, other)]
    limits = [(state.get("config") or {}).get("limit_val_batches") for state in (one, other)]
    return bool(limits[0] == limits[1] if None in sizes else sizes[0] == sizes[1])


# Reading


def read_state(folder: Path) -> dict[str, Any]:
    """Return the verified content of state.json of a checkpoint; raise `CheckpointError` if it is damaged."""
    path = folder / STATE_FILE
    try:
        data = read_small_file(
            path, what="the state of a checkpoint", max_bytes=_MAX_STATE_BYTES, error=CheckpointError
        )
        state = parse_json(data, error=CheckpointError, max_items=_MAX_STATE_ITEMS)
    except FileNotFoundError:
        raise damage_error(path, "missing") from None
    except CheckpointError as error:
        raise damage_error(path, str(error).removeprefix(f"{path}: ").removesuffix(".")) from None
    if not isinstance(state, dict) or state.get("format") != FORMAT:
        raise damage_error(path, f'not the state of a checkpoint (no "format": "{FORMAT}")')
    if state.get("version") not in (VERSION, VERSION_WITH_PARTS):
        raise CheckpointError(
            f"{path}: unsupported version {state.get('version')!r:.80}. This Gristmill reads versions {VERSION} and "
            f"{VERSION_WITH_PARTS}. Use a newer Gristmill."
        )
    if state.pop("checksum", None) != json_checksum(state):
        raise damage_error(path, "checksum mismatch")
    if wrong := _wrong_entry(state):
        raise damage_error(path, wrong)
    if state["step"] != step_of(folder):
        raise damage_error(path, f"has step {state['step']!r}, but the folder is of step {step_of(folder)}")
    return state


_FILE_NAME = re.compile(r"\w[\w.-]{0,254}", re.ASCII)
# Types of the entries that are not missing and not null. A checksum protects a state from damage, not from forgery.
_NUMBER = (int, float)
_TYPES: dict[str, tuple[type, ...]] = {
    **{"step": (int,), "files": (dict,), "config": (dict,), "shards": (dict,), "num_tokens": (int,)},
    **{"val_loss": _NUMBER, "best_val_loss": _NUMBER, "seconds": _NUMBER, "val_sequences": (int,)},
    **{"pending": (dict,), "optimizer": (dict,), "scaler": (dict,), "monitor": (dict,), "float8": (dict,)},
}


def _wrong_entry(state: Mapping[str, Any]) -> str | None:
    """Return what is wrong with the structure of a state; None if nothing is."""
    for name, types in _TYPES.items():
        value = state.get(name)
        if (value is None and name in ("step", "files")) or type(value) not in (*types, type(None)):
            return f"{name} is {value!r:.80}"
    for name, entry in state["files"].items():
        if not _FILE_NAME.fullmatch(name):
            return f"names {name!r:.80}, which is not a file in this folder"
        if not isinstance(entry, dict) or type(entry.get("bytes")) is not int or type(entry.get("xxh64")) is not str:
            return f"the entry of {name!r:.80} has no size or no checksum"
    return None


def read_tensors(folder: Path, name: str, state: Mapping[str, Any], *, device: str = "cpu") -> dict[str, Tensor]:
    """Return the tensors of a file of a checkpoint, or of its parts, after verifying sizes and checksums."""
    with damaged_files():
        stored = stored_tensors(folder, name, checked_files(folder, name, state))
        with OpenFiles(folder) as files:
            return {key: files.whole(key, each).to(device) for key, each in stored.items()}


def checked_files(
    folder: Path, name: str, state: Mapping[str, Any], *, is_mine: Callable[[int], bool] = lambda number: True
) -> Mapping[str, Any]:
    """Verify the checksums of the files of `name`, and return all files of the checkpoint.

    Raises `DamagedFileError`, which names the damaged file.

    is_mine: which files to verify, by number, if several processes divide the work.
    """
    files: Mapping[str, Any] = state["files"]
    in_parts = is_in_parts(name, files)
    names = [index_name(name), *part_names(name, files)] if in_parts else [name]
    if name not in files and not in_parts:
        raise DamagedFileError(folder / STATE_FILE, f"does not list {name}")
    for number, file in enumerate(names):
        if is_mine(number):
            check_file(folder / file, files[file])
    return files


@contextlib.contextmanager
def damaged_files() -> Iterator[None]:
    """Convert `DamagedFileError` in the block to a `CheckpointError` that names the previous checkpoint."""
    try:
        yield
    except DamagedFileError as error:
        raise damage_error(error.path, error.what) from None


def damage_error(path: Path, what: str) -> CheckpointError:
    """Return the error for a damaged file of a checkpoint, with advice."""
    folder = path.parent
    before = [other.name for other in list_checkpoints(folder.parent.parent) if step_of(other) < step_of(folder)]
    if before:
        advice = f"Remove {folder} to use the previous one, {before[-1]}. Later steps are then computed again."
    else:
        advice = f"There is no earlier checkpoint: remove {folder} and start the run again."
    return CheckpointError(f"{path}: {what}: the checkpoint is damaged. {advice}")


def load_weights(model: nn.Module, tensors: Mapping[str, Tensor], source: Path) -> None:
    """Copy the tensors to the model; raise `CheckpointError` for the first that does not fit."""
    needed = model.state_dict()
    compare_shapes(needed, tensors, source)
    with torch.no_grad():
        for name, tensor in tensors.items():
            needed[name].copy_(divided_like(needed[name], tensor))


def divided_like(weight: Tensor | None, tensor: Tensor) -> Tensor:
    """Return a whole tensor sharded like `weight` (a DTensor), or unchanged if `weight` is not sharded."""
    if not hasattr(weight, "device_mesh") or weight is None or weight.shape != tensor.shape:
        return tensor
    from torch.distributed.tensor import distribute_tensor

    # Without a source rank, each rank takes its rows from its own copy, and nothing is sent.
    return distribute_tensor(tensor.to(weight.device), weight.device_mesh, weight.placements, src_data_rank=None)  # type: ignore[attr-defined]


@spanned("load model")
def load_model(
    run: str | os.PathLike[str], *, which: str = "best", device: str | torch.device = "cpu"
) -> tuple[Model, TrainConfig]:
    """Return the model of a run with the weights of a checkpoint, in evaluation mode, and its config.

    Raises `CheckpointError` if model and weights do not fit. Sizes are compared before a model is built, so an edited
    config.json cannot use more memory than the weights in the file.
    """
    folder = find_checkpoint(Path(run), which)
    config, state = load_config(Path(run)), read_state(folder)
    _check_same_model(Path(run) / CONFIG_FILE, config, state.get("config"), folder)
    weights = read_tensors(folder, MODEL_FILE, state)
    if bad := first_not_finite(weights):
        raise CheckpointError(
            f"{folder / MODEL_FILE}: the weights are not finite: {bad!r} contains NaN or infinity. The run had "
            f"diverged. {_others(folder)}"
        )
    check_sizes(lambda: build_model(config.model), weights, folder / MODEL_FILE)
    model = build_model(config.model)
    load_weights(model, weights, folder / MODEL_FILE)
    return model.to(device).eval(), config


def _check_same_model(path: Path, config: TrainConfig, recorded: Any, folder: Path) -> None:
    """Compare config.json with the checkpoint. Options such as rope_theta do not change the shape of any weight."""
    if recorded is None:  # the shapes of the weights are still compared
        return
    try:
        there = model_options(config_of_run(recorded, source=str(folder / STATE_FILE)))
    except (ValueError, TypeError, AttributeError, OverflowError) as error:
        raise damage_error(folder / STATE_FILE, f"invalid config ({error})") from None
    here = model_options(config)
    changed = [
        f"{name} was {there.get(name)!r} and is now {here.get(name)!r}"
        for name in {**there, **here}
        if there.get(name) != here.get(name)
    ]
    if changed:
        raise CheckpointError(
            f"{path}: does not describe the model of {folder.name}: {'; '.join(changed)}. The file was edited, or "
            f"belongs to another run. Restore the old values. A model with other options needs a new run."
        )


def _others(folder: Path) -> str:
    others = [other.name for other in list_checkpoints(folder.parent.parent) if other != folder]
    return f"Use another checkpoint: {', '.join(others)}." if others else "There is no other checkpoint: train again."


def model_options(config: TrainConfig) -> dict[str, Any]:
    """Return the options that define the model: its name, and the model options that must not change."""
    kind = type(config.model)
    names = option_fields(kind).keys() - kind.DATA_FREE - kind.FREE_OPTIONS
    return {"model": kind.name} | {name: getattr(config.model, name) for name in option_fields(kind) if name in names}
