"""Signals that stop a run. It stops between two steps, at the same step in all processes."""

from __future__ import annotations

import os
import signal
import threading
import time
from types import FrameType, TracebackType
from typing import Any

import torch
from torch import Tensor

__all__ = ["StopSignals", "StopVote"]

# torchrun forwards a signal to each process, although a terminal has already sent it to all of them.
LAUNCHER_SECONDS = 5.0


class StopSignals:
    """Records a signal in `received` within the block. A second signal has its usual effect immediately.

    Does nothing outside the main thread, where Python delivers no signals.

    repeat_seconds: a second signal within this time counts as a repetition of the first.
    """

    def __init__(self, *, repeat_seconds: float = 0.0) -> None:
        self.received: int | None = None
        self.agreed: int | None = None  # signal that any process of the run has received, once all know of it
        self._before: dict[int, Any] = {}
        self._repeat_seconds, self._since = repeat_seconds, 0.0

    def __enter__(self) -> StopSignals:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                if signal.getsignal(number) is not signal.SIG_IGN:  # stays ignored, as in a background job
                    self._before[number] = signal.signal(number, self._note)
            if (warning := _warning_of_slurm()) is not None:
                self._before[warning] = signal.signal(warning, self._note)
        return self

    def _note(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if self.received is None:
            self.received, self._since = number, now
        elif now - self._since >= self._repeat_seconds:
            self._restore()
            signal.raise_signal(number)

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._restore()

    def act(self) -> None:
        """Trigger the usual effect of the signal: KeyboardInterrupt for Ctrl-C, termination for others."""
        number = self.agreed or self.received
        if number is not None:
            signal.raise_signal(number if number == signal.SIGINT else signal.SIGTERM)


def _warning_of_slurm() -> int | None:
    """Return SIGUSR1 in a Slurm job, where `sbatch --signal=USR1@120` sends it before the time limit; otherwise None.

    Also None if the program already handles this signal.
    """
    if "SLURM_JOB_ID" not in os.environ or signal.getsignal(signal.SIGUSR1) is not signal.SIG_DFL:
        return None
    return int(signal.SIGUSR1)


class StopVote:
    """Lets the processes of a run stop at the same step, without waiting for each other or for a device.

    Every call of `is_stop_requested` is one vote, so all processes must call it equally often. A vote is counted while
    the next step is computed: the method returns the outcome of the previous vote, which is the same in all processes.
    """

    def __init__(self, signals: StopSignals, *, world_size: int) -> None:
        self._signals = signals
        # A separate gloo group counts votes on the host, also for a GPU run, so that they never wait for gradients.
        self._group = torch.distributed.new_group(backend="gloo") if world_size > 1 else None
        self._open: tuple[Tensor, Any] | None = None

    def is_stop_requested(self) -> bool:
        """Return whether any process had received a signal at the previous call. With one process: by now."""
        signals = self._signals
        if self._group is None:
            signals.agreed = signals.agreed or signals.received
        elif signals.agreed is None:
            self._count()
            votes = torch.tensor(signals.received or 0)
            work = torch.distributed.all_reduce(votes, torch.distributed.ReduceOp.MAX, group=self._group, async_op=True)
            self._open = votes, work
        return signals.agreed is not None

    def _count(self) -> None:
        """Wait for the open vote, which was started one step ago, and store its outcome."""
        if self._open is not None:
            votes, work = self._open
            work.wait()
            self._open = None
            self._signals.agreed = int(votes) or None
