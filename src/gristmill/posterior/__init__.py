"""posterior: monitor the latent variables of a variational autoencoder during training, and warn when they collapse.

    monitor = PosteriorMetricsMonitor(plot_folder="run")
    for step in ...:
        ...  # a step of any training loop
        monitor.update(mu, logvar, z)
    monitor.close()

In reading order:

    estimates.py                    KL, active units and mutual information of many posteriors, as plain functions
    metrics.py                      these metrics at one step, and alarms
    window.py                       the posteriors of the last steps, on the device
    alarms.py                       when a metric is bad, and when to warn
    remedies.py                     remedies, in general terms or as options
    arrival.py                      metrics in transit from the device to the host
    monitor.py                      `PosteriorMetricsMonitor`
    drawing.py, draw.py             its plot, drawn in a separate process
    lightning.py                    the monitor as a callback of PyTorch Lightning

Training needs torch only; the plot needs matplotlib. Importing this package imports neither.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gristmill.packages import lazy_attribute

if TYPE_CHECKING:
    from gristmill.posterior.lightning import PosteriorMetricsCallback
    from gristmill.posterior.metrics import Alarm, AlarmChange, PosteriorMetrics
    from gristmill.posterior.monitor import PosteriorMetricsMonitor

__all__ = ["Alarm", "AlarmChange", "PosteriorMetrics", "PosteriorMetricsCallback", "PosteriorMetricsMonitor"]

_PLACES = {
    "Alarm": "metrics",
    "AlarmChange": "metrics",
    "PosteriorMetrics": "metrics",
    "PosteriorMetricsCallback": "lightning",
    "PosteriorMetricsMonitor": "monitor",
}


if not TYPE_CHECKING:  # with a module __getattr__, a type checker would accept every attribute

    def __getattr__(name: str) -> object:
        """Load a name of `__all__` on first use."""
        return lazy_attribute(__name__, name, _PLACES)


def __dir__() -> list[str]:
    return sorted(__all__)
