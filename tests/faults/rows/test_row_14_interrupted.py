"""Row 14: Ctrl-C and SIGTERM in each phase of a command on a terminal."""

from __future__ import annotations

import fcntl
import gzip
import os
import pty
import random
import re
import select
import signal
import struct
import sys
import termios
import threading
import time
import traceback
from contextlib import contextmanager
from pathlib import Path

import pytest
from tqdm import tqdm

from faults.rows.children import command, needs_strace
from faults.rows.fault import Fault
from faults.rows.outputs import FILES, SHARDS, contents, copy_inputs, prepare, run
from gristmill.cli import main
from gristmill.count import Words

FAULT = Fault(
    row=14,
    injected="Ctrl-C typed once and twice on a pseudo-terminal, and SIGTERM, while a command reads, counts, merges "
    "or encodes; SIGINT at the `fsync` and the `rename` of each kind of output",
    promise="Exit status 130, or 143 after SIGTERM, with one message and no traceback; no process is left; the "
    "terminal has its settings and a visible cursor; the output is the earlier or the new one, without temporary files",
    undetectable="Ctrl-C in the first tenths of a second, while Python starts and imports `gristmill`, ends with "
    "Python's traceback",
    see_also=(
        "tests/faults/test_encode_corpus_limits.py",
        "tests/faults/test_encode_faults.py",
        "tests/cli/test_cli_train_model.py",
        "tests/cli/test_cli_generate.py",
        "tests/executors/test_processes.py",
        "tests/test_publish.py",
    ),
)

# The promise is one second on an idle machine. Tests share the machine with others; without the interruption, the
# commands below would take minutes.
SECONDS = 20
DEADLINE_SECONDS = 60


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    folder = prepare(tmp_path_factory.mktemp("row-14") / "inputs")
    # Gigabytes of text in a small file.
    member = gzip.compress((folder / "a.txt").read_bytes() * 3_000, 6)
    (folder / "long.txt.gz").write_bytes(member * 700)
    source = random.Random(1)
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = {"".join(source.choices(letters, k=14)): 1 + source.randrange(99) for _ in range(120_000)}
    Words.from_counts(words).save(folder / "many.gmw")
    run(folder, "count-words", "a.txt", "-o", "warm.gmw", "--progress", "none")  # so that children need no imports
    return folder


class Terminal:
    """A command on a terminal of its own, as a child of this process."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.screen = b""
        self.pid, self._master = pty.fork()
        if self.pid == 0:
            _be_the_command(folder, arguments)
        self._before = termios.tcgetattr(self._master)

    def wait_for(self, text: str) -> None:
        """Wait until the command has shown this."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while re.search(text.encode(), self.screen) is None:
            assert self._read(deadline), f"{text!r} was not shown: {self.screen!r}"

    def type(self, keys: bytes) -> None:
        os.write(self._master, keys)

    def wait(self) -> tuple[int, float]:
        """Return the exit status, and the seconds that the command took from now on."""
        began = time.monotonic()
        while self._read(began + DEADLINE_SECONDS):
            pass
        while True:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            if ended:
                self.pid = 0
                return os.waitstatus_to_exitcode(status), time.monotonic() - began
            assert time.monotonic() < began + DEADLINE_SECONDS, f"the command does not end: {self.screen!r}"
            time.sleep(0.01)

    def check_sane(self) -> None:
        """The settings are those of the start, and the cursor is visible."""
        assert termios.tcgetattr(self._master) == self._before
        hidden, shown = self.screen.rfind(b"\x1b[?25l"), self.screen.rfind(b"\x1b[?25h")
        assert hidden <= shown
        assert self.screen.rfind(b"\x1b[?1049h") <= self.screen.rfind(b"\x1b[?1049l")

    def close(self) -> None:
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self._master)

    def _read(self, deadline: float) -> bool:
        """Read what has been shown. Returns False at the end, or at the deadline."""
        while time.monotonic() < deadline:
            if select.select([self._master], [], [], 0.2)[0]:
                try:
                    data = os.read(self._master, 1 << 16)
                except OSError:  # EIO: no process has the terminal open
                    return False
                self.screen += data
                return bool(data)
        return False


def _be_the_command(folder: Path, arguments: tuple[str, ...]) -> None:
    code = 70
    try:
        sys.stdin, sys.stdout, sys.stderr = (
            os.fdopen(0, "r", closefd=False),
            os.fdopen(1, "w", buffering=1, closefd=False),
            os.fdopen(2, "w", buffering=1, closefd=False),
        )
        os.chdir(folder)
        os.environ["TERM"] = "xterm"
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 120, 0, 0))  # a new terminal has 0 columns
        signal.signal(signal.SIGINT, signal.default_int_handler)
        # All processes forked from one share tqdm's own lock, and an ended process may have held it.
        tqdm.set_lock(threading.RLock())
        sys.argv = ["gristmill", *arguments]
        code = main()  # as the installed command calls it, which also handles SIGTERM
        sys.stdout.flush()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


