"""URLs: the number of requests, and how errors of a plug-in are reported."""

from __future__ import annotations

import asyncio
import gzip
import os
import signal
import threading
import time
from collections import Counter
from datetime import UTC, datetime, timedelta

import fsspec
import pytest
from corpus_files import documents_of, find, write_documents
from fsspec.spec import AbstractBufferedFile, AbstractFileSystem

import gristmill as gm
from gristmill.corpus import Reading, find_files
from gristmill.corpus.formats import read_batches

START = datetime(2024, 1, 1, tzinfo=UTC)


class Server:
    """The files of a server, its requests, and its failures."""

    def __init__(self):
        self.files = {}  # path -> (bytes, time)
        self.requests = Counter()
        self.failures = {}  # (operation, path) -> exception
        self.tells_time = True
        self.max_at_once = self._now = 0
        self.seconds = 0.0
        self._lock = threading.Lock()

    def put(self, path, data):
        _, modified = self.files.get(path, (b"", START))
        self.files[path] = (data, modified + timedelta(seconds=1))

    def ask(self, operation, path):
        with self._lock:
            self.requests[operation, path] += 1
            self._now += 1
            self.max_at_once = max(self.max_at_once, self._now)
        time.sleep(self.seconds)
        with self._lock:
            self._now -= 1
        if error := self.failures.get((operation, path)):
            raise error

    def about(self, path):
        data, modified = self.files[path]
        time_fields = {"LastModified": modified} if self.tells_time else {}
        return {"name": path, "size": len(data), "type": "file", **time_fields}

    def asked(self, path):
        return {operation: count for (operation, name), count in sorted(self.requests.items()) if name == path}


server = Server()


class CountedFile(AbstractBufferedFile):
    def _fetch_range(self, start, end):
        server.ask("get", self.path)
        return server.files[self.path][0][start:end]


class CountedFileSystem(AbstractFileSystem):
    protocol = "counted"
    cachable = False

    def ls(self, path, detail=True, **kwargs):
        path = self._strip_protocol(path).rstrip("/")
        server.ask("list", path)
        if path in server.files:
            return [server.about(path)] if detail else [path]
        below = {name: name[len(path) :].lstrip("/") for name in server.files if name.startswith(f"{path}/")}
        found = [server.about(name) for name, rest in below.items() if "/" not in rest]
        folders = {f"{path}/{rest.split('/')[0]}" for rest in below.values() if "/" in rest}
        found += [{"name": name, "size": 0, "type": "directory"} for name in sorted(folders)]
        if not found:
            raise FileNotFoundError(path)
        return found if detail else [about["name"] for about in found]

    def info(self, path, **kwargs):
        path = self._strip_protocol(path).rstrip("/")
        server.ask("head", path)
        if path in server.files:
            return server.about(path)
        if any(name.startswith(f"{path}/") for name in server.files):
            return {"name": path, "size": 0, "type": "directory"}
        raise FileNotFoundError(path)

    def modified(self, path):
        path = self._strip_protocol(path)
        server.ask("time", path)
        return server.files[path][1]

    def _open(self, path, mode="rb", block_size=None, **kwargs):
        server.ask("open", path)
        return CountedFile(self, path, mode, block_size, **kwargs)


@pytest.fixture(autouse=True)
def counted():
    server.__init__()
    fsspec.register_implementation("counted", CountedFileSystem, clobber=True)
    return server


def test_ctrl_c_does_not_wait_for_a_server_that_does_not_answer(monkeypatch):
    monkeypatch.setattr("gristmill.corpus.files.PATIENCE_SECONDS", 0.1)
    answered = threading.Event()
    monkeypatch.setattr(Server, "ask", lambda *_: answered.wait())
    timers = [threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)), threading.Timer(30, answered.set)]
    for timer in timers:
        timer.start()
    with pytest.raises(KeyboardInterrupt):
        find_files([f"counted://host/{i}.txt" for i in range(3)], Reading())
    assert not answered.is_set()
    timers[1].cancel()
    answered.set()


def names(*corpus, **options):
    return list(find_files(corpus, Reading.checked(options)).paths)


@pytest.mark.parametrize("corpus", ["counted://b/data/*.txt", "counted://b/data"])
def test_a_listing_tells_all_about_its_files_and_none_is_asked_about_again(counted, corpus):
    for i in range(20):
        counted.put(f"b/data/{i:02}.txt", b"some text")
    files = find_files([corpus], Reading())
    assert [input.num_bytes for input in files.inputs] == [9] * 20
    assert {input.modified_ns for input in files.inputs} == {int((START.timestamp() + 1) * 1e9)}
    assert [counted.asked(f"b/data/{i:02}.txt") for i in range(20)] == [{}] * 20


