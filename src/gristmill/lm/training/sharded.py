"""Checkpoints of a sharded run with torch.distributed.checkpoint: every process writes and reads only its own rows.

torch plans which process writes which rows, notifies all processes when one fails, and finds the rows and files that a
process needs. The files are safetensors and JSON (parts.py); torch's own storage would pickle its index. In a save,

    every process       copies its rows to main memory, after which training continues
                        writes the rows to a hidden folder and flushes them
    the first process   writes the indexes and state.json with sizes and checksums of all files, and renames the folder

If one process fails, the save fails in all processes with the same error, and older checkpoints are kept. A save runs
in a thread, so it uses its own process group while the run uses the others.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import json
import os
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import LoadPlan, LoadPlanner, SavePlan, SavePlanner
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.checkpoint.storage import StorageReader, StorageWriter, WriteResult

from gristmill.errors import CheckpointError, GristmillError, TrainingError
from gristmill.lm.explain import CHECKPOINTS
from gristmill.lm.training import checkpoint as checkpoints
from gristmill.lm.training.parts import (
    OpenFiles,
    Rows,
    Stored,
    index_name,
    index_of,
    num_rows,
    part_name,
    stored_tensors,
)
from gristmill.lm.training.size_check import compare_shapes
from gristmill.lm.training.tensor_files import DamagedFileError, Kind, flush, kinds_of, write_tensors

__all__ = ["ShardedWriter", "load_optimizer", "load_weights"]

Files = Mapping[str, Mapping[str, Tensor]]
# Writing hundreds of gigabytes takes longer than torch's default timeout. An exited process is noticed immediately.
PATIENCE = datetime.timedelta(days=1)


# Writing


class ShardedWriter(checkpoints.CheckpointWriter):
    """Writes checkpoints together with the other processes, each in a background thread. All must create one."""

    def __init__(self, run: Path, *, keep: int, notify: Callable[[str], None] | None = None) -> None:
        super().__init__(run, keep=keep, notify=notify)
        self._group: Any = torch.distributed.new_group(backend="gloo", timeout=PATIENCE)

    def merge(self) -> None:
        """Merge the weights of the latest and the best checkpoint into one file each, in the first process; all wait.

        A checkpoint that cannot be merged, for example because the disk is full, stays in parts, which all readers
        support.
        """
        self.wait()
        if torch.distributed.get_rank() == 0:
            for folder in {checkpoints.find_checkpoint(self._run, which) for which in ("latest", "best")}:
                try:
                    checkpoints.merge_model(folder)
                except (OSError, CheckpointError) as error:
                    if self._notify is not None:
                        self._notify(
                            f"the weights of {folder.name} stay in parts, because merging them failed: {error}"
                        )
        torch.distributed.barrier(group=self._group)

    def close(self) -> None:
        """Wait, stop the thread, and destroy the group, which would keep the rendezvous store alive."""
        try:
            super().close()
        finally:
            group, self._group = self._group, None
            if group is not None and torch.distributed.is_initialized():
                torch.distributed.destroy_process_group(group)

    def _write_files(self, state: Mapping[str, Any], files: Files) -> None:
        write_sharded(self._run, state, files, group=self._group)

    def _prune(self) -> None:
        if torch.distributed.get_rank() == 0:
            super()._prune()


def write_sharded(run: Path, state: Mapping[str, Any], files: Files, *, group: Any = None) -> None:
    """Write a checkpoint of `state["step"]`, together with the other processes of `group`.

    files: copies of the rows of this process, of weights and optimizer. Files that are not in `PARTED`, and all of
    `state` except the step, are used only in the first process.
    """
    parted = {name: tensors for name, tensors in files.items() if name in PARTED}
    whole = {name: tensors for name, tensors in files.items() if name not in PARTED}
    storage = _Writer(run, state, tuple(parted), whole)
    try:
        with _one_error():
            save(_joined(parted), storage_writer=storage, process_group=group)
    finally:
        storage.clean_up()


PARTED = (checkpoints.MODEL_FILE, checkpoints.OPTIMIZER_FILE)


def _joined(files: Files) -> dict[str, Any]:
    """Return the tensors of all files under names such as "model.safetensors/blocks.0.weight"."""
    return {f"{file}/{name}": tensor for file, tensors in files.items() for name, tensor in tensors.items()}


@dataclasses.dataclass(frozen=True)
class _Place:
    """Folder and part number of a process."""

    folder: str
    number: int
    num_parts: int


@dataclasses.dataclass(frozen=True)
class _Written:
    """Rows on disk, and the size and checksum of their file."""

    rows: Rows
    entry: Mapping[str, Any]


class _Writer(StorageWriter):
    """Storage of one save. torch calls the methods in this order; only the first process plans and finishes."""

    def __init__(self, run: Path, state: Mapping[str, Any], parted: tuple[str, ...], whole: Files) -> None:
        self._run, self._state, self._parted, self._whole = run, state, parted, whole
        self._temporary: Path | None = None

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """Do nothing: a storage is used once."""

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """Do nothing: everything is known."""

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        """Keep the plan: each process writes all its rows."""
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """Create the hidden folder, and give each process its number."""
        self._temporary = checkpoints.new_hidden_folder(self._folder)
        places = [_Place(str(self._temporary), number, len(plans)) for number in range(len(plans))]
        return [dataclasses.replace(plan, storage_data=place) for plan, place in zip(plans, places, strict=True)]

    @property
    def _folder(self) -> Path:
        return self._run / CHECKPOINTS / checkpoints.name_of(self._state["step"])

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> torch.futures.Future[list[WriteResult]]:
        """Write the rows of this process, to one part for each file of a checkpoint."""
        place: _Place = plan.storage_data
        items: dict[str, dict[str, Any]] = defaultdict(dict)
        for item in plan.items:
            file, _, name = item.index.fqn.partition("/")
            items[file][name] = item
        results = []
        for file, of_file in items.items():
            tensors = {name: _data(planner, item) for name, item in of_file.items()}
            if file == checkpoints.MODEL_FILE:
                checkpoints.check_finite(self._run, self._state["step"], tensors)
            path = Path(place.folder) / part_name(file, place.number, place.num_parts)
            entry = _write_part(path, tensors)
            for item in of_file.values():
                written = _Written(_rows_of(item, path.name), entry)
                results.append(WriteResult(item.index, item.tensor_storage_size(), written))
        done: torch.futures.Future[list[WriteResult]] = torch.futures.Future()
        done.set_result(results)
        return done

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """Write indexes, whole files and state.json in the first process, when all have written. Rename the folder."""
        assert self._temporary is not None
        if self._folder.exists():  # steps are deterministic, so the existing checkpoint is the same
            return
        # An optimizer without state gets an index without tensors.
        stored: dict[str, dict[str, list[Rows]]] = {file: defaultdict(list) for file in self._parted}
        entries: dict[str, Any] = {}
        for result in (result for of_process in results for result in of_process):
            file, _, name = result.index.fqn.partition("/")
            stored[file][name].append(result.storage_data.rows)
            entries[result.storage_data.rows.file] = result.storage_data.entry
        _check_arrived(self._temporary, entries)
        for file, of_file in stored.items():
            found = {
                name: _stored(metadata.state_dict_metadata[f"{file}/{name}"], rows) for name, rows in of_file.items()
            }
            entries[index_name(file)] = _write_index(self._temporary / index_name(file), found)
        for file, tensors in self._whole.items():
            entries[file] = write_tensors(self._temporary / file, kinds_of(tensors), tensors.__getitem__)
        head = {"format": checkpoints.FORMAT, "version": checkpoints.VERSION_WITH_PARTS}
        checkpoints.publish(self._temporary, self._folder, {**head, **self._state, "files": entries})

    def clean_up(self) -> None:
        """Remove the files of an unfinished save. All processes have finished or failed, so none writes to them."""
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """Return False: torch must not choose this storage for a path."""
        return False


def _data(planner: SavePlanner, item: Any) -> Tensor:
    data = planner.resolve_data(item)
    assert isinstance(data, Tensor)  # the saved state contains only tensors
    return data.detach()


def _write_part(path: Path, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    try:
        return write_tensors(path, kinds_of(tensors), tensors.__getitem__)
    except FileNotFoundError:
        raise _not_shared(path) from None


def _check_arrived(folder: Path, entries: Mapping[str, Any]) -> None:
    for name in entries:
        if not (folder / name).exists():
            raise _not_shared(folder / name)


def _not_shared(path: Path) -> TrainingError:
    return TrainingError(
        f"{path}: one process does not see a file that another has written. With strategy='fsdp' on several machines, "
        f"all of them need the same run folder. Pass a folder on a shared disk."
    )


def _rows_of(item: Any, file: str) -> Rows:
    chunk, shape = item.tensor_data.chunk, item.tensor_data.size
    if tuple(chunk.sizes[1:]) != tuple(shape[1:]):
        raise TrainingError(f"{item.index.fqn}: sharded by columns, but a checkpoint stores rows. Shard by rows.")
    begin = chunk.offsets[0] if shape else 0
    return Rows(file, begin, begin + num_rows(chunk.sizes))


def _stored(metadata: Any, rows: list[Rows]) -> Stored:
    """Return the rows in order, without empty parts unless the tensor has no rows at all."""
    kind = Kind(metadata.properties.dtype, tuple(metadata.size))
    in_order = sorted(rows, key=lambda each: (each.begin, each.end))
    return Stored(kind, tuple(each for each in in_order if each.begin < each.end) or tuple(in_order[:1]))


def _write_index(path: Path, stored: Mapping[str, Stored]) -> dict[str, Any]:
    from gristmill._core import Xxh64

    body = json.dumps(index_of(stored), separators=(",", ":")).encode()
    with path.open("xb") as file:
        file.write(body)
        flush(file)
    digest = Xxh64()
    digest.update(body)
    return {"bytes": len(body), "xxh64": digest.hexdigest()}


@contextlib.contextmanager
def _one_error() -> Iterator[None]:
    """Convert the error that torch raises in all processes to the error of the process that failed."""
    try:
        with checkpoints.damaged_files():
            yield
    except CheckpointException as error:
        failed = _cause(error)
        failed.is_shown_by_first = torch.distributed.get_rank() > 0  # type: ignore[attr-defined]
        raise failed from None


def _cause(error: CheckpointException) -> Exception:
    """Return the error of the first process that failed, as one of our errors."""
    rank, (cause, _) = min(error.failures.items())
    if isinstance(cause, OSError | GristmillError):
        return cause
    if isinstance(cause, DamagedFileError):
        return checkpoints.damage_error(cause.path, cause.what)
    return TrainingError(f"process {rank} could not save or read its part of a checkpoint: {cause!r}")


# Reading


def load_weights(model: nn.Module, folder: Path, state: Mapping[str, Any]) -> None:
    """Copy the weights of a checkpoint to the sharded model. Each process reads only its rows."""
    source = folder / checkpoints.MODEL_FILE
    reader, targets = _Reader(folder, checkpoints.MODEL_FILE, state), model.state_dict()
    there = {name: torch.empty(each.kind.shape, device="meta") for name, each in reader.stored.items()}
    compare_shapes(targets, there, source)
    reader.fill(targets)


def load_optimizer(model: nn.Module, folder: Path, state: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return the optimizer state in a checkpoint, sharded like the weights of the model."""
    reader = _Reader(folder, checkpoints.OPTIMIZER_FILE, state)
    weights = dict(model.named_parameters())
    targets = {}
    for name, stored in reader.stored.items():
        weight = weights.get(name.rpartition(".")[0])
        if weight is not None and tuple(weight.shape) == stored.kind.shape:
            targets[name] = torch.empty_like(weight.detach(), dtype=stored.kind.dtype)
        else:
            targets[name] = torch.empty(stored.kind.shape, dtype=stored.kind.dtype)
    reader.fill(targets)
    return targets


