"""Worker processes: they end with their parent, their CPU time is counted, and their time limit names the text."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time

import pytest

import gristmill as gm
from gristmill import progress
from gristmill.pretokenize import pieces
from gristmill.pretokenize.worker_pool import WorkerPool

ENDLESS = r"(?:(?:a|a)*b)|c"

on_linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")


def is_running(process: int) -> bool:
    with contextlib.suppress(OSError), open(f"/proc/{process}/stat", "rb") as file:  # noqa: PTH123
        return file.read().rpartition(b")")[2].split()[0] != b"Z"  # a zombie: its parent may not collect it
    return False


@on_linux
def test_a_worker_that_matches_without_end_ends_when_its_parent_is_killed():
    script = f"""
import threading, time
from gristmill import progress
from gristmill.pretokenize.worker_pool import WorkerPool
pool = WorkerPool("gristmill.count.regex_worker", ({ENDLESS!r},), 1)
document = b"a" * 100
task = (0, len(document), [(0, len(document))], document, [0], [0])
threading.Thread(target=pool.ask, args=task, daemon=True).start()
while not progress.running_workers:
    time.sleep(0.01)
time.sleep(2)  # by now it matches; the test holds as well if it does not
print(*progress.running_workers, flush=True)
time.sleep(600)
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        worker = int(parent.stdout.readline())
        assert is_running(worker)
        parent.kill()
    try:
        for _ in range(600):  # its time limit is that long; an orphan would run until then
            if not is_running(worker):
                return
            time.sleep(0.05)
        pytest.fail("the worker outlived its parent")
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(worker, signal.SIGKILL)


@on_linux
def test_the_cpu_time_of_workers_is_counted_while_they_run_and_when_they_have_ended(tmp_path, monkeypatch):
    (tmp_path / "busy_worker.py").write_text(
        "import time\n"
        "def serve():\n"
        "    def work(seconds):\n"
        "        while time.process_time() < seconds: pass\n"
        "        return time.process_time()\n"
        "    return work\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    before, own_before = progress.cpu_seconds(), time.process_time()
    with WorkerPool("busy_worker", (), 1) as pool:
        used = pool.ask(0.5)
        while_it_runs = progress.cpu_seconds() - (time.process_time() - own_before)
    after = progress.cpu_seconds() - (time.process_time() - own_before)
    clock_tick = 0.05  # the resolution of the system's CPU clock is 0.01 s
    assert while_it_runs - before >= used - clock_tick
    assert after - before >= used - clock_tick
    assert not progress.running_workers


def test_the_cpu_time_is_known_without_proc(monkeypatch):
    monkeypatch.setattr(progress, "running_workers", {-1})
    assert progress.cpu_seconds() > 0


@pytest.mark.filterwarnings("ignore::gristmill.SlowPatternWarning")
def test_the_error_of_a_text_that_takes_too_long_shows_how_it_begins(monkeypatch):
    monkeypatch.setattr(pieces, "TIMEOUT_SECONDS", 0.05)
    tok = gm.Tokenizer([], pattern=ENDLESS)
    texts = ["short", "c" + "a" * 40]
    with pytest.raises(gm.PieceTimeoutError, match=r"41 bytes that begin with 'caaa"):
        tok.encode_batch(texts)
    with pytest.raises(gm.PieceTimeoutError, match=r"on document 1 of the corpus, 41 bytes that begin with 'caaa"):
        gm.count_words(texts, pattern=ENDLESS, num_threads=1, progress=None)
