"""Which device counts and merges: the request of a caller ("auto", "cpu", "cuda", "cuda:1") and what was chosen.

`auto` compares the size of the work with the sizes from which a GPU is faster (docs/gpu.md). A GPU that this process
already uses pays from a few megabytes of text. The first use in a process costs about 0.75 s for CuPy, the CUDA context
and the kernels, in which two threads train on hundreds of megabytes, and sixteen on two gigabytes.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import re
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gristmill.arguments import check_choice
from gristmill.errors import DeviceError, DeviceMemoryError, DeviceWarning, OptionError, warn_user
from gristmill.gpu import cuda
from gristmill.gpu.driver import Driver

# The kinds of devices. One GPU of several has a number: "cuda:1".
DEVICES = ("auto", "cpu", "cuda")
_NUMBERED = re.compile(r"cuda:([0-9]{1,4})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Crossover:
    """The size from which a GPU is faster than the threads of the CPU."""

    unit: str
    warm: int  # with a GPU that this process already uses
    cold: int  # with two threads, and a GPU that this process has yet to start
    per_thread: int  # that each thread more adds to `cold`

    def least(self, *, num_threads: int, is_warm: bool) -> int:
        """Return the size from which a GPU pays."""
        return self.warm if is_warm else self.cold + self.per_thread * max(num_threads - 2, 0)


TEXT = Crossover("bytes of text", warm=32_000_000, cold=600_000_000, per_thread=110_000_000)
WORDS = Crossover("bytes of distinct words", warm=1_000_000, cold=35_000_000, per_thread=4_000_000)


@dataclass(frozen=True, slots=True)
class Choice:
    """Where a stage runs."""

    drivers: tuple[Driver, ...]  # none: on the CPU
    reason: str = ""  # none if there was nothing to choose


class Device:
    """The device that a caller asked for, in one run. If a GPU fails with `auto`, the CPU does the rest of the run."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.reason = ""  # why the last stage ran where it ran
        self._has_failed = False
        self._used: tuple[Driver, ...] = ()

    @classmethod
    def checked(cls, device: Any) -> Device:
        """Return the request. Raises OptionError for another name, and DeviceError if the GPU cannot be used."""
        number = _NUMBERED.fullmatch(device) if isinstance(device, str) else None
        if number is None:
            request = cls(check_choice("device", device, DEVICES))
        else:
            request = cls(device)
        if request.is_required:
            request._drivers()
        return request

    @property
    def is_required(self) -> bool:
        """Whether the caller asked for a GPU."""
        return self.name.startswith("cuda")

    def for_text(self, num_bytes: int | None, *, num_threads: int, obstacle: str = "") -> Choice:
        """Choose where text is counted. The size is None if it is unknown or of compressed files.

        obstacle: why a GPU cannot count this text, as a sentence; empty if it can.
        """
        if obstacle:
            return self._chosen((), obstacle if self._may_use_gpu() else "")
        return self._by_size(TEXT, num_bytes, num_threads)

    def for_words(self, num_bytes: int, *, num_threads: int) -> Choice:
        """Choose where merges are learned from words in the memory of the host."""
        return self._by_size(WORDS, num_bytes, num_threads)

    def give_up(self, error: DeviceError) -> None:
        """Continue on the CPU after this error of a GPU, or raise the error if the caller asked for the GPU."""
        if self.is_required:
            raise error
        if self._has_failed:
            return
        self._has_failed = True
        self.reason = f"the GPU failed: {error}"
        # Too little memory is no fault of the GPU.
        if not isinstance(error, DeviceMemoryError):
            warn_user(f"the CPU continues without the GPU: {error}", DeviceWarning)

    @contextlib.contextmanager
    def released(self) -> Generator[None, None, None]:
        """Return the memory of the GPUs that were chosen to the system at the end of the block."""
        try:
            yield
        finally:
            for driver in self._used:
                with contextlib.suppress(DeviceError), driver.active():
                    pass  # the end of the outermost active() frees the memory

    def _by_size(self, crossover: Crossover, size: int | None, num_threads: int) -> Choice:
        if self.is_required:
            return self._chosen(self._drivers(), f"device={self.name!r}")
        if not self._may_use_gpu():
            return Choice(())
        least = crossover.least(num_threads=num_threads, is_warm=_is_warm())
        if size is None:
            return self._chosen((), "the size of the text is unknown before it is read")
        pays = f"{size:,} {crossover.unit}, and a GPU pays from {least:,}"
        if size < least:
            return self._chosen((), pays)
        try:
            return self._chosen(self._drivers(), pays)
        except DeviceError:
            return Choice(())

    def _chosen(self, drivers: tuple[Driver, ...], reason: str) -> Choice:
        self.reason = reason
        self._used = drivers or self._used
        return Choice(drivers, reason)

    def _may_use_gpu(self) -> bool:
        return self.name != "cpu" and not self._has_failed and (self.is_required or _may_have_gpu())

    def _drivers(self) -> tuple[Driver, ...]:
        drivers, error = _found()
        if not drivers:
            raise DeviceError(f"device={self.name!r} cannot be used (pass device='cpu' to do without a GPU): {error}")
        number = _NUMBERED.fullmatch(self.name)
        if number is None:
            return drivers
        if int(number[1]) >= len(drivers):
            names = ", ".join(f"cuda:{i}" for i in range(len(drivers)))
            raise OptionError(f"device={self.name!r}, but the usable GPUs are {names}. Pass one of them, or 'cuda'.")
        return (drivers[int(number[1])],)


CPU = Device("cpu")


@functools.cache
def _found() -> tuple[tuple[Driver, ...], str]:
    """Return the usable GPUs, or the reason why there are none."""
    try:
        return cuda.find_drivers(), ""
    except DeviceError as error:
        return (), str(error)


def _is_warm() -> bool:
    """Return whether this process already uses a GPU."""
    return _found.cache_info().currsize > 0 and bool(_found()[0])


def _may_have_gpu() -> bool:
    """Return False if there is certainly no GPU, without the import of CuPy, which takes a quarter of a second."""
    if _found.cache_info().currsize:
        return bool(_found()[0])
    has_device = any(Path("/dev").glob("nvidia[0-9]*")) or Path("/dev/dxg").exists()  # dxg: Windows' Linux
    return has_device and importlib.util.find_spec("cupy") is not None


def missing_gpu() -> str | None:
    """Return why no GPU can be used, or None if one can."""
    drivers, error = _found()
    return None if drivers else error.rstrip(".")


def device_names(drivers: tuple[Driver, ...]) -> str:
    """Return the names of these GPUs, or "cpu" for none."""
    return ", ".join(driver.name for driver in drivers) or "cpu"


def _forget() -> None:
    """Find GPUs again: a child process cannot use those of its parent."""
    _found.cache_clear()
    cuda.find_drivers.cache_clear()


os.register_at_fork(after_in_child=_forget)
