"""The bytes of an input as stored, and a check that it did not change while it was read."""

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
    file: Any  # the open file

    def readinto(self, buffer: memoryview) -> int:
        """Read some bytes. Returns 0 only at the end."""

    def seek(self, position: int) -> None:
        """Continue reading at this position."""

    def check_unchanged(self) -> None:
        """Raise InputChangedError if the open input, or the file with its name, has changed since it was found."""

    def close(self) -> None:
        """Close the file."""


def open_source(input: Input, *, block_bytes: int = remote.BLOCK_BYTES) -> Source:
    """Open an input. Raises InputChangedError if it has changed since it was found.

    block_bytes: size of the blocks in which a remote input is requested.
    """
    if input.failure is not None:
        raise input.failure
    return LocalSource(input) if input.is_local else RemoteSource(input, block_bytes)


class LocalSource:
    """A local file. It is not memory-mapped, because truncating a mapped file kills the process (SIGBUS)."""

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
            raise changed(self._name, f"it has more than {self._state.size} bytes")
        check_state(self._name, self._state, FileState.from_file(self._name))

    def close(self) -> None:
        self.file.close()


class RemoteSource:
    """A file of any file system that fsspec supports."""

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
                f"{self._input.shown}: the file system returned only {self.position:,} of "
                f"{self._input.num_bytes:,} bytes. Run again{SKIP_ADVICE}.",
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
        with contextlib.suppress(OSError):  # everything needed has been read
            self.file.close()
