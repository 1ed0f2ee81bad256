"""Batches from the numbers of their sequences: read and padded, here or by worker processes ahead of the run.

Which sequences make up a batch is settled in the process of the run; workers only read and pad them. So
batches are the same for any number of them.

Shapes: B sequences in a batch, T slots for tokens (or vectors of E numbers) in each.
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
    """What a batch is made from: half of it, because inputs follow from targets. It travels at half the cost."""

    targets_BT: Tensor
    vectors_BTE: Tensor | None

    def pin_memory(self) -> Padded:
        """The same in page-locked memory; torch calls it too."""
        vectors_BTE = self.vectors_BTE
        return Padded(self.targets_BT.pin_memory(), None if vectors_BTE is None else vectors_BTE.pin_memory())

    def batch(self, device: torch.device) -> Batch:
        """The batch on `device`, without waiting for it where that is possible."""
        non_blocking = device.type == "cuda"
        targets_BT = self.targets_BT.to(device, non_blocking=non_blocking)
        if self.vectors_BTE is None:
            return Batch(targets_BT.clamp_min(0), targets_BT)
        vectors_BTE = self.vectors_BTE.to(device, non_blocking=non_blocking)
        return Batch(torch.zeros_like(targets_BT), targets_BT, vectors_BTE=vectors_BTE)


def padded(source: SequenceSource, task: Task, *, vocab_size: int | None = None) -> Padded:
    """The sequences of the task, padded, in main memory. A row of number -1 is padding and nothing else.

    With `vocab_size`, an id that is not below it is a `TrainingError`.
    """
    shape = (len(task.sequences_B), task.width)
    # By numpy, not torch: a thread that calls into torch's pool gets a pool of its own beside that of the model.
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
    """`take(i)` is the batch of task(i), made by a worker before it is asked for as long as calls go one by one.

    Other calls are answered just as well, only later. The workers live on from one call to the next, end with this
    process however it ends, and leave Ctrl-C to it.
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
        """No worker is started before the first `take`."""
        self._reader = _Reader(source, vocab_size)
        self._tasks = _Tasks(task)
        self._options: dict[str, Any] = {
            "num_workers": num_workers,
            "prefetch_factor": prefetch_factor,
            "pin_memory": pin_memory,
        }
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._process = os.getpid()
        self._loader: DataLoader[Padded | Exception] | None = None
        self._batches: Any = None  # an iterator of the loader
        self._next = -1

    def take(self, number: int) -> Padded:
        """Batch `number`; the next ones are begun."""
        if self._process != os.getpid():  # the workers are those of the process that this one was forked from
            _NOT_OURS.append((self._loader, self._batches))
            self._begin_anew()
        try:
            if self._batches is None or number != self._next:
                self._start(number)
            batch: Padded | Exception = next(self._batches)
        except BaseException as error:  # also Ctrl-C, which may leave a batch half taken
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
                # Its own: seeds of workers would otherwise be drawn from the generator that dropout uses.
                generator=torch.Generator(),
                **self._options,
            )
        with _own_signal_handlers():
            self._batches = iter(self._loader)

    def _died(self, error: Exception) -> TrainingError:
        return TrainingError(
            f"a worker that reads the data has died: {' '.join(str(error).split())} Memory ran out, or the shared "
            f"memory did (/dev/shm; in a container, docker run --shm-size=8g), or somebody ended it. Pass fewer "
            f"workers, such as num_workers={self._options['num_workers'] // 2}; with 0 a thread reads."
        )

    def close(self) -> None:
        """End the workers. A later `take` starts others."""
        if self._process == os.getpid() and self._batches is not None:
            self._batches._shutdown_workers()  # now, not when memory is next tidied
            self._begin_anew()


# What a forked process has inherited: to let go of it would end the workers of another.
_NOT_OURS: list[Any] = []


class _Tasks(Sampler[Task]):
    """The tasks from `first` on, without an end."""

    def __init__(self, task: Callable[[int], Task]) -> None:
        self._task = task
        self.first = 0

    def __iter__(self) -> Iterator[Task]:
        number = self.first
        while True:
            yield self._task(number)
            number += 1


class _Reader(Dataset[Padded | Exception]):
    """What a worker has: it makes the batch of a task."""

    def __init__(self, source: SequenceSource, vocab_size: int | None) -> None:
        self._source, self._vocab_size = source, vocab_size

    def __getitem__(self, task: Task) -> Padded | Exception:
        """An error is handed over like a batch: torch would put a page of traceback into its message."""
        try:
            return padded(self._source, task, vocab_size=self._vocab_size)
        except Exception as error:
            return error


def _unchanged(item: Any) -> Any:
    return item


def _begin_worker(number: int) -> None:
    # Ctrl-C goes to all processes of a terminal; the one that trains decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """Torch looks for a parent that has died too, but only in a worker without work, and not under a fork server."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


@contextlib.contextmanager
def _own_signal_handlers() -> Iterator[None]:
    """Undo what torch does to SIGCHLD: `take` reports a worker that died, not whatever runs at that moment."""
    if not hasattr(signal, "SIGCHLD") or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGCHLD)
    try:
        yield
    finally:
        if before is not None:  # None: set by other than Python, which cannot set it again
            signal.signal(signal.SIGCHLD, before)