@pytest.mark.parametrize(
    ("corpus", "heads"), [("counted://b/data/*.txt", 2), ("counted://b/data", 2), ("counted://b/data/a.txt", 3)]
)
def test_an_input_costs_as_many_requests_as_the_documentation_says(counted, corpus, heads):
    """One request to find it, one to open it, one at the end, and those that fetch its data."""
    counted.put("b/data/a.txt", b"some text")
    assert gm.count_words(corpus, progress=None, special_tokens=()).count("text") == 0
    assert counted.asked("b/data/a.txt") == {"get": 1, "head": heads, "open": 1}


def test_a_listing_is_never_taken_from_the_cache_of_the_file_system(counted, monkeypatch):
    """fsspec keeps listings as long as the process lives, and outdated sizes would look like changes."""
    emptied = []
    monkeypatch.setattr(CountedFileSystem, "invalidate_cache", lambda self, path=None: emptied.append(path))
    counted.put("b/a.txt", b"text")
    names("counted://b/*.txt", "counted://b", "counted://b/a.txt")
    assert sorted(map(str, emptied)) == ["None", "None", "b", "b/a.txt"]


def test_a_time_that_no_listing_tells_is_asked_for_once_at_each_step(counted):
    counted.tells_time = False
    counted.put("b/data/a.txt", b"some text")
    (input,) = find_files(["counted://b/data/*.txt"], Reading()).inputs
    assert input.modified_ns == int((START.timestamp() + 1) * 1e9)
    assert counted.asked("b/data/a.txt") == {"time": 1}


@pytest.mark.parametrize("tells_time", [True, False])
def test_a_long_list_is_asked_about_several_at_a_time_and_keeps_its_order(counted, tells_time):
    counted.tells_time = tells_time
    urls = [f"counted://b/{i}.txt" for i in range(100)]
    for i in range(100):
        counted.put(f"b/{i}.txt", b"x" * i)
    counted.seconds = 0.01
    files = find_files(urls, Reading())
    assert [(input.name, input.num_bytes) for input in files.inputs] == [(url, i) for i, url in enumerate(urls)]
    assert 1 < counted.max_at_once <= 16
    assert all(counted.asked(f"b/{i}.txt") == {"head": 1} | ({} if tells_time else {"time": 1}) for i in range(100))


def test_the_first_missing_name_of_a_list_is_the_one_reported(counted):
    urls = [f"counted://b/{i}.txt" for i in range(50)]
    for i in range(10):
        counted.put(f"b/{i}.txt", b"x")
    with pytest.raises(FileNotFoundError, match=r"b/10\.txt.*counted://b/10\.txt"):
        names(*urls)


@pytest.mark.parametrize("tells_time", [True, False])
@pytest.mark.parametrize("size", [9, 10])
def test_an_input_that_changed_since_it_was_found_or_while_it_is_read_is_an_error(
    counted, small_batches, tells_time, size
):
    counted.tells_time = tells_time
    counted.put("b/a.jsonl", b'{"text": "a"}\n' * 50)
    input, reading = find("counted://b/a.jsonl")
    batches = read_batches(input, reading, cut=None)
    next(batches)
    counted.put("b/a.jsonl", b'{"text": "b"}\n' * 50 + b"\n" * (size - 9))
    with pytest.raises(gm.InputChangedError, match=r"counted://b/a\.jsonl changed while it was read"):
        list(batches)
    with pytest.raises(gm.InputChangedError):
        next(read_batches(input, reading, cut=None))


def test_a_file_system_that_returns_less_than_the_reported_size_is_an_error(counted):
    """Its size and time are unchanged, so only the tag shows the change."""
    counted.put("b/a.txt", b"some text")
    input, reading = find("counted://b/a.txt")
    whole = CountedFile._fetch_range
    CountedFile._fetch_range = lambda self, start, end: b"some"[start:end]
    try:
        with pytest.raises(gm.TruncatedInputError, match=r"counted://b/a\.txt: .* returned only 4 of 9 bytes"):
            list(read_batches(input, reading, cut=None))
    finally:
        CountedFile._fetch_range = whole


class ClientError(Exception):
    """Like botocore's: neither an OSError nor a ValueError."""


class ClientPayloadError(Exception):
    """Like aiohttp's."""


CAUSES = [
    ClientError("An error occurred (SlowDown) when calling the GetObject operation"),
    ClientPayloadError("Response payload is not completed"),
    ValueError("bad request"),
    NotImplementedError("ranges"),
    asyncio.IncompleteReadError(b"", 10),
    TimeoutError("timed out"),
    ConnectionResetError(104, "Connection reset by peer"),
    KeyError("Contents"),
    RuntimeError("Session is closed"),
    EOFError(),
]
KINDS = ["a.txt", "a.txt.gz", "a.jsonl", "a.parquet", "a.arrow", "stream.arrow"]


