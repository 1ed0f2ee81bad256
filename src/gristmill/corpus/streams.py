"""Streams of inputs: their bytes, decompressed on the fly in bounded memory."""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Any, Protocol

import numpy as np

from gristmill.corpus.inputs import SKIP_ADVICE, Input
from gristmill.corpus.packages import load_igzip, load_zstd
from gristmill.corpus.sources import open_source
from gristmill.errors import CorruptInputError, TruncatedInputError

CHUNK_BYTES = 256 << 10  # of compressed bytes at a time
SKIP_BYTES = 1 << 20


def open_stream(input: Input, end: int | None = None) -> Stream:
    """Return the decompressed bytes of an input as a stream. `end` limits an input that is not compressed."""
    if not input.compression:
        return PlainStream(input, end)
    assert end is None, "compressed inputs are read as a whole"
    return CompressedStream(input, DECODERS[input.compression]())


class Stream(ABC):
    """Bytes that are read once, from front to back. Errors have the path and the offset in the file on disk."""

    def __init__(self, input: Input) -> None:
        self.input = input
        self._source = open_source(input)

    @property
    def position(self) -> int:
        """Bytes read so far of the input as stored (compressed)."""
        return self._source.position

    def read(self, buffer: memoryview) -> int:
        """Fill `buffer`, and return the number of bytes: fewer only at the end, after a check that nothing changed."""
        num_bytes = 0
        while num_bytes < len(buffer):
            got = self._read_some(buffer[num_bytes:])
            if got == 0:
                self._source.check_unchanged()
                break
            num_bytes += got
        return num_bytes

    @abstractmethod
    def skip(self, num_bytes: int) -> None:
        """Skip this many bytes."""

    @abstractmethod
    def _read_some(self, buffer: memoryview) -> int:
        """Read at least one byte. Returns 0 only at the end."""

    def __enter__(self) -> Stream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._source.close()


class PlainStream(Stream):
    """An input that is not compressed."""

    def __init__(self, input: Input, end: int | None = None) -> None:
        super().__init__(input)
        self._end = end

    def _read_some(self, buffer: memoryview) -> int:
        if self._end is not None:
            buffer = buffer[: max(0, self._end - self._source.position)]
        return self._source.readinto(buffer) if len(buffer) else 0

    def skip(self, num_bytes: int) -> None:
        self._source.seek(self._source.position + num_bytes)


