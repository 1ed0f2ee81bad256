"""What the stages need of a GPU. `cuda.py` provides it for CUDA; the tests provide it with an emulator on the CPU."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

# With the value 1 in this environment variable, all pairs are counted again after each launch, and no array is part of
# a larger block of memory, in which compute-sanitizer would not see accesses past the end of the array.
CHECK = "GRISTMILL_GPU_CHECK"

# An array in the memory of the GPU: a `cupy.ndarray`, or a NumPy array with the emulator.
DeviceArray = Any


class Event(Protocol):
    """A point in the work of the GPU."""

    def is_done(self) -> bool: ...
    def wait(self) -> None:
        """Block this thread until the GPU has reached the point."""


class Module(Protocol):
    """The compiled kernels of one CUDA source."""

    def launch(
        self, kernel: str, *arguments: Any, blocks: int, threads: int, shared_bytes: int = 0, together: bool = False
    ) -> None:
        """Start a kernel. Arguments are device arrays, `np.uint32` or `np.uint64`.

        `together`: all blocks run at the same time, so they may wait for each other.
        """


class Driver(Protocol):
    """One GPU. All other methods are called inside of `active()`, which raises `DeviceError` for what CUDA reports."""

    name: str  # for messages
    num_multiprocessors: int
    shared_bytes: int  # that a block can have
    most_threads: int  # of a block

    @property
    def arrays(self) -> Any:
        """The module with the functions that make arrays: `cupy`, or `numpy` with the emulator."""

    def active(self) -> AbstractContextManager[None]:
        """Make this GPU the current one of this thread. May be nested; the outermost one frees unused memory."""

    def release(self) -> None:
        """Return unused memory to the system, unless another thread uses the GPU. Does not wait."""

    def translated(self) -> AbstractContextManager[None]:
        """Raise `DeviceError` for what CUDA reports, as `active()` does at its end."""

    def load(self, source: str, **defines: str) -> Module:
        """Return the module of `kernels/<source>.cu`, compiled with these macros."""

    def free_bytes(self) -> int:
        """Return how much memory new arrays can have."""

    def address_of(self, array: DeviceArray) -> int: ...
    def clear(self, array: DeviceArray) -> None:
        """Fill an array with zeros."""

    def upload(self, to: DeviceArray, values: NDArray[Any]) -> None:
        """Copy values to an array before the kernels that are started next."""

    def to_host(self, array: DeviceArray) -> NDArray[Any]:
        """Copy an array to the host, after all kernels that were started."""

    def make_pinned(self, num_bytes: int) -> NDArray[np.uint8]:
        """Return host memory that the GPU can read while this thread does other work."""

    def copy_text(self, to: DeviceArray, text: NDArray[np.uint8]) -> Event:
        """Start to copy pinned text beside the kernels. The event is the end of the copy."""

    def mark(self) -> Event:
        """Return the point after all kernels that were started."""

    def let_kernels_wait(self, event: Event) -> None:
        """Let kernels that are started from now on wait for the event."""

    def let_copies_wait(self, event: Event) -> None:
        """Let copies of text that are started from now on wait for the event."""


class Gpus(Protocol):
    """The GPUs of a machine, by number."""

    failure: str  # of a GPU in this process; empty if none has failed

    @property
    def is_open(self) -> bool:
        """Whether this process has opened a GPU."""

    def count(self) -> int:
        """Return the number of GPUs, at least 1. Raises DeviceError with the reason if there are none."""

    def open(self, number: int) -> Driver:
        """Return a GPU. Raises DeviceError with the reason if it cannot be used."""


def all_active(drivers: Sequence[Driver]) -> AbstractContextManager[None]:
    """Make all GPUs active, the first one as the current one."""
    # Threads that wait for several GPUs wait for them in the same order, or they could wait for each other forever.
    return _active_in_turn([*sorted(drivers, key=id), drivers[0]])


# Not with an ExitStack, which keeps an exception, and so the arrays of its frames, in a reference cycle.
@contextmanager
def _active_in_turn(drivers: Sequence[Driver]) -> Generator[None, None, None]:
    if not drivers:
        yield
        return
    with drivers[0].active(), _active_in_turn(drivers[1:]):
        yield
