"""Checkpoints of a run: every few seconds, and after every shard, the state from which it can resume."""

from __future__ import annotations

import time
from typing import Any

from gristmill.errors import OptionError
from gristmill.profile import Clock
from gristmill.shards.folder import Folder
from gristmill.shards.output import Output


class Checkpoints:
    """Saves the state of the output. `resumable`: the inputs can be read again from any position."""

    def __init__(self, folder: Folder, output: Output, clock: Clock, *, interval: float, resumable: bool) -> None:
        self._folder, self._output, self._clock = folder, output, clock
        self._interval, self._resumable = interval, resumable
        self._saved = time.perf_counter()
        self._num_shards = output.num_shards

    def save_if_due(self) -> None:
        """Save if the last checkpoint is `interval` seconds old, or a shard was completed since."""
        now = time.perf_counter()
        if now - self._saved >= self._interval or self._output.num_shards > self._num_shards:
            if self._resumable:
                with self._clock.measure("sync"):
                    self._folder.save(self._output.checkpoint())
            self._output.forget_outdated()
            self._saved, self._num_shards = now, self._output.num_shards


def check_interval(checkpoint_seconds: Any) -> float:
    """Return `checkpoint_seconds`, checked."""
    is_number = isinstance(checkpoint_seconds, int | float) and not isinstance(checkpoint_seconds, bool)
    if not is_number or not checkpoint_seconds >= 0:
        raise OptionError(f"checkpoint_seconds must be a number >= 0, got {checkpoint_seconds!r}.")
    return float(checkpoint_seconds)
