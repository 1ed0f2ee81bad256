"""Batches from the numbers of their sequences: read and padded in this process or by workers in advance.

The process of the run decides which sequences make up a batch; workers only read and pad them. So batches do not depend
on the number of workers.

Shapes: B sequences per batch, with T slots for tokens (or vectors of E numbers) each.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from gristmill.errors import TrainingError
from gristmill.lm.data.batch import IGNORED, Batch
from gristmill.lm.data.sequences.source import SequenceSource
from gristmill.lm.data.token_source import beyond_vocabulary

__all__ = ["Padded", "Task", "WorkerLoader", "padded"]


class Task(NamedTuple):
    """A batch to make: its sequences, and the width to pad them to."""

    sequences_B: NDArray[np.int64]
    width: int


@dataclass(frozen=True, eq=False)
class Padded:
    """The data of a batch. Inputs are omitted because they follow from the targets, which halves the transfer."""

    targets_BT: Tensor
    vectors_BTE: Tensor | None

    def pin_memory(self) -> Padded:
        """Return a copy in page-locked memory. Torch calls this method too."""
        vectors_BTE = self.vectors_BTE
        return Padded(self.targets_BT.pin_memory(), None if vectors_BTE is None else vectors_BTE.pin_memory())

    def batch(self, device: torch.device) -> Batch:
        """Return the batch on `device`, copied asynchronously if possible."""
        non_blocking = device.type == "cuda"
        targets_BT = self.targets_BT.to(device, non_blocking=non_blocking)
        if self.vectors_BTE is None:
            return Batch(targets_BT.clamp_min(0), targets_BT)
        vectors_BTE = self.vectors_BTE.to(device, non_blocking=non_blocking)
        return Batch(torch.zeros_like(targets_BT), targets_BT, vectors_BTE=vectors_BTE)


def padded(source: SequenceSource, task: Task, *, vocab_size: int | None = None) -> Padded:
    """Return the padded sequences of the task, in main memory. A sequence number of -1 gives a row of padding.

    With `vocab_size`, an id that is not below it raises `TrainingError`.
    """
    shape = (len(task.sequences_B), task.width)
    # Pad with numpy, not torch: a thread that uses torch gets a second thread pool besides that of the model.
    targets_BT = np.full(shape, IGNORED, np.int64)
    dim = source.embedding_dim
    vectors_BTE = None if dim is None else np.zeros((*shape, dim), np.float32)
    for row, index in enumerate(task.sequences_B.tolist()):
        if index < 0:
            continue
        sequence = source.read(index)
        if vectors_BTE is None:
            targets_BT[row, : len(sequence)] = sequence
        else:
            targets_BT[row, : len(sequence)] = 0
            vectors_BTE[row, : len(sequence)] = sequence
    if vocab_size is not None and int(targets_BT.max()) >= vocab_size:
        row, position = divmod(int(targets_BT.argmax()), task.width)
        place = source.place(int(task.sequences_B[row]), position)
        raise beyond_vocabulary(place, int(targets_BT[row, position]), vocab_size)
    return Padded(torch.from_numpy(targets_BT), None if vectors_BTE is None else torch.from_numpy(vectors_BTE))


class WorkerLoader:
    """`take(i)` returns the batch of task(i), made by a worker in advance as long as calls are consecutive.

    Other calls work too, but wait for the batch. Workers persist between calls, exit when this process exits for any
    reason, and ignore Ctrl-C.
    """

    def __init__(
        self,
        source: SequenceSource,
        task: Callable[[int], Task],
        *,
        num_workers: int,
        prefetch_factor: int,
        pin_memory: bool,
        vocab_size: int | None = None,
    ) -> None:
        """Workers start at the first `take`."""
        self._reader = _Reader(source, vocab_size)
        self._tasks = _Tasks(task)
        self._options: dict[str, Any] = {
            "num_workers": num_workers,
            "prefetch_factor": prefetch_factor,
            "pin_memory": pin_memory,
        }
        self._reset()

    def _reset(self) -> None:
        self._process = os.getpid()
        self._loader: DataLoader[Padded | Exception] | None = None
        self._batches: Any = None  # an iterator of the loader
        self._next = -1

    def take(self, number: int) -> Padded:
        """Return batch `number`, and start the next ones."""
        if self._process != os.getpid():  # the workers belong to the parent of this forked process
            _NOT_OURS.append((self._loader, self._batches))
            self._reset()
        try:
            if self._batches is None or number != self._next:
                self._start(number)
            batch: Padded | Exception = next(self._batches)
        except BaseException as error:  # including Ctrl-C, which can interrupt a transfer
            self.close()
            if isinstance(error, RuntimeError) and "DataLoader worker" in str(error):
                raise self._died(error) from error
            raise
        self._next = number + 1
        if isinstance(batch, Exception):
            raise batch
        return batch

    def _start(self, number: int) -> None:
        self._tasks.first = number
        if self._loader is None:
            self._loader = DataLoader(
                self._reader,
                batch_size=None,
                sampler=self._tasks,
                collate_fn=_unchanged,
                worker_init_fn=_begin_worker,
                persistent_workers=True,
                # Without it, the seeds of workers would be drawn from the generator that dropout uses.
                generator=torch.Generator(),
                **self._options,
            )
        with _own_signal_handlers():
            self._batches = iter(self._loader)

    def _died(self, error: Exception) -> TrainingError:
        return TrainingError(
            f"a data worker died: {' '.join(str(error).split())} There was too little memory or shared memory "
            f"(/dev/shm; in a container, docker run --shm-size=8g), or it was killed. Pass fewer workers, such as "
            f"num_workers={self._options['num_workers'] // 2}, or 0 to read in a thread."
        )

    def close(self) -> None:
        """Stop the workers. A later `take` starts new ones."""
        if self._process == os.getpid() and self._batches is not None:
            self._batches._shutdown_workers()  # now, instead of at garbage collection
            self._reset()


# Loaders inherited by a forked process. Freeing them would stop the workers of the parent.
_NOT_OURS: list[Any] = []


class _Tasks(Sampler[Task]):
    """The endless sequence of tasks from `first`."""

    def __init__(self, task: Callable[[int], Task]) -> None:
        self._task = task
        self.first = 0

    def __iter__(self) -> Iterator[Task]:
        number = self.first
        while True:
            yield self._task(number)
            number += 1


class _Reader(Dataset[Padded | Exception]):
    """The dataset of a worker: makes the batch of a task."""

    def __init__(self, source: SequenceSource, vocab_size: int | None) -> None:
        self._source, self._vocab_size = source, vocab_size

    def __getitem__(self, task: Task) -> Padded | Exception:
        """Return the batch. An error is returned too, because torch would add a traceback to its message."""
        try:
            return padded(self._source, task, vocab_size=self._vocab_size)
        except Exception as error:
            return error


def _unchanged(item: Any) -> Any:
    return item


def _begin_worker(number: int) -> None:
    # Ctrl-C reaches all processes of a terminal, and only the training process handles it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """Exit when the parent dies. Torch checks that too, but only in an idle worker and not under a fork server."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


@contextlib.contextmanager
def _own_signal_handlers() -> Iterator[None]:
    """Restore the SIGCHLD handler that torch replaces.

    So `take` reports a dead worker, instead of whatever code runs at that moment.
    """
    if not hasattr(signal, "SIGCHLD") or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGCHLD)
    try:
        yield
    finally:
        if before is not None:  # None: not set by Python, which cannot restore it
            signal.signal(signal.SIGCHLD, before)