class _Reader(StorageReader):
    """Reads the tensors of one name in a checkpoint, in one file or in parts. All processes must use it together."""

    def __init__(self, folder: Path, name: str, state: Mapping[str, Any]) -> None:
        self._folder, self._name, self._state = folder, name, state
        with checkpoints.damaged_files():
            # Checksums are verified later, divided among the processes. Only the checksum of an index is verified here.
            files = checkpoints.checked_files(folder, name, state, is_mine=lambda number: False)
            self.stored = stored_tensors(folder, name, files)

    def fill(self, targets: dict[str, Tensor]) -> None:
        """Copy the rows of this process to `targets`."""
        with _one_error():
            load(dict(targets), storage_reader=self)

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """Do nothing: a storage is used once."""

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        """Return torch's metadata of the stored tensors."""
        return Metadata({name: _metadata(stored) for name, stored in self.stored.items()})

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """Verify the checksums of the files. The files are divided among the processes, so each is read once."""
        rank, size = torch.distributed.get_rank(), torch.distributed.get_world_size()
        checkpoints.checked_files(self._folder, self._name, self._state, is_mine=lambda number: number % size == rank)

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        """Keep the plan: each process reads the rows it needs."""
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        """Keep the plans: no process reads for another."""
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> torch.futures.Future[None]:
        """Copy rows from files to their target tensors."""
        with OpenFiles(self._folder) as files:
            for item in plan.items:
                name = item.storage_index.fqn
                stored = self.stored[name]
                offset = item.storage_index.offset
                first = offset[0] if offset else 0
                rows = next(each for each in stored.rows if each.begin == first)
                begin = rows.begin + (item.storage_offsets[0] if item.storage_offsets else 0)
                target = planner.resolve_tensor(item).detach()
                target.copy_(files.rows(name, stored, rows, begin, begin + num_rows(item.lengths)))
                planner.commit_tensor(item, target)
        done: torch.futures.Future[None] = torch.futures.Future()
        done.set_result(None)
        return done

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """Return False: torch must not choose this storage for a path."""
        return False


def _metadata(stored: Stored) -> TensorStorageMetadata:
    shape = stored.kind.shape
    chunks = [
        ChunkStorageMetadata(
            offsets=torch.Size((rows.begin, *(0 for _ in shape[1:])) if shape else ()),
            sizes=torch.Size((rows.end - rows.begin, *shape[1:]) if shape else ()),
        )
        for rows in stored.rows
    ]
    return TensorStorageMetadata(TensorProperties(dtype=stored.kind.dtype), torch.Size(shape), chunks)
