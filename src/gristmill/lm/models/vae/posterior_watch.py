"""PosteriorWatch: the posterior monitor in a run. It takes a step's posteriors, and returns what was found.

The monitor looks at the last micro-batch of a step, after the weights have moved, and never touches weights or torch's
generators: a run with it is bit-exact with one without. It always looks at the last step of a run, so that the
shortest run ends with figures, with the alarms they raise, and with a picture.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from gristmill.lm.data.batch import Batch
from gristmill.lm.models.vae.health import Health, health_of
from gristmill.lm.training.config import TrainConfig
from gristmill.posterior import PosteriorMetrics, PosteriorMetricsMonitor

if TYPE_CHECKING:
    from lightning_fabric import Fabric

__all__ = ["PosteriorWatch"]

PLOT_FOLDER = "plots"


class PosteriorWatch:
    """The monitor of a run."""

    def __init__(self, fabric: Fabric, config: TrainConfig, model: nn.Module, folder: Path) -> None:
        """Nothing is allocated before the first step that it looks at."""
        self._fabric = fabric
        self._model: Any = model
        # Weights in parts are whole only while all devices compute together, and the others do not look.
        self._can_decode = config.strategy != "fsdp"
        self._told: list[str] = []
        self.monitor = PosteriorMetricsMonitor(
            config.update_frequency or 100,  # they are resolved
            config.plot_frequency or 0,
            config.window_size or 50,
            plot_folder=folder / PLOT_FOLDER,
            last_step=config.max_steps,
            seed=config.seed,
            tell=self._told.append,
        )

    def look(self, step: int, batch: Batch, stats: Mapping[str, Tensor], kl_weight: float) -> None:
        """Look at the last micro-batch of `step`, if it is one that the monitor wants; nothing waits for the device."""
        if not self.monitor.wants(step):
            return
        self.monitor.update(
            stats["mu"],
            stats["logvar"],
            stats["z"],
            step=step,
            reconstruction=stats["reconstruction"],
            kl_weight=kl_weight,
            num_tokens=batch.num_targets,
            reconstruct=(lambda z_BZ: self._reconstruct(batch, z_BZ)) if self._can_decode else None,
        )

    def _reconstruct(self, batch: Batch, z_BZ: Tensor) -> Tensor:
        with self._fabric.autocast():
            nats_B: Tensor = self._model.reconstruction_nats(batch, z_BZ)
        return nats_B

    def news(self) -> tuple[list[PosteriorMetrics], list[str]]:
        """What was found since the last time, and what else is to tell; it waits for the device."""
        found = self.monitor.flush()
        alarms = {change.message for metrics in found for change in metrics.alarms}
        others = [message for message in self._told if message not in alarms]
        self._told.clear()
        return found, others

    def health(self, val_kl: float | None) -> Health:
        """The state of the posterior after the last look, and by the KL of the validation."""
        last = self.monitor.history[-1] if self.monitor.history else None
        return health_of(val_kl, last=last, alarms=self.monitor.alarms)

    def close(self) -> None:
        """End the drawing of plots."""
        self.monitor.close()
