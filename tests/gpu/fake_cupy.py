"""The part of CuPy that `gristmill.gpu.cuda` uses, without a GPU. Tests replace what must fail."""

from __future__ import annotations

import contextlib
import types


class CUDARuntimeError(RuntimeError):
    """As CuPy's: the number of the error is `status`."""

    def __init__(self, status: int, message: str = "cudaErrorUnknown: unknown error") -> None:
        super().__init__(message)
        self.status = status


class CUDADriverError(RuntimeError):
    pass


class OutOfMemoryError(MemoryError):
    pass


class CompileException(Exception):
    pass


class Stream(contextlib.nullcontext):
    def __init__(self, *, non_blocking: bool) -> None:
        super().__init__()
        assert non_blocking

    def synchronize(self) -> None:
        pass


class Pool:
    is_free = False

    def malloc(self, size: int) -> None:
        raise OutOfMemoryError(f"Out of memory allocating {size:,} bytes")

    def free_all_blocks(self) -> None:
        self.is_free = True


def make_cupy(capability: tuple[int, int] = (9, 0), shared_kib: int = 227, num_devices: int = 1):
    """Return a module with these GPUs. `compiled` has the arguments of each RawModule that was compiled."""
    properties = {
        "name": b"GPU of a test",
        "multiProcessorCount": 4,
        "sharedMemPerBlockOptin": shared_kib << 10,
        "major": capability[0],
        "minor": capability[1],
    }
    cupy = types.SimpleNamespace(compiled=[], compile=lambda arguments: None)

    class RawModule:
        def __init__(self, **arguments) -> None:
            self.arguments = arguments

        def compile(self) -> None:
            cupy.compile(self.arguments)
            cupy.compiled.append(self.arguments)

    cupy.RawModule = RawModule
    cupy.cuda = types.SimpleNamespace(
        runtime=types.SimpleNamespace(
            CUDARuntimeError=CUDARuntimeError,
            getDeviceCount=lambda: num_devices,
            getDeviceProperties=lambda index: properties,
            memGetInfo=lambda: (1 << 30, 2 << 30),
        ),
        driver=types.SimpleNamespace(CUDADriverError=CUDADriverError),
        memory=types.SimpleNamespace(OutOfMemoryError=OutOfMemoryError),
        compiler=types.SimpleNamespace(CompileException=CompileException),
        Device=lambda index: contextlib.nullcontext(),
        Stream=Stream,
        MemoryPool=Pool,
        using_allocator=lambda allocator: contextlib.nullcontext(),
    )
    return cupy
