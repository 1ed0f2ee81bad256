"""Monitor: the posteriors of a model that trains, watched without holding it up.

Shapes: B sequences of a step, N posteriors in the window, Z latent dimensions.
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

ACTIVE, ACTIVE_STRICT = 0.01, 0.2  # Var(mu) of an active unit; the second one is not reached by drift alone

MAX_HISTORY = 10_000  # looks that are kept, the latest: a million steps at the default frequency

Reconstruct = Callable[[Tensor], Tensor]


def _tell_on_stderr(message: str) -> None:
    print(f"gristmill: {message}", file=sys.stderr, flush=True)


class MonitorOptions(TypedDict, total=False):
    """The arguments of `PosteriorMetricsMonitor`, for who passes them on."""

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
    """Watches the posteriors q(z|x) of a variational autoencoder; reports when they collapse, and what helps.

        monitor = PosteriorMetricsMonitor()
        monitor.update(mu, logvar, z)  # once per step of any training loop, on any device
        monitor.history[-1].mutual_information, monitor.alarms

    Every `update_frequency` steps it looks at the posteriors of the last `window_size` steps (at most `max_samples`,
    the latest): KL, active units, mutual information; every `gap_interval`-th time also how much worse the decoder is
    with wrong latents, where `update` is given a way to decode. Mutual information is capped near ln(number of
    posteriors).

    `last_step` is the step that the training ends with, if it is known beforehand. The monitor then looks at it too,
    whatever `update_frequency` is, and measures the gaps. This look raises alarms by itself, so that a short run ends
    with a verdict.

    Nothing waits for the device: figures are computed there, and read when they have arrived, a step or two later. No
    weight, gradient or random number of the training is touched.

    Every `plot_frequency` steps (0: never) `plot_folder` gets a picture, posterior.png, and beside it the figures as
    JSON lines. What a person should know (alarms; with `verbose` a line for every look) goes to `tell`. Alarms advise
    in general terms; with advice="options" they name options of `gm.lm.train`.
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
        """Nothing is allocated before the first step that is looked at."""
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
        self._spare: list[Tensor] = []  # page-locked memory that is free again
        self._finished: deque[PosteriorMetrics] = deque(maxlen=MAX_HISTORY)  # since the last call of `poll`
        self._drawing = Drawing(plot_folder, plot_frequency, tell) if plot_folder is not None else None

    @property
    def alarms(self) -> tuple[Alarm, ...]:
        """The alarms that are on now."""
        return self._alarms.active

    def wants(self, step: int) -> bool:
        """Whether `update` at this step would look at anything: if not, it need not be called."""
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
        """Take the posteriors of a step, once its weights have moved: means and log-variances, B x Z each.

        `z` are the samples that the step was taken with; without them the monitor draws some. `step` counts from 1;
        without it every call is a step. `reconstruction` and `kl_weight` are those of the loss: nats per sequence, or
        nats per token where `num_tokens` of the batch are given. `reconstruct` decodes this batch from other latents,
        B x Z, and returns the nats of each sequence; it is called only when that is due.
        """
        _check_shapes(mu, logvar, z)
        self._step = step = self._checked_step(step)
        self._collect(wait=False)
        if not self.wants(step) or not len(mu):
            return
        mu_BZ, logvar_BZ, z_BZ = self._detached(mu, logvar, z)
        nats = _nats_a_sequence(reconstruction, num_tokens, len(mu_BZ))
        self._window.add(step, mu_BZ, logvar_BZ, z_BZ, nats)
        if step % self.update_frequency == 0 or step == self._last_step:
            self._measure(z_BZ, kl_weight, reconstruct)

    def _checked_step(self, step: int | None) -> int:
        if step is None:
            return self._step + 1
        if check_whole_number("step", step) <= self._step:
            raise OptionError(f"step={step} is not after {self._step}, the last one. Steps count from 1 and only rise.")
        return step

    def _detached(self, mu: Tensor, logvar: Tensor, z: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        mu, logvar = mu.detach(), logvar.detach()
        if z is not None:
            return mu, logvar, z.detach()
        return mu, logvar, mu + torch.exp(0.5 * logvar) * self._noise_like(mu, "z")

    # What is computed, on the device

    def _measure(self, z_BZ: Tensor, kl_weight: Tensor | float, reconstruct: Reconstruct | None) -> None:
        """Compute the figures of the window, and have them copied to the host."""
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
        """The extra nats per sequence of this batch from shuffled latents, how sure that is, and from the prior's.

        NaN where they are not known.
        """
        unknown = exact(torch.full((), math.nan, device=z_BZ.device))
        if reconstruct is None or not self._is_gap_due():
            return [unknown, unknown, unknown]
        true_B = exact(reconstruct(z_BZ))
        if true_B.shape != z_BZ.shape[:1]:
            raise OptionError(
                f"reconstruct gave a tensor of shape {tuple(true_B.shape)}. Return the nats of each of the "
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
        """Whether this look measures the gaps; the last one does, because no later look can."""
        number = self._step // self.update_frequency
        return self._gap_interval > 0 and (number % self._gap_interval == 0 or self._step == self._last_step)

    def _shuffled(self, z_BZ: Tensor, rows: Rows) -> Tensor | None:
        """The latents, none with its own sequence: all moved on by a random number of rows.

        A batch of one sequence gets those of the one before it.
        """
        if len(z_BZ) > 1:
            return z_BZ.roll(random.Random(f"{self._seed} {self._step}").randrange(1, len(z_BZ)), 0)
        return rows.z_NZ[-2:-1].to(z_BZ.dtype) if len(rows.z_NZ) > 1 else None

    def _noise_like(self, x: Tensor, purpose: str) -> Tensor:
        """Noise that depends on the seed and the step alone."""
        digest = hashlib.blake2b(f"{self._seed} {self._step} {purpose}".encode(), digest_size=7).digest()
        generator = torch.Generator(x.device).manual_seed(int.from_bytes(digest, "little"))
        return torch.randn(x.shape, generator=generator, device=x.device, dtype=x.dtype)

    # What has arrived, on the host

    def poll(self) -> list[PosteriorMetrics]:
        """What was finished since the last call; never waits for the device."""
        return self._taken(wait=False)

    def flush(self) -> list[PosteriorMetrics]:
        """What was finished since the last call of this or `poll`, all of it; waits for the device."""
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
            self._drawing.go_on()

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
        """Finish everything: wait for the device and for the picture."""
        self._collect(wait=True)
        if self._drawing is not None:
            self._drawing.close()

    # State

    def state_tensors(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """All that the figures to come depend on: tensors, and a few values for JSON. Waits for the device.

        The tensors may be those in use: the next update changes them. What `poll` would return is no part of it.
        """
        self._collect(wait=True)
        tensors, numbers = self._window.state()
        return tensors, {"step": self._step, "window": numbers, "alarms": self._alarms.state()}

    def load_state_tensors(self, tensors: Mapping[str, Tensor], numbers: Mapping[str, Any]) -> None:
        """Take over what `state_tensors` gave, wherever its tensors lie; `CheckpointError` if it does not fit."""
        if missing := {"window", "alarms", "step"} - numbers.keys():
            raise CheckpointError(f"the state of the posterior monitor lacks {', '.join(sorted(missing))}.")
        self._window.load(tensors, numbers["window"])
        self._alarms.load(numbers["alarms"])
        self._pending.clear()
        self._finished.clear()
        self.history.clear()
        self.go_on_after(int(numbers["step"]))

    def go_on_after(self, step: int) -> None:
        """Begin after this step, and keep what is written in the plot folder about those up to it."""
        self._step = step
        if self._drawing is not None:
            self._drawing.go_on_after(step)


def _check_shapes(mu: Any, logvar: Any, z: Any) -> None:
    for name, given in (("mu", mu), ("logvar", logvar), ("z", z)):
        if not isinstance(given, Tensor) and not (name == "z" and given is None):
            raise OptionError(f"{name} is a {type(given).__name__}. Pass a tensor of floats, B x Z.")
    if mu.ndim != 2 or not mu.is_floating_point() or not mu.shape[1]:
        raise OptionError(
            f"mu is {mu.dtype} of shape {tuple(mu.shape)}. Pass a mean for every sequence and dimension: floats, B x Z."
        )
    for name, other in (("logvar", logvar), ("z", z)):
        if other is not None and other.shape != mu.shape:
            raise OptionError(f"{name} has shape {tuple(other.shape)}, mu {tuple(mu.shape)}. Pass the same of both.")


def _check_advice(advice: Advice) -> Advice:
    if advice not in ADVICE:
        raise OptionError(f"advice={advice!r} is not known. Pass one of {', '.join(map(repr, ADVICE))}.")
    return advice


def _check_at_least(least: int, **given: int) -> None:
    for name, value in given.items():
        if check_whole_number(name, value) < least:
            raise OptionError(f"{name}={value} is out of range. Pass {name} >= {least}.")


def _nats_a_sequence(
    reconstruction: Tensor | float | None, num_tokens: Tensor | int | None, num: int
) -> Tensor | float:
    if reconstruction is None:
        return math.nan
    # One number for the batch, or one for each sequence.
    nats = reconstruction.detach().mean() if isinstance(reconstruction, Tensor) else reconstruction
    return nats if num_tokens is None else nats * num_tokens / num


def _beside(x: Tensor, number: Tensor | float) -> Tensor:
    """The number as a tensor like `x`."""
    if isinstance(number, Tensor):
        return number.detach().to(x.device, x.dtype, non_blocking=True)
    return x.new_full((), number)
