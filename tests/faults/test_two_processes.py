"""Two processes at once write to the same place: which message the second one gets, or why both may continue.

docs/reliability.md has the table. Every test here really runs at least two processes.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

import gristmill as gm
from gristmill import lock
from gristmill.cli import main
from gristmill.executors.job import open_job
from scripts import run_script
from shards.shard_corpora import documents, tokenizer, write_text

linux_only = pytest.mark.skipif(not Path("/proc/locks").exists(), reason="this system does not list its locks")
SMALL, LARGE = gm.Tokenizer([]), gm.Tokenizer([(b"a", b"b")])
HOST = re.escape(socket.gethostname())


@contextlib.contextmanager
def another_process(script, *arguments):
    """A process that has printed "ready" and waits at `sys.stdin.read()`. Closing its stdin lets it continue."""
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script), *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    try:
        line = process.stdout.readline()
        assert line == "ready\n", process.stderr.read()
        yield process
    finally:
        process.kill()
        release(process)
        process.communicate()


def release(process):
    """Let a process of `another_process` continue."""
    if process.stdin is not None:
        process.stdin.close()
        process.stdin = None


def finished(process):
    """Let a process of `another_process` continue, and return its further output."""
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    return output


def at_once(script, *arguments, number=2):
    """Run the script in several processes that start its last part at the same moment; return their outputs."""
    with contextlib.ExitStack() as stack:
        processes = [stack.enter_context(another_process(script, *arguments, i)) for i in range(number)]
        for process in processes:
            release(process)
        return [finished(process).strip() for process in processes]


# Folders of shards and jobs: the second process is refused at once

ENCODE = """
    import sys
    import gristmill as gm

    out, corpus, tok = sys.argv[1:4]
    is_first = True

    def pause(*_, **__):
        global is_first
        if is_first:
            is_first = False
            print("ready", flush=True)
            sys.stdin.read()

    gm.encode_corpus(corpus, tok, out=out, progress=pause)
"""


@pytest.fixture
def corpus(tmp_path):
    return write_text(tmp_path / "corpus.txt", documents(1, 40))


@pytest.fixture
def saved(tmp_path):
    tokenizer().save(tmp_path / "tok.json")
    return tmp_path / "tok.json"


@linux_only
@pytest.mark.parametrize("overwrite", [False, True])
def test_a_second_encode_into_a_folder_is_refused_at_once_and_names_the_first(
    overwrite, corpus, saved, tmp_path, capsys
):
    out = tmp_path / "out"
    with another_process(ENCODE, out, corpus, saved) as process:
        before = sorted(path.name for path in out.iterdir())
        why = (
            f"Another process is writing shards here: process {process.pid} on {HOST}. Wait until it has ended, or pass"
        )
        began = time.monotonic()
        with pytest.raises(BlockingIOError, match=why):
            gm.encode_corpus(corpus, saved, out=out, overwrite=overwrite)
        assert time.monotonic() - began < 10
        assert main(["encode", str(corpus), "-t", str(saved), "-o", str(out)]) == 1
        assert f"process {process.pid} on" in capsys.readouterr().err
        assert sorted(path.name for path in out.iterdir()) == before
        finished(process)
    gm.encode_corpus(corpus, saved, out=tmp_path / "alone")
    assert gm.verify_shards(out).is_sound
    assert gm.Shards(out).checksums() == gm.Shards(tmp_path / "alone").checksums()
    assert gm.encode_corpus(corpus, saved, out=out).profile is None  # the lock is free, and nothing is left to do


def documents_in(shards):
    return [ids.tolist() for ids in shards]


def test_a_reader_of_shards_that_another_process_replaces_has_the_old_documents_or_an_error(corpus, saved, tmp_path):
    out = tmp_path / "out"
    gm.encode_corpus(corpus, saved, out=out)
    shards = gm.Shards(out)
    old = documents_in(shards)
    other = write_text(tmp_path / "other.txt", documents(2, 50))
    script = """
        import sys
        import gristmill as gm
        out, corpus, tok = sys.argv[1:4]
        print("ready", flush=True)
        sys.stdin.read()
        gm.encode_corpus(corpus, tok, out=out, overwrite=True)
    """
    with another_process(script, out, other, saved) as process:
        release(process)
        outcomes = []
        while process.poll() is None:
            with contextlib.suppress(gm.InputChangedError):
                outcomes.append(documents_in(shards) == old)
        finished(process)
    with contextlib.suppress(gm.InputChangedError):
        outcomes.append(documents_in(shards) == old)  # a shard that is mapped stays as it was
    assert all(outcomes)
    assert documents_in(gm.Shards(out)) != old


JOB = """
    import sys
    from gristmill.executors.job import Job, open_job

    job = Job("count", [], {}, {}, ())
    with open_job(sys.argv[1], job, lambda _: []):
        print("ready", flush=True)
        sys.stdin.read()
