"""Checkpoints: all that a run needs to resume, in a folder that is there whole or not at all.

    run/checkpoints/step-000100/model.safetensors      the weights
                                optimizer.safetensors  moments and step counts
                                monitor.safetensors    of a VAE: the posteriors that are being looked at
                                state.json             step, config, fingerprints, checksums of the files above

A sharded run (strategy fsdp) has weights and optimizer in parts, one per process, which parts.py describes:

                                model.parts.json       which rows of a weight are in which part
                                model.part-00001-of-00002.safetensors, model.part-00002-of-00002.safetensors
                                optimizer.parts.json, optimizer.part-00001-of-00002.safetensors, ...

At the end of the run the parts of the model become model.safetensors. Everything that reads a checkpoint reads both
forms, on any number of devices.

A checkpoint is written to a hidden folder, flushed to the disk and renamed; one that is removed is renamed first. A
crash at any moment leaves only whole ones under their names. Nothing in them is executed: tensors are safetensors,
everything else is JSON, and both are checked against their checksums before they are used.

There is no state of a random generator in them: each step seeds it by (seed, step, rank).
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
from gristmill.lm.training.tensor_files import DamagedFileError, check_file, flush, kinds_of, write_tensors
from gristmill.publish import flush_folder
from gristmill.small_files import parse_json, read_small_file

__all__ = ["CheckpointWriter", "find_checkpoint", "list_checkpoints", "load_model", "read_state", "read_tensors"]

FORMAT = "gristmill-checkpoint"
VERSION = 1
VERSION_WITH_PARTS = 2  # an older Gristmill refuses it instead of calling it damaged
MODEL_FILE = "model.safetensors"
TOKENIZER_FILE = "tokenizer.json"
OPTIMIZER_FILE = "optimizer.safetensors"
MONITOR_FILE = "monitor.safetensors"

_NAME = re.compile(r"step-([0-9]{6,})")
_MAX_STATE_BYTES = 1 << 28


# Writing


def write_checkpoint(run: Path, state: Mapping[str, Any], files: Mapping[str, Mapping[str, Tensor]]) -> Path:
    """Write a checkpoint of `state["step"]` and return its folder. Tensors must lie in main memory.

    One that is already there for this step is left as it is: a step has only one outcome. Weights that are not finite
    are `NotFiniteError`: nothing could be made of them, and an older checkpoint would be removed for them.
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
    """An empty folder beside `folder`, in which a checkpoint is written before it gets its name."""
    folder.parent.mkdir(exist_ok=True)
    temporary = folder.with_name(f".{folder.name}.tmp.{os.getpid()}")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    return temporary


def publish(temporary: Path, folder: Path, state: Mapping[str, Any]) -> None:
    """Write the state of a checkpoint whose other files are on the disk, and give it its name."""
    _write_state(temporary / STATE_FILE, state)
    flush_folder(temporary)
    temporary.rename(folder)
    flush_folder(folder.parent)


def check_finite(run: Path, step: int, weights: Mapping[str, Tensor]) -> None:
    """Raise `NotFiniteError` for weights that hold NaN or infinity."""
    if bad := first_not_finite(weights):
        raise NotFiniteError(
            f"the weights of step {step:,} are not finite: {bad!r} holds NaN or infinity. No checkpoint of them was "
            f"written. {_last_good(run)} What helps: a lower learning_rate, more warmup_steps, clip_norm=1."
        )


def first_not_finite(tensors: Mapping[str, Tensor]) -> str | None:
    """The name of the first tensor that holds NaN or infinity; None if all are finite.

    A mask of 0 and -inf, which a model may have among its buffers, passes.
    """
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()) and not _is_mask(tensor):
            return name
    return None


def _is_mask(tensor: Tensor) -> bool:
    return bool(((tensor == 0) | (tensor == -math.inf)).all())


def _last_good(run: Path) -> str:
    there = list_checkpoints(run)
    return f"The last good checkpoint is {there[-1].name}." if there else "There was no checkpoint yet."


def _write_state(path: Path, state: Mapping[str, Any]) -> None:
    content = {**state, "checksum": json_checksum(state)}
    body = json.dumps(content, indent=1, allow_nan=False).encode()  # with NaN in it, it could not be read again
    with path.open("wb") as file:
        file.write(body)
        flush(file)


