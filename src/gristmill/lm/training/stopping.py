"""Ctrl-C and SIGTERM as a request that the loop answers between two steps."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any

__all__ = ["StopSignals"]


class StopSignals:
    """Within the block a signal is only noted in `received`; a second one acts at once, as usual.

    Outside the main thread, where Python gives no signals, nothing changes.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> StopSignals:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                if signal.getsignal(number) is not signal.SIG_IGN:  # as in the background of a script: it stays so
                    self._before[number] = signal.signal(number, self._note)
        return self

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.received is not None:
            self._restore()
            signal.raise_signal(number)
        self.received = number

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._restore()

    def act(self) -> None:
        """Do what the signal would have done: KeyboardInterrupt for Ctrl-C, the end of the process for SIGTERM."""
        if self.received is not None:
            signal.raise_signal(self.received)