"""


@linux_only
def test_a_second_driver_of_a_job_is_refused_at_once_and_names_the_first(tmp_path):
    from gristmill.executors.job import Job

    job = Job("count", [], {}, {}, ())
    with another_process(JOB, tmp_path / "work") as process:
        why = (
            f"Another process is running this job: process {process.pid} on {HOST}. Wait until it has ended, or stop it"
        )
        with pytest.raises(BlockingIOError, match=why), open_job(str(tmp_path / "work"), job, lambda _: []):
            pass
        finished(process)
    with open_job(str(tmp_path / "work"), job, lambda _: []) as opened:
        assert opened.is_resumed


def test_two_machines_may_run_the_same_tasks_and_the_result_is_the_same(corpus, saved, tmp_path, capsys):
    out = tmp_path / "out"
    assert main(["task", "plan", "encode", str(corpus), "-t", str(saved), "-o", str(out), "--part-size", "4kB"]) == 0
    script = """
        import sys
        from gristmill.cli import main
        print("ready", flush=True)
        sys.stdin.read()
        sys.exit(main(["task", "run", sys.argv[1], "0-3"]))
    """
    at_once(script, out)
    assert main(["task", "finish", str(out)]) == 0, capsys.readouterr().err
    gm.encode_corpus(corpus, saved, out=tmp_path / "alone")
    assert gm.verify_shards(out).is_sound
    assert gm.Shards(out).checksums() == gm.Shards(tmp_path / "alone").checksums()


# Caches: the second process waits, or both do the same work

LOCKED = """
    import sys
    from pathlib import Path
    from gristmill.lock import waiting_lock

    with waiting_lock(Path(sys.argv[1])):
        print("ready", flush=True)
        sys.stdin.read()
"""


@linux_only
@pytest.mark.parametrize("kind", ["file", "folder"])
def test_who_waits_longer_than_the_patience_is_told_for_whom(kind, tmp_path, monkeypatch):
    place, messages = tmp_path / "place", []
    if kind == "folder":
        place.mkdir()
    with another_process(LOCKED, place) as process:

        def go_on(holder):
            messages.append(holder)
            release(process)

        monkeypatch.setattr(lock, "PATIENCE", 0.2)
        with lock.waiting_lock(place, on_wait=go_on):
            pass
        assert messages == [f"process {process.pid} on {socket.gethostname()}"]


def test_a_thread_that_has_a_lock_may_take_it_again_and_another_thread_waits(tmp_path):
    order = []

    def take():
        with lock.waiting_lock(tmp_path):
            order.append("second")

    with lock.waiting_lock(tmp_path):
        with lock.waiting_lock(tmp_path):
            thread = threading.Thread(target=take)
            thread.start()
        thread.join(0.3)
        order.append("first")
    thread.join()
    assert order == ["first", "second"]


def test_a_short_wait_is_silent_and_the_lock_of_a_killed_process_is_free(tmp_path):
    messages = []
    with another_process(LOCKED, tmp_path / "place") as process:
        threading.Timer(0.2, process.kill).start()
        with lock.waiting_lock(tmp_path / "place", on_wait=messages.append):
            pass
    assert messages == []


def test_two_benchmarks_make_the_same_file_of_the_cache(tmp_path, monkeypatch):
    script = """
        import hashlib, sys
        from gristmill.bench.corpora import resolve
        print("ready", flush=True)
        sys.stdin.read()
        print(hashlib.sha256(resolve("sample:200kB").path.read_bytes()).hexdigest())
    """
    monkeypatch.setenv("GRISTMILL_CACHE", str(tmp_path))
    assert len(set(at_once(script))) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["sample_200kB.txt"]


# Single files: a rename decides

SAVE = """
    import sys
    import gristmill as gm

    path, kind, number = sys.argv[1], sys.argv[2], int(sys.argv[3])
    if kind == "tokenizer":
        made = gm.Tokenizer([(b"a", bytes([98 + number]))])
    else:
        made = gm.Words.from_counts({f"w{number}": 1 + number})
    print("ready", flush=True)
    sys.stdin.read()
    for _ in range(20):
        made.save(path, overwrite=True)
