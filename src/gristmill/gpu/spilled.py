"""Tables that the memory of a GPU had no room for: sorted runs in temporary files, joined at the end."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gristmill._core import RunMerger, WordTable, write_runs

MEMORY_BYTES = 1 << 30
# Runs that are read at once. Each is an open file with a buffer of 64 KB.
MAX_FAN_IN = 128


Write = Callable[[bytes], object]
WriteRun = Callable[[Write], NDArray[np.uint64]]


class _Run(NamedTuple):
    file: Any  # a named temporary file
    entry: NDArray[np.uint64]  # its end, checksum, number of words, and bytes of words


class SpilledTables:
    """Word tables on disk, in private files of the temporary folder (`$TMPDIR`) that exist as long as this object."""

    def __init__(self) -> None:
        self._runs: list[_Run] = []

    def __len__(self) -> int:
        return len(self._runs)

    def add(self, table: WordTable) -> None:
        """Write a table, whose positions count from the start of the corpus."""
        self._runs.append(_written(lambda write: write_runs(table, 1, write)))

    def take(self, other: SpilledTables) -> None:
        """Add the tables of another object."""
        self._runs += other._runs

    def join(self, min_frequency: int, source_bytes: int) -> tuple[WordTable, int]:
        """Return the words of all tables with at least this count, and the number of words with any count."""
        merger = RunMerger(by_first=False, spill_folder=tempfile.gettempdir(), memory_limit=MEMORY_BYTES)
        for number, run in enumerate(self._runs):
            if number and number % MAX_FAN_IN == 0:
                merger.reduce()
            _add(merger, run, f"part {number + 1} of the table")
        self._runs = []
        num_words = 0

        def write_by_first(write: Write) -> NDArray[np.uint64]:
            nonlocal num_words
            entry, num_words = merger.write_by_first(min_frequency, write)
            return entry

        joined = _written(write_by_first)
        by_first = RunMerger(by_first=True, spill_folder=tempfile.gettempdir(), memory_limit=MEMORY_BYTES)
        _add(by_first, joined, "the joined table")
        num_kept, num_bytes = joined.entry[2:4].tolist()
        table = by_first.make_table(num_words=num_kept, num_bytes=num_bytes, source_bytes=source_bytes)
        return table, num_words


def _written(write_run: WriteRun) -> _Run:
    file = tempfile.NamedTemporaryFile(prefix="gristmill-words-")  # noqa: SIM115 - it is read as long as it exists
    entry = write_run(file.write)
    file.flush()
    return _Run(file, entry)


def _add(merger: RunMerger, run: _Run, name: str) -> None:
    end, checksum = run.entry[:2].tolist()
    merger.add(name=name, path=run.file.name, begin=0, end=end, checksum=checksum, base=0)
