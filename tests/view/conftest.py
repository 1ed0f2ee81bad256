"""Fixtures of the pages: the system's Chromium."""

from __future__ import annotations

import shutil

import pytest


@pytest.fixture(scope="session")
def browser():
    """The system's Chromium, without a window."""
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("no Chromium is installed (Debian: apt-get install chromium)")
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as started:
        running = started.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield running
        running.close()


@pytest.fixture
def open_page(browser):
    """A function that opens an address in a new page; at the end of the test, no page may have reported an error.

    `script` runs before those of the page.
    """
    contexts, errors = [], []

    def opened(address, *, width=1280, height=800, dark=False, script=None):
        context = browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme="dark" if dark else "light",
            locale="en-US",
            reduced_motion="reduce",  # a color in a transition may have too little contrast
        )
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(15_000)
        page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.errors = errors
        if script:
            page.add_init_script(script)
        page.goto(address)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert errors == []