"""


@pytest.mark.parametrize("kind", ["tokenizer", "words"])
def test_of_several_that_replace_one_file_the_last_wins_and_readers_see_whole_files(kind, tmp_path):
    path = tmp_path / "file"
    load = gm.Tokenizer.load if kind == "tokenizer" else gm.Words.load
    (gm.Tokenizer([]) if kind == "tokenizer" else gm.Words.from_counts({"a": 1})).save(path)
    done = threading.Event()

    def read():
        while not done.is_set():
            load(path)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        at_once(SAVE, path, kind)
    finally:
        done.set()
        reader.join()
    load(path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_of_several_that_create_one_file_one_wins_and_the_others_are_told(tmp_path):
    script = """
        import sys
        import gristmill as gm
        path, number = sys.argv[1], int(sys.argv[2])
        made = gm.Tokenizer([(b"a", bytes([98 + number]))])
        print("ready", flush=True)
        sys.stdin.read()
        try:
            made.save(path, overwrite=False)
            print("saved", number)
        except FileExistsError as error:
            print(error.strerror)
    """
    outputs = at_once(script, tmp_path / "tok.json", number=3)
    (winner,) = (output for output in outputs if output.startswith("saved"))
    assert gm.Tokenizer.load(tmp_path / "tok.json") == gm.Tokenizer([(b"a", bytes([98 + int(winner.split()[1])]))])
    assert sum("Already exists. Pass overwrite=True" in output for output in outputs) == len(outputs) - 1
    assert [entry.name for entry in tmp_path.iterdir()] == ["tok.json"]


def test_a_monitor_whose_file_another_process_has_replaced_stops_and_tells(tmp_path):
    from gristmill.posterior.drawing import FIGURES_FILE, Drawing, read_figures

    class Metrics:
        step = 1

        def to_record(self):
            return {"step": 1}

    messages = []
    drawing = Drawing(tmp_path, 0, messages.append)
    drawing.add(Metrics())
    run_script(
        """
        import sys
        from gristmill.posterior.drawing import Drawing
        class Metrics:
            step = 7
            def to_record(self):
                return {"step": 7}
        drawing = Drawing(sys.argv[1], 0, print)
        drawing.add(Metrics())
        drawing.close()
        """,
        tmp_path,
    ).check_returncode()
    drawing.add(Metrics())
    drawing.add(Metrics())
    drawing.close()
    (message,) = messages
    assert "replaced by another process that records here. Pass another folder" in message
    assert [record["step"] for record in read_figures(tmp_path / FIGURES_FILE)] == [7]


# Temporary files: every process has its own


def test_two_counts_with_one_temporary_folder_do_not_disturb_each_other(tmp_path, monkeypatch):
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    text = " ".join(f"word{i:x} other{i * 7919:x}" for i in range(400_000))
    (tmp_path / "text.txt").write_text(text + " and and")
    script = """
        import hashlib, sys
        import gristmill as gm
        print("ready", flush=True)
        sys.stdin.read()
        words = gm.count_words(sys.argv[1], memory_limit=32 << 20, min_frequency=2, num_threads=1, progress=None)
        print(sorted(words.items())[:20])
    """
    outputs = at_once(script, tmp_path / "text.txt")
    assert len(set(outputs)) == 1 and "and" in outputs[0]
    assert list((tmp_path / "temporary").iterdir()) == []


# The server of the view


def test_a_second_server_on_a_port_is_told_to_take_another(tmp_path):
    script = """
        import sys
        from gristmill.view.server import listen
        listener = listen("127.0.0.1", 0)
        print("ready", flush=True)
        print(listener.getsockname()[1], flush=True)
        sys.stdin.read()
    """
    with another_process(script) as process:
        port = int(process.stdout.readline())
        code = f"from gristmill.view.server import listen; listen('127.0.0.1', {port})"
        answer = run_script(code)
        assert f"port={port} is in use. Pass another port, or none to use a free one." in answer.stderr


# Several files that belong together

EXPORT = """
    import sys
    import gristmill as gm

    folder, format, number = sys.argv[1], sys.argv[2], int(sys.argv[3])
    tokenizer = gm.Tokenizer([(b"a", bytes([98 + number]))])
    print("ready", flush=True)
    sys.stdin.read()
    for _ in range(15):
        tokenizer.export(folder, format=format, overwrite=True)
