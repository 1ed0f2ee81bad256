"""The fingerprint of an input: little is read, and usual changes are detected."""

import random

import pytest
import xxhash

from gristmill.shards.inputs import sample_input

KIB = 1024


def sample(data, read=None):
    def read_at(offset, size):
        if read is not None:
            read.append((offset, size))
        return data[offset : offset + size]

    return sample_input(read_at, len(data))


@pytest.mark.parametrize("size", [0, 1, 4095, 4096, 64 * KIB - 1, 64 * KIB])
def test_a_small_file_is_read_whole(size):
    data = random.Random(size).randbytes(size)
    assert sample(data) == f"{xxhash.xxh64(data).intdigest():016x}"


def test_a_large_file_is_read_in_16_stretches_the_first_and_last_among_them():
    data = random.Random(0).randbytes(64 * KIB + 1)
    read = []
    found = sample(data, read)
    assert [size for _, size in read] == [4096] * 16
    offsets = [offset for offset, _ in read]
    assert (offsets[0], offsets[-1]) == (0, len(data) - 4096)
    assert offsets == sorted(set(offsets))
    joined = b"".join(data[offset : offset + 4096] for offset in offsets)
    assert found == f"{xxhash.xxh64(joined).intdigest():016x}"


def test_a_terabyte_needs_no_more_reading():
    read = []

    def read_at(offset, size):
        read.append(size)
        return bytes(size)

    assert len(sample_input(read_at, 2**40)) == 16
    assert sum(read) == 64 * KIB


def test_a_change_at_either_end_and_a_shift_are_seen():
    data = random.Random(1).randbytes(300_000)
    changed = [b"x" + data, data + b"x", data[1:], data[:-1], b"x" + data[1:], data[:-1] + b"x"]
    assert len({sample(version) for version in [data, *changed]}) == 7