def update_state(folder: Path, changes: Mapping[str, Any]) -> None:
    """Change some values in state.json of a checkpoint, whole or not at all."""
    state = {**read_state(folder), **changes}
    temporary = folder / f".{STATE_FILE}.tmp.{os.getpid()}"
    _write_state(temporary, state)
    temporary.replace(folder / STATE_FILE)
    flush_folder(folder)


class CheckpointWriter:
    """Writes checkpoints in a thread of its own: the run waits only while the tensors are copied.

    `tell` gets what a person should know about older checkpoints, in the thread that calls `write`, `wait` or `close`.
    """

    def __init__(self, run: Path, *, keep: int, tell: Callable[[str], None] | None = None) -> None:
        self._run, self._keep, self._tell = run, keep, tell
        self._damaged: dict[Path, bool] = {}  # older checkpoints that cannot be read, and whether that was reported
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._pending: Future[None] | None = None

    def write(self, state: Mapping[str, Any], files: Mapping[str, Mapping[str, Tensor]]) -> None:
        """Begin to write one, after the one before is done. The tensors must be copies."""
        self.wait()
        self._pending = self._pool.submit(self._write, state, files)

    def _write(self, state: Mapping[str, Any], files: Mapping[str, Mapping[str, Tensor]]) -> None:
        try:
            self._write_files(state, files)
        except OSError as error:
            error.filename = error.filename or str(self._run)  # the error of a full disk names no file
            raise
        self._prune()

    def _write_files(self, state: Mapping[str, Any], files: Mapping[str, Mapping[str, Tensor]]) -> None:
        write_checkpoint(self._run, state, files)

    def _prune(self) -> None:
        for folder in prune(self._run, keep=self._keep):
            self._damaged.setdefault(folder, False)

    def wait(self) -> None:
        """Return when all are on the disk; raise what went wrong with them."""
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()
        for folder in [folder for folder, is_reported in self._damaged.items() if not is_reported]:
            self._damaged[folder] = True
            if self._tell is not None:
                self._tell(f"the checkpoint {folder} is damaged. It is kept, but not used; remove it if you like.")

    @property
    def has_failed(self) -> bool:
        """Whether `wait` would raise at once."""
        pending = self._pending
        return pending is not None and pending.done() and pending.exception() is not None

    def merge(self) -> None:
        """At the end of a run: put weights that are in parts into one file. Here they are."""

    def close(self) -> None:
        """Wait, and end the thread."""
        try:
            self.wait()
        finally:
            self._pool.shutdown()


def prune(run: Path, *, keep: int) -> list[Path]:
    """Remove all checkpoints but the latest `keep` and the best one; return those that are damaged.

    A damaged one does not count, and is left alone: its user may want to save what can be saved.
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


# Parts that become one file


def merge_model(folder: Path) -> bool:
    """Write the parts of the weights of a checkpoint as model.safetensors and remove them; whether there were any.

    One tensor at a time is in memory. A crash leaves the parts, or the one file, and state.json names what is there.
    """
    state = read_state(folder)
    if not is_in_parts(MODEL_FILE, state["files"]):
        _remove_parts(folder)
        return False
    temporary = folder / f".{MODEL_FILE}.tmp.{os.getpid()}"
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
    """Remove the parts of weights that are in one file; a merge that was killed may have left some."""
    there = [path.name for path in folder.iterdir()]
    for name in part_names(MODEL_FILE, dict.fromkeys(there)):
        (folder / name).unlink(missing_ok=True)
    (folder / index_name(MODEL_FILE)).unlink(missing_ok=True)


# Finding


def list_checkpoints(run: Path) -> list[Path]:
    """The folders of the checkpoints of a run, the latest last."""
    there = (run / CHECKPOINTS).iterdir() if (run / CHECKPOINTS).is_dir() else ()
    return sorted((folder for folder in there if _NAME.fullmatch(folder.name) and folder.is_dir()), key=step_of)


def step_of(folder: Path) -> int:
    """The step in the name of a checkpoint."""
    return int(folder.name.removeprefix("step-"))


def name_of(step: int) -> str:
    """The name of the checkpoint of a step.

    >>> name_of(100)
    'step-000100'
    """
    return f"step-{step:06d}"


def find_checkpoint(run: Path, which: str = "latest") -> Path:
    """The "latest" checkpoint of a run, the "best" by validation loss, or one by its name, such as "step-000100".

    "best" passes over damaged checkpoints with a warning, as long as there is another: they were never compared.
    "latest" and a name are given as they are asked for; reading a damaged one is `CheckpointError`.
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
    raise CheckpointError(f"{run}: there is no checkpoint {which!r}. Pass 'latest', 'best', or one of {there}.")


