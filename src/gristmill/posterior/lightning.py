"""Lightning: the monitor as a callback of PyTorch Lightning.

    trainer = Trainer(callbacks=[PosteriorMetricsCallback(plot_folder="run")])

`training_step` returns a dict with "loss", "mu" and "logvar", and optionally "z", "reconstruction" (nats per sequence,
or per token with "num_tokens") and "kl_weight". Alternatively, the module keeps them in a dict named `posterior`. If
the module has a method `reconstruction_nats(batch, z)`, which returns the nats of each sequence, the callback also
measures the reconstruction gaps.
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
    """Calls a `PosteriorMetricsMonitor` once per step, logs its metrics, and is saved and restored with the trainer.

    With gradient accumulation it uses the posteriors of the last batch of a step, with several devices those of the
    first device. It logs the metrics as "posterior/kl" and so on: to the loggers at the step they belong to, and to
    `trainer.callback_metrics`, where other callbacks find them.

    Attributes:
        monitor: The monitor.

    Examples:
        ```python
        class MyVae(LightningModule):
            def training_step(self, batch, batch_idx):
                ...
                return {"loss": loss, "mu": mu, "logvar": logvar, "z": z}


        trainer = Trainer(callbacks=[PosteriorMetricsCallback(plot_folder="run")])
        ```

        The trainer calls the hooks `on_train_start()`, `on_train_batch_end()`, `on_train_end()` and `on_exception()`,
        and `state_dict()` and `load_state_dict()` for checkpoints.
    """

    def __init__(self, monitor: PosteriorMetricsMonitor | None = None, **options: Unpack[MonitorOptions]) -> None:
        """Use `monitor`, or create one.

        Args:
            monitor: The monitor to call. Default: a new one.
            **options: Arguments of `PosteriorMetricsMonitor` for a new monitor.

        Raises:
            OptionError: Both a monitor and options are given, or an option is invalid.
        """
        check_option_names("PosteriorMetricsCallback", options, MonitorOptions.__annotations__)
        if monitor is not None and options:
            raise OptionError(
                f"monitor= cannot be combined with options of a monitor ({', '.join(options)}). Pass either."
            )
        self.monitor = monitor if monitor is not None else PosteriorMetricsMonitor(**options)
        # Counted here, because the trainer counts the steps of each optimizer separately.
        self._step = 0
        self._global_step = 0

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Continue counting at the step of the trainer.

        Args:
            trainer: The trainer.
            pl_module: The module.
        """
        self._step = self._step or trainer.global_step
        self._global_step = trainer.global_step

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Pass the posteriors of a batch to the monitor if the weights were updated after it.

        Args:
            trainer: The trainer.
            pl_module: The module.
            outputs: The result of `training_step`.
            batch: The batch.
            batch_idx: The number of the batch.

        Raises:
            OptionError: Neither `outputs` nor `pl_module.posterior` has "mu" and "logvar".
        """
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
        """Finish the metrics and the plot.

        Args:
            trainer: The trainer.
            pl_module: The module.
        """
        self.monitor.close()
        _log_beside(trainer, self.monitor.flush())

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Finish the plot, which may show the cause.

        Args:
            trainer: The trainer.
            pl_module: The module.
            exception: The exception that ended the training.
        """
        self.monitor.close()

    def _log(self, trainer: Any, pl_module: Any, finished: list[PosteriorMetrics]) -> None:
        _log_beside(trainer, finished)
        for metrics in finished:
            # Not to the loggers: log_dict would log the current step, and only every 50th.
            pl_module.log_dict(_named(metrics), on_step=True, on_epoch=False, logger=False, rank_zero_only=True)

    # State

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the monitor, for the trainer's checkpoint."""
        tensors, numbers = self.monitor.state_tensors()
        copies = {name: tensor.detach().cpu().clone() for name, tensor in tensors.items()}
        return {"tensors": copies, "numbers": numbers, "step": self._step}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the state of the monitor from a checkpoint.

        Args:
            state_dict: The result of `state_dict`.

        Raises:
            CheckpointError: The state does not fit the monitor.
        """
        self.monitor.load_state_tensors(state_dict["tensors"], state_dict["numbers"])
        self._step = state_dict["step"]


def _posterior(outputs: Any, module: Any) -> Mapping[str, Any]:
    kept = getattr(module, "posterior", None)
    for found in (outputs, kept):
        if isinstance(found, Mapping) and "mu" in found and "logvar" in found:
            return found
    keys = f"the keys {', '.join(map(repr, outputs))}" if isinstance(outputs, Mapping) else type(outputs).__name__
    raise OptionError(
        f"training_step returned {keys}, and the module has no dict `posterior`, so mu and logvar are missing. "
        f'Return {{"loss": loss, "mu": mu, "logvar": logvar, "z": z}} from training_step.'
    )


def _reconstruct(module: Any, batch: Any) -> Any:
    if not hasattr(module, "reconstruction_nats"):
        return None
    return partial(_in_evaluation, module, batch)


def _in_evaluation(module: Any, batch: Any, z_BZ: torch.Tensor) -> torch.Tensor:
    """Return the nats of each sequence, without dropout. Restores the modes of the module and the random state."""
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
