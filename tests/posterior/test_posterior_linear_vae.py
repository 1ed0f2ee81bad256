"""A linear VAE, whose optimum is known: one unit per eigenvalue of the data's covariance above the noise."""

import pytest
import torch

from gristmill.posterior.estimates import kl_per_dimension
from posterior.posteriors import quiet_monitor

EIGENVALUES = (9.0, 6.0, 4.0, 2.0, 0.6, 0.4, 0.2, 0.1)
NUM_STEPS = 1500


@pytest.mark.parametrize(("noise", "num_active"), [(1.0, 4), (3.0, 3), (12.0, 0)])
def test_a_linear_vae_has_an_active_unit_for_every_eigenvalue_above_the_noise(noise, num_active):
    generator = torch.Generator().manual_seed(0)
    rotation = torch.linalg.qr(torch.randn(8, 8, generator=generator))[0]
    spread = rotation * torch.tensor(EIGENVALUES).sqrt()
    encoder, decoder = (torch.nn.Parameter(0.3 * torch.randn(8, 8, generator=generator)) for _ in range(2))
    logvar_Z = torch.nn.Parameter(torch.zeros(8))
    optimizer = torch.optim.Adam([encoder, decoder, logvar_Z], lr=0.02)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.01, total_iters=NUM_STEPS)
    monitor = quiet_monitor(100, 0, 50)
    for _ in range(NUM_STEPS):
        x = torch.randn(64, 8, generator=generator) @ spread.T
        mu, logvar = x @ encoder, logvar_Z.expand(64, 8)
        z = mu + torch.exp(logvar / 2) * torch.randn(64, 8, generator=generator)
        reconstruction = (z @ decoder - x).square().sum(1).mean() / (2 * noise)
        optimizer.zero_grad()
        (reconstruction + kl_per_dimension(mu, logvar).sum()).backward()
        optimizer.step()
        schedule.step()
        monitor.update(mu, logvar, z)
    last = monitor.flush()[-1]
    assert last.active_units == last.active_units_strict == num_active
    assert [alarm.kind for alarm in monitor.alarms] == (["collapse"] if num_active == 0 else [])
    # At the optimum, the aggregated posterior is the prior, and each unit carries 1/2 ln(eigenvalue / noise) nats.
    held = sum(0.5 * torch.tensor(value / noise).log().item() for value in EIGENVALUES[:num_active])
    assert last.mutual_information == pytest.approx(held, rel=0.1, abs=0.05)
    assert abs(last.aggregated_kl) < 0.35
