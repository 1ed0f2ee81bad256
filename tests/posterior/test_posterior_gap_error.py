"""The error of a gap that the monitor measured on few sequences."""

import pytest
import torch

from gristmill.posterior import PosteriorMetricsMonitor
from gristmill.posterior.estimates import mean_error


@pytest.mark.parametrize("num_values", [2, 3, 4, 8, 12, 13, 64])
def test_the_truth_is_within_two_errors_in_95_of_100_cases_however_few_the_values(num_values):
    values = torch.randn(4000, num_values, generator=torch.Generator().manual_seed(0)).double()
    within = [row.mean().abs() <= 2 * mean_error(row) for row in values]
    assert 0.93 < sum(within) / 4000 < 0.97


def last_alarms(gaps):
    """The alarms of a run of one measurement, in which wrong latents cost the decoder these nats in each sequence."""
    messages = []
    monitor = PosteriorMetricsMonitor(1, 0, 20, last_step=20, gap_interval=1, tell=messages.append)
    generator = torch.Generator().manual_seed(0)
    calls = []

    def reconstruct(z_BZ):
        calls.append(z_BZ)
        return 100 + (torch.tensor(gaps) if len(calls) % 3 == 2 else torch.zeros(len(gaps)))

    for step in range(1, 21):
        mu_BZ = 2 * torch.randn(len(gaps), 4, generator=generator)
        logvar_BZ = torch.full_like(mu_BZ, -3.0)
        monitor.update(mu_BZ, logvar_BZ, mu_BZ, step=step, reconstruct=reconstruct if step == 20 else None)
    monitor.flush()
    monitor.close()
    return [alarm.kind for alarm in monitor.alarms]


def test_two_sequences_that_happen_to_agree_do_not_prove_that_latents_are_ignored():
    assert "ignored" not in last_alarms([-1.2, -0.7])


def test_many_sequences_without_a_gap_prove_that_latents_are_ignored():
    assert "ignored" in last_alarms([-0.1, 0.1] * 8)
