"""GPUs with CUDA, by way of CuPy."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import re
import tempfile
import threading
from collections.abc import Generator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gristmill.errors import DeviceError, DeviceMemoryError
from gristmill.gpu.driver import CHECK, DeviceArray, Driver, Event, Module
from gristmill.gpu.modules import find_binary, options_of, source_of

LEAST_CAPABILITY = (7, 0)
LEAST_SHARED_BYTES = 96 << 10
INSTALL = 'Install it with: pip install "gristmill[gpu]".'
OUT_OF_MEMORY = 2  # cudaErrorMemoryAllocation
INSUFFICIENT_DRIVER = 35  # cudaErrorInsufficientDriver, which is also what CuPy reports if there is no driver


class CudaGpus:
    """The GPUs that CUDA finds, by number. Each is opened when it is first used, because that takes memory on it."""

    def __init__(self, *, is_forked: bool = False) -> None:
        """Find nothing yet. `is_forked`: this process was forked from one that has opened GPUs."""
        self.failure = ""  # of a GPU in this process: CUDA may not work any more
        self._is_forked = is_forked
        self._drivers: dict[int, Driver] = {}
        self._lock = threading.Lock()

    @property
    def is_open(self) -> bool:
        """Whether this process has opened a GPU."""
        return bool(self._drivers)

    def count(self) -> int:
        """Return the number of GPUs, at least 1. Raises DeviceError with the reason if CUDA finds none."""
        if self._is_forked:
            raise DeviceError(
                "CUDA cannot be used in this process, because it was forked from a process that uses a GPU. Start it "
                "with the method 'spawn'."
            )
        cupy = _import_cupy()
        try:
            num_gpus = int(cupy.cuda.runtime.getDeviceCount())
        except cupy.cuda.runtime.CUDARuntimeError as error:
            if getattr(error, "status", None) == INSUFFICIENT_DRIVER:
                raise DeviceError(
                    f"CUDA finds no GPU: the NVIDIA driver is missing, or too old for this version of CuPy ({error}). "
                    f"Install or update the driver."
                ) from error
            raise DeviceError(f"CUDA finds no GPU: {error}.") from error
        if num_gpus == 0:
            raise DeviceError("CUDA finds no GPU.")
        return num_gpus

    def open(self, number: int) -> Driver:
        """Return a GPU. Raises DeviceError with the reason if it cannot be used."""
        with self._lock:
            if number not in self._drivers:
                self._drivers[number] = CudaDriver(_import_cupy(), number)
            return self._drivers[number]


def _import_cupy() -> Any:
    try:
        with _writable_cache():
            import cupy  # not at the top: it takes a quarter of a second, and is optional
        _ = cupy.cuda.runtime.getDeviceCount
    except ModuleNotFoundError as error:
        if error.name != "cupy":
            raise DeviceError(_broken(error)) from error
        raise DeviceError(f"CuPy, which runs Gristmill on a GPU, is not installed. {INSTALL}") from error
    except Exception as error:  # two packages of CuPy in one environment, or one that does not match NumPy
        raise DeviceError(_broken(error)) from error
    return cupy


def _broken(error: Exception) -> str:
    # CuPy draws a box around some messages.
    lines = [line.strip() for line in str(error).splitlines() if re.search(r"\w", line)]
    what = lines[0].rstrip(".") if lines else type(error).__name__
    return (
        f"CuPy, which runs Gristmill on a GPU, cannot be imported: {what}. Uninstall every package whose name starts "
        f'with cupy, and run: pip install "gristmill[gpu]".'
    )


@contextlib.contextmanager
def _writable_cache() -> Generator[None, None, None]:
    """Let CuPy make its folder of kernels somewhere else, if it cannot make it where it should be.

    CuPy makes it when it is imported. If that fails, CuPy can no longer be imported in this process.
    """
    try:
        Path(os.environ.get("CUPY_CACHE_DIR") or "~/.cupy/kernel_cache").expanduser().mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # RuntimeError: there is no home
        with _environment("CUPY_CACHE_DIR", _temporary_cache()):
            yield
    else:
        yield


@functools.cache
def _temporary_cache() -> str:
    folder = tempfile.TemporaryDirectory(prefix="gristmill-cupy-")
    atexit.register(folder.cleanup)
    return folder.name


class CudaDriver:
    """A GPU of this machine."""

    most_threads = 1024  # on all of them

    def __init__(self, cupy: Any, index: int) -> None:
        self._cupy = cupy
        self._device = cupy.cuda.Device(index)
        self._modules: dict[tuple[str, ...], Module] = {}
        with self.translated(), self._device:
            properties = cupy.cuda.runtime.getDeviceProperties(index)
            self.name: str = f"{properties['name'].decode()} (GPU {index})"
            self.num_multiprocessors: int = properties["multiProcessorCount"]
            self.shared_bytes: int = properties["sharedMemPerBlockOptin"]
            self._capability = (properties["major"], properties["minor"])
            self._check()
            self._kernels = cupy.cuda.Stream(non_blocking=True)
            self._copies = cupy.cuda.Stream(non_blocking=True)
            self._pool = cupy.cuda.MemoryPool()
        self._lock = threading.RLock()
        self._depth = 0

    def _check(self) -> None:
        if self._capability < LEAST_CAPABILITY:
            least = ".".join(map(str, LEAST_CAPABILITY))
            found = ".".join(map(str, self._capability))
            raise DeviceError(f"{self.name} has compute capability {found}, and Gristmill needs {least} or more.")
        if self.shared_bytes < LEAST_SHARED_BYTES:
            raise DeviceError(
                f"{self.name} gives a block {self.shared_bytes >> 10} KiB of shared memory, and Gristmill needs "
                f"{LEAST_SHARED_BYTES >> 10} KiB."
            )

    @property
    def arrays(self) -> Any:
        return self._cupy

    @contextlib.contextmanager
    def active(self) -> Generator[None, None, None]:
        # None: without a pool.
        allocate = None if os.environ.get(CHECK) == "1" else self._pool.malloc
        # Other threads wait: the streams and the memory of the driver belong to one run.
        with (
            self._lock,
            self.translated(),
            self._device,
            self._kernels,
            self._cupy.cuda.using_allocator(allocate),
        ):
            self._depth += 1
            try:
                yield
            finally:
                self._depth -= 1
                if self._depth == 0:
                    self._free_memory()

    def release(self) -> None:
        # A run of another thread does it at its end.
        if self._lock.acquire(blocking=False):
            try:
                with self.active():
                    pass
            finally:
                self._lock.release()

    def _free_memory(self) -> None:
        # Copies and kernels may still be at work after an error. What fails here failed before, or fails again when
        # the GPU is next used; the error of the run, or Ctrl-C, must not be replaced.
        for step in (self._copies.synchronize, self._kernels.synchronize, self._pool.free_all_blocks):
            with contextlib.suppress(self._cupy.cuda.runtime.CUDARuntimeError):
                step()

    @contextlib.contextmanager
    def translated(self) -> Generator[None, None, None]:
        cuda = self._cupy.cuda
        try:
            yield
        except cuda.memory.OutOfMemoryError as error:
            raise DeviceMemoryError(
                f"the memory of {self.name} is full: {error}. Stop other programs that use it, or pass another device, "
                f"such as 'cuda:1' or 'cpu'."
            ) from error
        except (
            cuda.runtime.CUDARuntimeError,
            cuda.driver.CUDADriverError,
            cuda.compiler.CompileException,
        ) as error:
            name = getattr(self, "name", "the GPU")
            if getattr(error, "status", None) == OUT_OF_MEMORY:  # of the context, or of pinned memory
                raise DeviceMemoryError(f"CUDA has not enough memory on {name} or on the host: {error}.") from error
            raise DeviceError(f"{name} has failed: {error}. Start a new process, or pass device='cpu'.") from error

    def load(self, source: str, **defines: str) -> Module:
        key = (source, *options_of(defines))
        if key not in self._modules:
            self._modules[key] = _CudaModule(self._compiled(source, defines))
        return self._modules[key]

    def _compiled(self, source: str, defines: dict[str, str]) -> Any:
        binary = find_binary(source, defines, self._capability)
        if binary is not None:
            # A driver that is older than the compiler of the binary may refuse it.
            with contextlib.suppress(self._cupy.cuda.driver.CUDADriverError):
                module = self._cupy.RawModule(path=str(binary))
                module.compile()  # loads it
                return module
        try:
            return self._compiled_now(source, defines)
        except OSError:
            # CuPy cannot write its cache. Then the binary is kept in memory only.
            with _environment("CUPY_CACHE_IN_MEMORY", "1"):
                return self._compiled_now(source, defines)

    def _compiled_now(self, source: str, defines: dict[str, str]) -> Any:
        cuda = self._cupy.cuda
        module = self._cupy.RawModule(code=source_of(source), options=options_of(defines))
        try:
            module.compile()
        except (cuda.runtime.CUDARuntimeError, cuda.driver.CUDADriverError):
            raise
        except (ImportError, RuntimeError) as error:  # CuPy does not find the library, or an error of the library
            raise DeviceError(
                f"NVRTC, the CUDA library that compiles the kernels for {self.name}, cannot be used: {error}. {INSTALL}"
            ) from error
        return module

    def free_bytes(self) -> int:
        self._pool.free_all_blocks()  # those without an array
        return int(self._cupy.cuda.runtime.memGetInfo()[0])

    def address_of(self, array: DeviceArray) -> int:
        return int(array.data.ptr)

    def clear(self, array: DeviceArray) -> None:
        array.data.memset_async(0, array.nbytes, self._kernels)

    def upload(self, to: DeviceArray, values: NDArray[Any]) -> None:
        to.set(values, stream=self._kernels)

    def to_host(self, array: DeviceArray) -> NDArray[Any]:
        values: NDArray[Any] = array.get(stream=self._kernels)
        return values

    def make_pinned(self, num_bytes: int) -> NDArray[np.uint8]:
        return np.frombuffer(self._cupy.cuda.alloc_pinned_memory(num_bytes), np.uint8, num_bytes)

    def copy_text(self, to: DeviceArray, text: NDArray[np.uint8]) -> Event:
        to.data.copy_from_host_async(text.ctypes.data, text.nbytes, self._copies)
        return _CudaEvent(self._event(self._copies))

    def mark(self) -> Event:
        return _CudaEvent(self._event(self._kernels))

    def let_kernels_wait(self, event: Event) -> None:
        self._kernels.wait_event(event.event)  # type: ignore[attr-defined]

    def let_copies_wait(self, event: Event) -> None:
        self._copies.wait_event(event.event)  # type: ignore[attr-defined]

    def _event(self, stream: Any) -> Any:
        event = self._cupy.cuda.Event(disable_timing=True)
        event.record(stream)
        return event


class _CudaEvent:
    def __init__(self, event: Any) -> None:
        self.event = event

    def is_done(self) -> bool:
        return bool(self.event.done)

    def wait(self) -> None:
        self.event.synchronize()


class _CudaModule:
    def __init__(self, module: Any) -> None:
        self._module = module
        self._kernels: dict[str, Any] = {}

    def launch(
        self, kernel: str, *arguments: Any, blocks: int, threads: int, shared_bytes: int = 0, together: bool = False
    ) -> None:
        if kernel not in self._kernels:
            self._kernels[kernel] = self._module.get_function(kernel)
        function = self._kernels[kernel]
        if shared_bytes > max(48 << 10, function.max_dynamic_shared_size_bytes):
            function.max_dynamic_shared_size_bytes = shared_bytes
        function.kernel((blocks,), (threads,), arguments, shared_mem=shared_bytes, enable_cooperative_groups=together)


@contextlib.contextmanager
def _environment(name: str, value: str) -> Generator[None, None, None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
