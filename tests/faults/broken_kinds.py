"""Kinds of work for `tools/soak.py` that are wrong on purpose."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import tempfile
import threading
import time

from soaking.kind import Kind


class Broken(Kind):
    """Works for a short time in each operation, so that a thread does not fill the memory at once."""

    needs_inputs = False

    def work(self, source, thread):
        time.sleep(0.02)
        self.fail()
        return "broken"


class Failing(Broken):
    num_done = 0

    def fail(self):
        self.num_done += 1
        if self.num_done == 3:
            raise ValueError("the third operation fails")


class Leaking(Broken):
    """Keeps memory, open files and threads."""

    def prepare(self):
        self.kept = []

    def fail(self):
        self.kept.append((b"x" * 1_000_000, os.open(os.devnull, os.O_RDONLY)))
        threading.Thread(target=threading.Event().wait, daemon=True, name="kept").start()


class Littering(Broken):
    """Leaves a temporary file and a process."""

    def prepare(self):
        os.close(tempfile.mkstemp()[0])
        subprocess.Popen(["sleep", "1000"], start_new_session=True)

    def fail(self):
        pass


class Idle(Kind):
    needs_inputs = False

    def work(self, source, thread):
        raise NotImplementedError("no operation ever succeeds")


class Waiting(Broken):
    """Writes a file when it works. Has a process of its own."""

    process = "waiting"

    def fail(self):
        (self.folder / "works").touch()


class Crashing(Broken):
    process = "crashing"

    def prepare(self):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    def fail(self):
        os.kill(os.getpid(), signal.SIGSEGV)


class Hanging(Broken):
    process = "hanging"

    def fail(self):
        threading.Event().wait()
