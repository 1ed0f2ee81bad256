"""Which shards a reader has opened, so that it notices when others take their place.

Files are mapped when something in them is asked for, and `encode_corpus(…, overwrite=True)` may replace them meanwhile.
The manifest says which shards they are: its checksum covers the checksums of all of them. An overwrite takes the
manifest away before it touches any shard. So a reader opens a shard first and looks at the manifest afterwards: if the
manifest is still the same, so is the shard. No lock is held: a reader that is never closed does not block anybody, and
neither read-only folders nor file systems without locks need special treatment.
"""

from __future__ import annotations

import os
import re
import stat
from io import FileIO
from pathlib import Path
from typing import Any

from gristmill.errors import InputChangedError
from gristmill.shards.manifest import MANIFEST_FILE, read_manifest

_CHECKSUM = re.compile(rb'"checksum": "([0-9a-f]{64})"\s*\}\s*\Z')
_TAIL_BYTES = 128

_Stamp = tuple[int, int, int, int]


class Edition:
    """The shards of a folder, known by the checksum of their manifest. Can be pickled and used in another process."""

    def __init__(self, folder: Path, checksum: str, stamp: _Stamp | None = None) -> None:
        self._folder, self.checksum = folder, checksum
        self._stamp = stamp  # of the manifest when it was last seen to have this checksum

    @classmethod
    def from_folder(cls, folder: Path, given: str | os.PathLike[str] | None = None) -> Edition:
        """What the folder holds now; `ShardsFormatError` if that is not finished. `given` is its name in errors."""
        while True:
            try:
                with _open_manifest(folder) as file:
                    return cls(folder, _checksum(file), _stamp(file))
            except (FileNotFoundError, NotADirectoryError):
                # Explains what the folder is instead, unless an overwrite has just ended.
                read_manifest(given or folder)

    def check(self) -> None:
        """Raise `InputChangedError` if the folder holds other shards by now. Call it after opening a file, not before.

        A manifest that was touched or copied is still the same manifest: what counts is its content.
        """
        try:
            with _open_manifest(self._folder) as file:
                stamp = _stamp(file)
                is_same = stamp == self._stamp or _checksum(file) == self.checksum
        except (FileNotFoundError, NotADirectoryError):
            is_same = False
        if not is_same:
            raise self.changed()
        self._stamp = stamp

    def changed(self) -> InputChangedError:
        """The error for whoever reads on."""
        return InputChangedError(
            f"{self._folder}: the shards were replaced or removed after this reader opened them. Open the folder "
            f"again with gm.Shards to read what is there now."
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return Edition, (self._folder, self.checksum)


class ForeignEdition(Edition):
    """A folder without a manifest. No other program tells when it replaces files, so nothing is checked."""

    def check(self) -> None:
        """Nothing: only the size of a file is checked, when it is mapped."""

    def __reduce__(self) -> tuple[Any, ...]:
        return ForeignEdition, (self._folder, self.checksum)


def _open_manifest(folder: Path) -> FileIO:
    # Opening it, unlike os.stat, makes a network file system ask its server. A pipe in its place is not waited for.
    def opener(name: str, flags: int) -> int:
        return os.open(name, flags | getattr(os, "O_NONBLOCK", 0))

    return open(folder / MANIFEST_FILE, "rb", buffering=0, opener=opener)


def _stamp(file: FileIO) -> _Stamp:
    status = os.fstat(file.fileno())
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _checksum(file: FileIO) -> str:
    """The checksum on the last line of the manifest; "" where there is none, which no manifest that is read has."""
    status = os.fstat(file.fileno())
    if not stat.S_ISREG(status.st_mode):
        return ""
    file.seek(max(status.st_size - _TAIL_BYTES, 0))
    found = _CHECKSUM.search(file.read(_TAIL_BYTES))
    return found[1].decode() if found else ""
