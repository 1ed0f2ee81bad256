"""count on a GPU: tables that grow, that do not fit in its memory, and numbers that do not fit in 32 bits."""

from __future__ import annotations

import gc
import resource
import stat
import tempfile

import numpy as np
import pytest
from counts import add_texts, assert_same, assert_same_tables, count_on_cpu, count_on_gpu, make_counter, words_of
from emulator import EmulatedDriver

from gristmill import _core
from gristmill.errors import CountOverflowError, DeviceMemoryError
from gristmill.gpu import spilled, word_table
from gristmill.gpu.count_kernels import CountKernels
from gristmill.gpu.driver import all_active
from gristmill.gpu.merge_run import MergeTask
from gristmill.gpu.merging import learn_merges_on
from gristmill.gpu.spilled import SpilledTables
from gristmill.gpu.word_table import GrowingTable
from texts import STORY

LARGE = {"chunk_bytes": 1 << 14, "slot_bytes": 1 << 12, "ring_bytes": 1 << 14}
# More words than the least table of the emulator may have: it spills them with most_slots=1.
MANY = " ".join(map(str, range(6000, 0, -1))) + " " + " ".join(map(str, range(2000, 7000)))
MANY_LONG = " ".join(f"{i:020}" for i in range(2000)) + " " + " ".join(f"{i:020}" for i in range(1500, 2500))


@pytest.fixture(autouse=True)
def least_arena(monkeypatch):
    monkeypatch.setattr(word_table, "FIRST_ARENA_BYTES", 1)


