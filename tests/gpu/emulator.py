"""A GPU for the tests: the CUDA kernels on the CPU, with the emulator of `cpp/tests/cuda_emulator.hpp`."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import hashlib
import os
import shutil
import subprocess
import threading
import weakref
from collections.abc import Callable
from pathlib import Path

import numpy as np

from gristmill.errors import DeviceError, DeviceMemoryError
from gristmill.gpu import modules

ROOT = Path(__file__).resolve().parents[2]
SOURCE = Path(__file__).with_name("emulated_kernels.cpp")
EMULATOR = ROOT / "cpp/tests/cuda_emulator.hpp"


def find_compiler() -> str | None:
    """Return a compiler for C++20, or None."""
    names = [os.environ["CXX"]] if "CXX" in os.environ else ["g++", "clang++", "c++"]
    return next((path for name in names if (path := shutil.which(name))), None)


class EmulatedDriver:
    """A small GPU. `folder` keeps the compiled kernels."""

    name = "the emulator"
    num_multiprocessors = 2
    shared_bytes = 227 << 10
    most_threads = 64

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._modules: dict[tuple[str, ...], EmulatedModule] = {}
        self.arrays = EmulatedArrays(self)
        self.memory = 1 << 30
        self.used = 0  # of the memory, by arrays
        self._lock = threading.RLock()

    @contextlib.contextmanager
    def active(self):
        with self._lock, self.translated():
            yield

    def release(self) -> None:
        pass

    @contextlib.contextmanager
    def translated(self):
        try:
            yield
        except EmulatedMemoryError as error:
            raise DeviceMemoryError(f"the memory of the GPU is full: {error}") from error

    def load(self, source: str, **defines: str) -> EmulatedModule:
        options = modules.options_of(defines)
        if (source, *options) not in self._modules:
            library = _compiled(self._folder, source, options)
            self._modules[source, *options] = EmulatedModule(library, self)
        return self._modules[source, *options]

    def free_bytes(self) -> int:
        return self.memory - self.used

    def give_back(self, num_bytes: int) -> None:
        self.used -= num_bytes

    def address_of(self, array) -> int:
        return array.ctypes.data

    def clear(self, array) -> None:
        array.fill(0)

    def upload(self, to, values) -> None:
        assert to.shape == values.shape and to.dtype == values.dtype  # as CuPy demands
        to[...] = values

    def to_host(self, array):
        return array.copy()

    def make_pinned(self, num_bytes: int):
        return np.empty(num_bytes, np.uint8)

    def copy_text(self, to, text) -> EmulatedEvent:
        to[: len(text)] = text
        return EmulatedEvent()

    def mark(self) -> EmulatedEvent:
        return EmulatedEvent()

    def let_kernels_wait(self, event: EmulatedEvent) -> None:
        pass

    def let_copies_wait(self, event: EmulatedEvent) -> None:
        pass


class InstalledGpus:
    """These drivers as the GPUs of a machine, in a process that has used them before. An error is one that cannot."""

    def __init__(self, drivers, message: str = "") -> None:
        self.failure = ""
        self._drivers, self._message = drivers, message

    @property
    def is_open(self) -> bool:
        return bool(self._drivers)

    def count(self) -> int:
        if not self._drivers:
            raise DeviceError(self._message)
        return len(self._drivers)

    def open(self, number: int):
        driver = self._drivers[number]
        if isinstance(driver, Exception):
            raise driver
        return driver


class EmulatedMemoryError(Exception):
    """As CuPy's: no MemoryError."""


class EmulatedEvent:
    """All work is done at once."""

    def is_done(self) -> bool:
        return True

    def wait(self) -> None:
        pass


class EmulatedArrays:
    """NumPy, where memory has a limit and new arrays have old contents."""

    def __init__(self, driver: EmulatedDriver) -> None:
        self._driver = driver

    def __getattr__(self, name: str):
        return getattr(np, name)

    def zeros(self, shape, dtype):
        array = self.empty(shape, dtype)
        array.fill(0)
        return array

    def empty(self, shape, dtype):
        num_bytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
        if num_bytes > self._driver.free_bytes():
            raise EmulatedMemoryError(f"{num_bytes:,} bytes")
        # As aligned as CUDA's.
        memory = np.full(num_bytes + 256, 0xCD, np.uint8)
        self._driver.used += num_bytes
        weakref.finalize(memory, self._driver.give_back, num_bytes).atexit = False
        begin = -memory.ctypes.data % 256
        return memory[begin : begin + num_bytes].view(dtype).reshape(shape)


