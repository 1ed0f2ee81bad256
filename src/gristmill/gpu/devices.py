"""Which device counts and merges: the request of a caller ("auto", "cpu", "cuda", "cuda:1"), and the choice per stage.

`auto` compares the size of the work with the sizes from which a GPU is faster (docs/gpu.md). A GPU that this process
already uses is faster from 32 MB of text on. The first use in a process costs about 0.75 s for CuPy, the CUDA context
and the kernels, in which two threads train on hundreds of megabytes, and sixteen on two gigabytes.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gristmill.errors import DeviceError, DeviceMemoryError, DeviceWarning, OptionError, warn_user
from gristmill.gpu.cuda import CudaGpus
from gristmill.gpu.driver import Driver, Gpus

# Without the number of one GPU, such as "cuda:1".
DEVICES = ("auto", "cpu", "cuda")
_NUMBERED = re.compile(r"cuda:(0|[1-9][0-9]{0,3})", re.ASCII)

# Those of this process. A child process cannot use the GPUs of its parent, and must not close them either.
gpus: Gpus = CudaGpus()
_gpus_of_parents: list[Gpus] = []


@dataclass(frozen=True, slots=True)
class Crossover:
    """The size from which a GPU is faster than the threads of the CPU."""

    unit: str
    warm: int  # with a GPU that this process already uses
    cold: int  # with two threads, and a GPU that this process has yet to start
    per_thread: int  # that each thread more adds to `cold`

    def least(self, *, num_threads: int, is_warm: bool) -> int:
        """Return the size from which a GPU is used."""
        return self.warm if is_warm else self.cold + self.per_thread * max(num_threads - 2, 0)


TEXT = Crossover("bytes of text", warm=32_000_000, cold=600_000_000, per_thread=110_000_000)
WORDS = Crossover("bytes of distinct words", warm=1_000_000, cold=35_000_000, per_thread=4_000_000)


@dataclass(frozen=True, slots=True)
class Choice:
    """Where a stage runs."""

    drivers: tuple[Driver, ...] = ()  # none: on the CPU
    reason: str = ""  # empty if there was nothing to choose


class Device:
    """The device that a caller asked for, in one run. If a GPU fails with `auto`, the CPU does the rest of the run."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._failure = ""
        self._used: tuple[Driver, ...] = ()

    @classmethod
    def checked(cls, device: Any) -> Device:
        """Return the request. Raises OptionError for another name, and DeviceError if the GPU cannot be used."""
        if not isinstance(device, str) or not (device in DEVICES or _NUMBERED.fullmatch(device)):
            raise OptionError(
                f"device={device!r} is not valid. Pass 'auto', 'cpu', 'cuda', or one GPU by its number, such as "
                f"'cuda:0'."
            )
        request = cls(device)
        if request.is_required:
            request._open()
        return request

    @property
    def is_required(self) -> bool:
        """Whether the caller asked for a GPU."""
        return self.name.startswith("cuda")

    def for_text(self, num_bytes: int | None, *, num_threads: int, obstacle: str = "", unknown: str = "") -> Choice:
        """Choose where text is counted.

        num_bytes: size of the text; None for text that `auto` counts on the CPU.
        obstacle: why a GPU cannot count this text, as a sentence; empty if it can.
        unknown: why `auto` counts it on the CPU, if there is no size.
        """
        if obstacle:
            return Choice((), obstacle if self._may_use_gpu() else "")
        return self._by_size(TEXT, num_bytes, num_threads, unknown)

    def for_words(self, num_bytes: int, *, num_threads: int) -> Choice:
        """Choose where merges are learned from words in the memory of the host."""
        return self._by_size(WORDS, num_bytes, num_threads)

    def can_do_without(self, error: DeviceError) -> bool:
        """Stay on the CPU after this error of a GPU. Returns False if the caller asked for the GPU, and gets the error.

        It is not raised here: the frame of this method would keep it, and with it the arrays of the frames below.
        """
        # Too little memory for one run is no fault of the GPU.
        has_failed = not isinstance(error, DeviceMemoryError)
        if has_failed:
            gpus.failure = gpus.failure or str(error)
        if self.is_required:
            return False
        if has_failed and not self._failure:
            warn_user(f"the CPU does the work of a GPU that failed: {error}", DeviceWarning)
        self._failure = self._failure or str(error)
        return True

    @contextlib.contextmanager
    def released(self) -> Generator[None, None, None]:
        """Return the memory of the GPUs that were chosen to the system at the end of the block."""
        try:
            yield
        finally:
            for driver in self._used:
                with contextlib.suppress(DeviceError):
                    driver.release()

    def _by_size(self, crossover: Crossover, size: int | None, num_threads: int, unknown: str = "") -> Choice:
        if self._failure:
            return Choice((), self._failure)
        if self.is_required:
            return self._chosen("requested")
        if not self._may_use_gpu():
            return Choice()
        if gpus.failure:
            return Choice((), f"a GPU has failed in this process: {gpus.failure}")
        if size is None:
            return Choice((), unknown)
        least = crossover.least(num_threads=num_threads, is_warm=gpus.is_open)
        reason = f"{size:,} {crossover.unit}; a GPU is used from {least:,}"
        if size < least:
            return Choice((), reason)
        try:
            return self._chosen(reason)
        except DeviceError as error:
            return Choice((), f"no GPU can be used: {error}")

    def _chosen(self, reason: str) -> Choice:
        self._used = self._open()
        return Choice(self._used, reason)

    def _may_use_gpu(self) -> bool:
        return self.name != "cpu" and (self.is_required or gpus.is_open or _may_have_gpu())

    def _open(self) -> tuple[Driver, ...]:
        number = _NUMBERED.fullmatch(self.name)
        try:
            if number is None:
                return open_gpus(most=1 if self.name == "auto" else None)
            num_gpus = gpus.count()
            if int(number[1]) < num_gpus:
                return (gpus.open(int(number[1])),)
        except DeviceError as error:
            if not self.is_required:
                raise
            text = f"device={self.name!r} cannot be used: {error} To do without a GPU, pass device='cpu'."
            raise type(error)(text) from error
        names = ", ".join(f"'cuda:{i}'" for i in range(num_gpus))
        raise OptionError(
            f"device={self.name!r} is not a GPU of this machine. Pass {names}, or 'cuda' for all of them."
        )


