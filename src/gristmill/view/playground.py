"""Playground: generate from the checkpoints of a run, token by token.

One generation runs at a time, in a thread, and others wait in a queue. A generation ends when its text is complete,
when the browser goes away, when the same page starts another one, or when the server stops.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import re
import threading
from collections import deque
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any, TypeAlias

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from gristmill.errors import CheckpointError
from gristmill.lm.explain import CHECKPOINTS, STATE_FILE, why_no_run
from gristmill.small_files import parse_json, read_small_file
from gristmill.view.artefacts import Artefact, Artefacts
from gristmill.view.events import Event, event_stream
from gristmill.view.generations import LATENT_MODES, Generation, check, generate, in_words
from gristmill.view.loaded_models import LoadedModels, require_torch
from gristmill.view.replies import Refusal, pick, read, reply
from gristmill.view.turns import PLAYGROUND_THREAD, Turns

__all__ = ["routes"]

Send: TypeAlias = Callable[[Event], None]

MAX_CHECKPOINTS = 200  # listed, the latest ones
MAX_STATE_BYTES = 1 << 24

_NAME = re.compile(r"step-[0-9]{6,}")


def routes(artefacts: Artefacts, *, device: str = "auto") -> list[BaseRoute]:
    """Return the routes of the playground."""
    models = LoadedModels(artefacts, device=device)
    turns = Turns()

    def about(request: Request) -> Response:
        return reply(_about(pick(artefacts.runs, request.path_params["run"], "run")))

    async def start(request: Request) -> Response:
        run = pick(artefacts.runs, request.path_params["run"], "run")
        asked = await read(request, Generation)
        check(asked)
        require_torch()

        def work(is_cancelled: Callable[[], bool], send: Send) -> None:
            generate(models, run, asked, is_cancelled=is_cancelled, send=send)

        return event_stream(request, _events(turns, asked.client, work))

    return [
        Route("/api/playground/{run}", about),
        Route("/api/playground/{run}/generate", start, methods=["POST"]),
    ]


async def _events(turns: Turns, client: str, work: Callable[[Callable[[], bool], Send], None]) -> AsyncGenerator[Event]:
    """Yield the events of a generation, from its place in the queue to its end."""
    try:
        # Here and not before the response: a browser that is gone by then would leave a turn that never ends.
        turn = turns.take(client)
    except Refusal as refusal:
        yield Event("error", {"message": str(refusal)})
        return
    outbox: _Outbox | None = None
    try:
        while turn.num_before and not turn.is_cancelled():
            yield Event("waiting", {"before": turn.num_before})
            await turn.moved()
        if not turn.is_cancelled():
            outbox = _Outbox(ended=turn.leave)
            # A daemon, so that Ctrl-C does not wait while the thread imports torch or reads a large checkpoint.
            job = functools.partial(work, turn.is_cancelled)
            threading.Thread(target=outbox.filled_by, args=(job,), name=PLAYGROUND_THREAD, daemon=True).start()
            async for event in outbox.events():
                yield event
        if turn.is_replaced:
            yield Event("error", {"message": "This page has started another generation, which replaces this one."})
    finally:
        # Also reached when the browser goes away. Nothing may wait here; the thread ends the turn itself.
        turn.cancel()
        if outbox is None:
            turn.leave()


class _Outbox:
    """Events from a thread to the event loop."""

    def __init__(self, *, ended: Callable[[], None]) -> None:
        """Create it on the event loop. `ended` is called there after the last event."""
        self._loop, self._ended = asyncio.get_running_loop(), ended
        self._events: deque[Event] = deque()
        self._filled = asyncio.Event()
        self._is_over = False

    def filled_by(self, work: Callable[[Send], None]) -> None:
        """Run `work(send)`. Called in the thread."""
        try:
            work(self._send)
        finally:
            self._is_over = True
            self._call(self._filled.set)
            self._call(self._ended)

    def _send(self, event: Event) -> None:
        self._events.append(event)
        self._call(self._filled.set)

    def _call(self, function: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):  # the server has stopped and closed its event loop
            self._loop.call_soon_threadsafe(function)

    async def events(self) -> AsyncGenerator[Event]:
        """Yield the events in order. Tokens that are ready together are one event."""
        while True:
            await self._filled.wait()
            self._filled.clear()
            is_over = self._is_over  # before the events are taken, so that the last ones are not missed
            for event in _together(self._events):
                yield event
            if is_over:
                return


def _together(events: deque[Event]) -> list[Event]:
    """Remove all events, and return them with adjacent tokens in one event."""
    taken: list[Event] = []
    while events:
        event = events.popleft()
        if event.name == "token" and taken and taken[-1].name == "tokens":
            taken[-1].data.append(event.data)
        else:
            taken.append(Event("tokens", [event.data]) if event.name == "token" else event)
    return taken


def _about(run: Artefact) -> dict[str, Any]:
    """Return what the page needs to know about a run. `problem` says why it cannot generate text."""
    require_torch()
    from gristmill.lm.training.run_lock import is_trained_here

    try:
        return {"problem": "", "is_trained": is_trained_here(run.path), "modes": _modes(run), **_checkpoints(run.path)}
    except (CheckpointError, Refusal) as error:
        return {"problem": in_words(error), "is_trained": is_trained_here(run.path), "modes": [], "checkpoints": []}


def _modes(run: Artefact) -> list[str]:
    from gristmill.lm.data.chat_jinja import CHAT_TEMPLATE_FILE
    from gristmill.lm.training.config import load_config

    config = load_config(run.path).model
    if type(config).HAS_LATENTS:
        if getattr(config, "embedding_dim", None) is not None:
            raise Refusal(f"{run.name}: the model was trained on vectors and generates vectors, not text.")
        return list(LATENT_MODES)
    return ["continue", *(["chat"] if (run.path / CHAT_TEMPLATE_FILE).is_file() else [])]


def _checkpoints(run: Path) -> dict[str, Any]:
    """Return the checkpoints, the latest first. Does not import torch, so that the page opens at once."""
    folders = sorted(_checkpoint_folders(run), key=lambda folder: (len(folder.name), folder.name), reverse=True)
    found = []
    for folder in folders[:MAX_CHECKPOINTS]:
        with contextlib.suppress(CheckpointError, OSError):  # damaged, or just removed by the run
            found.append({"name": folder.name, "val_loss": _state(folder).get("val_loss")})
    if not found:
        raise CheckpointError(why_no_run(run))
    return {"checkpoints": found}


def _checkpoint_folders(run: Path) -> list[Path]:
    try:
        return [path for path in (run / CHECKPOINTS).iterdir() if _NAME.fullmatch(path.name) and path.is_dir()]
    except OSError:
        return []


def _state(folder: Path) -> dict[str, Any]:
    """Return the content of state.json. Loading the checkpoint verifies it."""
    path = folder / STATE_FILE
    data = read_small_file(path, what="the state of a checkpoint", max_bytes=MAX_STATE_BYTES, error=CheckpointError)
    content = parse_json(data, error=CheckpointError)
    if not isinstance(content, dict):
        raise CheckpointError(f"{path}: not a JSON object.")
    return content