class CompressedStream(Stream):
    """An input that is decompressed while it is read: all its members (gzip) or frames (zstd)."""

    def __init__(self, input: Input, decoders: Decoders) -> None:
        super().__init__(input)
        self._decoders = decoders
        self._decoder: Decoder = decoders.new()
        self._has_begun = False  # the decoder has received bytes of the current member
        self._num_members = 0  # complete members
        self._chunk = memoryview(bytearray(CHUNK_BYTES))
        self._chunk_begin = 0  # position in the file of the last bytes passed to the decoder

    def skip(self, num_bytes: int) -> None:
        scratch = np.empty(min(num_bytes, SKIP_BYTES), np.uint8).data
        while num_bytes > 0:
            got = self.read(scratch[: min(num_bytes, len(scratch))])
            if got == 0:
                break
            num_bytes -= got

    def _read_some(self, buffer: memoryview) -> int:
        while True:
            data = b""
            if self._decoder.eof:
                data = self._next_member()
                if not data:
                    return 0
            elif self._decoder.needs_input:
                data = self._next_chunk()
                if not data and (self._has_begun or self._num_members == 0):
                    self._fail_truncated()
                if not data:
                    return 0
            unpacked = self._decode(data, len(buffer))
            if unpacked:
                buffer[: len(unpacked)] = unpacked
                return len(unpacked)

    def _next_chunk(self) -> bytes:
        self._chunk_begin = self.position
        num_bytes = self._source.readinto(self._chunk)
        return bytes(self._chunk[:num_bytes])

    def _next_member(self) -> bytes:
        """Return the first bytes of the next member, b"" at the end. Zeros after a gzip member are padding."""
        self._num_members += 1
        data = self._decoder.unused_data
        self._decoder = self._decoders.new()
        self._has_begun = False
        while True:
            data = data.lstrip(b"\0") if self._decoders.has_padding else data
            if data:
                return data
            data = self._next_chunk()
            if not data:
                return b""

    def _decode(self, data: bytes, max_bytes: int) -> bytes:
        self._has_begun = True
        try:
            return self._decoder.decompress(data, max_bytes)
        except self._decoders.errors as error:
            self._source.check_unchanged()
            if "not enough memory" in str(error):  # of zstd: the machine has none left, whatever the file is
                raise MemoryError(f"{self.input.shown}: out of memory while decompressing ({error}).") from error
            if "too much memory" in str(error):  # zstd --long beyond 128 MiB, or a damaged header
                raise CorruptInputError(
                    f"{self.input.shown}: compressed with a window of more than 128 MiB. Compress it without --long. "
                    f"If it was, its header is damaged: get the file again{SKIP_ADVICE}.",
                    path=self.input.name,
                    offset=self._chunk_begin,
                ) from error
            raise CorruptInputError(
                f"{self.input.shown}: damaged in bytes {self._chunk_begin:,} to {self.position:,} of the compressed "
                f"stream ({error}). Get the file again{SKIP_ADVICE}.",
                path=self.input.name,
                offset=self._chunk_begin,
            ) from error

    def _fail_truncated(self) -> None:
        self._source.check_unchanged()
        raise TruncatedInputError(
            f"{self.input.shown}: truncated at byte {self.position:,} of the compressed stream. "
            f"Get the file again{SKIP_ADVICE}.",
            path=self.input.name,
            offset=self.position,
        )


class Decoder(Protocol):
    """Decompresses one member. bz2, lzma, zstd and igzip have this interface."""

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int) -> bytes: ...


class Decoders(Protocol):
    """Creates a decoder for each member."""

    errors: tuple[type[Exception], ...]
    has_padding: bool

    def new(self) -> Decoder:
        """Return a decoder for the next member."""


class GzipDecoders:
    """gzip, by igzip if it is installed."""

    has_padding = True

    def __init__(self) -> None:
        self._igzip: Any = load_igzip()
        self.errors: tuple[type[Exception], ...] = (zlib.error, self._igzip.IsalError) if self._igzip else (zlib.error,)

    def new(self) -> Decoder:
        if self._igzip is None:
            return ZlibDecoder()
        decoder: Decoder = self._igzip.IgzipDecompressor(flag=self._igzip.DECOMP_GZIP)
        return decoder


class ZlibDecoder:
    """zlib, with the interface of the others."""

    def __init__(self) -> None:
        self._inner = zlib.decompressobj(wbits=31)  # a gzip header and trailer, both checked
        self.needs_input = True

    @property
    def eof(self) -> bool:
        return self._inner.eof

    @property
    def unused_data(self) -> bytes:
        return self._inner.unused_data

    def decompress(self, data: bytes, max_length: int) -> bytes:
        unpacked = self._inner.decompress(self._inner.unconsumed_tail + data, max_length)
        # If the output buffer is full, zlib may hold more output even though it has consumed all of its input.
        self.needs_input = len(unpacked) < max_length and not self._inner.unconsumed_tail
        return unpacked


class ZstdDecoders:
    """zstd, from the standard library or backports.zstd."""

    has_padding = False

    def __init__(self) -> None:
        self._zstd = load_zstd()
        self.errors: tuple[type[Exception], ...] = (self._zstd.ZstdError,)

    def new(self) -> Decoder:
        decoder: Decoder = self._zstd.ZstdDecompressor()
        return decoder


DECODERS: dict[str, type[GzipDecoders] | type[ZstdDecoders]] = {"gz": GzipDecoders, "zst": ZstdDecoders}