CPU = Device("cpu")


def open_gpus(most: int | None = None) -> tuple[Driver, ...]:
    """Return the usable GPUs of this machine, at most this many. Raises DeviceError with the reason without any."""
    usable: list[Driver] = []
    errors: list[DeviceError] = []
    for number in range(gpus.count()):
        if len(usable) == most:
            break
        try:
            usable.append(gpus.open(number))
        except DeviceError as error:
            errors.append(error)
    if not usable:
        raise type(errors[0])(" ".join(map(str, errors)))
    return tuple(usable)


def missing_gpu() -> str | None:
    """Return why no GPU can be used, or None if one can."""
    try:
        open_gpus(most=1)
    except DeviceError as error:
        return str(error).rstrip(".")
    return None


def device_names(drivers: Sequence[Driver]) -> str:
    """Return the names of these GPUs, or "cpu" for none."""
    return ", ".join(driver.name for driver in drivers) or "cpu"


def _may_have_gpu() -> bool:
    """Return False if there is certainly no GPU, without the import of CuPy, which takes a quarter of a second."""
    has_device = any(Path("/dev").glob("nvidia[0-9]*")) or Path("/dev/dxg").exists()  # dxg: Windows' Linux
    return has_device and importlib.util.find_spec("cupy") is not None


def _find_again() -> None:
    global gpus
    _gpus_of_parents.append(gpus)
    gpus = CudaGpus(is_forked=any(each.is_open for each in _gpus_of_parents))


os.register_at_fork(after_in_child=_find_again)
