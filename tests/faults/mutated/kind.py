"""Kind: files that Python parses, how to make valid ones, and the functions that read them."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from faults.mutated.mutations import mutate

# Resident memory in bytes that one read may take. A mutated file has at most 64 KiB.
GROWTH = 192 << 20
# pyarrow takes as much memory as the header of a page asks for, which the footer does not record: up to 2^31 bytes.
PARQUET_GROWTH = (2 << 30) + GROWTH


def nothing(folder: Path) -> None:
    """Leave checksums as they are."""


@dataclass(frozen=True)
class Kind:
    """Files of one kind.

    `make` writes valid folders into an empty one. One file of such a folder, or of its folders, is mutated; then one of
    `readers` gets the folder. `seal` makes the recorded checksums match again: without it, no mutation would get past
    them. With `writes`, readers change the folder, so that each gets a copy.
    """

    name: str
    make: Callable[[Path], None]
    readers: Sequence[Callable[[Path], object]]
    seal: Callable[[Path], None] = nothing
    mutated: Callable[[str], bool] = lambda name: True  # which files, by their path in the folder
    writes: bool = False
    max_growth: int = GROWTH
    executes: frozenset[str] = field(default_factory=frozenset)  # audit events that reading raises by design


class Inputs:
    """The mutated folders of a kind, in a sandbox: folder `now` in `root`."""

    def __init__(self, kind: Kind, root: Path) -> None:
        self.kind = kind
        self.now = root / "now"
        valid = root / "valid"
        valid.mkdir(parents=True)
        kind.make(valid)
        self._valid = sorted(path for path in valid.iterdir() if path.is_dir())
        self._content = {folder: _files(folder) for folder in self._valid}
        self._names = {
            folder: [name for name in files if kind.mutated(name)] for folder, files in self._content.items()
        }
        self._shown: Path | None = None  # the valid folder of which `now` is a copy
        self._changed: set[str] = set()

    def prepare(self, random: Random) -> Callable[[Path], object]:
        """Put the next mutated folder at `now`, and return its reader."""
        folder = random.choice(self._valid)
        names = self._names[folder]
        chosen = random.sample(names, min(len(names), random.choice((1, 1, 1, 1, 1, 2))))
        self._copy(folder, without=chosen)
        for name in chosen:
            donor = random.choice(self._valid)
            other = self._content[donor].get(name) or self._content[donor][random.choice(self._names[donor])]
            self._write(name, mutate(self._content[folder][name], other, random))
        if self.kind.seal is not nothing and random.random() < 0.75:
            self._seal()
        return random.choice(self.kind.readers)

    def valid_folders(self) -> list[Path]:
        return self._valid

    def show(self, folder: Path) -> None:
        """Put a valid folder at `now`."""
        self._shown = None
        self._copy(folder)

    def _copy(self, folder: Path, without: Sequence[str] = ()) -> None:
        """Put a valid folder at `now`; the files `without` are going to be written."""
        if self._shown == folder and not self.kind.writes:
            for name in self._changed.difference(without):
                self._write(name, self._content[folder][name])
        else:
            shutil.rmtree(self.now, ignore_errors=True)
            shutil.copytree(folder, self.now)
            self._shown = folder
        self._changed.clear()

    def _write(self, name: str, data: bytes) -> None:
        self._changed.add(name)
        (self.now / name).write_bytes(data)

    def _seal(self) -> None:
        self._changed.update(self._content[self._shown] if self._shown else ())
        with contextlib.suppress(Exception):  # what is not JSON any more has no checksum to correct
            self.kind.seal(self.now)


def _files(folder: Path) -> Mapping[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()
    }
