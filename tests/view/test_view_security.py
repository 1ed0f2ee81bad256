"""Every request needs the token, our Host and our Origin; nothing outside the artefacts can be read."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import pytest

import gristmill as gm
from gristmill.view import security, server
from gristmill.view.app import make_app
from gristmill.view.artefacts import find_artefacts
from gristmill.view.security import HEADERS, MAX_BODY_BYTES, Guard
from view.pages import TOKEN, serving


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    path = tmp_path_factory.mktemp("view") / "tok.json"
    gm.train_tokenizer(["low low low lower lowest"], vocab_size=261, progress=None).save(path)
    with serving(path) as server:
        yield server


def ask(served, path, *, method="GET", body=None, **headers):
    """Return (status, headers, body) of a request that is sent exactly as given, without normalizing the path."""
    connection = http.client.HTTPConnection(served.origin.removeprefix("http://"), timeout=10)
    connection.putrequest(method, path, skip_host="host" in headers, skip_accept_encoding=True)
    for name, value in headers.items():
        connection.putheader(name.replace("_", "-"), value)
    if body is not None and "content_length" not in headers and "transfer_encoding" not in headers:
        connection.putheader("content-length", str(len(body)))
    connection.endheaders()
    if body is not None:
        connection.send(body)
    reply = connection.getresponse()
    found = reply.status, {name.lower(): value for name, value in reply.getheaders()}, reply.read()
    connection.close()
    return found


def test_the_artefacts_are_listed_with_the_token_only(served):
    status, headers, body = ask(served, f"/{TOKEN}/api/artefacts")
    assert status == 200 and json.loads(body)["tokenizers"] == ["tok.json"]
    assert HEADERS.items() <= headers.items()


@pytest.mark.parametrize(
    "path", ["/", "/api/artefacts", "/static/base.css", f"/{TOKEN[:-1]}/", f"/{TOKEN}x/", "//", "/%00/"]
)
def test_a_missing_or_wrong_token_is_refused(served, path):
    status, headers, body = ask(served, path)
    assert status == 403 and b"token" in body
    assert HEADERS.items() <= headers.items()


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example:80", "", "localhost.evil.example"])
def test_a_foreign_host_is_refused(served, host):
    assert ask(served, f"/{TOKEN}/api/artefacts", host=host)[0] in (400, 421)


def test_on_another_address_the_names_of_the_machine_are_ours_and_looked_up_once(monkeypatch):
    monkeypatch.setattr(socket, "gethostname", lambda: "Miller")
    monkeypatch.setattr(socket, "getfqdn", lambda: "miller.example")
    guard = Guard(None, token=TOKEN, host="0.0.0.0")
    monkeypatch.setattr(socket, "getfqdn", lambda: pytest.fail("a name server may take seconds"))
    ours = ["miller:8765", "MILLER.example", "192.168.0.7:80", "localhost", "[fe80::1]:5"]
    assert all(map(guard._is_our_host, ours)) and not guard._is_our_host("evil.example:8765")


@pytest.mark.parametrize("host", ["localhost:9000", "127.0.0.1", "[::1]:5"])
def test_the_loopback_through_a_tunnel_is_accepted(served, host):
    assert ask(served, f"/{TOKEN}/api/artefacts", host=host)[0] == 200


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "https://127.0.0.1", "http://127.0.0.1:1"])
def test_a_foreign_origin_is_refused(served, origin):
    assert ask(served, f"/{TOKEN}/api/artefacts", origin=origin)[0] == 403


def test_our_own_origin_is_accepted(served):
    assert ask(served, f"/{TOKEN}/api/artefacts", origin=served.origin)[0] == 200


@pytest.mark.parametrize(
    "path",
    [
        "static/../app.py",
        "static/..%2fapp.py",
        "static/%2e%2e/app.py",
        "static/../../../../../../../../etc/passwd",
        "static//etc/passwd",
        "static/..\\app.py",
        "../etc/passwd",
        "static/",
        "static/base.css/..%00",
        "tokenizers/../static/../app.py",
    ],
)
def test_a_path_outside_the_static_files_is_refused(served, path):
    status, _, body = ask(served, f"/{TOKEN}/{path}")
    assert status in (400, 403, 404, 405), body[:200]
    assert b"def make_app" not in body and b"root:" not in body


@pytest.mark.parametrize("method", ["PUT", "DELETE", "OPTIONS", "TRACE", "PATCH"])
def test_other_methods_are_refused(served, method):
    assert ask(served, f"/{TOKEN}/api/artefacts", method=method)[0] == 405


def test_a_form_of_another_site_cannot_post(served):
    kind = "application/x-www-form-urlencoded"
    assert ask(served, f"/{TOKEN}/api/artefacts", method="POST", body=b"a=1", content_type=kind)[0] == 415


def test_a_large_body_is_refused_before_it_is_read(served):
    length = str(MAX_BODY_BYTES + 1)
    path = f"/{TOKEN}/api/artefacts"
    assert ask(served, path, method="POST", content_type="application/json", content_length=length)[0] == 413
    assert ask(served, path, method="POST", content_type="application/json", content_length="-1")[0] in (400, 413)


def test_a_large_body_without_a_length_is_refused(served):
    connection = http.client.HTTPConnection(served.origin.removeprefix("http://"), timeout=10)
    parts = (b"x" * 65_536 for _ in range(MAX_BODY_BYTES // 65_536 + 1))
    kind = {"content-type": "application/json"}
    connection.request("POST", f"/{TOKEN}/api/tokenizers/encode", parts, kind, encode_chunked=True)
    reply = connection.getresponse()
    assert reply.status == 413 and b"too large" in reply.read()
    connection.close()


def test_a_body_that_does_not_arrive_is_refused(served, monkeypatch):
    monkeypatch.setattr(security, "BODY_SECONDS", 0.2)
    found = ask(
        served,
        f"/{TOKEN}/api/tokenizers/encode",
        method="POST",
        body=b"{",
        content_type="application/json",
        content_length="9",
    )
    assert found[0] == 408


def test_a_page_that_closes_during_its_request_is_no_error_of_the_server(tmp_path):
    gm.train_tokenizer(["low low low lower lowest"], vocab_size=261, progress=None).save(tmp_path / "tok.json")
    app = make_app(find_artefacts([tmp_path / "tok.json"]), token=TOKEN)
    received = iter([{"type": "http.request", "body": b"{", "more_body": True}, {"type": "http.disconnect"}])
    headers = {"host": "127.0.0.1:1", "content-type": "application/json", "content-length": "9"}
    scope = {
        "type": "http",
        "method": "POST",
        "path": f"/{TOKEN}/api/tokenizers/encode",
        "query_string": b"",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
    }
    sent = []

    async def receive():
        return next(received)

    async def send(message):
        sent.append(message)

    # An exception here is a traceback on the terminal of the server. Playwright leaves a loop in the main thread.
    with ThreadPoolExecutor(1) as pool:
        pool.submit(asyncio.run, app(scope, receive, send)).result()
    assert sent[0]["status"] == 400


def test_a_silent_connection_is_closed(tmp_path, monkeypatch):
    monkeypatch.setattr(server, "SILENT_SECONDS", 0.2)
    gm.train_tokenizer(["low low low lower lowest"], vocab_size=261, progress=None).save(tmp_path / "tok.json")
    with serving(tmp_path / "tok.json") as served:
        address = urlsplit(served.address)
        silent = socket.create_connection((address.hostname, address.port), timeout=20)
        silent.sendall(b"GET / HTT")
        assert silent.recv(1) == b""
        silent.close()
        assert ask(served, f"/{TOKEN}/api/artefacts")[0] == 200


def test_a_name_that_is_not_utf_8_is_shown_escaped(tmp_path):
    path = tmp_path / os.fsdecode(b"tok\xff.json")
    try:
        path.touch()
    except OSError:
        pytest.skip("the file system has no such names")
    gm.train_tokenizer(["low low low lower lowest"], vocab_size=261, progress=None).save(path)
    with serving(path) as served:
        status, _, body = ask(served, f"/{TOKEN}/api/artefacts")
    assert status == 200 and json.loads(body)["tokenizers"] == ["tok\\xff.json"]


def test_the_address_without_a_slash_leads_to_the_first_page(served):
    status, headers, _ = ask(served, f"/{TOKEN}")
    assert status == 307 and headers["location"] == f"/{TOKEN}/"
    status, headers, _ = ask(served, f"/{TOKEN}/")
    assert status == 307 and headers["location"] == "tokenizers"


def test_a_port_in_use_is_an_error_and_the_default_moves_on(served, tmp_path):
    port = served.origin.rpartition(":")[2]
    gm.train_tokenizer(["low low low lower lowest"], vocab_size=261, progress=None).save(tmp_path / "tok.json")
    command = [sys.executable, "-m", "gristmill", "view", str(tmp_path / "tok.json"), "--port", port]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert run.returncode == 2
    assert f"--port {port} is in use" in run.stderr and "Pass another" in run.stderr