def _find_best(folders: list[Path]) -> Path:
    states, damaged = _read_states(folders)
    if not states:
        raise damaged.get(folders[-1]) or CheckpointError(why_no_run(folders[0].parent.parent))
    best = _best(states) or list(states)[-1]
    if damaged:
        names = ", ".join(folder.name for folder in damaged)
        warn_user(f"{folders[0].parent}: damaged, and passed over: {names}. {best.name} is used.", UserWarning)
    return best


def _read_states(folders: list[Path]) -> tuple[dict[Path, dict[str, Any]], dict[Path, CheckpointError]]:
    """The states of the checkpoints that can be read, and what is wrong with the others, in the order of `folders`."""
    states, damaged = {}, {}
    for folder in folders:
        try:
            states[folder] = read_state(folder)
        except CheckpointError as error:
            if folder.exists():  # otherwise the run has removed it meanwhile: there are newer ones
                damaged[folder] = error
        except OSError as error:
            damaged[folder] = damage_error(folder / STATE_FILE, f"it cannot be read ({error.strerror})")
    return states, damaged


def _best(states: Mapping[Path, Mapping[str, Any]]) -> Path | None:
    """The checkpoint with the least loss among those that were validated on the same sequences as the newest."""
    validated = {folder: state for folder, state in states.items() if state.get("val_loss") is not None}
    newest: Mapping[str, Any] = next(reversed(validated.values()), {})
    losses = {folder: state["val_loss"] for folder, state in validated.items() if _same_subset(state, newest)}
    return min(losses, key=lambda folder: float(losses[folder]), default=None)


