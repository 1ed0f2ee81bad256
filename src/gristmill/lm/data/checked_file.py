"""CheckedFile: a file of known size that is read while a run trains.

It is read with pread(), not mapped. A page of a map that lies after the new end of a shortened file is SIGBUS, which
ends the process without a message; pread() returns fewer bytes, and that is an error with a name. On pages that are not
mapped yet, as in a large corpus, pread() is also faster: it takes no page fault.
"""

from __future__ import annotations

import os
import weakref
from pathlib import Path

from gristmill.corpus.inputs import shown
from gristmill.errors import InputChangedError, ShardsFormatError

__all__ = ["CheckedFile"]


class CheckedFile:
    """A file that is open for reading at any place, by several threads; it is closed when it is no longer used."""

    def __init__(self, path: Path, num_bytes: int, *, remedy: str) -> None:
        """Open the file; `ShardsFormatError` if it does not have `num_bytes`. `remedy` ends the message of errors."""
        self._path, self._num_bytes, self._remedy = path, num_bytes, remedy
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        weakref.finalize(self, os.close, self._descriptor)
        found = os.fstat(self._descriptor).st_size
        if found != num_bytes:
            raise ShardsFormatError(
                f"{shown(path)}: it has {found:,} bytes, and should have {num_bytes:,}. {self._remedy}"
            )

    @property
    def descriptor(self) -> int:
        """The open file, for as long as this object lives. Whoever reads from it checks that it got all bytes."""
        return self._descriptor

    def read(self, offset: int, count: int) -> bytes:
        """The `count` bytes from `offset` on; `InputChangedError` if the file has become too short for them."""
        try:
            data = os.pread(self._descriptor, count, offset)
            while len(data) < count:  # the file was cut, or this is more than the 2 GB that one call gives
                more = os.pread(self._descriptor, count - len(data), offset + len(data))
                if not more:
                    raise self._changed()
                data += more
        except InputChangedError:
            raise
        except OSError as error:  # of a failing disk or network, which does not name the file
            error.filename = str(self._path)
            raise
        return data

    def _changed(self) -> InputChangedError:
        now = os.fstat(self._descriptor).st_size
        return InputChangedError(
            f"{shown(self._path)}: it had {self._num_bytes:,} bytes when it was opened, and has {now:,} now: it was "
            f"cut short or is being written to. {self._remedy}"
        )
