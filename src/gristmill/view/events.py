"""Events: server-sent events, which end when the browser goes away or the server stops."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import StreamingResponse

from gristmill.view.replies import to_json

__all__ = ["Event", "event_stream"]

HEARTBEAT_SECONDS = 15.0  # a comment, so that a lost connection is noticed


@dataclass(frozen=True)
class Event:
    """One event. The browser sends the `id` of the last one when it reconnects (header Last-Event-ID)."""

    name: str
    data: Any
    id: str = ""

    def encode(self) -> bytes:
        """Return the event as it is sent."""
        head = f"id: {self.id}\n" if self.id else ""
        return f"{head}event: {self.name}\ndata: ".encode() + to_json(self.data) + b"\n\n"


def event_stream(request: Request, events: AsyncGenerator[Event]) -> StreamingResponse:
    """Return a response that sends the events until they end, the browser goes away or the server stops."""
    return StreamingResponse(_frames(events, request.app.state.closing), media_type="text/event-stream")


async def _frames(events: AsyncGenerator[Event], closing: asyncio.Event) -> AsyncIterator[bytes]:
    async with contextlib.aclosing(events):
        closed = asyncio.ensure_future(closing.wait())
        following: asyncio.Future[Event] | None = None
        try:
            while True:
                following = following or asyncio.ensure_future(anext(events))
                waited: set[asyncio.Future[Any]] = {following, closed}
                done, _ = await asyncio.wait(waited, timeout=HEARTBEAT_SECONDS, return_when=asyncio.FIRST_COMPLETED)
                if closed in done:
                    return
                if following not in done:
                    yield b": still here\n\n"
                    continue
                try:
                    event = following.result()
                except StopAsyncIteration:
                    return
                following = None
                yield event.encode()
        finally:
            closed.cancel()
            if following is not None:
                following.cancel()
                with contextlib.suppress(asyncio.CancelledError, Exception):
                    await following
