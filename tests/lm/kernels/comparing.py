"""What the tests of kernels share: scales, and how close a kernel must be to plain torch."""

from __future__ import annotations

import torch

BOTH = [torch.float32, torch.bfloat16]
# A kernel and plain torch add in different orders. A result in bfloat16 may then be rounded to the neighbour.
CLOSE = {torch.float32: {"atol": 2e-5, "rtol": 2e-5}, torch.bfloat16: {"atol": 1e-2, "rtol": 2**-7}}


def assert_near(found, expected):
    torch.testing.assert_close(found, expected.to(found.dtype), **CLOSE[found.dtype], equal_nan=True)


def cosine(found, expected):
    a, b = found.double().flatten(), expected.double().flatten()
    return float(a @ b / (a.norm() * b.norm()).clamp(min=1e-300))


def relative(found, expected):
    """The norm of the difference, relative to what is expected."""
    return float((found.double() - expected.double()).norm() / expected.double().norm().clamp(min=1e-300))


def site(dtype, device, scale=8.0):
    from gristmill.lm.kernels.float8 import Site

    scales = torch.full((4,), scale, device=device)
    return Site(dtype, scale=scales[:1], inverse=1 / scales[:1], largest=torch.zeros(4, device=device)[:1])


def bits(x):
    return x.view(torch.uint8)


def assert_stored(small, x, site):
    """Check that `small` holds `x` times the scale, or a neighbour where `x` is rounded in another order."""
    found = small.float() * site.inverse
    spacing = 2**-3 if site.dtype == torch.float8_e4m3fn else 2**-2  # between neighbours, relative
    smallest = 2**-9 if site.dtype == torch.float8_e4m3fn else 2**-16
    torch.testing.assert_close(found, x.float(), rtol=0.55 * spacing, atol=float(smallest * site.inverse))
    torch.testing.assert_close(site.largest[0], x.float().abs().max(), rtol=2**-7, atol=0.0)
