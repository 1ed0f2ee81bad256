"""Edition: identifies the shards that a reader has opened, so that it detects when they are replaced.

Files are mapped on first access, and `encode_corpus(…, overwrite=True)` may replace them in the meantime. The checksum
of the manifest identifies the shards, because it covers the checksums of all of them. An overwrite removes the manifest
before it changes any shard. A reader opens a shard first and checks the manifest afterwards: if the manifest is the
same, so is the shard. There are no locks: a reader that is never closed blocks no writer, and read-only folders and
file systems without locks need no special treatment.
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
    """The shards of a folder, identified by the checksum of their manifest. Can be pickled."""

    def __init__(self, folder: Path, checksum: str, stamp: _Stamp | None = None) -> None:
        self._folder, self.checksum = folder, checksum
        self._stamp = stamp  # of the manifest when its checksum was last verified

    @classmethod
    def from_folder(cls, folder: Path, given: str | os.PathLike[str] | None = None) -> Edition:
        """Return the edition in the folder; raise `ShardsFormatError` if it is unfinished. `given` is for errors."""
        while True:
            try:
                with _open_manifest(folder) as file:
                    return cls(folder, _checksum(file), _stamp(file))
            except (FileNotFoundError, NotADirectoryError):
                # Raises an error that describes the folder, unless an overwrite has just finished.
                read_manifest(given or folder)

    def check(self) -> None:
        """Raise `InputChangedError` if the folder now holds other shards. Call it after opening a file, not before.

        A manifest that was touched or copied is still the same: only its content counts.
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
        """Return the error for a reader of replaced shards."""
        return InputChangedError(
            f"{self._folder}: the shards were replaced or removed after this reader opened them. Open the folder "
            f"again with gm.Shards to read the current shards."
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return Edition, (self._folder, self.checksum)


class ForeignEdition(Edition):
    """A folder without a manifest. Other programs give no sign when they replace files, so nothing is checked."""

    def check(self) -> None:
        """Do nothing: only the size of a file is checked, when it is mapped."""

    def __reduce__(self) -> tuple[Any, ...]:
        return ForeignEdition, (self._folder, self.checksum)


def _open_manifest(folder: Path) -> FileIO:
    # Unlike os.stat, opening makes a network file system ask its server. O_NONBLOCK avoids waiting for a pipe.
    def opener(name: str, flags: int) -> int:
        return os.open(name, flags | getattr(os, "O_NONBLOCK", 0))

    return open(folder / MANIFEST_FILE, "rb", buffering=0, opener=opener)


def _stamp(file: FileIO) -> _Stamp:
    status = os.fstat(file.fileno())
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _checksum(file: FileIO) -> str:
    """Return the checksum on the last line of the manifest; "" if it is missing, which matches no valid manifest."""
    status = os.fstat(file.fileno())
    if not stat.S_ISREG(status.st_mode):
        return ""
    file.seek(max(status.st_size - _TAIL_BYTES, 0))
    found = _CHECKSUM.search(file.read(_TAIL_BYTES))
    return found[1].decode() if found else ""