@pytest.fixture
def folder(monkeypatch, tmp_path):
    """The temporary folder, which is empty after the test."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder
    gc.collect()
    assert list(folder.iterdir()) == []


@pytest.fixture
def two(emulated, kernel_folder):
    return [emulated, EmulatedDriver(kernel_folder)]


def table_on(driver) -> GrowingTable:
    return GrowingTable(CountKernels(driver, "gpt2"))


def table_of(words: dict[bytes, tuple[int, int]], source_bytes=0) -> _core.WordTable:
    """Return a table of words with their counts and first positions."""
    return _core.WordTable.from_counted(
        np.frombuffer(b"".join(words), np.uint8),
        np.cumsum([0, *map(len, words)], dtype=np.uint64),
        np.array([count for count, _ in words.values()], np.uint64),
        np.array([first for _, first in words.values()], np.uint64),
        source_bytes,
    )


# Growth


def test_the_table_grows_between_and_inside_of_chunks(emulated, monkeypatch):
    sizes = []
    grow = GrowingTable._grow
    monkeypatch.setattr(GrowingTable, "_grow", lambda self, size: (sizes.append(size), grow(self, size)))
    # Of 16384 slots, a launch may fill 7/8 less those of the tiles that are counted.
    one_chunk = {"chunk_bytes": 1 << 18, "slot_bytes": 1 << 16, "ring_bytes": 1 << 18}
    assert_same([emulated], [MANY, MANY[::-1]], **one_chunk)
    inside = len(sizes)
    assert_same([emulated], [MANY, MANY[::-1]], **LARGE)
    assert inside >= 1 and len(sizes) > inside


@pytest.mark.parametrize("sizes", [LARGE, {"chunk_bytes": 1 << 18, "slot_bytes": 1 << 16, "ring_bytes": 1 << 18}])
def test_the_arena_of_long_words_grows_although_the_table_does_not(emulated, sizes):
    assert_same([emulated], [MANY_LONG, MANY_LONG[100:]], **sizes)


def test_room_for_the_words_that_the_host_counted(emulated):
    long = " ".join(f"{i:x}" * 3 for i in range(3000))
    # "aa" overlaps itself, so the host counts every chunk.
    assert_same([emulated], ["aaaa " + MANY, "aaa " + long], specials=[b"aa"], **LARGE)


# On disk


@pytest.mark.parametrize("min_frequency", [1, 2, 4])
def test_words_that_do_not_fit_are_joined_on_disk(two, folder, min_frequency):
    for drivers in (two[:1], two):
        texts = [MANY, STORY, MANY[::-1], STORY * 3]
        options = {"most_slots": 1, "min_frequency": min_frequency, **LARGE}
        found = assert_same(drivers, texts, **options)
        assert len(found) > 100
        _, figures = count_on_gpu(drivers, add_texts(texts), **options)
        assert figures["num_spilled_runs"] > 1


def test_words_that_do_not_fit_in_the_middle_of_a_chunk(emulated, folder):
    one_chunk = {"chunk_bytes": 1 << 18, "slot_bytes": 1 << 16, "ring_bytes": 1 << 18}
    assert_same([emulated], [MANY, MANY[::-1], MANY], most_slots=1, **one_chunk)


def test_long_words_that_do_not_fit(emulated, folder, monkeypatch):
    monkeypatch.setattr(word_table, "MAX_ARENA_BYTES", 1)
    _, figures = count_on_gpu([emulated], add_texts([MANY_LONG]), **LARGE)
    assert figures["num_spilled_runs"] > 1
    assert_same([emulated], [MANY_LONG, MANY_LONG[100:], STORY], **LARGE)


def test_words_of_the_host_that_do_not_fit(two, folder):
    assert_same(two[:1], ["aaaa " + MANY, MANY, "aaa"], specials=[b"aa"], most_slots=1, **LARGE)
    one_chunk = {"chunk_bytes": 1 << 18, "slot_bytes": 1 << 16, "ring_bytes": 1 << 18}
    assert_same(two, ["aaaa " + MANY] * 2, specials=[b"aa"], most_slots=1, **one_chunk)


def test_tables_of_several_gpus_that_only_together_do_not_fit(two, folder):
    words = list(map(str, range(7000)))
    texts = [" ".join(words[:3500]), " ".join(words[3500:])]
    assert_same(two, texts, most_slots=1, **LARGE)
    _, figures = count_on_gpu(two, add_texts(texts), most_slots=1, **LARGE)
    assert figures["num_spilled_runs"] == 2  # none before the join


def test_more_parts_than_are_read_at_once(emulated, folder, monkeypatch):
    monkeypatch.setattr(spilled, "MAX_FAN_IN", 3)
    tables = SpilledTables()
    expected: dict[bytes, tuple[int, int]] = {}
    for i in range(20):
        words = {b"%d" % (k % 97): (k + i + 1, 1000 * i + 10 * (k % 97)) for k in range(i, i + 30)}
        tables.add(table_of(words))
        for word, (count, first) in words.items():
            before = expected.get(word, (0, first))
            expected[word] = (before[0] + count, min(before[1], first))
    assert len(list(folder.iterdir())) == 1
    table, num_words = tables.join(1, 20_000)
    assert words_of(table) == expected
    assert num_words == len(expected) and table.source_bytes == 20_000


def test_the_files_are_private_and_removed(emulated, folder):
    modes = []

    def look(*_):
        modes.extend(stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir())

    with emulated.active():
        counter = make_counter([emulated], most_slots=1, on_progress=look, **LARGE)
        add_texts([MANY])(counter)
        add_texts([MANY])(counter)
        table, _ = counter.finish()
        assert list(folder.iterdir()) == []
    assert modes and set(modes) == {0o600}
    assert len(table) == count_on_cpu(add_texts([MANY, MANY]))[1]["num_words"]


def test_a_counter_that_is_dropped_leaves_no_file(emulated, folder):
    with emulated.active():
        counter = make_counter([emulated], most_slots=1, **LARGE)
        add_texts([MANY, MANY])(counter)
        assert len(list(folder.iterdir())) == 1
        del counter
        assert list(folder.iterdir()) == []


def test_an_error_after_words_were_spilled_leaves_no_file(emulated, folder):
    def stop(_, done, total):
        assert done < total, "stop"

    with emulated.active():
        counter = make_counter([emulated], most_slots=1, on_progress=stop, **LARGE)
        with pytest.raises(AssertionError, match="stop") as caught:
            add_texts([MANY, MANY])(counter)
        assert list(folder.iterdir()) == []  # even while somebody looks at the error
        del caught


@pytest.mark.parametrize("limit", [1000, 150_000, 250_000])
def test_a_full_disk_is_an_error_that_leaves_no_file(emulated, folder, limit):
    with emulated.active():
        counter = make_counter([emulated], most_slots=1, **LARGE)
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
        try:
            with pytest.raises(OSError, match=str(folder)) as caught:
                for _ in range(4):
                    add_texts([MANY])(counter)
                counter.finish()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert list(folder.iterdir()) == []  # even while somebody looks at the error
        del caught
        with pytest.raises(ValueError, match="has finished or failed"):
            counter.finish()


def test_the_words_of_the_disk_are_those_of_the_merge_stage(emulated, folder):
    texts = [MANY, MANY[::-1]]
    expected = _core.learn_merges(count_on_cpu(add_texts(texts))[0], num_merges=50, tie_break="first-seen")
    with emulated.active():
        counter = make_counter([emulated], most_slots=1, **LARGE)
        add_texts(texts)(counter)
        table, _ = counter.finish()
        learned = learn_merges_on(emulated, table.words, MergeTask(50, "first-seen"), to_host=table.to_host)
    assert learned.merges.tolist() == expected.merges.tolist()


# Chosen words


def old_tail_and_head(x: int) -> bytes:
    """Return a word whose `tail ^ rotl(head, 29) * 0x9E3779B97F4A7C15` is 15 << 56 for all x below 2^56."""
    head = x * pow(0x9E3779B97F4A7C15, -1, 2**64) % 2**64
    head = (head >> 29 | head << 35) % 2**64
    return head.to_bytes(8, "little") + x.to_bytes(7, "little")


CHOSEN = {
    "one product with a known multiplier": [old_tail_and_head(x) for x in range(1, 2001)],
    # In the lower half of a product with any multiplier, the lower bits do not depend on the upper bits of a factor.
    "the upper bits of the tail": [b"12345678abcde" + bytes([i % 250, i // 250]) for i in range(2000)],
    "the upper bits of the head": [b"12345" + i.to_bytes(3, "big") + b"abcdefg" for i in range(2000)],
    "the upper bits of the head, rotated by 29": [
        b"123" + (i << 3).to_bytes(2, "little") + b"678abcdefg" for i in range(2000)
    ],
    "the upper bits of a short word": [b"abcde" + bytes([i % 250, i // 250]) for i in range(2000)],
    "the upper bits of a part of a long word": [b"a" * 13 + i.to_bytes(3, "big") + b"bcdefgh" for i in range(2000)],
    "the size": [b"a" + bytes(i) for i in range(2000)],
}


@pytest.mark.parametrize("words", CHOSEN.values(), ids=CHOSEN)
def test_chosen_words_do_not_lie_in_one_part_of_the_table(emulated, words):
    table = table_of({word: (1, i) for i, word in enumerate(words)})
    assert len(set(words)) == len(words)
    with emulated.active():
        counts = table_on(emulated)
        counts.add(table, table.firsts)
        is_free = counts._table[:, 0] == 0
    # An insertion probes at most the entries between two free ones, around the end of the table.
    most_probes = np.diff(np.flatnonzero(np.tile(is_free, 2))).max()
    assert np.sum(~is_free) == len(words) < len(is_free) / 4
    assert most_probes < 100


def test_the_keys_of_the_hash_are_new_for_each_counter():
    assert len({key for _ in range(5) for key in word_table.draw_hash_keys()}) == 10


# Large numbers


def test_counts_and_positions_of_more_than_32_bits(driver):
    words = {b" the": (2**40 + 3, 2**33), b"y" * 20: (2**62, 2**50 + 1), b"a": (1, 2**63)}
    more = {b"a": (2**33, 2**41), b" the": (2**32, 2**34), b"y" * 20: (1, 2**32 - 1), b"b": (2**32, 0)}
    with driver.active():
        counts = table_on(driver)
        for part in (words, more):
            counts.add(table_of(part), np.array([first for _, first in part.values()], np.uint64))
        table, num_words = counts.to_host(1, 2**63)
        frequent, _ = counts.to_host(2**33 + 2, 0)
    expected = {b"b": (2**32, 0), b"y" * 20: (2**62 + 1, 2**32 - 1), b" the": (2**40 + 2**32 + 3, 2**33)}
    assert words_of(table) == {**expected, b"a": (2**33 + 1, 2**41)}
    assert num_words == 4 and table.source_bytes == 2**63
    assert set(words_of(frequent)) == {b" the", b"y" * 20}


@pytest.mark.parametrize("start", [2**32 - 40, 2**32 * 5 - 700, 2**60])
def test_texts_after_4_gb_of_others(drivers, start):
    texts = [STORY, "aa" * 3, "new words " + "b" * 3000 + " c"]
    table, _ = count_on_cpu(add_texts(texts), specials=[b"words"])
    with all_active(drivers):
        counter = make_counter(drivers, specials=[b"words"])
        counter._position = start
        for gpu in counter._gpus:
            gpu.chunks.filling.restart(start)
        add_texts(texts)(counter)
        found, figures = counter.finish()
        found = found.to_host()
    assert found.firsts.tolist() == [first + start for first in table.firsts.tolist()]
    assert found.counts.tolist() == table.counts.tolist()
    assert figures["source_bytes"] == start + table.source_bytes


def test_a_sum_of_counts_that_overflows_is_an_error(folder):
    tables = SpilledTables()
    for _ in range(2):
        tables.add(table_of({b"a": (2**62, 0), b"b": (2**61, 3)}))
    with pytest.raises(CountOverflowError):
        tables.join(1, 0)


def test_words_of_millions_of_bytes(emulated):
    texts = ["a" * 1_000_000, b"\xff" * 300_000, "a" * 1_000_000, "b c"]
    with emulated.active():
        counts = table_on(emulated)
        expected, _ = count_on_cpu(add_texts(texts))
        counts.add(expected, expected.firsts)
        counts.add(expected, expected.firsts)
        found, _ = counts.to_host(1, expected.source_bytes)
    assert found.data.tobytes() == expected.data.tobytes()
    assert found.counts.tolist() == [2 * count for count in expected.counts.tolist()]


# Memory


@pytest.mark.parametrize("memory", [0, 1 << 16, 1 << 19, 900_000, 1 << 20, 1_300_000, 1_700_000, 2_500_000, 1 << 22])
def test_a_gpu_with_little_memory_has_an_error_and_no_wrong_table(emulated, memory, folder):
    expected, _ = count_on_cpu(add_texts([MANY, MANY_LONG]))
    emulated.memory = memory
    try:
        found, _ = count_on_gpu([emulated], add_texts([MANY, MANY_LONG]), **LARGE)
    except DeviceMemoryError as error:
        assert "memory of the GPU is full" in str(error)
    else:
        assert memory > 1 << 20
        assert_same_tables(found.to_host(), expected)


def test_the_merge_stage_has_the_memory_of_the_table(emulated):
    with emulated.active():
        counter = make_counter([emulated], **LARGE)
        add_texts([STORY])(counter)
        table, _ = counter.finish()
        del counter
        num_bytes = len(table.to_host().data)
        gc.collect()
        assert emulated.used < 10 * num_bytes + 16 * len(table) + (1 << 10)
