"""PosteriorWatch: the posterior monitor in a run. It observes the posteriors of a step and returns records.

The monitor observes the last micro-batch of a step, after the weights were updated, and never changes weights or
torch's generators, so a run with it is bit-exact with one without. It always observes the last step of a run, so even
the shortest run ends with metrics, their alarms and a plot.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from gristmill.lm.data.batch import Batch
from gristmill.lm.models.vae.health import Health, health_of
from gristmill.posterior import PosteriorMetricsMonitor

if TYPE_CHECKING:
    from gristmill.lm.models.vae.network import SequenceVAE

__all__ = ["PosteriorWatch"]

PLOT_FOLDER = "plots"


class PosteriorWatch:
    """The posterior monitor of a run."""

    def __init__(
        self,
        model: SequenceVAE,
        folder: Path,
        *,
        seed: int,
        autocast: Callable[[], AbstractContextManager[object]],
        can_decode: bool,
        last_step: int,
    ) -> None:
        """Nothing is allocated before the first observed step.

        can_decode: whether the weights are complete. Sharded weights are complete only while all devices compute
        together, and the other devices do not observe.
        """
        self._model, self._autocast, self._can_decode = model, autocast, can_decode
        self._told: list[str] = []
        self._last_step = 0
        config = model.config
        self.monitor = PosteriorMetricsMonitor(
            config.update_frequency or 100,  # set by `VAEConfig.settled`
            config.plot_frequency or 0,
            config.window_size or 50,
            plot_folder=folder / PLOT_FOLDER,
            seed=seed,
            last_step=last_step,
            tell=self._told.append,
            advice="options",
        )

    def look(self, step: int, batch: Batch, stats: Mapping[str, Tensor], schedule: Mapping[str, float]) -> None:
        """Observe the last micro-batch of `step`, if the monitor needs it. Does not wait for the device."""
        if not self.monitor.wants(step):
            return
        self.monitor.update(
            stats["mu"],
            stats["logvar"],
            stats["z"],
            step=step,
            reconstruction=stats["reconstruction"],
            kl_weight=schedule["kl_weight"],
            num_tokens=batch.num_targets,
            reconstruct=(lambda z_BZ: self._reconstruct(batch, z_BZ)) if self._can_decode else None,
        )

    def _reconstruct(self, batch: Batch, z_BZ: Tensor) -> Tensor:
        with self._autocast():
            nats_B: Tensor = self._model.reconstruction_nats(batch, z_BZ)
        return nats_B

    def news(self) -> list[dict[str, Any]]:
        """Return the records since the last call, with alarms and messages as events. Waits for the device."""
        records: list[dict[str, Any]] = []
        found = self.monitor.flush()
        alarms = {alarm.message for metrics in found for alarm in metrics.alarms}
        for metrics in found:
            records.append(metrics.to_record())
            records += [_event(metrics.step, alarm.message) for alarm in metrics.alarms]
        last_step = found[-1].step if found else self._last_step
        records += [_event(last_step, message) for message in self._told if message not in alarms]
        self._last_step = last_step
        self._told.clear()
        return records

    def state_tensors(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return the posteriors in the window, and the state of the monitor."""
        return self.monitor.state_tensors()

    def load_state(self, step: int, tensors: Mapping[str, Tensor] | None, values: Mapping[str, Any] | None) -> None:
        """Resume after `step`."""
        self.monitor.resume_after(step)
        if tensors is not None and values is not None:
            self.monitor.load_state_tensors(dict(tensors), dict(values))

    def health(self, val_kl: float | None) -> Health:
        """Return the verdict on the posterior, from the last metrics and the KL of the validation."""
        last = self.monitor.history[-1] if self.monitor.history else None
        return health_of(val_kl, last=last, alarms=self.monitor.alarms)

    def close(self) -> None:
        """Stop drawing plots."""
        self.monitor.close()


def _event(step: int, message: str) -> dict[str, Any]:
    return {"kind": "event", "step": step, "message": message}
