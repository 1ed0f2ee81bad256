"""Host: a long-lived process that runs kinds of work in threads. `Conductor` starts it and tells it what to do.

    python -m soaking.host FOLDER SEED KIND…

It reads commands from stdin (`start`, `pause`, `go`, `stop`) and writes JSON lines to stdout. It also stops at the end
of stdin, so that nothing is left when the conductor is gone.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import json
import os
import random
import signal
import sys
import threading
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

from soaking.kind import Kind, kind_class

ERROR_PAUSE_SECONDS = 0.2  # so that a kind that always fails does not flood the report


class Gate:
    """Lets workers through between two operations, or holds them."""

    def __init__(self, num_workers: int) -> None:
        self._changed = threading.Condition()
        self._command, self._num_working = "pause", num_workers

    def passes(self) -> bool:
        """Wait while the gate is closed. Returns False when the work is over."""
        with self._changed:
            self._num_working -= 1
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._command != "pause")
            self._num_working += 1
            return self._command == "go"

    def tell(self, command: str) -> None:
        """Open the gate ("go"), close it ("pause") or end the work ("stop"). Closing waits for all workers."""
        with self._changed:
            self._command = command
            self._changed.notify_all()
            if command == "pause":
                self._changed.wait_for(lambda: self._num_working == 0)


class Host:
    """Runs kinds until the command to stop."""

    def __init__(self, root: Path, seed: int, names: list[str]) -> None:
        # Workers may print, and processes that they start inherit stdout, so the reports get a descriptor of their own.
        self._reports = os.dup(1)
        os.dup2(2, 1)
        self._writing = threading.Lock()
        self._counts: dict[str, Counter[str]] = {name: Counter() for name in names}
        self._root, self._seed = root, seed
        self._kinds = {name: self._prepared(name) for name in names}
        self._gate = Gate(sum(kind.num_threads for kind in self._kinds.values()))

    def _prepared(self, name: str) -> Kind:
        folder = self._root / "kinds" / name.replace(":", ".")
        folder.mkdir(parents=True)
        kind = kind_class(name)(self._root, folder, self._seed)
        kind.prepare()
        return kind

    def run(self) -> None:
        """Work until the end."""
        # The main thread works too: only there does Ctrl-C become KeyboardInterrupt.
        (first, *others) = [(name, number) for name, kind in self._kinds.items() for number in range(kind.num_threads)]
        threads = [threading.Thread(target=self._work, args=each, name=f"{each[0]} {each[1]}") for each in others]
        for thread in threads:
            thread.start()
        listener = threading.Thread(target=self._listen, name="listener", daemon=True)
        listener.start()
        self._report(
            ready=True, watched={key: pid for kind in self._kinds.values() for key, pid in kind.watched().items()}
        )
        self._work(*first)
        for thread in threads:
            thread.join()
        for name, kind in self._kinds.items():
            try:
                kind.close()
            except Exception:
                self._report(error=traceback.format_exc(), kind=name)
        left = [thread.name for thread in threading.enumerate() if thread not in (threading.main_thread(), listener)]
        self._report(stopped=True, counts=self._counts, threads=left)

    def _work(self, name: str, number: int) -> None:
        kind, source = self._kinds[name], random.Random(f"{self._seed} {name} {number}")
        is_failing = threading.Event()
        while self._gate.passes():
            try:
                operation = kind.work(source, number)
            except BaseException:
                self._report(error=traceback.format_exc(), kind=name)
                is_failing.wait(ERROR_PAUSE_SECONDS)
                continue
            with self._writing:
                self._counts[name][operation] += 1

    def _listen(self) -> None:
        for line in sys.stdin:
            self._gate.tell(line.strip())
            if line.strip() == "pause":
                gc.collect()  # garbage in cycles is not a leak
                self._report(paused=True, counts=self._counts)
        self._gate.tell("stop")

    def _report(self, **content: Any) -> None:
        # When the conductor is gone, the end of stdin stops the host.
        with self._writing, contextlib.suppress(BrokenPipeError):
            os.write(self._reports, (json.dumps(content) + "\n").encode())


def main() -> None:
    """Run the host that the command line describes."""
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1)  # the conductor asks where a host hangs
    root, seed, *names = sys.argv[1:]
    Host(Path(root), int(seed), names).run()


if __name__ == "__main__":
    main()
