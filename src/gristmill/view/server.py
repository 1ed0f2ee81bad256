"""Server: `serve` listens, prints the address and stops on Ctrl-C."""

from __future__ import annotations

import errno
import os
import socket
import webbrowser
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from gristmill.errors import OptionError
from gristmill.packages import packages_for
from gristmill.view.artefacts import find_artefacts
from gristmill.view.security import make_token

__all__ = ["DEFAULT_PORT", "address_of", "listen", "make_server", "serve"]

DEFAULT_PORT = 8765
PORTS_TRIED = 50  # from the default port on, if no port is given
SHUTDOWN_SECONDS = 3
SILENT_SECONDS = 10.0  # more than the 5 s that an answered connection stays open for the next request


def serve(
    paths: Iterable[str | os.PathLike[str]],
    *,
    host: str = "127.0.0.1",
    port: int | None = None,
    open_browser: bool = False,
    device: str = "auto",
    pattern: str | None = None,
    download: bool = False,
    announce: Callable[[str], object] = print,
) -> None:
    """Serve the pages of the artefacts at `paths` until Ctrl-C.

    host: Address to listen on. Any address but the loopback makes the pages reachable from other machines; they too
        need the token in the address.
    port: None: 8765, or the next free port.
    device: Device of the playground: "auto", "cpu", "cuda" or "mps".
    pattern, download: See `find_artefacts`.
    announce: Gets the address of the pages once the server listens.
    """
    artefacts = find_artefacts(paths, pattern=pattern, download=download)
    with packages_for("gristmill view"):
        from gristmill.view.app import make_app
    token = make_token()
    listener = listen(host, port)
    try:
        app = make_app(artefacts, token=token, host=host, device=device)
        address = address_of(listener, host, token)
        server = make_server(app)
        announce(address)
        if open_browser:
            webbrowser.open(address)
        with suppress(KeyboardInterrupt):
            server.run(sockets=[listener])
    finally:
        listener.close()


def listen(host: str, port: int | None) -> socket.socket:
    """Return a socket that listens on `port`, or on the first free port from `DEFAULT_PORT` on."""
    if port is not None and not 0 <= port <= 65_535:
        raise OptionError(f"port must be from 0 to 65535, got {port}.")
    ports = [port] if port is not None else [*range(DEFAULT_PORT, DEFAULT_PORT + PORTS_TRIED), 0]
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.getaddrinfo(host, None, family)  # create_server does not distinguish this error from others
    except (socket.gaierror, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise OptionError(f"host={host!r} is not an address of this machine: {reason}. Pass one of its own.") from error
    for number in ports:
        try:
            listener = socket.create_server((host, number), family=family, backlog=128)
            # Without it, a reply waits up to 40 ms for an acknowledgement. Connections inherit it from the listener.
            # asyncio sets it only on sockets that name their protocol, which those of create_server do not.
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return listener
        except OSError as error:
            if error.errno == errno.EADDRNOTAVAIL:
                raise OptionError(f"host={host!r} is not an address of this machine. Pass one of its own.") from error
            if error.errno == errno.EADDRINUSE and port is None:
                continue
            why = "is in use" if error.errno == errno.EADDRINUSE else f"cannot be used ({error.strerror})"
            raise OptionError(f"port={number} {why}. Pass another port, or none to use a free one.") from error
    raise AssertionError("port 0 always finds a free port")


def address_of(listener: socket.socket, host: str, token: str) -> str:
    """Return the URL of the pages, with the token."""
    port = listener.getsockname()[1]
    name = {"0.0.0.0": socket.gethostname(), "::": socket.gethostname()}.get(host, host)
    return f"http://{f'[{name}]' if ':' in name else name}:{port}/{token}/"


def make_server(app: Any) -> Any:
    """Return a uvicorn server that ends open event streams before it waits for connections to close."""
    import uvicorn
    from uvicorn.protocols.http.h11_impl import H11Protocol

    class Connection(H11Protocol):  # type: ignore[misc]
        """Closes itself if no complete request arrives. Otherwise, 200 silent connections would keep all others out."""

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self.loop.call_later(SILENT_SECONDS, self._close_if_silent, None)

        def _close_if_silent(self, last: Any) -> None:
            if self.transport.is_closing():
                return
            if self.cycle is last and (last is None or last.response_complete):
                self.transport.close()
            else:
                self.loop.call_later(SILENT_SECONDS, self._close_if_silent, self.cycle)

    class Server(uvicorn.Server):  # type: ignore[misc]
        async def shutdown(self, sockets: Any = None) -> None:
            app.close()
            for connection in self.server_state.connections:
                if connection.flow.write_paused:  # the browser does not read, so its stream cannot end
                    connection.transport.abort()
            await super().shutdown(sockets=sockets)

    config = uvicorn.Config(
        app,
        http=Connection,
        log_level="warning",
        access_log=False,
        lifespan="off",
        server_header=False,
        timeout_graceful_shutdown=SHUTDOWN_SECONDS,
        limit_concurrency=200,
    )
    return Server(config)
