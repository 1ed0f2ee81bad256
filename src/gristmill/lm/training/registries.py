"""The names of optimizers and schedules, those of plugins included. Imports no torch: options are checked without."""

from __future__ import annotations

__all__ = ["OPTIMIZERS", "SCHEDULES"]

OPTIMIZERS = ["adamw", "muon"]
SCHEDULES = ["cosine", "wsd", "constant"]
