"""Pages: a server in a thread, and checks of a page in the browser."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from dataclasses import dataclass

from gristmill.view.app import make_app
from gristmill.view.artefacts import find_artefacts
from gristmill.view.server import address_of, listen, make_server

TOKEN = "a-token-of-the-tests"
WIDTHS = (390, 1280)


@dataclass
class Served:
    """A running server."""

    address: str  # with the token and a slash at the end

    @property
    def origin(self):
        return self.address.removesuffix(f"/{TOKEN}/")


@contextlib.contextmanager
def serving(*paths):
    """Serve the artefacts at `paths` in a thread."""
    listener = listen("127.0.0.1", 0)
    server = make_server(make_app(find_artefacts(paths), token=TOKEN))
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listener])))
    thread.start()
    try:
        yield Served(address_of(listener, "127.0.0.1", TOKEN))
    finally:
        server.should_exit = True
        thread.join(timeout=30)
        listener.close()
        assert not thread.is_alive()


def check_layout(page):
    """Assert that nothing is wider than the window."""
    excess = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert excess <= 0, f"the page is {excess} px wider than the window"


def check_accessibility(page):
    """Assert that axe finds nothing serious."""
    from axe_playwright_python.sync_playwright import Axe

    found = [
        f"{violation['id']}: {violation['help']}: {[node['html'][:120] for node in violation['nodes'][:3]]}"
        for violation in Axe().run(page).response["violations"]
        if violation["impact"] in ("serious", "critical")
    ]
    assert found == [], found
