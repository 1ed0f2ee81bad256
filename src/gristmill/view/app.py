"""App: all rooms, protected by the token."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from gristmill.version import __version__
from gristmill.view import playground, runs, shards, tokenizers
from gristmill.view.artefacts import Artefacts
from gristmill.view.replies import ERROR_HANDLERS, reply
from gristmill.view.security import Guard

__all__ = ["make_app"]

STATIC = Path(__file__).parent / "static"


def make_app(artefacts: Artefacts, *, token: str, host: str = "127.0.0.1", device: str = "auto") -> Guard:
    """Return the application. Its `state.closing` ends all event streams."""
    rooms = _rooms(artefacts)
    routes: list[BaseRoute] = [
        Route("/", lambda _: RedirectResponse(rooms[0]["name"])),
        Mount("/static", StaticFiles(directory=STATIC)),
        Route("/api/artefacts", _artefacts(artefacts, rooms)),
        *(Route(f"/{room['name']}", _page(**room)) for room in rooms),
        *_room_routes(artefacts, device=device),
    ]
    app = Starlette(routes=routes, exception_handlers=ERROR_HANDLERS)
    app.router.redirect_slashes = False
    app.state.closing = asyncio.Event()
    return Guard(app, token=token, host=host)


def _room_routes(artefacts: Artefacts, *, device: str) -> list[BaseRoute]:
    """Return the routes of all rooms, below /api."""
    return [
        *runs.routes(artefacts),
        *playground.routes(artefacts, device=device),
        *shards.routes(artefacts),
        *tokenizers.routes(artefacts),
    ]


def _rooms(artefacts: Artefacts) -> list[dict[str, str]]:
    """Return the rooms that have something to show, in the order of the navigation."""
    rooms = [
        ("runs", "Runs", artefacts.runs),
        ("playground", "Playground", artefacts.runs),
        ("shards", "Shards", artefacts.shards),
        ("tokenizers", "Tokenizers", artefacts.tokenizers),
    ]
    return [{"name": name, "title": title} for name, title, items in rooms if items]


def _artefacts(artefacts: Artefacts, rooms: list[dict[str, str]]) -> Any:
    content = {
        "version": __version__,
        "rooms": rooms,
        "tokenizers": [each.name for each in artefacts.tokenizers],
        "shards": [each.name for each in artefacts.shards],
        "runs": [each.name for each in artefacts.runs],
    }

    def artefacts_reply(_: Request) -> Response:
        return reply(content)

    return artefacts_reply


def _page(name: str, title: str) -> Any:
    """Return the page of a room: its content in the frame that all pages share."""

    def page(_: Request) -> Response:
        text = (STATIC / "page.html").read_text(encoding="utf-8")
        for word, value in {"name": name, "title": title}.items():
            text = text.replace(f"{{{word}}}", value)
        return HTMLResponse(text.replace("{content}", (STATIC / f"{name}.html").read_text(encoding="utf-8").strip()))

    return page