"""


def files_in(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("format", ["gpt2", "huggingface"])
def test_of_several_tokenizers_of_several_files_in_one_folder_one_is_left(format, tmp_path):
    at_once(EXPORT, tmp_path / "folder", format)
    for number in range(2):
        gm.Tokenizer([(b"a", bytes([98 + number]))]).export(tmp_path / f"alone{number}", format=format)
    assert files_in(tmp_path / "folder") in [files_in(tmp_path / f"alone{number}") for number in range(2)]


def test_a_second_export_of_several_files_waits_until_the_first_has_renamed_all_of_its_own(tmp_path):
    """Of two processes that rename in turn, a file of each would be left."""
    script = """
        import sys
        import gristmill as gm
        import gristmill.publish as publishing

        move, moved = publishing._move, []

        def pause(*arguments):
            if moved:
                print("ready", flush=True)
                sys.stdin.read()
            moved.append(move(*arguments))

        publishing._move = pause
        gm.Tokenizer([(b"a", b"b")]).export(sys.argv[1], format="gpt2")
    """
    second = gm.Tokenizer([(b"a", b"c")])
    second.export(tmp_path / "alone", format="gpt2")
    with another_process(script, tmp_path / "folder") as process:
        thread = threading.Thread(target=second.export, args=(tmp_path / "folder",), kwargs={"format": "gpt2"})
        thread.start()
        thread.join(0.5)
        assert thread.is_alive()
        finished(process)
        thread.join()
    assert files_in(tmp_path / "folder") == files_in(tmp_path / "alone")


def test_two_that_create_a_tokenizer_of_several_files_leave_that_of_one(tmp_path):
    script = """
        import sys
        import gristmill as gm
        folder, number = sys.argv[1], int(sys.argv[2])
        tokenizer = gm.Tokenizer([(b"a", bytes([98 + number]))])
        print("ready", flush=True)
        sys.stdin.read()
        try:
            tokenizer.export(folder, format="gpt2", overwrite=False)
            print("saved", number)
        except FileExistsError as error:
            print(error.strerror)
    """
    outputs = at_once(script, tmp_path / "folder")
    (winner,) = (int(output.split()[1]) for output in outputs if output.startswith("saved"))
    assert sum("Already exists. Pass overwrite=True" in output for output in outputs) == len(outputs) - 1
    assert gm.Tokenizer.load(tmp_path / "folder").token_bytes(256) == b"a" + bytes([98 + winner])


FOLDER = """
    import sys
    from pathlib import Path
    from gristmill.lm.use.exports.folders import published_folder

    target, overwrite, number = Path(sys.argv[1]), sys.argv[2] == "True", sys.argv[3]
    print("ready", flush=True)
    sys.stdin.read()
    try:
        for _ in range(15 if overwrite else 1):
            with published_folder(target, overwrite=overwrite) as folder:
                for i in range(3):
                    (folder / f"{i}.txt").write_text(number)
        print("saved")
    except FileExistsError as error:
        print(error.strerror)
"""


@pytest.mark.parametrize("overwrite", [False, True])
def test_of_several_exports_to_one_folder_one_is_left_whole(overwrite, tmp_path):
    outputs = at_once(FOLDER, tmp_path / "model", overwrite)
    if overwrite:
        assert outputs == ["saved"] * 2
    else:
        assert sorted(outputs) == ["already exists. Pass overwrite=True to replace it, or another name", "saved"]
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    assert len({path.read_text() for path in (tmp_path / "model").iterdir()}) == 1
    assert sorted(path.name for path in (tmp_path / "model").iterdir()) == ["0.txt", "1.txt", "2.txt"]
