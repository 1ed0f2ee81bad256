"""Lightning: the monitor as a callback of PyTorch Lightning.

    trainer = Trainer(callbacks=[PosteriorMetricsCallback(plot_folder="run")])

`training_step` returns a dict with "loss", "mu" and "logvar", and if it likes "z", "reconstruction" (nats per sequence,
or a token with "num_tokens"), "kl_weight"; or the module keeps the same in a dict named `posterior`. A module with a
method `reconstruction_nats(batch, z)`, which returns the nats of each sequence, also gets its reconstruction gaps
measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Unpack

import torch

from gristmill.arguments import check_option_names
from gristmill.errors import OptionError
from gristmill.packages import packages_for
from gristmill.posterior.metrics import PosteriorMetrics
from gristmill.posterior.monitor import MonitorOptions, PosteriorMetricsMonitor

with packages_for("gm.posterior.PosteriorMetricsCallback"):
    from pytorch_lightning import Callback

__all__ = ["PosteriorMetricsCallback"]

OPTIONAL = ("z", "reconstruction", "kl_weight", "num_tokens")


class PosteriorMetricsCallback(Callback):  # type: ignore[misc]
    """Calls a `PosteriorMetricsMonitor` once per step, logs its figures, and is saved and restored with the trainer.

    With gradient accumulation the posteriors are those of the step's last batch, with several devices those of the
    first. The figures are logged as "posterior/kl" and so on: in the loggers, at the step that they belong to, and in
    `trainer.callback_metrics`, where other callbacks find them.
    """

    def __init__(self, monitor: PosteriorMetricsMonitor | None = None, **options: Unpack[MonitorOptions]) -> None:
        """`monitor`, or the options of a new one: the arguments of `PosteriorMetricsMonitor`."""
        check_option_names("PosteriorMetricsCallback", options, MonitorOptions.__annotations__)
        if monitor is not None and options:
            raise OptionError(f"both a monitor and options for one: {', '.join(options)}. Pass either.")
        self.monitor = monitor if monitor is not None else PosteriorMetricsMonitor(**options)
        # Steps are counted here: with several optimizers the trainer counts each of theirs.
        self._step = 0
        self._global_step = 0

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Count on from where the trainer is."""
        self._step = self._step or trainer.global_step
        self._global_step = trainer.global_step

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Take the posteriors of a batch after which the weights have moved."""
        if trainer.global_step == self._global_step:
            return
        self._global_step = trainer.global_step
        self._step += 1
        if not trainer.is_global_zero:
            return
        if self.monitor.wants(self._step):
            found = _posterior(outputs, pl_module)
            self.monitor.update(
                found["mu"],
                found["logvar"],
                step=self._step,
                reconstruct=_reconstruct(pl_module, batch),
                **{name: found[name] for name in OPTIONAL if found.get(name) is not None},
            )
        self._log(trainer, pl_module, self.monitor.poll())

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Finish the figures and the picture."""
        self.monitor.close()
        _log_beside(trainer, self.monitor.flush())

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Finish the picture: it may show why."""
        self.monitor.close()

    def _log(self, trainer: Any, pl_module: Any, finished: list[PosteriorMetrics]) -> None:
        _log_beside(trainer, finished)
        for metrics in finished:
            # Not to the loggers: they would be given the present step, and only at every 50th.
            pl_module.log_dict(_named(metrics), on_step=True, on_epoch=False, logger=False, rank_zero_only=True)

    # State

    def state_dict(self) -> dict[str, Any]:
        """The state of the monitor, for the trainer's checkpoint."""
        tensors, numbers = self.monitor.state_tensors()
        copies = {name: tensor.detach().cpu().clone() for name, tensor in tensors.items()}
        return {"tensors": copies, "numbers": numbers, "step": self._step}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on where the checkpoint was made."""
        self.monitor.load_state_tensors(state_dict["tensors"], state_dict["numbers"])
        self._step = state_dict["step"]


def _posterior(outputs: Any, module: Any) -> Mapping[str, Any]:
    kept = getattr(module, "posterior", None)
    for found in (outputs, kept):
        if isinstance(found, Mapping) and "mu" in found and "logvar" in found:
            return found
    keys = f"the keys {', '.join(map(repr, outputs))}" if isinstance(outputs, Mapping) else type(outputs).__name__
    raise OptionError(
        f"training_step returned {keys}, and the module has no dict `posterior`: there is no mu and logvar to watch. "
        f'Return {{"loss": loss, "mu": mu, "logvar": logvar, "z": z}} from training_step.'
    )


def _reconstruct(module: Any, batch: Any) -> Any:
    if not hasattr(module, "reconstruction_nats"):
        return None
    return partial(_in_evaluation, module, batch)


def _in_evaluation(module: Any, batch: Any, z_BZ: torch.Tensor) -> torch.Tensor:
    """The nats of each sequence, without dropout; module and random numbers are left as they were."""
    was_training = {part: part.training for part in module.modules()}
    devices = [z_BZ.device] if z_BZ.device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        module.eval()
        try:
            nats_B: torch.Tensor = module.reconstruction_nats(batch, z_BZ)
        finally:
            for part, training in was_training.items():
                part.training = training
    return nats_B


def _named(metrics: PosteriorMetrics) -> dict[str, float]:
    return {f"posterior/{name}": value for name, value in metrics.scalars().items()}


def _log_beside(trainer: Any, finished: list[PosteriorMetrics]) -> None:
    for metrics in finished:
        for logger in trainer.loggers:
            logger.log_metrics(_named(metrics), step=metrics.step)
