"""Tables that the memory of a GPU had no room for: sorted runs in a temporary file, joined at the end."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gristmill._core import RunMerger, WordTable, write_runs

MEMORY_BYTES = 1 << 30
# Runs that are read at once. Each is an open file with a buffer of 64 KB.
MAX_FAN_IN = 128


Write = Callable[[bytes], object]
WriteRun = Callable[[Write], NDArray[np.uint64]]


class _Run(NamedTuple):
    path: str
    begin: int  # in the file
    end: int
    checksum: int
    num_words: int
    num_bytes: int  # of the words


class SpilledTables:
    """Word tables on disk, in a private file of the temporary folder (`$TMPDIR`) that exists as long as this object.

    All tables are in one file: a process may have only so many files open.
    """

    def __init__(self) -> None:
        self._runs: list[_Run] = []
        self._files: list[_RunFile] = []

    def __len__(self) -> int:
        return len(self._runs)

    def add(self, table: WordTable) -> None:
        """Write a table, whose positions count from the start of the corpus."""
        if not self._files:
            self._files.append(_RunFile())
        self._runs.append(self._files[0].append(lambda write: write_runs(table, 1, write)))

    def take(self, other: SpilledTables) -> None:
        """Add the tables of another object, which has none then."""
        self._runs += other._runs
        self._files += other._files
        other._runs, other._files = [], []

    def close(self) -> None:
        """Remove the files."""
        self._runs = []
        for file in self._files:
            file.close()
        self._files = []

    def join(self, min_frequency: int, source_bytes: int) -> tuple[WordTable, int]:
        """Return the words of all tables with at least this count, and the number of words with any count."""
        merger = RunMerger(by_first=False, spill_folder=tempfile.gettempdir(), memory_limit=MEMORY_BYTES)
        for number, run in enumerate(self._runs):
            if number and number % MAX_FAN_IN == 0:
                merger.reduce()
            _add(merger, run, f"part {number + 1} of the table")
        num_words = 0

        def write_by_first(write: Write) -> NDArray[np.uint64]:
            nonlocal num_words
            entry, num_words = merger.write_by_first(min_frequency, write)
            return entry

        with contextlib.closing(_RunFile()) as file:
            joined = file.append(write_by_first)
            self.close()
            by_first = RunMerger(by_first=True, spill_folder=tempfile.gettempdir(), memory_limit=MEMORY_BYTES)
            _add(by_first, joined, "the joined table")
        table = by_first.make_table(num_words=joined.num_words, num_bytes=joined.num_bytes, source_bytes=source_bytes)
        return table, num_words


class _RunFile:
    """A temporary file of runs. It has a name, because the core opens it, and is removed together with this object."""

    def __init__(self) -> None:
        self._file = tempfile.NamedTemporaryFile(prefix="gristmill-words-")  # noqa: SIM115 - close() closes it
        self._size = 0

    def append(self, write_run: WriteRun) -> _Run:
        """Write a run at the end. After an error, the file is removed."""
        try:
            end, checksum, num_words, num_bytes = write_run(self._file.write).tolist()
            self._file.flush()
        except OSError as error:
            self.close()
            raise OSError(error.errno, error.strerror, tempfile.gettempdir()) from error
        except BaseException:
            self.close()
            raise
        begin, self._size = self._size, self._size + end
        return _Run(self._file.name, begin, self._size, checksum, num_words, num_bytes)

    def close(self) -> None:
        with contextlib.suppress(OSError):  # of bytes that the disk still has no room for
            self._file.close()


def _add(merger: RunMerger, run: _Run, name: str) -> None:
    merger.add(name=name, path=run.path, begin=run.begin, end=run.end, checksum=run.checksum, base=0)
