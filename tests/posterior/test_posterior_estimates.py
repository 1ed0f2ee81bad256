"""Estimates against closed forms."""

import math

import pytest
import torch

from gristmill.posterior import estimates
from gristmill.posterior.estimates import active_units, aggregated_kl_floor, kl_per_dimension, mutual_information
from posterior.posteriors import gaussian_posteriors

CASES = [(1, 1.0, 0.5), (2, 1.5, 1.0), (4, 0.7, 1.0), (8, 0.3, 0.6)]  # latent_dim, spread, width


@pytest.mark.parametrize(("latent_dim", "spread", "width"), CASES)
def test_mutual_information_of_a_gaussian_channel_is_its_closed_form(latent_dim, spread, width):
    known = latent_dim / 2 * math.log1p((spread / width) ** 2)
    found = torch.stack(
        [
            mutual_information(*gaussian_posteriors(2048, latent_dim, spread=spread, width=width, seed=seed))
            for seed in range(6)
        ]
    )
    assert abs(found.mean().item() - known) < max(0.01 * known, 3 * found.std().item() / math.sqrt(6))


def test_a_collapsed_posterior_has_no_mutual_information_at_any_mean():
    for centre, logvar in ((0.0, 0.0), (3.0, -4.0), (1e3, -9.0)):
        mu = torch.full((500, 16), centre)
        z = mu + math.exp(logvar / 2) * torch.randn(500, 16, generator=torch.Generator().manual_seed(0))
        assert abs(mutual_information(mu, torch.full_like(mu, logvar), z).item()) < 1e-6


def test_the_form_with_the_analytic_entropy_is_noise_where_ours_is_nothing():
    errors = []
    for seed in range(20):
        mu, logvar, z = gaussian_posteriors(100, 32, spread=0.0, width=1.0, seed=seed)
        negative_entropy = -16 * (1 + math.log(2 * math.pi))
        log_mixture = -0.5 * (z.double().square() + math.log(2 * math.pi)).sum(1).mean()
        errors.append(negative_entropy - log_mixture.item())
        assert abs(mutual_information(mu, logvar, z).item()) < 1e-6
    assert max(map(abs, errors)) > 0.5


def test_mutual_information_is_capped_at_the_logarithm_of_the_number_of_posteriors():
    for num in (2, 50, 300):
        mu, logvar, z = gaussian_posteriors(num, 16, spread=10.0, width=0.01)
        assert mutual_information(mu, logvar, z).item() == pytest.approx(math.log(num), abs=1e-9)


def test_the_pair_table_in_parts_gives_the_same_as_in_one(monkeypatch):
    posteriors = gaussian_posteriors(333, 5, spread=1.0, width=0.5)
    whole = mutual_information(*posteriors)
    monkeypatch.setattr(estimates, "TABLE_SIZE", 1000)
    assert mutual_information(*posteriors).item() == pytest.approx(whole.item(), abs=1e-12)


def test_mutual_information_equals_the_densities_of_torch_pair_by_pair():
    generator = torch.Generator().manual_seed(3)
    mu, logvar, z = torch.randn(3, 40, 6, generator=generator, dtype=torch.float64)
    mu += 20  # far from 0, where squares cancel
    z += 20
    log_q = torch.distributions.Normal(mu, (logvar / 2).exp()).log_prob(z[:, None]).sum(2)  # [i, j] = log q(z_i|x_j)
    expected = (log_q.diagonal() - log_q.logsumexp(1) + math.log(40)).mean()
    assert mutual_information(mu, logvar, z).item() == pytest.approx(expected.item(), abs=1e-10)


def test_neither_autocast_nor_a_lower_matmul_precision_changes_a_digit():
    posteriors = gaussian_posteriors(200, 8, spread=1.0, width=0.01)
    plain = mutual_information(*posteriors)
    torch.set_float32_matmul_precision("medium")
    try:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert torch.equal(mutual_information(*posteriors), plain)
            assert kl_per_dimension(*posteriors[:2]).dtype == torch.float64
    finally:
        torch.set_float32_matmul_precision("highest")


def test_kl_is_that_of_torch_and_has_no_rounding_near_zero():
    mu, logvar, _ = gaussian_posteriors(50, 3, spread=1.0, width=0.7)
    q = torch.distributions.Normal(mu.double(), (logvar.double() / 2).exp())
    p = torch.distributions.Normal(torch.zeros((), dtype=torch.float64), torch.ones((), dtype=torch.float64))
    expected = torch.distributions.kl_divergence(q, p).mean(0)
    assert torch.allclose(kl_per_dimension(mu, logvar), expected, atol=1e-12)
    tiny = kl_per_dimension(torch.zeros(1, 1), torch.full((1, 1), 1e-5)).item()
    assert tiny == pytest.approx(1e-10 / 4, rel=1e-3)


def test_active_units_are_those_whose_mean_varies_not_those_that_cost_kl():
    generator = torch.Generator().manual_seed(0)
    mu = torch.randn(2000, 4, generator=generator) * torch.tensor([0.0, 0.05, 0.3, 1.0])
    mu[:, 0] = 7.0  # a large KL without information about x
    assert active_units(mu, 0.01).item() == 2
    assert active_units(mu, 0.2).item() == 1
    assert math.isnan(active_units(mu[:1], 0.01).item())


def test_the_floor_of_the_aggregated_kl_is_exact_for_a_gaussian_and_knows_no_cap():
    mu, logvar, z = gaussian_posteriors(1000, 64, spread=3.0, width=0.1)
    variance = 9.01
    known = 32 * (variance - 1 - math.log(variance))
    assert aggregated_kl_floor(mu, logvar).item() == pytest.approx(known, rel=0.05)
    kl = kl_per_dimension(mu, logvar).sum() - mutual_information(mu, logvar, z)
    assert kl.item() > 1.5 * known  # the mutual information is capped, so the rest of the KL is too large


def test_a_good_aggregated_posterior_has_a_floor_near_zero():
    mu, logvar, _ = gaussian_posteriors(1000, 32, spread=math.sqrt(0.75), width=0.5)
    assert 0 <= aggregated_kl_floor(mu, logvar).item() < 0.2
