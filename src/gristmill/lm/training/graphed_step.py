"""GraphedStep: forward and backward of a micro-batch, captured once per shape and replayed from then on.

A step of a small model launches hundreds of short kernels, and the host needs longer to launch them than the GPU needs
to run them. A captured graph is launched at once. It reads and writes the same tensors each time, so everything that a
step exchanges with the rest of the run has a fixed place:

    inputs      the fields of the batch, the schedule of the model and the share of the micro-batch
    gradients   persistent tensors, to which the backward pass adds; `begin` sets them to 0. If a step is a single
                graph, the tensors that its backward pass writes, which saves the addition
    buffers     the buffers of the model, which a replay updates in place
    statistics  tensors that the next replay overwrites

Capturing changes nothing in the run: warm-up passes run on inputs of zeros, and gradients, buffers and generators are
restored. Even the first batch of a shape is replayed, never taken from the warm-up, so a step does not depend on
whether an earlier step or this one has captured its shape.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import torch
from torch import Tensor, nn

from gristmill.lm.data.batch import Batch
from gristmill.lm.training.advice import is_out_of_memory
from gristmill.trace import span

__all__ = ["Capture", "CaptureError", "GraphedStep"]

Stats: TypeAlias = dict[str, Tensor]
# Runs forward and backward for (fields of the batch, schedule, share), and returns the statistics of the loss.
Compute: TypeAlias = Callable[[dict[str, Any], dict[str, Tensor], Tensor], Stats]


class CaptureError(Exception):
    """A step could not be captured. The message is the reason; the run is as before."""


class Capture(Protocol):
    """Captures work on a device as a graph: `CudaCapture`, or a stand-in for tests."""

    def warm_up(self, work: Callable[[], object]) -> None:
        """Run the work until the device runs it without compiling, loading kernels or waiting for the host."""

    def captured(self, work: Callable[[], Stats]) -> tuple[Callable[[], None], Stats]:
        """Capture the work without running it. Return (a function that runs it, the tensors that it then fills)."""


@dataclass(frozen=True, eq=False)
class _Graph:
    """A captured micro-batch of one shape."""

    fields: dict[str, Tensor]
    schedule: dict[str, Tensor]
    replay: Callable[[], None]
    stats: Stats
    gradients: dict[nn.Parameter, Tensor]
    """Those that a replay writes; empty if it adds to the gradients of the step."""


class GraphedStep:
    """Computes micro-batches by replaying graphs."""

    def __init__(
        self,
        compute: Compute,
        model: nn.Module,
        *,
        widths: Sequence[int],
        device: torch.device,
        capture: Capture,
        prepare: Callable[[Batch], Batch] = lambda batch: batch,
        before_replay: Callable[[], None] = lambda: None,
        others: Callable[[], Sequence[Tensor]] = tuple,
        is_single: bool = False,
    ) -> None:
        """Nothing is captured before the first micro-batch.

        compute: forward and backward, which add to the gradients of `model`.
        widths: lengths of the batches. The greatest is captured first, so that the others fit into its memory.
        prepare: called with the inputs of each graph before its capture, such as `mark_length`.
        before_replay: called before each replay, for work that a graph does not do.
        others: returns the tensors that a micro-batch changes besides gradients and the buffers of the model.
        is_single: every step is one micro-batch of one width.
        """
        self._compute, self._capture, self._prepare, self._before_replay = compute, capture, prepare, before_replay
        self._parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self._changed: Callable[[], list[Tensor]] = lambda: [*model.buffers(), *others()]
        self._is_single = is_single
        self._gradients: dict[nn.Parameter, Tensor] = {}
        self._device, self._longest = device, max(widths)
        self._share = torch.zeros((), device=device)
        self._graphs: dict[Any, _Graph] = {}

    @property
    def num_graphs(self) -> int:
        """Number of shapes captured so far."""
        return len(self._graphs)

    def begin(self) -> None:
        """Begin a step: set all gradients to 0."""
        if self._gradients:
            torch._foreach_zero_(list(self._gradients.values()))
        self._attach()

    def _attach(self) -> None:
        """Make the persistent gradients those of the parameters. Optimizers drop them after each step."""
        for parameter, gradient in self._gradients.items():
            if parameter.grad is not gradient:
                parameter.grad = gradient

    def computed(self, batch: Batch, schedule: Mapping[str, Tensor], share: Tensor | float) -> Stats:
        """Add the gradients of a micro-batch, and return its statistics, which are valid until the next call.

        Raises `CaptureError` if its shape cannot be captured. The gradients of the step so far are then still in place.
        """
        graph = self._graph(batch, schedule)
        for name, tensor in graph.fields.items():
            tensor.copy_(getattr(batch, name), non_blocking=True)
        for name, tensor in graph.schedule.items():
            tensor.copy_(schedule[name], non_blocking=True)
        if isinstance(share, Tensor):
            self._share.copy_(share)
        else:
            self._share.fill_(share)
        self._before_replay()
        with span("replay"):
            graph.replay()
        for parameter, gradient in graph.gradients.items():
            parameter.grad = gradient
        return graph.stats

    def _graph(self, batch: Batch, schedule: Mapping[str, Tensor]) -> _Graph:
        """Return the graph of this shape. The first one to be captured is that of the longest batches."""
        fields = {name: field for name, field in vars(batch).items() if field is not None}
        key = _key(fields, schedule)
        if key in self._graphs:
            return self._graphs[key]
        if not self._graphs:
            longest = {name: _zeros(field, self._longest) for name, field in fields.items()}
            self._graphs[_key(longest, schedule)] = self._captured(longest, schedule)
        if key not in self._graphs:
            same = {name: _zeros(field, field.shape[1]) for name, field in fields.items()}
            self._graphs[key] = self._captured(same, schedule)
        return self._graphs[key]

    def _captured(self, fields: dict[str, Tensor], schedule: Mapping[str, Tensor]) -> _Graph:
        """Return the graph for inputs of these shapes; raise `CaptureError` if that fails."""
        inputs = vars(self._prepare(Batch(**fields)))
        values = {name: torch.zeros_like(value) for name, value in schedule.items()}

        def work() -> Stats:
            stats = self._compute(dict(inputs), dict(values), self._share)
            return {name: value.detach() if isinstance(value, Tensor) else value for name, value in stats.items()}

        def single_work() -> Stats:
            self._drop_gradients()
            stats = work()
            return {**stats, **{_name(number): gradient for number, gradient in self._found_gradients().items()}}

        try:
            with span("capture"):
                self._warm_up(work)
                with self._generators_unchanged():
                    replay, results = self._capture.captured(single_work if self._is_single else work)
        except Exception as error:
            reason = "the device ran out of memory" if is_out_of_memory(error) else _first_line(error)
        else:
            named = {_name(number): parameter for number, parameter in enumerate(self._parameters)}
            stats = {name: value for name, value in results.items() if name not in named}
            gradients = {parameter: results[name] for name, parameter in named.items() if name in results}
            return _Graph(fields, values, replay, stats, gradients)
        raise CaptureError(reason)  # outside of the handler: the error would keep the tensors of its frames alive

    def _warm_up(self, work: Callable[[], Stats]) -> None:
        """Run the work, keep none of its effects, and attach a gradient of 0 to each parameter that received one."""
        changed = self._changed()
        before = [tensor.clone() for tensor in changed]
        gradients = [parameter.grad for parameter in self._parameters]
        self._drop_gradients()
        received: list[nn.Parameter] = []
        try:
            with self._generators_unchanged():
                self._capture.warm_up(work)
            received = [parameter for parameter in self._parameters if parameter.grad is not None]
        finally:
            for parameter, gradient in zip(self._parameters, gradients, strict=True):
                parameter.grad = gradient
            with torch.no_grad():
                for tensor, value in zip(changed, before, strict=True):
                    tensor.copy_(value)
        for parameter in received if not self._is_single else ():
            if parameter not in self._gradients:
                self._gradients[parameter] = torch.zeros_like(parameter, requires_grad=False)
        self._attach()

    def _drop_gradients(self) -> None:
        for parameter in self._parameters:
            parameter.grad = None

    def _found_gradients(self) -> dict[int, Tensor]:
        """Return the gradients by the numbers of their parameters."""
        gradients = {number: parameter.grad for number, parameter in enumerate(self._parameters)}
        return {number: gradient for number, gradient in gradients.items() if gradient is not None}

    @contextlib.contextmanager
    def _generators_unchanged(self) -> Iterator[None]:
        with torch.random.fork_rng([self._device] if self._device.type == "cuda" else []):
            yield


def _key(fields: Mapping[str, Tensor], schedule: Mapping[str, Tensor]) -> tuple[Any, ...]:
    return *((name, field.shape, field.dtype) for name, field in fields.items()), *schedule


def _name(number: int) -> str:
    """Return the name of a gradient among the results of a graph."""
    return f"gradient {number}"


def _zeros(field: Tensor, width: int) -> Tensor:
    """Return an input for fields like this one (batch x length x …) of length `width`."""
    return torch.zeros((len(field), width, *field.shape[2:]), dtype=field.dtype, device=field.device)


def _first_line(error: BaseException) -> str:
    """Return the first line of the message of the first error. A failed capture causes further ones."""
    while error.__context__ is not None and not error.__suppress_context__:
        error = error.__context__
    return next(iter(str(error).splitlines()), type(error).__name__).rstrip(".")
