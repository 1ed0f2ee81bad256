"""Monitor: watches the posteriors of a model during training, without slowing it down.

Shapes: B sequences per step, N posteriors in the window, Z latent dimensions.
"""

from __future__ import annotations

import hashlib
import math
import os
import random
import sys
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypedDict

import torch
from torch import Tensor

from gristmill.arguments import check_whole_number
from gristmill.errors import CheckpointError, OptionError
from gristmill.posterior.alarms import Alarms
from gristmill.posterior.arrival import Arrival
from gristmill.posterior.drawing import Drawing
from gristmill.posterior.estimates import (
    active_units,
    aggregated_kl_floor,
    exact,
    kl_per_dimension,
    mean_error,
    mutual_information,
)
from gristmill.posterior.metrics import Alarm, PosteriorMetrics
from gristmill.posterior.remedies import ADVICE, Advice
from gristmill.posterior.window import Rows, Window

__all__ = ["MonitorOptions", "PosteriorMetricsMonitor"]

ACTIVE, ACTIVE_STRICT = 0.01, 0.2  # Var(mu) of an active unit; drift alone does not reach the second

MAX_HISTORY = 10_000  # latest measurements kept: a million steps at the default frequency

Reconstruct = Callable[[Tensor], Tensor]


def _tell_on_stderr(message: str) -> None:
    print(f"gristmill: {message}", file=sys.stderr, flush=True)


class MonitorOptions(TypedDict, total=False):
    """The arguments of `PosteriorMetricsMonitor`, for functions that pass them on."""

    update_frequency: int
    plot_frequency: int
    window_size: int
    verbose: bool
    max_samples: int
    plot_folder: str | os.PathLike[str] | None
    gap_interval: int
    last_step: int | None
    seed: int
    tell: Callable[[str], object]
    advice: Advice


