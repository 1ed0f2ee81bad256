"""Figures: numbers in readable form."""

from __future__ import annotations

import math
from typing import Any


def short(number: float) -> str:
    """Return a number with three digits.

    >>> short(950), short(65_536), short(17_100_000), short(3.2e9), short(0.25)
    ('950', '65.5k', '17.1M', '3.2B', '0.25')
    """
    for suffix, scale in (("T", 1e12), ("B", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(number) >= 0.9995 * scale:
            scaled = number / scale
            return (f"{scaled:.3g}" if abs(scaled) < 99.95 else f"{scaled:,.0f}") + suffix
    return f"{number:.3g}"


def loss(value: float) -> str:
    """Return a loss with its significant digits.

    >>> loss(1.44567), loss(0.012345), loss(math.nan)
    ('1.446', '0.0123', 'not a number')
    """
    if not math.isfinite(value):
        return "not a number"
    return f"{value:.3f}" if abs(value) >= 0.1 else f"{value:.3g}"


def perplexity(nats: float) -> str:
    """Return the perplexity of a loss in nats per token.

    >>> perplexity(1.48), perplexity(5.5), perplexity(10.8), perplexity(900)
    ('4.39', '244.7', '49k', 'over 1e+300')
    """
    if nats > 690:
        return "over 1e+300"
    value = math.exp(nats)
    return f"{value:.2f}" if value < 100 else f"{value:.1f}" if value < 1_000 else short(value)


def duration(seconds: float) -> str:
    """Return a duration in its two largest units.

    >>> [duration(seconds) for seconds in (0.52, 42, 112, 3_700, 190_000)]
    ['0.52 s', '42 s', '1 min 52 s', '1 h 1 min', '2 d 4 h']
    """
    if seconds < 10:
        return f"{seconds:.2g} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    for name, size, part, part_size in (("d", 86_400, "h", 3_600), ("h", 3_600, "min", 60), ("min", 60, "s", 1)):
        if whole >= size:
            rest = whole % size // part_size
            return f"{whole // size} {name}" + (f" {rest} {part}" if rest else "")
    raise AssertionError("unreachable")


def size(num_bytes: float) -> str:
    """Return an amount of memory.

    >>> size(1_234_567_890), size(850_000_000)
    ('1.23 GB', '850 MB')
    """
    scale, unit = byte_unit(num_bytes)
    return f"{num_bytes / scale:.3g} {unit}" if num_bytes < 999.5 * scale else f"{num_bytes / scale:,.0f} {unit}"


def byte_unit(num_bytes: float) -> tuple[float, str]:
    """Return the unit for an amount of memory: (1e9, 'GB')."""
    for scale, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if num_bytes >= 0.9995 * scale:
            return scale, unit
    return 1.0, "B"


def percent(share: float) -> str:
    """Return a share as a percentage.

    >>> percent(0.4731), percent(0.0042), percent(1), percent(3e-7), percent(0)
    ('47.3 %', '0.42 %', '100 %', '< 0.001 %', '0 %')
    """
    if 0 < share < 1e-5:
        return "< 0.001 %"
    return f"{100 * share:.3g} %" if share >= 0.01 else f"{100 * share:.2g} %"


def setting(value: Any) -> str:
    """Return the value of an option as text.

    >>> setting(50_304), setting(0.0006), setting(True), setting(None), setting([0.9, 0.95])
    ('50,304', '0.0006', 'yes', '–', '0.9, 0.95')
    """
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,g}"
    if isinstance(value, list):
        return ", ".join(map(setting, value)) or "–"
    return str(value)
