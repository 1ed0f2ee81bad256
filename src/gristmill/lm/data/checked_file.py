"""CheckedFile: a file of known size that is read during training.

The file is read with pread() instead of mmap. If a mapped file is truncated, accessing a page after its new end raises
SIGBUS, which ends the process without a message; pread() returns fewer bytes, which becomes a proper error. In a large
corpus, where most pages are not mapped yet, pread() is also faster because it causes no page faults.
"""

from __future__ import annotations

import os
import weakref
from pathlib import Path

from gristmill.corpus.inputs import shown
from gristmill.errors import InputChangedError, ShardsFormatError
from gristmill.small_files import open_regular

__all__ = ["CheckedFile"]


class CheckedFile:
    """A file open for reading at any offset, by several threads. It is closed when it is garbage-collected."""

    def __init__(self, path: Path, num_bytes: int, *, remedy: str) -> None:
        """Open the file; `ShardsFormatError` if its size is not `num_bytes`. `remedy` ends the messages of errors."""
        self._path, self._num_bytes, self._remedy = path, num_bytes, remedy
        with open_regular(path, error=ShardsFormatError) as file:
            self._descriptor = os.dup(file.fileno())
        weakref.finalize(self, os.close, self._descriptor)
        found = os.fstat(self._descriptor).st_size
        if found != num_bytes:
            raise ShardsFormatError(
                f"{shown(path)}: the file has {found:,} bytes instead of {num_bytes:,}. {self._remedy}"
            )

    @property
    def descriptor(self) -> int:
        """The open file descriptor, valid while this object lives. Callers must check for short reads."""
        return self._descriptor

    def read(self, offset: int, count: int) -> bytes:
        """Return `count` bytes from `offset`; `InputChangedError` if the file has become too short."""
        try:
            data = os.pread(self._descriptor, count, offset)
            while len(data) < count:  # truncated, or more than the 2 GB that one call returns
                more = os.pread(self._descriptor, count - len(data), offset + len(data))
                if not more:
                    raise self._changed()
                data += more
        except InputChangedError:
            raise
        except OSError as error:  # from a failing disk or network, without a file name
            error.filename = str(self._path)
            raise
        return data

    def _changed(self) -> InputChangedError:
        now = os.fstat(self._descriptor).st_size
        return InputChangedError(
            f"{shown(self._path)}: the file had {self._num_bytes:,} bytes when it was opened and now has {now:,}. It "
            f"was truncated or is being written to. {self._remedy}"
        )