@contextmanager
def terminal(folder, *arguments):
    started = Terminal(folder, *arguments)
    group = started.pid
    try:
        yield started
        assert not _processes_of(group), "processes are left"
    finally:
        started.close()


def _processes_of(group: int) -> list[str]:
    """Return the processes of the session of the command, after those that are ending have ended."""
    deadline = time.monotonic() + SECONDS
    while True:
        found = []
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                state, _, _, session = stat.read_text().rpartition(")")[2].split()[:4]
            except (OSError, ValueError):
                continue
            if int(session) == group and state != "Z":
                found.append(stat.read_text()[:80])
        if not found or time.monotonic() > deadline:
            return found
        time.sleep(0.05)


BAR = ("--progress", "bar")
PHASES = {
    "count": (("train-tokenizer", "long.txt.gz", "--vocab-size", "300", "-o", "new.json", *BAR), "count|read"),
    "count words": (("count-words", "long.txt.gz", "-o", "new.gmw", *BAR), "count|read"),
    "merge": (("train-tokenizer", "many.gmw", "--vocab-size", "600000", "-o", "new.json", *BAR), "merge"),
    "encode": (("encode", "long.txt.gz", "-t", "big.json", "-o", "new", *BAR), "encode"),
}


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
@pytest.mark.parametrize("how", ["ctrl-c", "ctrl-c twice", "SIGTERM"])
@pytest.mark.parametrize("phase", PHASES)
def test_row_14_an_interrupted_phase_ends_at_once(inputs, phase, how):
    arguments, shown = PHASES[phase]
    before = contents(inputs)
    with terminal(inputs, *arguments) as command_line:
        command_line.wait_for(shown)
        if how == "SIGTERM":
            os.kill(command_line.pid, signal.SIGTERM)
        else:
            command_line.type(b"\x03" * (1 + (how == "ctrl-c twice")))
        status, seconds = command_line.wait()
        command_line.check_sane()
    assert status == (143 if how == "SIGTERM" else 130), command_line.screen
    assert seconds < SECONDS
    assert b"Traceback" not in command_line.screen
    assert b"gristmill: " + (b"terminated" if how == "SIGTERM" else b"interrupted") in command_line.screen
    left = {name: digest for name, digest in contents(inputs).items() if not name.startswith("new/")}
    assert left == before


@needs_strace
@pytest.mark.parametrize("output", [each for each in FILES if "report" not in each.name], ids=str)
def test_row_14_interrupted_while_it_publishes(inputs, tmp_path, output):
    small = [path for path in inputs.iterdir() if path.name not in ("long.txt.gz", "many.gmw")]
    folder = tmp_path / "folder"
    folder.mkdir()
    for path in small:
        (copy_inputs if path.is_dir() else _copy)(path, folder / path.name)
    run(folder, *output.earlier)
    before = contents(folder / output.target)
    for calls in ("fsync", "rename,renameat,renameat2"):
        ended = command(*output.again, inject=(f"{calls}:signal=INT:when=1",), cwd=folder)
        assert ended.status == 130, ended
        assert "Traceback" not in ended.text
        assert "interrupted" in ended.text
        assert [path.name for path in folder.rglob("*") if ".tmp." in path.name] == []
        if output.name != "trace" and calls == "fsync":
            assert contents(folder / output.target) == before
    assert command(*output.again, cwd=folder).status == 0


def _copy(source: Path, target: Path) -> None:
    target.write_bytes(source.read_bytes())


@needs_strace
@pytest.mark.parametrize("calls", ["fsync", "rename,renameat,renameat2", "unlink,unlinkat"])
def test_row_14_shards_that_are_interrupted_at_any_step_are_finished_by_the_same_command(inputs, tmp_path, calls):
    output = SHARDS[0]
    folder = tmp_path / "folder"
    folder.mkdir()
    for name in ("a.txt", "big.json"):
        _copy(inputs / name, folder / name)
    run(folder, *output.arguments)
    expected = contents(folder / "out")
    endings = set()
    for number in (1, 3, 5):
        for name in contents(folder / "out"):
            (folder / "out" / name).unlink()
        ended = command(*output.arguments, inject=(f"{calls}:signal=INT:when={number}",), cwd=folder)
        assert ended.status in (0, 130) and "Traceback" not in ended.text, ended
        endings.add(ended.status)
        assert command(*output.arguments, cwd=folder).status == 0
        assert contents(folder / "out") == expected
    assert 130 in endings
