"""Standing: how far a run is, how fast it is and how long it will take, in numbers and in words."""

from __future__ import annotations

import math
from collections import deque

from gristmill.lm.training.records import Record
from gristmill.report import figures

__all__ = ["Pace", "Standing", "clock_time", "shown_loss", "step_time"]

SAMPLE_SECONDS = 0.5
NUM_SAMPLES = 120  # a minute: long enough to be steady, short enough to follow a machine that slows down


class Pace:
    """How fast steps follow each other now.

    The first step counts for nothing: it compiles and warms up, and steps before a resume are not timed at all. Pauses
    (validation, samples) are timed apart: their cost per step so far is added to every step that is left.

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
        """A step has ended at the time `now`."""
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
        """The time from the last step to the next one is not that of a step."""
        self._in_pause = True

    def seconds_per_step(self) -> float | None:
        """The time of a step without pauses; None until two have ended."""
        if self._first_step is None or self._step == self._samples[0][1]:
            return None
        began, first = self._samples[0]
        return (self._now - self._paused - began) / (self._step - first)

    def seconds_left(self) -> float | None:
        """The time that the steps left will take, with their share of pauses; None until two steps have ended."""
        seconds = self.seconds_per_step()
        if seconds is None or self._first_step is None:
            return None
        pauses = self._paused / (self._step - self._first_step)
        return (self._total - self._step) * (seconds + pauses)


class Standing:
    """How far a run is, in words: its step, its last losses, how fast it is and how long it will take."""

    def __init__(self, total: int, initial: int) -> None:
        self.total, self.step = total, initial
        self.pace = Pace(total)
        self.train: Record = {}
        self.val_loss: float | None = None

    def tick(self, step: int, now: float) -> None:
        """A step has ended."""
        self.step = step
        self.pace.tick(step, now)

    def show(self, record: Record) -> None:
        """Keep the numbers of a record."""
        if record["kind"] == "train":
            self.train, self.step = record, record["step"]
        elif record["kind"] in ("val", "sample"):
            self.pace.pause()
            self.val_loss = record.get("loss", self.val_loss)

    @property
    def steps(self) -> str:
        """The step and the last one.

        >>> Standing(40_000, 1_200).steps
        '1,200/40,000'
        """
        return f"{self.step:,}/{self.total:,}"

    def parts(self, *, val_name: str = "val") -> dict[str, str]:
        """What is known, by name, in the order in which it is shown."""
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
    """A loss in three decimal places; None is not a number."""
    return f"{math.nan if value is None else value:.3f}"


def step_time(seconds: float) -> str:
    """The time of a step.

    >>> step_time(0.01234), step_time(2.15), step_time(0.0004)
    ('12.3 ms/step', '2.15 s/step', '0.4 ms/step')
    """
    return f"{seconds:.3g} s/step" if seconds >= 0.9995 else f"{1e3 * seconds:.3g} ms/step"


def clock_time(seconds: float) -> str:
    """A time as clocks show it, and days from two days on.

    >>> clock_time(42), clock_time(3_850), clock_time(200_000)
    ('0:42', '1:04:10', '2 d 7 h')
    """
    whole = round(seconds)
    if whole >= 2 * 86_400:
        return f"{whole // 86_400} d {whole % 86_400 // 3_600} h"
    hours, minutes = f"{whole // 3_600}:", f"{whole % 3_600 // 60}"
    return f"{hours}{minutes:0>2}:{whole % 60:02}" if whole >= 3_600 else f"{minutes}:{whole % 60:02}"
