"""Batches from the numbers of their sequences: read and padded in this process or by workers in advance.

The process of the run decides which sequences make up a batch; workers only read and pad them. So batches do not depend
on the number of workers.

Shapes: B sequences per batch, with T slots for tokens (or vectors of E numbers) each.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gristmill.errors import TrainingError
from gristmill.lm.data.batch import IGNORED, Batch
from gristmill.lm.data.sequences.source import SequenceSource
from gristmill.lm.data.sequences.workers import MORE_SLOTS, Arrays, PageLocked, Worker, arrays_in, new_slots
from gristmill.lm.data.token_source import beyond_vocabulary

__all__ = ["Padded", "Task", "WorkerLoader", "padded"]

ALIGNMENT = 64  # bytes, of a slot
MAX_LOCKED_BYTES = 1 << 30  # more would take memory from the rest of the machine


class Task(NamedTuple):
    """A batch to make: its sequences, and the width to pad them to."""

    sequences_B: NDArray[np.int64]
    width: int


@dataclass(frozen=True, eq=False)
class Padded:
    """The data of a batch. Inputs are omitted because they follow from the targets, which halves the transfer."""

    targets_BT: Tensor
    vectors_BTE: Tensor | None
    copied: Callable[[], object] = lambda: None
    """Called when the copies to a device are queued."""

    def pin_memory(self) -> Padded:
        """Return a copy in page-locked memory."""
        vectors_BTE = self.vectors_BTE
        return Padded(self.targets_BT.pin_memory(), None if vectors_BTE is None else vectors_BTE.pin_memory())

    def clone(self) -> Padded:
        """Return a copy in memory of this process."""
        return Padded(self.targets_BT.clone(), None if self.vectors_BTE is None else self.vectors_BTE.clone())

    def batch(self, device: torch.device) -> Batch:
        """Return the batch on `device`, copied asynchronously if possible."""
        non_blocking = device.type == "cuda"
        targets_BT = self.targets_BT.to(device, non_blocking=non_blocking)
        if self.vectors_BTE is None:
            self.copied()
            return Batch(targets_BT.clamp_min(0), targets_BT)
        vectors_BTE = self.vectors_BTE.to(device, non_blocking=non_blocking)
        self.copied()
        return Batch(torch.zeros_like(targets_BT), targets_BT, vectors_BTE=vectors_BTE)


def padded(source: SequenceSource, task: Task, *, vocab_size: int | None = None) -> Padded:
    """Return the padded sequences of the task, in main memory. A sequence number of -1 gives a row of padding.

    With `vocab_size`, an id that is not below it raises `TrainingError`.
    """
    shape = (len(task.sequences_B), task.width)
    # Pad with numpy, not torch: a thread that uses torch gets a second thread pool besides that of the model.
    dim = source.embedding_dim
    arrays = np.empty(shape, np.int64), None if dim is None else np.empty((*shape, dim), np.float32)
    fill(source, vocab_size, arrays, *task)
    return _as_tensors(arrays)


def _as_tensors(arrays: Arrays) -> Padded:
    targets_BT, vectors_BTE = arrays
    return Padded(torch.from_numpy(targets_BT), None if vectors_BTE is None else torch.from_numpy(vectors_BTE))


def fill(
    source: SequenceSource, vocab_size: int | None, arrays: Arrays, sequences_B: NDArray[np.int64], width: int
) -> None:
    """Write the padded sequences into (targets_BT, vectors_BTE)."""
    targets_BT, vectors_BTE = arrays
    targets_BT.fill(IGNORED)
    if vectors_BTE is not None:
        vectors_BTE.fill(0)
    for row, index in enumerate(sequences_B.tolist()):
        if index < 0:
            continue
        sequence = source.read(index)
        if vectors_BTE is None:
            targets_BT[row, : len(sequence)] = sequence
        else:
            targets_BT[row, : len(sequence)] = 0
            vectors_BTE[row, : len(sequence)] = sequence
    if vocab_size is not None and int(targets_BT.max()) >= vocab_size:
        row, position = divmod(int(targets_BT.argmax()), width)
        place = source.place(int(sequences_B[row]), position)
        raise beyond_vocabulary(place, int(targets_BT[row, position]), vocab_size)


class WorkerLoader:
    """`take(i)` returns the batch of task(i), made by a worker in advance as long as calls are consecutive.

    Other calls work too, but wait for the batch. Workers persist between calls, exit when this process exits for any
    reason, and ignore Ctrl-C. For a GPU, a batch is valid until the next `take`; its copies to the GPU may end later.
    """

    def __init__(
        self,
        source: SequenceSource,
        task: Callable[[int], Task],
        *,
        num_rows: int,
        max_width: int,
        num_workers: int,
        prefetch_factor: int,
        device: torch.device,
        pin_memory: bool,
        vocab_size: int | None = None,
    ) -> None:
        """Workers start at the first `take`.

        num_rows, max_width: the rows of every batch, and the greatest width.
        """
        self._task, self._dim = task, source.embedding_dim
        self._fill = partial(fill, source, vocab_size)
        self._num_workers, self._prefetch_factor = num_workers, prefetch_factor
        num_bytes = num_rows * max_width * (8 + 4 * (self._dim or 0))
        self._slot_bytes = -(-num_bytes // ALIGNMENT) * ALIGNMENT
        self._device, self._pin_memory = device, pin_memory
        self._reset()

    def _reset(self) -> None:
        self._process = os.getpid()
        self._workers = _Workers()
        self._first = self._next = -1
        self._lent: tuple[Worker, int] | None = None  # the slot of the last batch, until it is copied

    def take(self, number: int) -> Padded:
        """Return batch `number`, and start the next ones."""
        if self._process != os.getpid():  # the workers belong to the parent of this forked process
            self._reset()
        try:
            return self._taken(number)
        except (EOFError, ConnectionError) as error:
            self.close()
            raise self._failed("a data worker died") from error
        except BaseException:  # including Ctrl-C, which can interrupt a transfer
            self.close()
            raise

    def _taken(self, number: int) -> Padded:
        if not self._workers.running:
            self._start()
        if self._lent is not None:
            self._lent[0].give_back(self._lent[1])
            self._lent = None
        if number != self._next:
            self._begin(number)
        worker = self._worker(number)
        task = self._task(number)
        slot = worker.answer()
        if isinstance(slot, Exception):
            raise slot
        self._ask(number + self._prefetch_factor * self._num_workers)
        self._next = number + 1
        return self._batch(worker, slot, task)

    def _start(self) -> None:
        num_slots = self._prefetch_factor + MORE_SLOTS
        try:
            slots_C = new_slots(self._num_workers * num_slots * self._slot_bytes)
        except RuntimeError as error:
            raise self._failed(f"no shared memory for the data workers: {error}") from error
        slots_WSC = slots_C.view(self._num_workers, num_slots, self._slot_bytes)
        self._workers = _Workers()
        weakref.finalize(self, self._workers.stop)
        for slots_SC in slots_WSC:
            self._workers.running.append(Worker(slots_SC, self._fill, self._dim))
        if self._pin_memory and slots_WSC.nbytes <= MAX_LOCKED_BYTES:
            self._workers.locked = PageLocked(slots_WSC, self._device)

    def _begin(self, number: int) -> None:
        """Drop all requests, and request the batches from `number` on."""
        for worker in self._workers.running:
            worker.forget()
        self._first = number
        for ahead in range(self._prefetch_factor * self._num_workers):
            self._ask(number + ahead)

    def _worker(self, number: int) -> Worker:
        return self._workers.running[(number - self._first) % self._num_workers]

    def _ask(self, number: int) -> None:
        self._worker(number).ask(*self._task(number))

    def _batch(self, worker: Worker, slot: int, task: Task) -> Padded:
        """Return the batch in a slot, and free the slot when the batch is copied."""
        batch = _as_tensors(arrays_in(worker.slots[slot], len(task.sequences_B), task.width, self._dim))
        if self._device.type != "cuda":
            batch = batch.clone()
            worker.give_back(slot)
            return batch
        if self._pin_memory and not self._workers.is_locked:
            batch = batch.pin_memory()
            worker.give_back(slot)
            return batch
        self._lent = worker, slot
        return replace(batch, copied=partial(self._copied, worker, slot))

    def _copied(self, worker: Worker, slot: int) -> None:
        """Keep the slot until the GPU has executed the copies that are in its queue now."""
        if self._lent != (worker, slot):
            return
        self._lent = None
        event: Any = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(self._device))
        worker.give_back(slot, event)

    def _failed(self, what: str) -> TrainingError:
        return TrainingError(
            f"{what}. There was too little memory or shared memory (/dev/shm; in a container, docker run "
            f"--shm-size=8g), or it was killed. Pass fewer workers, such as num_workers={self._num_workers // 2}, or 0 "
            f"to read in a thread."
        )

    def close(self) -> None:
        """Stop the workers. A later `take` starts new ones."""
        self._workers.stop()
        self._reset()


class _Workers:
    """The workers of a loader. They are stopped with it, but not by a forked process."""

    def __init__(self) -> None:
        self._process = os.getpid()
        self.running: list[Worker] = []
        self.locked: PageLocked | None = None

    @property
    def is_locked(self) -> bool:
        """Whether the slots are page-locked."""
        return self.locked is not None and self.locked.is_locked

    def stop(self) -> None:
        """Stop the workers, if this process has started them."""
        if self._process != os.getpid():
            return
        while self.running:
            self.running.pop().stop()
        if self.locked is not None:
            self.locked.end()
