"""CudaCapture: captures work as CUDA graphs, which share their memory."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator
from typing import Any

import torch

from gristmill.lm.training.graphed_step import Stats

__all__ = ["CudaCapture"]


class CudaCapture:
    """Captures work on a GPU. Graphs share memory, because only one of them runs at a time.

    A graph overwrites the temporary memory of all others, so their outputs are valid only until any graph is replayed.
    """

    def __init__(self, device: torch.device) -> None:
        """Nothing is allocated yet."""
        index = torch.cuda.current_device() if device.index is None else device.index
        self._device = torch.device("cuda", index)
        # Warm-up and capture use the same stream, so that gradients are added on it in both, and the libraries have
        # their workspaces for it before a capture.
        self._stream = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
        self._pool: Any = torch.cuda.graph_pool_handle()

    def warm_up(self, work: Callable[[], object]) -> None:
        """Run the work twice. The second time, it raises a `RuntimeError` where it waits for the device.

        The first pass compiles and loads kernels. The second adds to existing gradients, as in a graph.
        """
        current = torch.cuda.current_stream(self._device)
        self._stream.wait_stream(current)
        try:
            with torch.cuda.stream(self._stream):
                work()
                with _no_waiting():
                    work()
        finally:
            current.wait_stream(self._stream)

    def captured(self, work: Callable[[], Stats]) -> tuple[Callable[[], None], Stats]:
        """Capture the work. Return (the function that replays it, its results)."""
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize(self._device)
        torch.cuda.empty_cache()  # a graph cannot use memory that torch keeps for other work
        with torch.cuda.stream(self._stream), self._capturing(graph):
            stats = work()
        return graph.replay, stats

    @contextlib.contextmanager
    def _capturing(self, graph: torch.cuda.CUDAGraph) -> Iterator[None]:
        generator = torch.cuda.default_generators[self._device.index]
        state = generator.clone_state()
        with _no_collecting():
            # thread_local: other threads, which prepare batches, may allocate page-locked memory meanwhile.
            graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
            try:
                yield
            finally:
                try:
                    graph.capture_end()
                except RuntimeError:
                    self._end_failed(generator, state)
                    raise

    def _end_failed(self, generator: Any, state: Any) -> None:
        """End a capture that CUDA has rejected. Torch then leaves its generator and its allocator in capture mode."""
        generator.graphsafe_set_state(state)
        with contextlib.suppress(RuntimeError, AttributeError):  # the allocator may have ended it already
            torch._C._cuda_endAllocateToPool(self._device.index, self._pool)


@contextlib.contextmanager
def _no_collecting() -> Iterator[None]:
    """Disable the garbage collector, which may free objects of CUDA. That is not allowed in a capture."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@contextlib.contextmanager
def _no_waiting() -> Iterator[None]:
    """Raise a `RuntimeError` where torch makes the host wait for the device, which a graph cannot do."""
    before = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(before)
