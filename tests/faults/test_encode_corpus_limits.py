"""Failing disks, too little memory, Ctrl-C, other environments (rows 4, 13, 14, 15, 21)."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import gristmill as gm
from faults.broken_runs import OPTIONS
from gristmill import encode_corpus
from scripts import run_script
from shards.shard_corpora import digest, documents, small_batches, write_jsonl, write_text
from texts import random_story

MAIN = "import sys; from gristmill.cli import main; sys.exit(main())"


def _failing(call, number, code):
    left = number

    def failing(*arguments, **options):
        nonlocal left
        left -= 1
        if left == 0:
            raise OSError(code, os.strerror(code))
        return call(*arguments, **options)

    return failing


@pytest.mark.parametrize("call", ["write", "fsync", "fdatasync"])
@pytest.mark.parametrize("number", [1, 2, 3, 5, 8, 13, 30])
def test_a_disk_that_fails_at_any_write_is_an_error_and_the_next_run_resumes(
    tok, corpus, tmp_path, monkeypatch, call, number
):
    small_batches(monkeypatch)
    monkeypatch.setattr("gristmill.shards.writer.FLUSHED_BYTES", 100)
    (tmp_path / "judge").mkdir()
    encode_corpus(corpus, tok, out=tmp_path / "judge" / "out", **OPTIONS)
    out = tmp_path / "out"
    with monkeypatch.context() as patch:
        if call == "write":
            from gristmill.shards.writer import _PartFiles

            failing = staticmethod(_failing(_PartFiles._write, number, errno.ENOSPC))
            patch.setattr("gristmill.shards.writer._PartFiles._write", failing)
        else:
            patch.setattr(os, call, _failing(getattr(os, call), number, errno.EIO))
        with pytest.raises(OSError) as caught:
            encode_corpus(corpus, tok, out=out, checkpoint_seconds=0, **OPTIONS)
    assert caught.value.errno == (errno.ENOSPC if call == "write" else errno.EIO)
    if out.exists():
        assert [path.name for path in out.iterdir() if ".tmp." in path.name] == []
        assert (out / "progress.json").exists()
    encode_corpus(corpus, tok, out=out, **OPTIONS)
    assert digest(out) == digest(tmp_path / "judge" / "out")


@pytest.mark.parametrize("call", ["fsync", "fdatasync"])
def test_a_flush_that_fails_names_the_file_whichever_it_is(tok, corpus, tmp_path, monkeypatch, call):
    small_batches(monkeypatch)
    monkeypatch.setattr("gristmill.shards.writer.FLUSHED_BYTES", 100)
    named = set()
    for number in range(1, 40):
        out = tmp_path / f"{number}"
        with monkeypatch.context() as patch:
            patch.setattr(os, call, _failing(getattr(os, call), number, errno.EIO))
            with pytest.raises(OSError) as caught:
                encode_corpus(corpus, tok, out=out, checkpoint_seconds=0, **OPTIONS)
        assert caught.value.errno == errno.EIO
        assert str(caught.value.filename).startswith(str(out))
        named.add(os.path.relpath(caught.value.filename, out))
    if call == "fsync":
        assert {".", "progress.json", ".shard-00000.bin.part", ".shard-00000.bin.ends.part"} <= named
    else:
        assert ".shard-00000.bin.part" in named


def test_a_system_without_fdatasync_flushes_with_fsync(tok, corpus, tmp_path, monkeypatch):
    small_batches(monkeypatch)
    monkeypatch.setattr("gristmill.shards.writer.FLUSHED_BYTES", 100)
    (tmp_path / "judge").mkdir()
    encode_corpus(corpus, tok, out=tmp_path / "judge" / "out", **OPTIONS)
    monkeypatch.delattr(os, "fdatasync")
    encode_corpus(corpus, tok, out=tmp_path / "out", **OPTIONS)
    assert digest(tmp_path / "out") == digest(tmp_path / "judge" / "out")


def test_a_file_system_without_locks_is_written_to_without_one(tok, corpus, tmp_path, monkeypatch):
    import fcntl

    def unsupported(*_):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", unsupported)
    encode_corpus(corpus, tok, out=tmp_path / "out", **OPTIONS)
    assert len(gm.Shards(tmp_path / "out"))


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("mount"), reason="only root can mount a small disk")
def test_a_disk_that_is_really_full(tok, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(disk)], capture_output=True)
    if mounted.returncode:
        pytest.skip("mounting is not allowed here")
    try:
        corpus = write_jsonl(tmp_path / "a.jsonl", [random_story(i, 400) for i in range(1500)])
        with pytest.raises(OSError) as caught:
            encode_corpus(corpus, tok, out=disk / "out", dtype="uint32", progress=None)
        assert caught.value.errno == errno.ENOSPC
        assert str(disk) in str(caught.value)
        assert list(disk.iterdir()) == []
        encode_corpus(write_jsonl(tmp_path / "b.jsonl", ["small"]), tok, out=disk / "small", progress=None)
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_a_corpus_larger_than_the_memory_allowed_is_encoded_within_it(tok, tmp_path):
    tok.save(tmp_path / "tok.json")
    block = "\n".join(random_story(i, 2000) for i in range(60)).encode() + b"<|endoftext|>"
    with (tmp_path / "a.txt").open("wb") as file:
        while file.tell() < 400_000_000:
            file.write(block)
    script = """
        import resource, sys, gristmill
        tok = gristmill.Tokenizer.load(sys.argv[1])
        tok.encode("a")
        used = next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith("VmSize"))
        resource.setrlimit(resource.RLIMIT_AS, (used + 300_000_000,) * 2)
        run = gristmill.encode_corpus(sys.argv[2], tok, out=sys.argv[3], num_threads=2, progress=None)
        print(run.source_bytes, run.profile.peak_memory_bytes)
    """
    result = run_script(script, tmp_path / "tok.json", tmp_path / "a.txt", tmp_path / "out")
    assert result.returncode == 0, result.stderr
    source_bytes, peak = map(int, result.stdout.split())
    assert source_bytes > 390_000_000
    assert peak < 300_000_000


def test_thousands_of_small_files_and_of_nulls_need_no_more_memory(tok, tmp_path):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    (tmp_path / "corpus").mkdir()
    for i in range(3000):
        (tmp_path / "corpus" / f"{i:04}.txt").write_text(f"tale {i}")
    parquet.write_table(pa.table({"text": pa.nulls(3_000_000, pa.string())}), tmp_path / "corpus" / "nulls.parquet")
    tok.save(tmp_path / "tok.json")
    script = """
        import resource, sys, gristmill, pyarrow.parquet
        tok = gristmill.Tokenizer.load(sys.argv[1])
        tok.encode("a")
        used = next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith("VmSize"))
        resource.setrlimit(resource.RLIMIT_AS, (used + 1_500_000_000,) * 2)
        run = gristmill.encode_corpus(sys.argv[2], tok, out=sys.argv[3], num_threads=2, progress=None)
        print(run.num_documents, run.manifest.num_nulls, run.profile.peak_memory_bytes)
    """
    result = run_script(script, tmp_path / "tok.json", tmp_path / "corpus", tmp_path / "out")
    assert result.returncode == 0, result.stderr
    num_documents, num_nulls, peak = map(int, result.stdout.split())
    assert (num_documents, num_nulls) == (3000, 3_000_000)
    assert peak < 300_000_000


def test_a_gigabyte_of_zeros_in_a_megabyte_is_refused_within_bounded_memory(tok, tmp_path):
    import gzip

    with gzip.open(tmp_path / "zeros.txt.gz", "wb", 1) as file:
        for _ in range(1024):
            file.write(bytes(1 << 20))
    tok.save(tmp_path / "tok.json")
    script = """
        import sys, gristmill
        from gristmill.profile import peak_memory_bytes
        tok = gristmill.Tokenizer.load(sys.argv[1])
        try:
            gristmill.encode_corpus(sys.argv[2], tok, out=sys.argv[3], progress=None)
        except gristmill.CorpusError as error:
            print(peak_memory_bytes(), error)
    """
    result = run_script(script, tmp_path / "tok.json", tmp_path / "zeros.txt.gz", tmp_path / "out")
    peak, _, message = result.stdout.partition(" ")
    assert "max_document_bytes" in message, result.stderr
    assert int(peak) < 400_000_000


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_interrupted_on_the_command_line_it_stops_at_once_and_can_resume(tok, tmp_path, name):
    tok.save(tmp_path / "tok.json")
    path = write_jsonl(tmp_path / "a.jsonl", [random_story(1, 30_000)] * 900)
    arguments = ["encode", str(path), "-t", str(tmp_path / "tok.json"), "-o", str(tmp_path / "out")]
    process = subprocess.Popen(
        [sys.executable, "-c", MAIN, *arguments, "--checkpoint-seconds", "0.02"],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and process.poll() is None:
        if (tmp_path / "out" / "progress.json").exists():
            break
        time.sleep(0.005)
    process.send_signal(getattr(signal, name))
    _, stderr = process.communicate(timeout=30)
    assert process.returncode == {"SIGINT": 130, "SIGTERM": 143}[name], stderr
    assert "Traceback" not in stderr
    assert (tmp_path / "out" / "progress.json").exists()
    assert encode_corpus(path, tok, out=tmp_path / "out", progress=None).resumed


def test_ctrl_c_ends_the_work_on_a_hostile_piece(tok, tmp_path):
    tok.save(tmp_path / "tok.json")
    with (tmp_path / "a.txt").open("wb") as file:
        for _ in range(10):
            file.write(b"a" * 60_000_000 + b" ")
    script = """
        import os, signal, sys, threading, time, gristmill
        tok = gristmill.Tokenizer.load(sys.argv[1])
        sent = []
        def interrupt():
            time.sleep(1.5)
            sent.append(time.monotonic())
            os.kill(os.getpid(), signal.SIGINT)
        threading.Thread(target=interrupt, daemon=True).start()
        try:
            gristmill.encode_corpus(sys.argv[2], tok, out=sys.argv[3], progress=None)
            print("done")
        except KeyboardInterrupt:
            seconds = time.monotonic() - sent[0]
            deadline = time.monotonic() + 20  # on a loaded machine
            while threading.active_count() > 1 and time.monotonic() < deadline:
                time.sleep(0.1)
            print(seconds, threading.active_count(), os.path.exists(sys.argv[3]))
    """
    result = run_script(script, tmp_path / "tok.json", tmp_path / "a.txt", tmp_path / "out")
    assert result.returncode == 0, result.stderr
    seconds, threads, exists = result.stdout.split()
    # A loaded machine may need a while; without the interruption it would take half a minute.
    assert float(seconds) < 10, result.stdout
    assert (int(threads), exists) == (1, "False"), result.stdout


def test_surroundings_and_threads_change_nothing(tok, tmp_path):
    tok.save(tmp_path / "tok.json")
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    write_text(corpus / "é.txt", documents(8))
    write_jsonl(corpus / "b.jsonl", [random_story(i, 40) for i in range(50)])
    script = """
        import sys, gristmill
        tok = gristmill.Tokenizer.load(sys.argv[1])
        gristmill.encode_corpus(sys.argv[2], tok, out=sys.argv[3], shard_tokens=900, val_fraction=0.2,
                                num_threads=int(sys.argv[4]), progress=None)
    """
    found = []
    for i, (threads, environment) in enumerate(
        [(1, {}), (2, {"LC_ALL": "C", "PYTHONHASHSEED": "1"}), (7, {"TZ": "Asia/Tokyo", "PYTHONHASHSEED": "2"})]
    ):
        (tmp_path / f"{i}").mkdir()
        with pytest.MonkeyPatch.context() as patch:
            for key, value in environment.items():
                patch.setenv(key, value)
            result = run_script(script, tmp_path / "tok.json", corpus, tmp_path / f"{i}" / "out", threads)
        assert result.returncode == 0, result.stderr
        found.append(digest(tmp_path / f"{i}" / "out"))
    assert found[0] == found[1] == found[2]


def test_an_input_that_changes_while_it_is_read_is_an_error(tok, tmp_path, monkeypatch):
    small_batches(monkeypatch)
    path = write_text(tmp_path / "a.txt", documents(9, 30))
    monkeypatch.setattr("gristmill.shards.meter.REPORT_SECONDS", 0)

    def append(_):
        with path.open("ab") as file:
            file.write(b"more")

    with pytest.raises(gm.InputChangedError, match=r"a\.txt"):
        encode_corpus(path, tok, out=tmp_path / "out", progress=append)
    assert not (tmp_path / "out").exists()


def test_ids_are_what_numpy_maps(tok, tmp_path):
    encode_corpus(["aab b"], tok, out=tmp_path / "out", progress=None)
    ids = np.memmap(tmp_path / "out" / "shard-00000.bin", np.uint16, "r")
    assert tok.decode(ids[:-1]) == "aab b"
