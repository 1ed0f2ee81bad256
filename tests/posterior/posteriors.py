"""Posteriors with known metrics, and loops that pass them to a monitor."""

import math

import torch

from gristmill.posterior import PosteriorMetrics, PosteriorMetricsMonitor


def gaussian_posteriors(num, latent_dim, *, spread, width, seed=0):
    """Means drawn from N(0, spread^2), all of one width: their mixture is N(0, spread^2 + width^2) in the limit."""
    generator = torch.Generator().manual_seed(seed)
    mu = spread * torch.randn(num, latent_dim, generator=generator)
    logvar = torch.full_like(mu, 2 * math.log(width))
    return mu, logvar, mu + width * torch.randn(num, latent_dim, generator=generator)


def batches(num_steps, *, batch_size=4, latent_dim=3, seed=0):
    """The posteriors of this many steps, all different."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(num_steps):
        mu, logvar, z = torch.randn(3, batch_size, latent_dim, generator=generator)
        yield mu, logvar, z


def squared(z):
    """Nats per sequence of a made-up decoder."""
    return z.square().sum(1)


def quiet_monitor(*args, **options):
    """A monitor whose messages are in its list `messages`."""
    messages = []
    monitor = PosteriorMetricsMonitor(*args, **{"tell": messages.append, **options})
    monitor.messages = messages
    return monitor


def metrics(step, **figures):
    """Metrics of a healthy posterior, except for those given."""
    healthy = {
        "num_samples": 200,
        "kl": 6.0,
        "kl_per_dimension": (0.2,) * 30,
        "active_units": 20,
        "active_units_strict": 12,
        "mutual_information": 4.0,
        "mutual_information_limit": math.log(200),
        "aggregated_kl": 2.0,
        "aggregated_kl_floor": 1.0,
        "kl_share": 0.1,
        "kl_weight": 1.0,
        "gap_shuffled": 5.0,
        "gap_prior": 4.0,
    }
    return PosteriorMetrics(step=step, **{**healthy, **figures})