@pytest.mark.parametrize("cause", CAUSES, ids=lambda cause: type(cause).__name__)
@pytest.mark.parametrize("operation", ["head", "open", "get"])
@pytest.mark.parametrize("kind", KINDS)
def test_whatever_a_plug_in_raises_names_the_url_and_the_cause_and_can_be_skipped(
    counted, tmp_path, kind, operation, cause
):
    counted.put("b/good.txt", b"good")
    counted.put(f"b/{kind}", write_documents(tmp_path / kind, [b"bad"] * 100).read_bytes())
    counted.failures[operation, f"b/{kind}"] = cause
    urls = [f"counted://b/{kind}", "counted://b/good.txt"]
    with pytest.raises(gm.RemoteInputError) as caught:
        gm.count_words(urls, progress=None, special_tokens=())
    assert isinstance(caught.value, OSError)
    for word in (f"counted://b/{kind}", type(cause).__name__, " ".join(str(cause).split())):
        assert word in str(caught.value)
    with pytest.warns(gm.SkippedInputWarning, match=rf"1 of 2 inputs .*counted://b/{kind}.*{type(cause).__name__}"):
        words = gm.count_words(urls, on_error="skip", progress=None, special_tokens=())
    assert words.count("good") == 1
    assert words.count("bad") == 0


@pytest.mark.parametrize("corpus", ["counted://b/*.txt", "counted://b"])
def test_a_listing_that_fails_is_an_error_even_where_inputs_may_be_skipped(counted, corpus):
    counted.put("b/a.txt", b"text")
    counted.failures["list", "b"] = ClientError("An error occurred (AccessDenied)")
    for on_error in ("raise", "skip"):
        with pytest.raises(gm.RemoteInputError, match=r"counted://b.*ClientError: An error occurred \(AccessDenied\)"):
            names(corpus, on_error=on_error)


@pytest.mark.parametrize("cause", [FileNotFoundError("b/a.txt"), PermissionError("Forbidden")])
def test_a_missing_or_forbidden_url_is_the_error_of_the_system_and_is_not_skipped(counted, cause):
    counted.failures["head", "b/a.txt"] = cause
    for on_error in ("raise", "skip"):
        with pytest.raises(type(cause)) as caught:
            names("counted://b/a.txt", on_error=on_error)
        assert caught.value.filename == "counted://b/a.txt"
        assert caught.value.errno


def test_a_connection_error_that_fsspec_calls_a_missing_file_is_reported_by_its_cause(counted):
    """Its web file system raises FileNotFoundError(url) from the real cause."""
    missing = FileNotFoundError("counted://b/a.txt")
    missing.__cause__ = ClientError("Cannot connect to host")
    counted.failures["head", "b/a.txt"] = missing
    with pytest.raises(FileNotFoundError, match=r"ClientError: Cannot connect to host.*counted://b/a\.txt"):
        names("counted://b/a.txt")


@pytest.mark.parametrize("cause", [KeyboardInterrupt(), MemoryError("no memory")])
@pytest.mark.parametrize("operation", ["head", "open", "get"])
def test_ctrl_c_and_a_full_memory_pass_through(counted, operation, cause):
    counted.put("b/a.txt", b"text")
    counted.failures[operation, "b/a.txt"] = cause
    with pytest.raises(type(cause)):
        gm.count_words("counted://b/a.txt", on_error="skip", progress=None, special_tokens=())


def test_encoding_skips_a_url_that_cannot_be_asked_about_and_writes_down_why(counted, tmp_path):
    tok = gm.Tokenizer([], special_tokens=["<|endoftext|>"])
    counted.put("b/good.txt", b"good")
    counted.put("b/bad.txt", b"bad")
    counted.failures["head", "b/bad.txt"] = ClientError("throttled")
    urls = ["counted://b/bad.txt", "counted://b/good.txt"]
    with pytest.warns(gm.SkippedInputWarning, match="throttled"):
        run = gm.encode_corpus(urls, tok, out=tmp_path / "out", on_error="skip", progress=None)
    assert run.num_documents == 1
    assert [bool(entry.skipped) for entry in run.manifest.inputs] == [True, False]


def test_a_cached_url_is_read_like_any_other(counted):
    counted.put("b/a.txt.gz", gzip.compress(b"one<|endoftext|>two"))
    assert documents_of("simplecache::counted://b/a.txt.gz") == [b"one", b"two"]
