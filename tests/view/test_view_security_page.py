"""Refusals in the browser: a page of another site, a wrong token, paths outside the static files, injected scripts."""

from __future__ import annotations

import http.server
import threading

import pytest

import gristmill as gm
from gristmill.view import security
from gristmill.view.security import Guard
from view.pages import TOKEN, serving


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    path = tmp_path_factory.mktemp("view") / "tok.json"
    gm.Tokenizer([(b"l", b"o")]).save(path)
    with serving(path) as server:
        yield server


class ForeignPage(http.server.BaseHTTPRequestHandler):
    """An empty page, and a script that leaves a mark."""

    def do_GET(self):
        is_script = self.path == "/script.js"
        content = b"window.injected = true" if is_script else b"<!doctype html><title>Foreign</title>"
        self.send_response(200)
        self.send_header("content-type", "text/javascript" if is_script else "text/html")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def foreign():
    """The origin of a page on another port."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), ForeignPage) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture
def page(browser):
    """A new page, whose errors are expected: the browser reports what it refuses."""
    context = browser.new_context()
    page = context.new_page()
    page.set_default_timeout(15_000)
    yield page
    context.close()


FETCH = """async ([address, options]) => {
    try {
        const response = await fetch(address, options);
        return response.type === "opaque" ? "opaque" : await response.text();
    } catch (error) {
        return error.name;
    }
}"""


@pytest.fixture
def requests(monkeypatch):
    """The requests that reach the server: the method of each, and 200 or the status of its refusal."""
    found = []
    check = Guard._checked

    def recorded(guard, scope):
        try:
            inner = check(guard, scope)
        except security._Refused as refused:
            found.append((scope["method"], refused.status))
            raise
        found.append((scope["method"], 200))
        return inner

    monkeypatch.setattr(Guard, "_checked", recorded)
    return found


@pytest.mark.parametrize("mode", ["cors", "no-cors"])
def test_a_page_of_another_origin_cannot_read(served, foreign, page, mode):
    page.goto(foreign)
    assert page.evaluate(FETCH, [served.address + "api/artefacts", {"mode": mode}]) == "TypeError"


def test_a_page_of_another_origin_cannot_post(served, foreign, page, requests):
    page.goto(foreign)
    body = '{"text": "low", "specials": true, "shown": []}'
    as_json = {"method": "POST", "body": body, "headers": {"content-type": "application/json"}}
    assert page.evaluate(FETCH, [served.address + "api/tokenizers/encode", as_json]) == "TypeError"
    assert requests == [("OPTIONS", 403)]  # the browser asks first, and does not send the request
    without_asking = {"method": "POST", "body": body, "mode": "no-cors"}
    page.evaluate(FETCH, [served.address + "api/tokenizers/encode", without_asking])
    assert requests[1:] == [("POST", 403)]


def test_a_page_of_another_origin_cannot_embed_a_page_or_a_script(served, foreign, page):
    page.goto(foreign)
    ended = page.evaluate(
        """(address) => new Promise((resolve) => {
            const script = document.createElement("script");
            script.onload = script.onerror = (event) => resolve(event.type);
            script.src = `${address}static/theme.js`;
            document.head.append(script);
        })""",
        served.address,
    )
    assert ended == "error"
    page.evaluate(
        """(address) => {
            document.body.append(Object.assign(document.createElement("iframe"), { src: address }));
        }""",
        served.address + "tokenizers",
    )
    frame = page.frames[1]
    while frame.url in ("", "about:blank"):
        page.wait_for_timeout(50)
    assert frame.url.startswith("chrome-error:") and frame.locator("header.top").count() == 0


@pytest.mark.parametrize("token", [TOKEN[:-1], TOKEN + "x", "", TOKEN.upper()])
def test_an_address_with_a_wrong_token_shows_only_how_to_get_the_right_one(served, page, token):
    response = page.goto(f"{served.origin}/{token}/tokenizers")
    assert response.status == 403
    assert "has a wrong token or none. Open the address that `gristmill view` printed." in page.inner_text("body")
    assert TOKEN not in page.content() and page.context.cookies() == []


@pytest.mark.parametrize(
    "path", ["static/..%2fapp.py", "static/%2e%2e%2fapp.py", "static/..%5capp.py", "static/%2e%2e/app.py", "app.py"]
)
def test_a_path_outside_the_static_files_is_refused(served, page, path):
    response = page.goto(served.address + path)
    assert response.status in (400, 404) and "make_app" not in response.text()
    page.goto(served.address + "tokenizers")  # the same from our own page
    assert "make_app" not in page.evaluate(FETCH, [served.address + path, {}])


INJECT = """async (origin) => {
    window.violations = [];
    document.addEventListener("securitypolicyviolation", (event) => window.violations.push(event.effectiveDirective));
    const inline = document.createElement("script");
    inline.textContent = "window.injected = true";
    const loaded = document.createElement("script");
    loaded.src = `${origin}/script.js`;
    const ended = new Promise((resolve) => { loaded.onload = loaded.onerror = resolve; });
    document.body.append(inline, loaded);
    const attribute = document.createElement("p");
    attribute.innerHTML = `<b onclick="window.injected = true">x</b>`;
    document.body.append(attribute);
    attribute.firstChild.click();
    await ended;
    await fetch(`${origin}/leaked`, { mode: "no-cors" }).catch(() => {});
    return Boolean(window.injected);
}"""


def test_injected_scripts_do_not_run_and_send_nothing_to_other_sites(served, foreign, page):
    page.goto(foreign)
    assert page.evaluate(INJECT, foreign)  # without the policy, they run
    page.goto(served.address + "tokenizers")
    page.locator(".t").first.wait_for()
    assert not page.evaluate(INJECT, foreign)
    page.wait_for_function("window.violations.length === 4")
    found = page.evaluate("[window.violations.sort(), Boolean(window.injected)]")
    assert found == [["connect-src", "script-src-attr", "script-src-elem", "script-src-elem"], False]
