"""Estimates: statistics of many posteriors, computed on their device, without waiting for it.

Shapes: N posteriors of Z latent dimensions. The posterior of x_n is q(z|x_n) = N(mu_n, diag(exp(logvar_n))), `z_NZ`
has one sample of each, and the prior is N(0, I). All results are in nats.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

__all__ = ["active_units", "aggregated_kl_floor", "exact", "kl_per_dimension", "mean_error", "mutual_information"]

# Student's t for 95 % divided by that of a normal distribution, by number of values.
WIDER = {2: 6.48, 3: 2.20, 4: 1.62, 5: 1.42, 6: 1.31, 7: 1.25, 8: 1.21, 9: 1.18, 10: 1.15, 11: 1.14, 12: 1.12}
TABLE_SIZE = 2**22  # pairs per chunk: 32 MB


def kl_per_dimension(mu_NZ: Tensor, logvar_NZ: Tensor) -> Tensor:
    """Return KL(q(z_d|x) || N(0, 1)) of each dimension d, the mean over x. Their sum is the KL term of the ELBO.

    >>> kl_per_dimension(torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 0.0]])).tolist()
    [0.5, 0.0]
    """
    mu_NZ, logvar_NZ = exact(mu_NZ), exact(logvar_NZ)
    return 0.5 * (mu_NZ.square() + torch.expm1(logvar_NZ) - logvar_NZ).mean(0)


def active_units(mu_NZ: Tensor, threshold: float) -> Tensor:
    """Return how many dimensions have a mean that varies with x: Var_x(mu_d) > `threshold`.

    NaN for a single posterior, which has no variance, and if a value is not finite.

    >>> active_units(torch.tensor([[-1.0, 5.0], [1.0, 5.0]]), 0.01).item()
    1.0
    """
    mu_NZ = exact(mu_NZ)
    if len(mu_NZ) < 2:
        return mu_NZ.new_full((), math.nan)
    variance_Z = mu_NZ.var(0)
    units = (variance_Z > threshold).sum().to(mu_NZ.dtype)
    return torch.where(variance_Z.isfinite().all(), units, math.nan)


def mutual_information(mu_NZ: Tensor, logvar_NZ: Tensor, z_NZ: Tensor) -> Tensor:
    """Return an estimate of I(x; z): mean_i [ log q(z_i|x_i) - log( 1/N sum_j q(z_i|x_j) ) ].

    Both terms use the same sample z_i. The first term has a closed form, the negative entropy, but with that the noise
    of the samples, about sqrt(Z / 2N) nats, would be in one term only, and dominate if the posterior has collapsed.
    With the same sample, collapse gives 0 up to rounding.

    The estimate cannot exceed ln N nats, because x_i is one of the x_j. Read a value near ln N as "at least this much".

    >>> round(mutual_information(*torch.tensor([[[0.0], [90.0]], [[0.0], [0.0]], [[0.1], [89.8]]])).item(), 4)
    0.6931
    """
    with torch.autocast(mu_NZ.device.type, enabled=False):
        mu_NZ, logvar_NZ, z_NZ = exact(mu_NZ), exact(logvar_NZ), exact(z_NZ)
        # Centred, because the squares below lose precision for numbers far from 0, and only differences matter.
        centre_Z = mu_NZ.mean(0)
        mu_NZ, z_NZ = mu_NZ - centre_Z, z_NZ - centre_Z
        num_rows = max(1, TABLE_SIZE // len(mu_NZ))
        parts = [
            _information(mu_NZ, logvar_NZ, z_NZ[first : first + num_rows], first)
            for first in range(0, len(mu_NZ), num_rows)
        ]
        return torch.cat(parts).mean() + math.log(len(mu_NZ))


def _information(mu_NZ: Tensor, logvar_NZ: Tensor, z_RZ: Tensor, first: int) -> Tensor:
    """Return log q(z_i|x_i) - log sum_j q(z_i|x_j) of the R samples starting at number `first`."""
    # (z - mu)^2 / var = z^2 / var - 2 z mu / var + mu^2 / var: matrix products, never an N x N x Z table. The constant
    # Z / 2 ln 2 pi cancels between both terms and is left out.
    precision_NZ = torch.exp(-logvar_NZ)
    scaled_NZ = mu_NZ * precision_NZ
    constant_N = (mu_NZ * scaled_NZ + logvar_NZ).sum(1)
    log_q_RN = z_RZ @ scaled_NZ.T - 0.5 * (z_RZ.square() @ precision_NZ.T + constant_N)
    return log_q_RN.diagonal(offset=first) - log_q_RN.logsumexp(1)


def aggregated_kl_floor(mu_NZ: Tensor, logvar_NZ: Tensor) -> Tensor:
    """Return a lower bound of the KL between the aggregated posterior, the mixture of all q(z|x), and the prior.

    It is the KL of the Gaussian with the mean and variances of the mixture. The estimate KL - I(x; z) is too large if
    the mutual information is capped; this one is not.

    >>> aggregated_kl_floor(torch.tensor([[-1.0], [1.0]]), torch.full((2, 1), -99.0)).item()
    0.0
    """
    mu_NZ = exact(mu_NZ)
    variance_Z = mu_NZ.var(0, correction=0) + torch.exp(exact(logvar_NZ)).mean(0)
    return 0.5 * (mu_NZ.mean(0).square() + variance_Z - 1 - torch.log(variance_Z)).sum()


def mean_error(values_N: Tensor) -> Tensor:
    """Return the standard error of the mean, scaled so that the true mean is within 2 errors in 95 of 100 cases.

    For few values, the standard deviation is a rough estimate and often much too small, so the error is widened by
    Student's t.

    >>> round(mean_error(torch.tensor([0.0, 2.0])).item(), 2)
    6.48
    """
    num_values = len(values_N)
    return values_N.std() * (WIDER.get(num_values, 1.0) / math.sqrt(num_values))


def exact(x: Tensor) -> Tensor:
    """Return `x` in float64, which autocast and TF32 leave alone; in float32 on Apple GPUs, which have no float64."""
    return x.float() if x.device.type == "mps" else x.double()
