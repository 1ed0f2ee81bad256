"""Security: what every request to the pages must have, and the headers that every response gets.

The first part of each path is a random token, so only someone with the printed address can read anything. A page of
another site cannot use it either: such requests have another Origin, and a name that resolves to this machine (DNS
rebinding) has another Host.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import secrets
import socket
import time
from typing import Any

__all__ = ["MAX_BODY_BYTES", "Guard", "is_loopback", "make_token"]

MAX_BODY_BYTES = 4 << 20
BODY_SECONDS = 60.0  # from the first line of a request to the end of its body
METHODS = ("GET", "HEAD", "POST")
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}


def make_token() -> str:
    """Return a fresh random token of 192 bits."""
    return secrets.token_urlsafe(24)


def is_loopback(host: str) -> bool:
    """Return whether only this machine can connect to `host`.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class _Refused(Exception):
    def __init__(self, status: int, message: str, *, location: str = "") -> None:
        super().__init__(message)
        self.status, self.message, self.location = status, message, location


class Guard:
    """ASGI middleware: refuses every request without the token, or from another site, before the application sees it.

    host: The address that the server listens on.
    """

    def __init__(self, app: Any, *, token: str, host: str) -> None:
        self._app, self._token = app, token
        self._is_local = is_loopback(host)
        # Looked up once: a name server that does not answer would stall every request.
        self._names = set() if self._is_local else {host.lower(), *map(str.lower, _names_of_this_machine())}

    def close(self) -> None:
        """End all event streams. Called on the event loop of the server."""
        self._app.state.closing.set()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":  # no WebSockets
            await send({"type": "websocket.close", "code": 1008})
            return
        try:
            inner = self._checked(scope)
            await self._app(inner, _bounded(receive), _with_headers(send))
        except _Refused as refused:
            await _refuse(_with_headers(send), refused)

    def _checked(self, scope: Any) -> dict[str, Any]:
        """Return the scope with the path after the token, or raise `_Refused`."""
        headers: dict[str, list[str]] = {}
        for name, value in scope["headers"]:
            headers.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
        host = headers.get("host", [])
        if len(host) != 1 or not self._is_our_host(host[0]):
            raise _Refused(421, "This server does not answer to that host name. Open the address that it printed.")
        origin = headers.get("origin")
        if origin is not None and origin != [f"{scope.get('scheme', 'http')}://{host[0]}"]:
            raise _Refused(403, "The request comes from another site.")
        if scope["method"] not in METHODS:
            raise _Refused(405, f"The method must be one of {', '.join(METHODS)}.")
        if scope["method"] == "POST":
            kind = headers.get("content-type", [""])[0].partition(";")[0].strip().lower()
            if kind != "application/json":
                raise _Refused(415, "The content type must be application/json.")
            length = headers.get("content-length", ["0"])[0]
            if not length.isdecimal() or int(length) > MAX_BODY_BYTES:
                raise _Refused(413, _TOO_LARGE)
        first, slash, rest = scope["path"].removeprefix("/").partition("/")
        if not hmac.compare_digest(first.encode(), self._token.encode()):
            raise _Refused(
                403,
                "The address has a wrong token or none. Open the address that `gristmill view` printed. Each start has "
                "a new token.",
            )
        if not slash:
            raise _Refused(307, "", location=f"/{self._token}/")
        return {**scope, "path": f"/{rest}", "raw_path": f"/{rest}".encode(), "root_path": ""}

    def _is_our_host(self, header: str) -> bool:
        """Return whether a Host header names this server, on any port: a tunnel may use another one."""
        name = header.rpartition(":")[0] if header.rpartition(":")[2].isdecimal() else header
        name = name.removeprefix("[").removesuffix("]").lower()
        if is_loopback(name):
            return True
        if self._is_local:
            return False
        if name in self._names:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True


def _names_of_this_machine() -> tuple[str, str]:
    return socket.gethostname(), socket.getfqdn()


_TOO_LARGE = f"The request is too large. At most {MAX_BODY_BYTES:,} bytes are allowed."


def _bounded(receive: Any) -> Any:
    """Return `receive` with limits on the size of the body, which may come without a Content-Length, and on its time.

    Raises `Refusal` in the application, which turns it into a reply.
    """
    from gristmill.view.replies import Refusal

    num_bytes, deadline, is_complete = 0, time.monotonic() + BODY_SECONDS, False

    async def bounded() -> Any:
        nonlocal num_bytes, is_complete
        if is_complete:  # an event stream waits here for the browser to go away
            return await receive()
        try:
            message = await asyncio.wait_for(receive(), max(0.0, deadline - time.monotonic()))
        except TimeoutError:
            raise Refusal(f"The request did not arrive within {BODY_SECONDS:.0f} s.", 408) from None
        num_bytes += len(message.get("body", b""))
        if num_bytes > MAX_BODY_BYTES:
            raise Refusal(_TOO_LARGE, 413)
        is_complete = not message.get("more_body", False)
        return message

    return bounded


def _with_headers(send: Any) -> Any:
    async def sending(message: Any) -> None:
        if message["type"] == "http.response.start":
            own = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
            kept = [(name, value) for name, value in message.get("headers", ()) if name.decode().lower() not in HEADERS]
            message = {**message, "headers": [*kept, *own]}
        await send(message)

    return sending


async def _refuse(send: Any, refused: _Refused) -> None:
    body = refused.message.encode()
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(body)).encode())]
    if refused.location:
        headers.append((b"location", refused.location.encode()))
    await send({"type": "http.response.start", "status": refused.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
