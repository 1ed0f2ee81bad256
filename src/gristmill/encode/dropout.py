"""BPE-dropout: skip merges at random, so that a model sees several tokenizations of a word.

In every step, each possible merge is skipped with the given probability. The same seed gives the same ids.
"""

from __future__ import annotations

import hashlib
import operator
import os
from typing import Any

from gristmill.errors import OptionError


def check_dropout(dropout: Any) -> float:
    """Return `dropout` as a float if it is from 0 to 1."""
    try:
        if isinstance(dropout, str | bytes):
            raise TypeError
        probability = float(dropout)
    except (TypeError, ValueError):
        raise OptionError(
            f"dropout={dropout!r} is of type {type(dropout).__name__}. Pass a number from 0 to 1."
        ) from None
    if not 0 <= probability <= 1:
        raise OptionError(f"dropout must be between 0 and 1, got {dropout!r}.")
    return probability


def check_seed(seed: Any) -> int:
    """Return `seed`, or a fresh random seed if None."""
    if seed is None:
        return int.from_bytes(os.urandom(8), "little")
    try:
        if isinstance(seed, bool):
            raise TypeError
        number = operator.index(seed)
    except TypeError:
        raise OptionError(f"seed={seed!r} is of type {type(seed).__name__}. Pass an int, or leave it out.") from None
    if not 0 <= number < 2**64:
        raise OptionError(f"seed must be >= 0 and < 2**64, got {seed}.")
    return number


def seed_of_text(seed: int, index: int) -> int:
    """Return the seed of text number `index` of a batch. It does not depend on the other texts."""
    digest = hashlib.blake2b(f"{seed}:{index}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")
