"""Replies: JSON requests and replies, and errors as replies."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from gristmill.errors import GristmillError
from gristmill.view.token_texts import shown

__all__ = ["ERROR_HANDLERS", "Refusal", "pick", "read", "reply", "to_json"]

T = TypeVar("T")


class Refusal(Exception):
    """A request that cannot be answered; the page shows the message."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


def reply(content: Any, status: int = 200) -> Response:
    """Return `content` as JSON, see `to_json`."""
    return Response(to_json(content), status, media_type="application/json")


def to_json(content: Any) -> bytes:
    r"""Return `content` as JSON. NaN and infinity become null.

    A byte of a file name that is not UTF-8 is escaped: Python represents it as half of a surrogate pair, which JSON
    cannot contain.

    >>> to_json({"path": "run\udcff"})
    b'{"path":"run\\\\xff"}'
    """
    try:
        return msgspec.json.encode(content)
    except UnicodeEncodeError:
        return msgspec.json.encode(_escaped(msgspec.to_builtins(content)))


def _escaped(content: Any) -> Any:
    if isinstance(content, str):
        return shown(content)
    if isinstance(content, dict):
        return {_escaped(key): _escaped(value) for key, value in content.items()}
    return [_escaped(value) for value in content] if isinstance(content, list | tuple) else content


async def read(request: Request, type: type[T]) -> T:
    """Return the JSON body of the request as a `msgspec.Struct`; raise `Refusal` if it does not fit."""
    try:
        return msgspec.json.decode(await request.body(), type=type)
    except ClientDisconnect:
        # A closed page is no error of the server, which would print a traceback. No one receives this reply.
        raise Refusal("The connection was closed before the request was complete.") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Refusal(f"The request is not valid: {error}.") from error


def pick(items: tuple[T, ...], number: str, what: str) -> T:
    """Return the item with this number in a path, or raise `Refusal`."""
    if not number.isascii() or not number.isdecimal() or len(number) > 9 or int(number) >= len(items):
        raise Refusal(f"There is no {what} number {number[:20]!r}.", 404)
    return items[int(number)]


async def _error(_: Request, error: Exception) -> Response:
    if isinstance(error, HTTPException):
        return reply({"error": str(error.detail)}, error.status_code)
    if isinstance(error, Refusal):
        return reply({"error": str(error)}, error.status)
    if isinstance(error, FileNotFoundError):
        return reply({"error": f"{error.filename} no longer exists."}, 410)
    if isinstance(error, OSError):
        return reply({"error": f"{error.filename or 'A file'}: {error.strerror or error}"}, 500)
    return reply({"error": " ".join(str(error).split())}, 400)


ERROR_HANDLERS: dict[Any, Any] = dict.fromkeys((HTTPException, Refusal, OSError, GristmillError), _error)
