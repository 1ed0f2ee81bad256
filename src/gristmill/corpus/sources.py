"""The bytes of an input as they lie on the disk, and whether they are still the same when all of them were read."""

from __future__ import annotations

import contextlib
import io
from typing import Any, Protocol

from gristmill.corpus import remote
from gristmill.corpus.inputs import SKIP_ADVICE, FileState, Input, changed, check_state
from gristmill.errors import TruncatedInputError


class Source(Protocol):
    """An open input."""

    position: int  # bytes read so far
    file: Any  # the open file itself

    def readinto(self, buffer: memoryview) -> int:
        """Read some bytes; 0 only at the end."""

    def seek(self, position: int) -> None:
        """Go on reading there."""

    def check_unchanged(self) -> None:
        """Raise InputChangedError if the input is no longer what was found, by its name or by what was read."""

    def close(self) -> None:
        """Let go of it."""


def open_source(input: Input, *, block_bytes: int = remote.BLOCK_BYTES) -> Source:
    """Open an input; InputChangedError if it is not the one that was found.

    block_bytes: how much of a remote input is asked for at a time, beyond what is read.
    """
    if input.failure is not None:
        raise input.failure
    return LocalSource(input) if input.is_local else RemoteSource(input, block_bytes)


class LocalSource:
    """A file of this machine. It is read, not mapped: a mapped file that is cut short ends the process (SIGBUS)."""

    def __init__(self, input: Input) -> None:
        self._name = input.name
        self.file: Any = io.FileIO(input.name)
        self.position = 0
        try:
            self._state = FileState.from_file(self.file.fileno())
            if self._state.size != input.num_bytes:
                raise changed(input.name, f"{input.num_bytes} bytes became {self._state.size}")
            if self._state.modified_ns != input.modified_ns:
                raise changed(input.name, "it was written to or replaced")
        except BaseException:
            self.file.close()
            raise

    def readinto(self, buffer: memoryview) -> int:
        num_bytes = self.file.readinto(buffer) or 0
        self.position += num_bytes
        return num_bytes

    def seek(self, position: int) -> None:
        self.file.seek(position)
        self.position = position

    def check_unchanged(self) -> None:
        check_state(self._name, self._state, FileState.from_file(self.file.fileno()))
        if self.position > self._state.size:
            raise changed(self._name, f"it goes on behind its {self._state.size} bytes")
        check_state(self._name, self._state, FileState.from_file(self._name))

    def close(self) -> None:
        self.file.close()


class RemoteSource:
    """A file of any file system that fsspec knows."""

    def __init__(self, input: Input, block_bytes: int = remote.BLOCK_BYTES) -> None:
        self._input = input
        self.position = 0
        self.file: Any = remote.RemoteFile(input.name, block_bytes)
        try:
            self._check(self.file.status(with_time=input.modified_ns is not None))
        except BaseException:
            self.close()
            raise

    def readinto(self, buffer: memoryview) -> int:
        num_bytes = int(self.file.readinto(buffer))
        self.position += num_bytes
        if num_bytes == 0 and len(buffer) and self.position < self._input.num_bytes:
            self.check_unchanged()
            raise TruncatedInputError(
                f"{self._input.shown}: the file system gave {self.position:,} of its {self._input.num_bytes:,} bytes. "
                f"Run again{SKIP_ADVICE}.",
                path=self._input.name,
                offset=self.position,
            )
        return num_bytes

    def seek(self, position: int) -> None:
        self.file.seek(position)
        self.position = position

    def check_unchanged(self) -> None:
        self._check(remote.status(self._input.name))

    def _check(self, status: remote.Status) -> None:
        if status.num_bytes != self._input.num_bytes:
            raise changed(self._input.name, f"{self._input.num_bytes} bytes became {status.num_bytes}")
        has_other_tag = None not in (self._input.etag, status.etag) and self._input.etag != status.etag
        if has_other_tag or self._input.modified_ns not in (None, status.modified_ns):
            raise changed(self._input.name, "it was written to or replaced")

    def close(self) -> None:
        with contextlib.suppress(OSError):  # all that was wanted of it has been read
            self.file.close()
