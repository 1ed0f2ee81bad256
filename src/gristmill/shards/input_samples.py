"""A fingerprint of a file that reads little of it, however large the file is."""

from __future__ import annotations

from collections.abc import Callable

from gristmill import _core

NUM_SAMPLES = 16
SAMPLE_BYTES = 4096


def sample_input(read_at: Callable[[int, int], bytes], size: int) -> str:
    """The xxh64 of 16 stretches of 4 KiB, evenly spread, as 16 hexadecimal digits; of all bytes where there are fewer.

    read_at(offset, size) gives bytes of the file. The first and the last ones are among the stretches: a file to which
    something was added, and one whose bytes have moved, differ there.

    >>> len(sample_input(lambda offset, size: b"tale"[offset:offset + size], 4))
    16
    """
    if size <= NUM_SAMPLES * SAMPLE_BYTES:
        data = read_at(0, size)
    else:
        last = size - SAMPLE_BYTES
        data = b"".join(read_at(i * last // (NUM_SAMPLES - 1), SAMPLE_BYTES) for i in range(NUM_SAMPLES))
    return f"{_core.xxh64(data):016x}"