class EmulatedModule:
    """The kernels of one source."""

    def __init__(self, library: ctypes.CDLL, driver: EmulatedDriver) -> None:
        self._library = library
        self._driver = driver

    def launch(
        self, kernel: str, *arguments, blocks: int, threads: int, shared_bytes: int = 0, together: bool = False
    ) -> None:
        assert threads <= self._driver.most_threads and shared_bytes <= self._driver.shared_bytes
        assert not together or blocks <= self._driver.num_multiprocessors * 2
        bits = np.array([_bits(argument) for argument in arguments], np.uint64)
        launch = self._library[f"launch_{kernel}"]
        launch.restype = ctypes.c_uint
        num = launch(ctypes.c_void_p(bits.ctypes.data), len(bits), blocks, threads, ctypes.c_uint64(shared_bytes))
        assert num == len(bits), f"{kernel} has {num} arguments, not {len(bits)}"


class LateDriver(EmulatedDriver):
    """A GPU that does nothing before it must, so that a missing wait gives a wrong result."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.kernels, self.copies = LateStream(), LateStream()
        self.arrays = LateArrays(self)

    def load(self, source: str, **defines: str) -> LateModule:
        return LateModule(super().load(source, **defines), self)

    def clear(self, array) -> None:
        self.kernels.add(lambda: array.fill(0))

    def upload(self, to, values) -> None:
        copied = values.copy()
        self.kernels.add(lambda: EmulatedDriver.upload(self, to, copied))

    def to_host(self, array):
        self.kernels.mark().wait()
        return array.copy()

    def copy_text(self, to, text) -> LateEvent:
        self.copies.add(lambda: EmulatedDriver.copy_text(self, to, text))
        return self.copies.mark()

    def mark(self) -> LateEvent:
        return self.kernels.mark()

    def let_kernels_wait(self, event: LateEvent) -> None:
        self.kernels.add(event.wait)

    def let_copies_wait(self, event: LateEvent) -> None:
        self.copies.add(event.wait)


class LateStream:
    """Work that is done in order, when something waits for it."""

    def __init__(self) -> None:
        self._work: list[Callable[[], object] | None] = []
        self.num_done = 0

    def add(self, work: Callable[[], object]) -> None:
        self._work.append(work)

    def mark(self) -> LateEvent:
        return LateEvent(self, len(self._work))

    def run_to(self, num: int) -> None:
        while self.num_done < num:
            work, self._work[self.num_done] = self._work[self.num_done], None
            self.num_done += 1
            assert work is not None
            work()


class LateEvent:
    """The end of some work of a stream."""

    def __init__(self, stream: LateStream, num: int) -> None:
        self._stream, self._num = stream, num

    def is_done(self) -> bool:
        return self._stream.num_done >= self._num

    def wait(self) -> None:
        self._stream.run_to(self._num)


class LateArrays(EmulatedArrays):
    """Arrays that late kernels may use after the host has dropped them, as those of CuPy."""

    def __init__(self, driver: LateDriver) -> None:
        super().__init__(driver)
        self._kept: list[np.ndarray] = []

    def empty(self, shape, dtype):
        self._kept.append(super().empty(shape, dtype))
        return self._kept[-1]

    def argsort(self, array):
        return np.argsort(self._driver.to_host(array))


class LateModule:
    """The kernels of one source, started late."""

    def __init__(self, module: EmulatedModule, driver: LateDriver) -> None:
        self._module, self._driver = module, driver

    def launch(self, kernel: str, *arguments, **options) -> None:
        self._driver.kernels.add(lambda: self._module.launch(kernel, *arguments, **options))


def _bits(argument) -> int:
    if isinstance(argument, np.ndarray):
        assert argument.flags.c_contiguous
        return argument.ctypes.data
    assert isinstance(argument, np.uint32 | np.uint64)  # CuPy passes a Python int as 64 bits with a sign
    return int(argument)


def _compiled(folder: Path, source: str, options: tuple[str, ...]) -> ctypes.CDLL:
    compiler = find_compiler()
    assert compiler is not None
    command = [compiler, "-O1", "-shared", "-fPIC", "-pthread", *options, f'-DGRISTMILL_SOURCE="kernels/{source}.cu"']
    command += [f"-I{EMULATOR.parent}", f"-I{modules.KERNELS.parent}"]
    text = "\0".join([*command, modules.source_of(source), SOURCE.read_text(), EMULATOR.read_text()])
    library = folder / f"{source}-{hashlib.sha256(text.encode()).hexdigest()[:16]}.so"
    # The processes of `pytest -n` share the folder.
    with (folder / f"{library.stem}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not library.exists():
            part = library.with_suffix(".part")
            subprocess.run([*command, str(SOURCE), "-o", str(part)], check=True, timeout=300)
            part.rename(library)
    return ctypes.CDLL(str(library))
