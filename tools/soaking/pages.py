"""32 clients of `gristmill view`: pages, tokens, documents, curves, generated text; wrong and dropped requests."""

from __future__ import annotations

import hashlib
import http.client
import json
import random
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any
from urllib.parse import urlsplit

import gristmill as gm
from soaking.inputs import mixed_texts
from soaking.kind import Kind, check_equal

MOST_PAUSE_SECONDS = 0.5  # between two requests of a client
FULL = "waiting already"  # the error of a full queue of generations
USUAL_LOG = "Open this address in a browser. Press Ctrl-C to stop.\nStopped.\n"
STATIC = ("base.css", "page.js", "tokens.js", "run_charts.js", "icon.svg")
GENERATIONS: list[dict[str, Any]] = [
    {"mode": "continue", "prompt": "Once", "max_tokens": 24},
    {"mode": "sample", "num_texts": 2, "max_tokens": 24},
]


class Pages(Kind):
    """Requests over the loopback to a server in a process of its own."""

    process = "clients of the pages"
    num_threads = 32

    def prepare(self) -> None:
        """Start the server for the tokenizers, the shards and, if there are some, the runs."""
        self.texts = mixed_texts(60, self.seed)
        paths = [self.inputs / "2000.json", self.inputs / "600.json", self.inputs / "shards"]
        self.tokenizers = [gm.Tokenizer.load(path) for path in paths[:2]]
        self.shards = gm.Shards(paths[2])
        runs = [self.root / "runs" / name for name in ("gpt", "vae", "live")]
        self.num_runs = sum(run.exists() for run in runs)
        self.log = self.folder / "server.log"
        command = [sys.executable, "-m", "gristmill", "view", *map(str, paths), *map(str, runs[: self.num_runs])]
        with self.log.open("wb") as log:
            self.server = subprocess.Popen([*command, "--device", "cpu"], stdout=subprocess.PIPE, stderr=log)
        assert self.server.stdout is not None
        line = self.server.stdout.readline().decode().strip()
        check_equal(line.startswith("http://127.0.0.1:"), True, f"address {line!r}, log {self.log.read_text()!r}")
        address = urlsplit(line)
        self.host, self.path = address.netloc, address.path
        self.first: dict[object, str] = {}
        self.edition = json.loads(self._answer("GET", "api/shards/0"))["edition"]

    def watched(self) -> Mapping[str, int]:
        """Return the server."""
        return {"server of the pages": self.server.pid}

    def close(self) -> None:
        """Stop the server as Ctrl-C does. It must have reported nothing."""
        self.server.send_signal(signal.SIGINT)
        assert self.server.stdout is not None
        self.server.stdout.close()
        check_equal(self.server.wait(60), 0, "exit code of the server")
        log = self.log.read_text(encoding="utf-8")
        if log != USUAL_LOG:
            raise AssertionError(f"the server reported:\n{log}")

    def work(self, source: random.Random, thread: int) -> str:
        """Pause like a reader, then do one of the operations below."""
        time.sleep(source.uniform(0, MOST_PAUSE_SECONDS))
        known = OPERATIONS if self.num_runs else OPERATIONS[:-3]
        name = source.choice(known)
        return getattr(self, f"_{name}")(source, thread) or name.replace("_", " ")

    def _open(self, method: str, path: str, content: Any = None, **headers: str) -> http.client.HTTPConnection:
        connection = http.client.HTTPConnection(self.host, timeout=60)
        body = None if content is None else json.dumps(content)
        connection.request(method, path, body, {"content-type": "application/json", **headers})
        return connection

    def _answer(self, method: str, path: str, content: Any = None, status: int = 200, **headers: str) -> bytes:
        """Send a request, check the status of the reply and return its body. A path without a slash gets the token."""
        connection = self._open(method, path if path.startswith("/") else self.path + path, content, **headers)
        try:
            reply = connection.getresponse()
            body = reply.read()
        finally:
            connection.close()
        check_equal(reply.status, status, f"{method} {path}: {body[:300]!r}")
        return body

    def _same(self, key: object, reply: bytes) -> None:
        """Check that the reply is that of the first request with this key."""
        digest = hashlib.sha256(reply).hexdigest()
        check_equal(
            digest, self.first.setdefault(key, digest), f"not the same reply as before to {key}: {reply[:300]!r}"
        )

    # Requests that are in order

    def _page(self, source: random.Random, thread: int) -> None:
        rooms = ["tokenizers", "shards", *(["runs", "playground"] if self.num_runs else [])]
        path = source.choice([*rooms, *(f"static/{name}" for name in STATIC), "api/artefacts", "api/tokenizers"])
        self._same(path, self._answer("GET", path))

    def _tokenize(self, source: random.Random, thread: int) -> None:
        text, specials = source.choice(self.texts), source.random() < 0.5
        shown = [{"tokenizer": number} for number in (0, 1)]
        asked = {"text": text, "shown": shown, "specials": specials}
        encoded = json.loads(self._answer("POST", "api/tokenizers/encode", asked))["encoded"]
        for tok, found in zip(self.tokenizers, encoded, strict=True):
            ids = tok.encode(text, allowed_special="all" if specials else ())
            check_equal((found["num_tokens"], found["ids"]), (len(ids), ids[:2_000]), "tokens of the page")

    def _vocabulary(self, source: random.Random, thread: int) -> None:
        query = {"query": source.choice(["", "a", "th", "  "]), "of_class": source.choice(["all", "longest", "used"])}
        # Few ids, because the digests of the replies are kept, which must not grow after the warm-up.
        number, id = source.randrange(2), source.randrange(0, 600, 30)
        self._same(("words", number, str(query)), self._answer("POST", f"api/tokenizers/{number}/vocabulary", query))
        self._same(("tree", number, id), self._answer("GET", f"api/tokenizers/{number}/tokens/{id}"))

    def _document(self, source: random.Random, thread: int) -> None:
        number = source.randrange(len(self.shards))
        reply = json.loads(self._answer("GET", f"api/shards/0/document?split=train&number={number}"))
        check_equal(reply["ids"], self.shards[number].tolist()[: reply["page_tokens"]], f"document {number}")
        order = source.choice(["top", "bottom", "unused"])
        self._same(order, self._answer("GET", f"api/shards/0/frequencies?split=train&order={order}"))

    def _search(self, source: random.Random, thread: int) -> None:
        word = source.choice(["Once", "dog", "never said"])
        asked = {"split": "train", "query": word, "kind": "text", "edition": self.edition}
        reply = json.loads(self._answer("POST", "api/shards/0/search", asked))
        check_equal(reply["total"], self.shards.num_tokens, "tokens that are searched")

    # Requests that are not

    def _wrong_token(self, source: random.Random, thread: int) -> None:
        wrong = self.path[1:-1].swapcase()
        path = source.choice([f"/{wrong}/api/artefacts", "/", "/api/tokenizers", f"{self.path[:-2]}/tokenizers"])
        check_equal(b"wrong token" in self._answer("GET", path, status=403), True, "the token is named")

    def _wrong_request(self, source: random.Random, thread: int) -> None:
        refused = [
            ("GET", "api/artefacts", None, 421, {"host": "evil.example"}),
            ("GET", "api/artefacts", None, 403, {"origin": "http://evil.example"}),
            ("DELETE", "api/artefacts", None, 405, {}),
            ("POST", "api/tokenizers/encode", {"text": 7}, 400, {}),
            ("POST", "api/tokenizers/encode", {}, 415, {"content-type": "text/plain"}),
            ("GET", "api/tokenizers/99/tokens/1", None, 404, {}),
            ("GET", "static/../app.py", None, 404, {}),
        ]
        method, path, content, status, headers = source.choice(refused)
        self._answer(method, path, content, status, **headers)

    def _dropped_request(self, source: random.Random, thread: int) -> None:
        host, _, port = self.host.partition(":")
        with socket.create_connection((host, int(port)), timeout=30) as connection:
            head = f"POST {self.path}api/tokenizers/encode HTTP/1.1\r\nHost: {self.host}\r\n"
            head += "Content-Type: application/json\r\nContent-Length: 5000\r\n\r\n{"
            connection.sendall(head[: source.randrange(len(head))].encode())
            if source.random() < 0.5:  # closes with a reset
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def _dropped_reply(self, source: random.Random, thread: int) -> None:
        connection = self._open("GET", f"{self.path}static/run_charts.js")
        connection.close()

    # Runs and generated text; the last three of OPERATIONS

    def _follow_runs(self, source: random.Random, thread: int) -> None:
        connection = self._open("GET", f"{self.path}api/runs/events")
        try:
            events = list(islice(read_events(connection), source.randrange(1, self.num_runs + 1)))
        finally:
            connection.close()
        check_equal({name for name, _ in events}, {"snapshot"}, "first events of a page of runs")

    def _generate(self, source: random.Random, thread: int) -> str | None:
        return self._generated(source, thread, most_events=None)

    def _dropped_generation(self, source: random.Random, thread: int) -> str | None:
        return self._generated(source, thread, most_events=source.randrange(4))

    def _generated(self, source: random.Random, thread: int, most_events: int | None) -> str | None:
        """Generate a text, or leave after some events. The same seed gives the same text."""
        run, seed = source.randrange(2), source.randrange(4)
        asked = {**GENERATIONS[run], "seed": seed, "client": f"client {thread}"}
        connection = self._open("POST", f"{self.path}api/playground/{run}/generate", asked)
        text, last = [], ""
        try:
            for number, (name, data) in enumerate(read_events(connection)):
                if number == most_events:
                    return None
                if name == "error" and FULL in data["message"]:
                    return "generate, refused because the queue is full"
                check_equal(name == "error", False, f"generate: {data}")
                text += [token["text"] for token in data] if name == "tokens" else []
                text += [data["text"]] if name == "part" else []
                last = name
        finally:
            connection.close()
        check_equal(last, "end", "last event of a generation")
        self._same(("text", run, seed), "".join(map(str, text)).encode())
        return None


def read_events(connection: http.client.HTTPConnection) -> Iterator[tuple[str, Any]]:
    """Yield name and data of server-sent events."""
    reply, name = connection.getresponse(), ""
    check_equal(reply.status, 200, "status of an event stream")
    for line in reply:
        if line.startswith(b"event: "):
            name = line[7:].strip().decode()
        if line.startswith(b"data: "):
            yield name, json.loads(line[6:])


OPERATIONS = (
    "page",
    "tokenize",
    "vocabulary",
    "document",
    "search",
    "wrong_token",
    "wrong_request",
    "dropped_request",
    "dropped_reply",
    "follow_runs",
    "generate",
    "dropped_generation",
)
