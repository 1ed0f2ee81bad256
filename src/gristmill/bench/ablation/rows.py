"""The rows of the ablation: the programs (a) to (g), the native core (h), and the GPU (i)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from gristmill.errors import OptionError
from gristmill.gpu.devices import missing_gpu
from gristmill.reference.ablation import PROGRAMS
from gristmill.reference.ablation.parallel_counting import find_chunk_boundaries

__all__ = ["CORE", "GPU", "LETTERS", "Row", "chosen_rows", "parse_letters", "reason_to_skip"]

CORE, GPU = "h", "i"
LETTERS = (*PROGRAMS, CORE, GPU)
# The last programs change few words per merge; the others visit every token of every word.
INCREMENTAL = ("f", "g")
ONE_PROCESS = ("a", "f")  # the other programs have a process pool


@dataclass(frozen=True)
class Row:
    """A row of the table before it is measured."""

    letter: str
    name: str
    module: str  # measured by `gristmill.bench.fresh_process`
    num_workers: int  # processes of a pool, or threads
    is_exact: bool = True
    is_incremental: bool = False

    @property
    def label(self) -> str:
        """The first column: `(h) native core, 2 threads`."""
        return f"({self.letter}) {self.name}"


def chosen_rows(letters: Sequence[str], *, threads: Sequence[int]) -> list[Row]:
    """Return the rows of these letters, in the order of the alphabet. Pools have as many processes as the most threads.

    >>> [row.label for row in chosen_rows(["h", "a"], threads=[1, 2])]
    ['(a) naive, one process', '(h) native core, 1 thread', '(h) native core, 2 threads']
    """
    rows: list[Row] = []
    for letter in sorted(set(letters)):
        if letter == CORE:
            rows += [core_row(num_threads) for num_threads in threads]
        elif letter == GPU:
            rows.append(Row(GPU, "GPU", "gristmill.bench.ablation.gpu_row", max(threads)))
        else:
            program = PROGRAMS[letter]
            module = "gristmill.bench.ablation.python_row"
            num_workers = 1 if letter in ONE_PROCESS else max(threads)
            rows.append(Row(letter, program.name, module, num_workers, program.is_exact, letter in INCREMENTAL))
    return rows


def core_row(num_threads: int) -> Row:
    """Return the row of the native core with this many threads."""
    name = f"native core, {num_threads} thread{'s' * (num_threads > 1)}"
    return Row(CORE, name, "gristmill.bench.ablation.core_row", num_threads)


def parse_letters(text: str) -> list[str]:
    """Return the letters of an option such as "a,f,h".

    >>> parse_letters("a, f,H")
    ['a', 'f', 'h']
    """
    letters = [part.strip().lower() for part in text.split(",") if part.strip()]
    unknown = [letter for letter in letters if letter not in LETTERS]
    if unknown or not letters:
        what = f"unknown row {unknown[0]!r}" if unknown else "no row"
        raise OptionError(f"rows={text!r}: {what}. Pass letters from {LETTERS[0]} to {LETTERS[-1]}, such as a,f,h.")
    return letters


def reason_to_skip(row: Row, corpus: Path) -> str | None:
    """Return why a row cannot run here, or None."""
    if row.letter == GPU:
        return missing_gpu()
    if row.letter == "g" and len(list(pairwise(find_chunk_boundaries(corpus, 2)))) < 2:
        return "needs a corpus with two documents or more, separated by <|endoftext|>"
    return None
