"""BPE-dropout: merges skipped at random, so that a model sees a word cut in many ways.

Each merge that could be made is skipped with a probability, anew in every step. The same seed gives the same ids.
"""

from __future__ import annotations

import hashlib
import operator
import os
from typing import Any

from gristmill.errors import OptionError


def check_dropout(dropout: Any) -> float:
    """`dropout`, if it is a probability."""
    try:
        if isinstance(dropout, str | bytes):
            raise TypeError
        probability = float(dropout)
    except (TypeError, ValueError):
        raise OptionError(f"dropout={dropout!r} is a {type(dropout).__name__}. Pass a number from 0 to 1.") from None
    if not 0 <= probability <= 1:
        raise OptionError(f"dropout={dropout!r} is no probability. Pass a number from 0 to 1.")
    return probability


def check_seed(seed: Any) -> int:
    """`seed`, or one that nobody has had before for None."""
    if seed is None:
        return int.from_bytes(os.urandom(8), "little")
    try:
        if isinstance(seed, bool):
            raise TypeError
        number = operator.index(seed)
    except TypeError:
        raise OptionError(f"seed={seed!r} is a {type(seed).__name__}. Pass an int, or leave it out.") from None
    if not 0 <= number < 2**64:
        raise OptionError(f"seed={seed} is out of range. Pass 0 <= seed < 2**64, or leave it out.")
    return number


def seed_of_text(seed: int, index: int) -> int:
    """The seed of text number `index` of a batch: it has the same ids whatever stands beside it."""
    digest = hashlib.blake2b(f"{seed}:{index}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")
