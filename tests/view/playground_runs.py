"""Tiny trained runs for the tests of the playground: a model that continues text, one with latents, one for chats."""

from __future__ import annotations

import contextlib
import functools
import http.client
import json
import threading
from urllib.parse import urlsplit

import gristmill as gm
from gristmill.view import generations
from lm.chats import questions, tokenizer, write_lines
from lm.tiny_runs import texts, train
from shards.builder import build_folder


@functools.cache
def train_runs(base):
    """Train the runs "gpt", "vae" and "chat" in a folder below `base`, once per process; return their paths."""
    folder = base / "playground-runs"
    folder.mkdir()
    shards, chats = folder / "shards", folder / "chats.jsonl"
    build_folder(shards, texts(120), shard_tokens=700, tokenizer=tokenizer(), val_texts=texts(20, 1))
    train(shards, folder / "gpt", context_length=64, max_steps=12, checkpoint_interval=6, val_check_interval=6)
    latents = {"max_sequence_length": 24, "latent_dim": 4, "plot_frequency": 0, "max_steps": 4}
    train(shards, folder / "vae", model="vae", context_length=gm.lm.GPTConfig.context_length, **latents)
    write_lines(chats, questions())
    tuning = {"conversations": True, "init_from": str(folder / "gpt"), "max_steps": 2, "batch_size": 2}
    gm.lm.train(chats, out=folder / "chat", device="cpu", progress=None, **tuning)
    return [folder / name for name in ("gpt", "vae", "chat")]


class Reply:
    """The events of a generation, read one at a time from a real connection."""

    def __init__(self, served, run, **request):
        parts = urlsplit(served.address)
        self.connection = http.client.HTTPConnection(parts.netloc, timeout=60)
        body = json.dumps({"client": "a", **request})
        kind = {"content-type": "application/json"}
        self.connection.request("POST", f"{parts.path}api/playground/{run}/generate", body, kind)
        self.response = self.connection.getresponse()
        self.status = self.response.status

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """Go away, as a browser does."""
        self.response.close()
        self.connection.close()

    def json(self):
        return json.loads(self.response.read())

    def __iter__(self):
        return self

    def __next__(self):
        """Return (name, data) of the next event."""
        name = None
        for line in self.response:
            if line.startswith(b"event: "):
                name = line[7:].strip().decode()
            if line.startswith(b"data: "):
                return name, json.loads(line[6:])
        raise StopIteration

    def next_named(self, wanted):
        """Return the data of the next event with this name."""
        return next(data for name, data in self if name == wanted)


def ask(served, path):
    """Return (status, content) of a GET request."""
    parts = urlsplit(served.address)
    connection = http.client.HTTPConnection(parts.netloc, timeout=60)
    connection.request("GET", parts.path + path)
    response = connection.getresponse()
    found = response.status, json.loads(response.read())
    connection.close()
    return found


class Gate:
    """Tokens of a server in this process, which wait until the test lets them through."""

    def __init__(self, monkeypatch):
        self._gate, self._is_open = threading.Semaphore(0), False
        self.ended = threading.Event()  # set when a generation has ended
        record, send_tokens = generations._record, generations._send_tokens

        def gated_record(*arguments):
            assert self._is_open or self._gate.acquire(timeout=60)
            return record(*arguments)

        def watched(*arguments):
            try:
                send_tokens(*arguments)
            finally:
                self.ended.set()

        monkeypatch.setattr(generations, "_record", gated_record)
        monkeypatch.setattr(generations, "_send_tokens", watched)

    def let(self, number):
        """Let this many more tokens through."""
        self._gate.release(number)

    def let_all(self):
        """Let all tokens through from now on."""
        self._is_open = True
        self._gate.release()

    def let_until_ended(self):
        """Let single tokens through until the generation ends, which must be long before 4,000 tokens."""
        for _ in range(200):
            self.let(1)
            if self.ended.wait(0.05):
                return
        raise AssertionError("the generation did not end")


@contextlib.contextmanager
def gate_of(monkeypatch):
    """Yield a gate, which is open at the end, so that no generation waits for it."""
    gate = Gate(monkeypatch)
    try:
        yield gate
    finally:
        gate.let_all()
