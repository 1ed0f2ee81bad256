"""Workers: processes that write padded batches into memory that they share with the run.

The memory is allocated once and divided into slots, of which each worker has its own. Only the number of a slot and
the sequences to read pass through a pipe, in the order in which the run needs them.

Shapes: B sequences per batch, with T slots for tokens (or vectors of E numbers) each.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import signal
import threading
from collections import deque
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, TypeAlias

import numpy as np
import torch
import torch.multiprocessing  # registers how a shared tensor is sent to a process
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["PageLocked", "Worker", "arrays_in", "new_slots"]

# A slot may be needed while the batches before it are still being copied to the device.
MORE_SLOTS = 2
PORTABLE = 1  # cudaHostRegisterPortable: page-locked for all devices

Arrays: TypeAlias = tuple[NDArray[np.int64], NDArray[np.float32] | None]
# Writes the batch of (sequences_B, width) into arrays of that shape.
Fill: TypeAlias = Callable[[Arrays, NDArray[np.int64], int], None]


def new_slots(num_bytes: int) -> Tensor:
    """Return shared memory for slots, as bytes. Pages are allocated when they are first written."""
    storage: Any = torch.UntypedStorage._new_shared(num_bytes)  # type: ignore[no-untyped-call]
    return torch.empty(0, dtype=torch.uint8).set_(storage)


def arrays_in(slot: NDArray[np.uint8], num_rows: int, width: int, dim: int | None) -> Arrays:
    """Return (targets_BT, vectors_BTE) of a batch as views of a slot."""
    num_tokens = num_rows * width
    targets_BT = slot[: 8 * num_tokens].view(np.int64).reshape(num_rows, width)
    if dim is None:
        return targets_BT, None
    return targets_BT, slot[8 * num_tokens :][: 4 * num_tokens * dim].view(np.float32).reshape(num_rows, width, dim)


class Worker:
    """A process that fills its slots, as seen by the run."""

    def __init__(self, slots_SC: Tensor, fill: Fill, dim: int | None) -> None:
        """Start the process."""
        self.slots = slots_SC.numpy()
        self._asked: deque[int] = deque()  # slots, in the order of the requests
        self._free = deque(range(len(slots_SC)))
        self._copying: deque[tuple[int, Any]] = deque()  # (slot, event after the copy)
        self._pipe, other = multiprocessing.Pipe()
        self.process = multiprocessing.Process(
            target=_work, args=(other, slots_SC, fill, dim), daemon=True, name="gristmill-batches"
        )
        try:
            self.process.start()
        finally:
            other.close()  # so that the pipe ends when the process does

    def ask(self, sequences_B: NDArray[np.int64], width: int) -> None:
        """Request a batch. There are slots for as many requests as `MORE_SLOTS` less than all."""
        while self._copying and (not self._free or self._copying[0][1].query()):
            slot, event = self._copying.popleft()
            event.synchronize()
            self._free.append(slot)
        slot = self._free.popleft()
        self._asked.append(slot)
        self._pipe.send((slot, sequences_B, width))

    def answer(self) -> int | Exception:
        """Wait for the batch of the earliest request. Return its slot, which is then lent to the caller, or an error.

        Raises `EOFError` or `ConnectionError` if the process has ended.
        """
        message = self._pipe.recv_bytes()
        slot = self._asked.popleft()
        if not message:
            return slot
        self._free.append(slot)
        error: Exception = pickle.loads(message)
        return error

    def give_back(self, slot: int, event: Any = None) -> None:
        """Free a slot, as soon as the device has passed the event."""
        if event is None:
            self._free.append(slot)
        else:
            self._copying.append((slot, event))

    def forget(self) -> None:
        """Drop all requests. Waits for their batches."""
        while self._asked:
            if isinstance(slot := self.answer(), int):
                self.give_back(slot)

    def stop(self) -> None:
        """End the process. The device must have finished its copies before the slots are freed."""
        self.process.kill()  # it holds nothing that it would have to release
        self.process.join()
        self._pipe.close()
        for _, event in self._copying:
            event.synchronize()


def _work(pipe: Connection, slots_SC: Tensor, fill: Fill, dim: int | None) -> None:
    """Serve requests until the pipe ends."""
    # Ctrl-C reaches all processes of a terminal, and only the training process handles it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    slots = slots_SC.numpy()
    with contextlib.suppress(EOFError, ConnectionError):
        while True:
            slot, sequences_B, width = pipe.recv()
            pipe.send_bytes(_filled(arrays_in(slots[slot], len(sequences_B), width, dim), fill, sequences_B, width))


def _filled(arrays: Arrays, fill: Fill, sequences_B: NDArray[np.int64], width: int) -> bytes:
    """Fill the arrays, and return b"", or an error for the run."""
    try:
        fill(arrays, sequences_B, width)
    except Exception as error:
        try:
            return pickle.dumps(error)
        except Exception:
            return pickle.dumps(RuntimeError(f"{type(error).__name__}: {error}"))
    return b""


def _end_with_parent() -> None:
    """Exit when the parent dies. The pipe may not end then, because other workers have inherited it."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


class PageLocked:
    """Page-locks shared memory while it exists, so that a GPU copies from it without the host."""

    def __init__(self, memory: Tensor, device: torch.device) -> None:
        """`is_locked` is False if the system does not allow that."""
        self._memory = memory
        self._runtime: Any = torch.cuda.cudart()  # type: ignore[no-untyped-call]
        code = self._runtime.cudaHostRegister(memory.data_ptr(), memory.nbytes, PORTABLE)
        self.is_locked = int(code) == 0
        if not self.is_locked:
            with contextlib.suppress(RuntimeError):  # CUDA reports the error again at the next kernel
                torch.zeros(1, device=device)

    def end(self) -> None:
        """Unlock the memory. The device must have finished its copies."""
        if self.is_locked:
            self._runtime.cudaHostUnregister(self._memory.data_ptr())
            self.is_locked = False
