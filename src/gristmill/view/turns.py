"""Turns: one generation at a time on the server, in order of arrival, and one turn per client."""

from __future__ import annotations

import asyncio
import threading

from gristmill.view.replies import Refusal

__all__ = ["MAX_TURNS", "Turn", "Turns"]

MAX_TURNS = 16  # with the one that is generating


class Turn:
    """A place in the queue. Used on the event loop, except `is_cancelled`."""

    def __init__(self, turns: Turns, client: str) -> None:
        self._turns, self.client = turns, client
        self._cancelled = threading.Event()
        self._moved = asyncio.Event()
        self.is_replaced = False

    @property
    def num_before(self) -> int:
        """Number of turns before this one. 0: it is this one's turn."""
        return self._turns.place_of(self)

    def is_cancelled(self) -> bool:
        """Whether the client no longer waits for the result. May be called in any thread."""
        return self._cancelled.is_set()

    def cancel(self) -> None:
        """Ask the generation to end. The turn ends with `leave`."""
        self._cancelled.set()
        self.wake()

    def wake(self) -> None:
        """Continue `moved`."""
        self._moved.set()

    async def moved(self) -> None:
        """Wait until the place in the queue has changed, or the turn is cancelled."""
        await self._moved.wait()
        self._moved.clear()

    def leave(self) -> None:
        """End the turn. The next one in the queue begins."""
        self._turns.remove(self)


class Turns:
    """The queue. All methods are called on the event loop."""

    def __init__(self, *, max_turns: int = MAX_TURNS) -> None:
        self._line: list[Turn] = []
        self._max_turns = max_turns

    def take(self, client: str) -> Turn:
        """Return a new turn at the end of the queue. An earlier turn of the same client is cancelled.

        Raises `Refusal` if the queue is full.
        """
        for earlier in self._line:
            if earlier.client == client:
                earlier.is_replaced = True
                earlier.cancel()
        if len(self._line) >= self._max_turns:
            raise Refusal(f"{len(self._line)} generations are waiting already. Try again in a moment.")
        turn = Turn(self, client)
        self._line.append(turn)
        return turn

    def place_of(self, turn: Turn) -> int:
        """Return the number of turns before this one."""
        return self._line.index(turn) if turn in self._line else 0

    def remove(self, turn: Turn) -> None:
        """Remove a turn, if it is still in the queue, and tell all others."""
        if turn in self._line:
            self._line.remove(turn)
            for other in self._line:
                other.wake()

    def __len__(self) -> int:
        return len(self._line)