class PosteriorMetricsMonitor:
    """Monitors the posteriors q(z|x) of a variational autoencoder; warns when they collapse, with remedies.

    Every `update_frequency` steps it measures the posteriors of the last `window_size` steps (at most the latest
    `max_samples`): KL, active units and mutual information. Every `gap_interval`-th measurement also decodes from wrong
    latents to see how much worse the decoder gets, if `update` receives `reconstruct`. The estimate of the mutual
    information cannot exceed ln(number of posteriors).

    Nothing waits for the device: metrics are computed there and read when they arrive, a step or two later. The monitor
    does not touch weights, gradients or random numbers of the training.

    Attributes:
        history: The latest 10,000 measurements.
        update_frequency: Steps between two measurements.
        window_size: Number of steps whose posteriors are measured together.

    Examples:
        >>> import torch
        >>> monitor = PosteriorMetricsMonitor(update_frequency=1)
        >>> mu, logvar = torch.zeros(16, 4), torch.zeros(16, 4)  # a collapsed posterior: every q(z|x) is the prior
        >>> monitor.update(mu, logvar)  # once per step of any training loop, on any device
        >>> [metrics.active_units for metrics in monitor.flush()]
        [0]
        >>> monitor.close()

        In a training loop:

        ```python
        monitor = PosteriorMetricsMonitor(plot_folder="run")
        for step, batch in enumerate(batches, 1):
            ...
            if monitor.wants(step):
                monitor.update(mu, logvar, z, step=step)
            for metrics in monitor.poll():
                print(metrics)
        tensors, numbers = monitor.state_tensors()  # for a checkpoint; monitor.load_state_tensors(tensors, numbers)
        monitor.close()
        ```

        A loop that resumes without the state of the monitor calls `monitor.resume_after(step)`.
    """

    def __init__(
        self,
        update_frequency: int = 100,
        plot_frequency: int = 1000,
        window_size: int = 50,
        verbose: bool = False,
        *,
        max_samples: int = 1024,
        plot_folder: str | os.PathLike[str] | None = None,
        gap_interval: int = 5,
        last_step: int | None = None,
        seed: int = 0,
        tell: Callable[[str], object] = _tell_on_stderr,
        advice: Advice = "general",
    ) -> None:
        """Set up the monitor. Nothing is allocated before the first measured step.

        Args:
            update_frequency: Steps between two measurements.
            plot_frequency: Steps between two plots; 0 for no plots.
            window_size: Number of steps whose posteriors are measured together.
            verbose: Whether to report every measurement, not only alarms.
            max_samples: Maximum number of posteriors in a measurement.
            plot_folder: Folder for the plot posterior.png and the metrics as JSON lines. Default: neither is written.
            gap_interval: Measurements between two measurements of the reconstruction gaps; 0 for none.
            last_step: Last step of the training, if known. It is always measured, gaps included, and can raise an alarm
                by itself, so that a short run ends with a verdict.
            seed: Seed of the noise and the shuffling.
            tell: Called with each message: alarms, and measurements if `verbose`. Default: prints to stderr.
            advice: "general" for remedies in general terms, "options" for options of `gm.lm.train`.

        Raises:
            OptionError: An argument is out of range.
        """
        _check_at_least(1, update_frequency=update_frequency, window_size=window_size)
        _check_at_least(2, max_samples=max_samples)
        _check_at_least(0, plot_frequency=plot_frequency, gap_interval=gap_interval)
        if last_step is not None:
            _check_at_least(1, last_step=last_step)
        self.update_frequency, self.window_size = update_frequency, window_size
        self.history: deque[PosteriorMetrics] = deque(maxlen=MAX_HISTORY)
        self._gap_interval, self._last_step, self._seed = gap_interval, last_step, seed
        self._verbose, self._tell = verbose, tell
        self._step = 0
        self._window = Window(num_steps=window_size, capacity=max_samples)
        self._alarms = Alarms(_check_advice(advice))
        self._pending: deque[Arrival] = deque()
        self._spare: list[Tensor] = []  # page-locked buffers to reuse
        self._finished: deque[PosteriorMetrics] = deque(maxlen=MAX_HISTORY)  # since the last call of `poll`
        self._drawing = Drawing(plot_folder, plot_frequency, tell) if plot_folder is not None else None

    @property
    def alarms(self) -> tuple[Alarm, ...]:
        """The alarms that are active now."""
        return self._alarms.active

    def wants(self, step: int) -> bool:
        """Return whether `update` at this step would use the posteriors. If not, it need not be called.

        Args:
            step: The step, counted from 1.
        """
        is_near_the_end = self._last_step is not None and 0 <= self._last_step - step < self.window_size
        return -step % self.update_frequency < self.window_size or is_near_the_end

    @torch.inference_mode(False)
    @torch.no_grad()
    def update(
        self,
        mu: Tensor,
        logvar: Tensor,
        z: Tensor | None = None,
        *,
        step: int | None = None,
        reconstruction: Tensor | float | None = None,
        kl_weight: Tensor | float = 1.0,
        num_tokens: Tensor | int | None = None,
        reconstruct: Reconstruct | None = None,
    ) -> None:
        """Add the posteriors of a step, after its weight update.

        Args:
            mu: Means, B x Z.
            logvar: Log-variances, B x Z.
            z: The samples that the step used. Default: the monitor draws some.
            step: The step, counted from 1. Default: the next one at every call.
            reconstruction: Reconstruction loss in nats per sequence, or in nats per token if `num_tokens` is given.
            kl_weight: Weight of the KL in the loss.
            num_tokens: Number of tokens in the batch.
            reconstruct: Decodes this batch from other latents, B x Z, and returns the nats of each sequence. Called
                only when the gaps are due.

        Raises:
            OptionError: A tensor has the wrong shape or type, or `step` does not increase.
        """
        _check_shapes(mu, logvar, z)
        self._step = step = self._checked_step(step)
        self._collect(wait=False)
        if not self.wants(step) or not len(mu):
            return
        mu_BZ, logvar_BZ, z_BZ = self._detached(mu, logvar, z)
        nats = _nats_per_sequence(reconstruction, num_tokens, len(mu_BZ))
        self._window.add(step, mu_BZ, logvar_BZ, z_BZ, nats)
        if step % self.update_frequency == 0 or step == self._last_step:
            self._measure(z_BZ, kl_weight, reconstruct)

    def _checked_step(self, step: int | None) -> int:
        if step is None:
            return self._step + 1
        if check_whole_number("step", step) <= self._step:
            raise OptionError(
                f"step must be > {self._step}, the last step, got {step}. Steps count from 1 and increase."
            )
        return step

    def _detached(self, mu: Tensor, logvar: Tensor, z: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        mu, logvar = mu.detach(), logvar.detach()
        if z is not None:
            return mu, logvar, z.detach()
        return mu, logvar, mu + torch.exp(0.5 * logvar) * self._noise_like(mu, "z")

    # On the device

    def _measure(self, z_BZ: Tensor, kl_weight: Tensor | float, reconstruct: Reconstruct | None) -> None:
        """Compute the metrics of the window, and start copying them to the host."""
        rows = self._window.rows()
        kl_Z = kl_per_dimension(rows.mu_NZ, rows.logvar_NZ)
        kl = kl_Z.sum()
        weight = _beside(kl, kl_weight)
        scalars = [
            kl,
            mutual_information(rows.mu_NZ, rows.logvar_NZ, rows.z_NZ),
            aggregated_kl_floor(rows.mu_NZ, rows.logvar_NZ),
            active_units(rows.mu_NZ, ACTIVE),
            active_units(rows.mu_NZ, ACTIVE_STRICT),
            weight * kl / (weight * kl + rows.nats_N.nanmean()),
            weight,
            *self._gaps(z_BZ, rows, reconstruct),
        ]
        packed = torch.cat([torch.stack(scalars), kl_Z])
        self._pending.append(Arrival.sent(packed, self._step, self._window.num_rows, self._spare))

    def _gaps(self, z_BZ: Tensor, rows: Rows, reconstruct: Reconstruct | None) -> list[Tensor]:
        """Return the extra nats per sequence from shuffled latents, their standard error, and those from prior samples.

        NaN where unknown.
        """
        unknown = exact(torch.full((), math.nan, device=z_BZ.device))
        if reconstruct is None or not self._is_gap_due():
            return [unknown, unknown, unknown]
        true_B = exact(reconstruct(z_BZ))
        if true_B.shape != z_BZ.shape[:1]:
            raise OptionError(
                f"reconstruct returned a tensor of shape {tuple(true_B.shape)}. Return the nats of each of the "
                f"{len(z_BZ)} sequences: shape ({len(z_BZ)},)."
            )
        shuffled, error = unknown, unknown
        if (shuffled_BZ := self._shuffled(z_BZ, rows)) is not None:
            gap_B = exact(reconstruct(shuffled_BZ)) - true_B
            shuffled = gap_B.mean()
            error = mean_error(gap_B) if len(gap_B) > 1 else unknown
        prior_B = exact(reconstruct(self._noise_like(z_BZ, "prior"))) - true_B
        return [shuffled, error, prior_B.mean()]

    def _is_gap_due(self) -> bool:
        """Whether this measurement includes the gaps. The last one always does, because no later one can."""
        number = self._step // self.update_frequency
        return self._gap_interval > 0 and (number % self._gap_interval == 0 or self._step == self._last_step)

    def _shuffled(self, z_BZ: Tensor, rows: Rows) -> Tensor | None:
        """Return latents that belong to other sequences: the batch rotated by a random number of rows.

        A batch of one sequence gets the latents of the previous sequence.
        """
        if len(z_BZ) > 1:
            return z_BZ.roll(random.Random(f"{self._seed} {self._step}").randrange(1, len(z_BZ)), 0)
        return rows.z_NZ[-2:-1].to(z_BZ.dtype) if len(rows.z_NZ) > 1 else None

    def _noise_like(self, x: Tensor, purpose: str) -> Tensor:
        """Return noise that depends only on the seed and the step."""
        digest = hashlib.blake2b(f"{self._seed} {self._step} {purpose}".encode(), digest_size=7).digest()
        generator = torch.Generator(x.device).manual_seed(int.from_bytes(digest, "little"))
        return torch.randn(x.shape, generator=generator, device=x.device, dtype=x.dtype)

    # On the host

    def poll(self) -> list[PosteriorMetrics]:
        """Return the measurements that have arrived since the last call. Never waits for the device."""
        return self._taken(wait=False)

    def flush(self) -> list[PosteriorMetrics]:
        """Return all measurements since the last call of `poll` or `flush`. Waits for the device."""
        return self._taken(wait=True)

    def _taken(self, *, wait: bool) -> list[PosteriorMetrics]:
        self._collect(wait=wait)
        finished = list(self._finished)
        self._finished.clear()
        return finished

    def _collect(self, *, wait: bool) -> None:
        while self._pending and (wait or self._pending[0].is_there):
            arrival = self._pending.popleft()
            self._finish(arrival.metrics())
            if arrival.is_page_locked:
                self._spare.append(arrival.host)
        if self._drawing is not None:
            self._drawing.draw_if_due()

    def _finish(self, metrics: PosteriorMetrics) -> None:
        is_last = metrics.step == self._last_step
        metrics = replace(metrics, alarms=self._alarms.look(metrics, is_last=is_last))
        self.history.append(metrics)
        self._finished.append(metrics)
        if self._drawing is not None:
            self._drawing.add(metrics)
        if self._verbose:
            self._tell(str(metrics))
        for change in metrics.alarms:
            self._tell(change.message)

    def close(self) -> None:
        """Finish all measurements and the plot. Waits for the device and the plot process."""
        self._collect(wait=True)
        if self._drawing is not None:
            self._drawing.close()

    # State

    def state_tensors(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return everything that future metrics depend on: tensors, and values for JSON. Waits for the device.

        The tensors may be the ones in use, which the next update changes. Measurements that `poll` has not returned yet
        are not included.
        """
        self._collect(wait=True)
        tensors, numbers = self._window.state()
        return tensors, {"step": self._step, "window": numbers, "alarms": self._alarms.state()}

    def load_state_tensors(self, tensors: Mapping[str, Tensor], numbers: Mapping[str, Any]) -> None:
        """Restore what `state_tensors` returned. The tensors may be on any device.

        Args:
            tensors: The tensors.
            numbers: The other values.

        Raises:
            CheckpointError: The state is incomplete, or its shape does not fit.
        """
        if missing := {"window", "alarms", "step"} - numbers.keys():
            raise CheckpointError(
                f"the state of the posterior monitor lacks {', '.join(sorted(missing))}: the checkpoint is damaged."
            )
        self._window.load(tensors, numbers["window"])
        self._alarms.load(numbers["alarms"])
        self._pending.clear()
        self._finished.clear()
        self.history.clear()
        self.resume_after(int(numbers["step"]))

    def resume_after(self, step: int) -> None:
        """Continue after this step, and keep the records of the steps up to it in the plot folder.

        Args:
            step: The last step that was done.
        """
        self._step = step
        if self._drawing is not None:
            self._drawing.resume_after(step)


def _check_shapes(mu: Any, logvar: Any, z: Any) -> None:
    for name, given in (("mu", mu), ("logvar", logvar), ("z", z)):
        if not isinstance(given, Tensor) and not (name == "z" and given is None):
            raise OptionError(f"{name} must be a tensor of floats, B x Z, got {type(given).__name__}.")
    if mu.ndim != 2 or not mu.is_floating_point() or not mu.shape[1]:
        raise OptionError(
            f"mu must be floats, B x Z, the mean of every sequence and dimension; got {mu.dtype} of shape "
            f"{tuple(mu.shape)}."
        )
    for name, other in (("logvar", logvar), ("z", z)):
        if other is not None and other.shape != mu.shape:
            raise OptionError(f"{name} must have the shape of mu, {tuple(mu.shape)}, got {tuple(other.shape)}.")


def _check_advice(advice: Advice) -> Advice:
    if advice not in ADVICE:
        raise OptionError(f"advice must be one of {', '.join(map(repr, ADVICE))}, got {advice!r}.")
    return advice


def _check_at_least(least: int, **given: int) -> None:
    for name, value in given.items():
        if check_whole_number(name, value) < least:
            raise OptionError(f"{name} must be >= {least}, got {value}.")


def _nats_per_sequence(
    reconstruction: Tensor | float | None, num_tokens: Tensor | int | None, num: int
) -> Tensor | float:
    if reconstruction is None:
        return math.nan
    # One number per batch, or one per sequence.
    nats = reconstruction.detach().mean() if isinstance(reconstruction, Tensor) else reconstruction
    return nats if num_tokens is None else nats * num_tokens / num


def _beside(x: Tensor, number: Tensor | float) -> Tensor:
    """Return the number as a tensor like `x`."""
    if isinstance(number, Tensor):
        return number.detach().to(x.device, x.dtype, non_blocking=True)
    return x.new_full((), number)