def _same_subset(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two checkpoints were validated on the same sequences. Version 0.1 did not save how many there were."""
    sizes = [state.get("val_sequences") for state in (one, other)]
    limits = [state.get("config", {}).get("limit_val_batches") for state in (one, other)]
    return bool(limits[0] == limits[1] if None in sizes else sizes[0] == sizes[1])


# Reading


def read_state(folder: Path) -> dict[str, Any]:
    """The content of state.json of a checkpoint, checked; `CheckpointError` for a damaged or foreign one."""
    path = folder / STATE_FILE
    try:
        data = read_small_file(
            path, what="the state of a checkpoint", max_bytes=_MAX_STATE_BYTES, error=CheckpointError
        )
        state = parse_json(data, error=CheckpointError)
    except FileNotFoundError:
        raise damage_error(path, "it is missing") from None
    except CheckpointError as error:
        raise damage_error(path, str(error).removeprefix(f"{path}: ").removesuffix(".")) from None
    if not isinstance(state, dict) or state.get("format") != FORMAT:
        raise damage_error(path, f'it is not the state of a checkpoint: it has no "format": "{FORMAT}"')
    if state.get("version") not in (VERSION, VERSION_WITH_PARTS):
        raise CheckpointError(
            f"{path}: its version is {state.get('version')!r}, and this Gristmill reads {VERSION} and "
            f"{VERSION_WITH_PARTS}. Use a newer Gristmill."
        )
    if state.pop("checksum", None) != json_checksum(state):
        raise damage_error(path, "its checksum does not fit")
    if state.get("step") != step_of(folder):
        raise damage_error(path, f"it is of step {state.get('step')!r}, and the folder says {step_of(folder)}")
    return state


def read_tensors(folder: Path, name: str, state: Mapping[str, Any], *, device: str = "cpu") -> dict[str, Tensor]:
    """The tensors of a file of a checkpoint, or of its parts, whose sizes and checksums are compared first."""
    with damaged_files():
        stored = stored_tensors(folder, name, checked_files(folder, name, state))
        with OpenFiles(folder) as files:
            return {key: files.whole(key, each).to(device) for key, each in stored.items()}


def checked_files(
    folder: Path, name: str, state: Mapping[str, Any], *, is_mine: Callable[[int], bool] = lambda number: True
) -> Mapping[str, Any]:
    """The files of a checkpoint, those of `name` compared with their checksums; `DamagedFileError` names a bad one.

    is_mine: which of them to compare, by number, where several processes divide the work.
    """
    files: Mapping[str, Any] = state["files"]
    in_parts = is_in_parts(name, files)
    names = [index_name(name), *part_names(name, files)] if in_parts else [name]
    if name not in files and not in_parts:
        raise DamagedFileError(folder / STATE_FILE, f"it does not name {name}")
    for number, file in enumerate(names):
        if is_mine(number):
            check_file(folder / file, files[file])
    return files


@contextlib.contextmanager
def damaged_files() -> Iterator[None]:
    """Within the block, a damaged file is `CheckpointError`, which names the checkpoint before and what to do."""
    try:
        yield
    except DamagedFileError as error:
        raise damage_error(error.path, error.what) from None


def damage_error(path: Path, what: str) -> CheckpointError:
    """The error of a damaged file of a checkpoint, which says what to do."""
    folder = path.parent
    before = [other.name for other in list_checkpoints(folder.parent.parent) if step_of(other) < step_of(folder)]
    if before:
        advice = f"Remove {folder} to use the one before, {before[-1]}; the steps after it are computed again."
    else:
        advice = f"There is none before it: remove {folder} and start the run again."
    return CheckpointError(f"{path}: {what}: the checkpoint is damaged. {advice}")


def load_weights(model: nn.Module, tensors: Mapping[str, Tensor], source: Path) -> None:
    """Copy the tensors into the model; `CheckpointError` names the first that does not fit."""
    needed = model.state_dict()
    compare_shapes(needed, tensors, source)
    with torch.no_grad():
        for name, tensor in tensors.items():
            needed[name].copy_(divided_like(needed[name], tensor))


def divided_like(weight: Tensor | None, tensor: Tensor) -> Tensor:
    """A whole tensor, divided among the devices as `weight` is (a DTensor); as it is, where nothing is divided."""
    if not hasattr(weight, "device_mesh") or weight is None or weight.shape != tensor.shape:
        return tensor
    from torch.distributed.tensor import distribute_tensor

    # Without a source rank, each takes its rows of the tensor that it has, and nothing is sent.
    return distribute_tensor(tensor.to(weight.device), weight.device_mesh, weight.placements, src_data_rank=None)  # type: ignore[attr-defined]


def load_model(
    run: str | os.PathLike[str], *, which: str = "best", device: str | torch.device = "cpu"
) -> tuple[Model, TrainConfig]:
    """The model of a run with the weights of a checkpoint, in evaluation mode, and the config it was trained with.

    `CheckpointError` if the two do not belong together: sizes are compared before any model is built, so an edited
    config.json cannot take more memory than the weights in the file.
    """
    folder = find_checkpoint(Path(run), which)
    config, state = load_config(Path(run)), read_state(folder)
    _check_same_model(Path(run) / CONFIG_FILE, config, state.get("config"), folder)
    weights = read_tensors(folder, MODEL_FILE, state)
    if bad := first_not_finite(weights):
        raise CheckpointError(
            f"{folder / MODEL_FILE}: the weights are not finite: {bad!r} holds NaN or infinity. The training run had "
            f"diverged. {_others(folder)}"
        )
    check_sizes(lambda: build_model(config.model), weights, folder / MODEL_FILE)
    model = build_model(config.model)
    load_weights(model, weights, folder / MODEL_FILE)
    return model.to(device).eval(), config


def _check_same_model(path: Path, config: TrainConfig, recorded: Any, folder: Path) -> None:
    """Compare config.json with what the checkpoint recorded: no shape of a weight depends on, say, rope_theta."""
    if recorded is None:  # the shapes of the weights still decide
        return
    try:
        there = model_options(config_of_run(recorded, source=str(folder / STATE_FILE)))
    except (ValueError, TypeError, AttributeError, OverflowError) as error:
        raise damage_error(folder / STATE_FILE, f"its config is not one: {error}") from None
    here = model_options(config)
    changed = [
        f"{name} was {there.get(name)!r} and is now {here.get(name)!r}"
        for name in {**there, **here}
        if there.get(name) != here.get(name)
    ]
    if changed:
        raise CheckpointError(
            f"{path}: it does not describe the model of {folder.name}: {'; '.join(changed)}. The file was edited, or "
            f"is of another run. Put the old values back; a model with other options needs a run of its own."
        )


def _others(folder: Path) -> str:
    others = [other.name for other in list_checkpoints(folder.parent.parent) if other != folder]
    return f"Use another checkpoint: {', '.join(others)}." if others else "There is no other checkpoint: train again."


def model_options(config: TrainConfig) -> dict[str, Any]:
    """The options that decide what the model is: its name, and those of its own that no run may change."""
    kind = type(config.model)
    names = option_fields(kind).keys() - kind.DATA_FREE - kind.FREE_OPTIONS
    return {"model": kind.name} | {name: getattr(config.model, name) for name in option_fields(kind) if name in names}
