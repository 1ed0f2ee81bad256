"""RunStatus: progress, speed and remaining time of a run, as numbers and text."""

from __future__ import annotations

import math
from collections import deque

from gristmill.lm.training.records import Record
from gristmill.report import figures

__all__ = ["Pace", "RunStatus", "clock_time", "shown_loss", "step_time"]

SAMPLE_SECONDS = 0.5
NUM_SAMPLES = 120  # one minute: long enough to be stable, short enough to follow a machine that slows down


class Pace:
    """Current speed of the steps, and the remaining time.

    The first step is not counted, because it compiles and warms up. Steps before a resume are not timed. Pauses
    (validation, samples) are timed separately, and their average per step so far is added to every remaining step.

    >>> pace = Pace(total=100)
    >>> for step in range(41, 51):  # resumed at step 40
    ...     pace.tick(step, now=2.0 * step)
    >>> pace.seconds_per_step(), pace.seconds_left()
    (2.0, 100.0)
    """

    def __init__(self, total: int) -> None:
        self._total, self._step = total, 0
        self._now = self._paused = 0.0
        self._in_pause = False
        self._first_step: int | None = None
        self._samples: deque[tuple[float, int]] = deque(maxlen=NUM_SAMPLES)  # (time without pauses, step)

    def tick(self, step: int, now: float) -> None:
        """Count a step that has ended at the time `now`."""
        if self._first_step is None:
            self._first_step = step
        elif self._in_pause:
            self._paused += now - self._now
        self._in_pause = False
        self._step, self._now = step, now
        at = now - self._paused
        if not self._samples or at - self._samples[-1][0] >= SAMPLE_SECONDS:
            self._samples.append((at, step))

    def pause(self) -> None:
        """Count the time from the last step to the next one as a pause."""
        self._in_pause = True

    def seconds_per_step(self) -> float | None:
        """Return the time per step without pauses; None until two steps have ended."""
        if self._first_step is None or self._step == self._samples[0][1]:
            return None
        began, first = self._samples[0]
        return (self._now - self._paused - began) / (self._step - first)

    def seconds_left(self) -> float | None:
        """Return the time of the remaining steps including pauses; None until two steps have ended."""
        seconds = self.seconds_per_step()
        if seconds is None or self._first_step is None:
            return None
        pauses = self._paused / (self._step - self._first_step)
        return (self._total - self._step) * (seconds + pauses)


class RunStatus:
    """Progress of a run as text: step, last losses, speed and remaining time."""

    def __init__(self, total: int, initial: int) -> None:
        self.total, self.step = total, initial
        self.pace = Pace(total)
        self.train: Record = {}
        self.val_loss: float | None = None

    def tick(self, step: int, now: float) -> None:
        """Count a step that has ended."""
        self.step = step
        self.pace.tick(step, now)

    def show(self, record: Record) -> None:
        """Store the numbers of a record."""
        if record["kind"] == "train":
            self.train, self.step = record, record["step"]
        elif record["kind"] in ("val", "sample"):
            self.pace.pause()
            self.val_loss = record.get("loss", self.val_loss)

    @property
    def steps(self) -> str:
        """The current step and the total, as text.

        >>> RunStatus(40_000, 1_200).steps
        '1,200/40,000'
        """
        return f"{self.step:,}/{self.total:,}"

    def parts(self, *, val_name: str = "val") -> dict[str, str]:
        """Return the known values as text, by name, in display order."""
        train, left, seconds = self.train, self.pace.seconds_left(), self.pace.seconds_per_step()
        mfu = train.get("mfu") if train.get("mfu") is not None else train.get("mfu_matmul")
        rate, memory = train.get("tokens_per_second"), train.get("memory_bytes")
        found = {
            "loss": f"loss {shown_loss(train['loss'])}" if train else None,
            "val": None if self.val_loss is None else f"{val_name} {shown_loss(self.val_loss)}",
            "lr": f"lr {train['lr']:.2e}" if "lr" in train else None,
            "rate": None if rate is None else f"{figures.short(rate)} tokens/s",
            "pace": None if seconds is None else step_time(seconds),
            "mfu": None if mfu is None else f"MFU {mfu:.0%}",
            "memory": figures.size(memory) if memory else None,
            "left": None if left is None or self.step >= self.total else f"ETA {clock_time(left)}",
        }
        return {name: text for name, text in found.items() if text is not None}


def shown_loss(value: float | None) -> str:
    """Return a loss with three decimals; "nan" for None."""
    return f"{math.nan if value is None else value:.3f}"


def step_time(seconds: float) -> str:
    """Return the time per step as text.

    >>> step_time(0.01234), step_time(2.15), step_time(0.0004)
    ('12.3 ms/step', '2.15 s/step', '0.4 ms/step')
    """
    return f"{seconds:.3g} s/step" if seconds >= 0.9995 else f"{1e3 * seconds:.3g} ms/step"


def clock_time(seconds: float) -> str:
    """Return a duration as h:mm:ss or m:ss, and as days and hours from two days on.

    >>> clock_time(42), clock_time(3_850), clock_time(200_000)
    ('0:42', '1:04:10', '2 d 7 h')
    """
    whole = round(seconds)
    if whole >= 2 * 86_400:
        return f"{whole // 86_400} d {whole % 86_400 // 3_600} h"
    hours, minutes = f"{whole // 3_600}:", f"{whole % 3_600 // 60}"
    return f"{hours}{minutes:0>2}:{whole % 60:02}" if whole >= 3_600 else f"{minutes}:{whole % 60:02}"
