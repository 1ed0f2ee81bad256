"""Inputs from an HTTP server that breaks: the result is complete, or an error that names the URL."""

from __future__ import annotations

import gzip
import random
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

import gristmill as gm
from gristmill.corpus import remote, sources
from shards.shard_corpora import digest
from texts import random_story

fsspec = pytest.importorskip("fsspec")
pytest.importorskip("aiohttp")

TEXT = "\n".join(random_story(k, 300) for k in range(20)).encode()
OTHER = TEXT.swapcase()


class Handler(BaseHTTPRequestHandler):
    """Serves /FAULT/NAME. Faults concern responses that have a body; "changed" concerns all that come after one."""

    protocol_version = "HTTP/1.1"
    num_bodies = 0
    num_redirects = 0

    def log_message(self, *arguments):
        pass

    def do_HEAD(self):
        self.respond(has_body=False)

    def do_GET(self):
        self.respond(has_body=True)

    def respond(self, *, has_body):
        fault, name = self.path.strip("/").split("/")
        if fault == "redirects":
            type(self).num_redirects += 1
            return self.begin(302, 0, Location=f"/redirects/{type(self).num_redirects}")
        if fault == "changed" and self.num_bodies:
            data = OTHER
        else:
            data = TEXT
        if name.endswith(".gz"):
            data = gzip.compress(data, mtime=0)
        if has_body:
            type(self).num_bodies += 1
        elif fault != "no_size":
            fault = "none"
        if fault == "error":
            return self.begin(503, 0)
        if fault == "gone":
            return self.begin(404, 0)
        tag = f'"{hash(data)}"'
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if fault == "no_size":
            self.begin(200, None, Connection="close")
            return self.wfile.write(data) if has_body else None
        if asked is None or fault == "ignores_ranges":
            self.begin(200, len(data), ETag=tag)
            return self.wfile.write(data) if has_body else None
        first, last = int(asked[1]), min(int(asked[2]), len(data) - 1)
        body = data[first : last + 1]
        if fault == "shorter":
            body = body[: len(body) // 2]
        self.begin(206, len(body), **{"ETag": tag, "Content-Range": f"bytes {first}-{last}/{len(data)}"})
        if has_body:
            self.wfile.write(body[: len(body) // 2] if fault == "cut" else body)
            self.close_connection = fault == "cut"
        return None

    def begin(self, status, num_bytes, **headers):
        self.send_response(status)
        self.send_header("Accept-Ranges", "bytes")
        if num_bytes is not None:
            self.send_header("Content-Length", str(num_bytes))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()


@pytest.fixture
def address():
    Handler.num_bodies = Handler.num_redirects = 0
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz"])
def test_a_server_without_faults_gives_the_words_of_the_text(address, name):
    words = gm.count_words(f"{address}/none/{name}", progress=None)
    assert dict(words.items()) == dict(gm.count_words([TEXT], progress=None).items())


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz"])
@pytest.mark.parametrize("fault", ["cut", "shorter", "error", "gone", "changed", "redirects"])
def test_a_server_that_breaks_in_the_middle_gives_an_error_and_no_short_count(address, fault, name):
    with pytest.raises((OSError, gm.CorpusError)) as caught:
        gm.count_words(f"{address}/{fault}/{name}", progress=None)
    assert address in str(caught.value)


@pytest.mark.parametrize("fault", ["ignores_ranges", "no_size"])
def test_a_server_without_ranges_or_sizes_gives_all_of_the_text_or_an_error(address, fault):
    try:
        words = gm.count_words(f"{address}/{fault}/a.txt", progress=None)
    except (OSError, gm.CorpusError) as error:
        assert address in str(error)
    else:
        assert dict(words.items()) == dict(gm.count_words([TEXT], progress=None).items())


def test_shards_of_a_server_that_breaks_are_not_published(address, tmp_path):
    tok = gm.train_tokenizer([TEXT], vocab_size=300, special_tokens=["<|endoftext|>"], progress=None)
    with pytest.raises(OSError):
        gm.encode_corpus(f"{address}/cut/a.txt", tok, out=tmp_path / "shards", progress=None)
    assert not (tmp_path / "shards" / "manifest.json").exists()


def test_a_server_that_sends_too_little_of_a_compressed_file_does_not_cost_the_shards_so_far(tmp_path, monkeypatch):
    source = random.Random(7)
    lines = b"".join(b"line %s\n" % source.randbytes(20).hex().encode() for _ in range(400_000))
    url = "memory://sends-too-little/a.txt.gz"
    fsspec.filesystem("memory").pipe(url, gzip.compress(lines, compresslevel=0))
    tok = gm.train_tokenizer([TEXT], vocab_size=300, special_tokens=["<|endoftext|>"], progress=None)
    options = {"documents": "line", "checkpoint_seconds": 0, "shard_tokens": 500_000, "progress": None}
    gm.encode_corpus(url, tok, out=tmp_path / "good", **options)

    class ShortFile(remote.RemoteFile):
        def readinto(self, buffer):
            return 0 if self.tell() > 16_000_000 else super().readinto(buffer)

    with monkeypatch.context() as patch:
        patch.setattr(sources.remote, "RemoteFile", ShortFile)
        with pytest.raises(gm.TruncatedInputError, match="returned only"):
            gm.encode_corpus(url, tok, out=tmp_path / "out", **options)
    run = gm.encode_corpus(url, tok, out=tmp_path / "out", **options)
    assert run.resumed
    assert digest(tmp_path / "out") == digest(tmp_path / "good")
