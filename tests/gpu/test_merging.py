"""merge on a GPU: the merges and the counts of the core, on every kind of words, and with every reason to stop."""

from __future__ import annotations

import gc
import random
import re
import string
from contextlib import ExitStack

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gristmill import Words, _core, count_words
from gristmill.arguments import TIE_BREAKS
from gristmill.errors import CountOverflowError, DeviceError, DeviceMemoryError
from gristmill.gpu import merge_run, merging
from gristmill.gpu.checking import check_counts
from gristmill.gpu.merge_run import MergeRun, MergeTask, Outcome
from gristmill.gpu.merging import MOST_WORD_BYTES, learn_merges_on
from gristmill.gpu.words import DeviceWords, upload_words
from texts import STORY, random_story, random_text, words

TEXTS = [STORY, random_story(1, 800), "<s>" + STORY, random_text(2, 500)]


@pytest.fixture(autouse=True)
def check_every_launch(monkeypatch):
    """Count all pairs again after every launch of these tests."""
    monkeypatch.setenv(merging.CHECK, "1")


@pytest.fixture
def short_launches(monkeypatch):
    """End a launch after every few rounds."""
    monkeypatch.setattr(merging, "FIRST_ROUNDS", 3)
    monkeypatch.setattr(merging, "LEAST_SECONDS", 0)


@pytest.fixture
def only_gpu(monkeypatch):
    """Fail if the CPU learns anything."""

    def refuse(*_):
        raise AssertionError("the CPU has learned merges")

    monkeypatch.setattr(merging, "learn_on_cpu", refuse)


@pytest.fixture
def handed_over(monkeypatch):
    """The tasks that the CPU gets."""
    tasks = []
    learn = merging.learn_on_cpu

    def record(table, task, on_progress):
        tasks.append(task)
        return learn(table, task, on_progress)

    monkeypatch.setattr(merging, "learn_on_cpu", record)
    return tasks


def table_of(counts: dict[bytes, int]) -> _core.WordTable:
    data = np.frombuffer(b"".join(counts), np.uint8)
    offsets = np.cumsum([0, *map(len, counts)], dtype=np.uint64)
    weights = np.array(list(counts.values()), np.uint64)
    return _core.WordTable.from_arrays(data, offsets, weights, offsets[:-1].copy(), len(data))


def learn(driver, table, *, tie_break="greatest-bytes", words=None, **options):
    """Learn on the GPU, where the words already are if `words` is given."""
    with driver.active():
        words = upload_words(driver, table) if words is None else words
        on_progress, num_merges = options.pop("on_progress", None), options.pop("num_merges")
        task = MergeTask(num_merges, tie_break, num_threads=2, **options)
        return learn_merges_on(driver, words, task, on_progress=on_progress, to_host=lambda: table)


def assert_same(driver, table, **options):
    """Learn on both, and return what the GPU learned."""
    expected = _core.learn_merges(
        table, num_threads=2, **{name: value for name, value in options.items() if name not in ("words", "on_progress")}
    )
    learned = learn(driver, table, **options)
    assert learned.merges.tolist() == expected.merges.tolist()
    assert learned.counts.tolist() == expected.counts.tolist()
    assert learned.merges.dtype == expected.merges.dtype and learned.counts.dtype == expected.counts.dtype
    assert set(learned.stats) == set(expected.stats)
    assert learned.stats["num_symbols"] == expected.stats["num_symbols"]
    return learned


def random_words(seed: int, num: int, *, letters: str, longest: int, greatest: int) -> dict[bytes, int]:
    source = random.Random(seed)
    drawn = {
        "".join(source.choices(letters, k=source.randint(1, longest))).encode(): source.randint(1, greatest)
        for _ in range(num)
    }
    return dict(drawn)


@pytest.mark.parametrize("tie_break", TIE_BREAKS)
def test_merges_of_a_text_are_those_of_the_core_until_the_last_pair(driver, tie_break):
    table = count_words(TEXTS, special_tokens=["<s>"]).table
    assert_same(driver, table, num_merges=100_000, tie_break=tie_break)


@pytest.mark.parametrize("tie_break", TIE_BREAKS)
def test_merges_of_a_text_without_spaces_and_with_invalid_utf_8(driver, tie_break):
    table = count_words([random_text(9, 4000)], special_tokens=[], pattern="whitespace").table
    assert_same(driver, table, num_merges=250, tie_break=tie_break)


@pytest.mark.parametrize("tie_break", TIE_BREAKS)
@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(words=words, num_merges=st.integers(0, 60), max_token_bytes=st.integers(0, 6))
def test_merges_of_few_words_with_many_equal_counts(driver, only_gpu, tie_break, words, num_merges, max_token_bytes):
    assert_same(driver, table_of(words), num_merges=num_merges, tie_break=tie_break, max_token_bytes=max_token_bytes)


@pytest.mark.parametrize("tie_break", TIE_BREAKS)
@pytest.mark.parametrize("letters", ["ab", string.ascii_letters])
def test_launches_that_end_after_few_rounds_continue_where_they_were(driver, short_launches, tie_break, letters):
    table = table_of(random_words(4, 300, letters=letters, longest=12, greatest=1000))
    assert_same(driver, table, num_merges=200, tie_break=tie_break)


def test_a_pair_of_equal_symbols_is_merged_from_left_to_right(driver, only_gpu):
    for length in (2, 3, 4, 15, 16, 17, 31, 32, 33, 100, 257):
        table = table_of({b"a" * length: 3, b"xy": 1, b"baa": 2, b"aab" * 9: 1})
        assert_same(driver, table, num_merges=50)


def test_words_that_cross_the_window_of_a_half_warp(driver, only_gpu):
    source = random.Random(3)
    table = table_of({bytes(source.choices(b"ab", k=size)): 1 + size % 3 for size in range(1, 120)})
    assert_same(driver, table, num_merges=400)


@pytest.mark.parametrize("tie_break", TIE_BREAKS)
@pytest.mark.parametrize("counts", [{}, {b"a": 7}, {b"ab": 1}, {b"a": 1, b"b": 2, b"c": 3}])
def test_tables_with_hardly_a_pair(driver, only_gpu, tie_break, counts):
    learned = assert_same(driver, table_of(counts), num_merges=10, tie_break=tie_break)
    assert len(learned.merges) < 3


def test_no_merge_is_learned_if_none_is_wanted(driver, only_gpu):
    learned = assert_same(driver, table_of({b"abab": 3}), num_merges=0)
    assert learned.merges.shape == (0, 2)


@pytest.mark.parametrize("max_token_bytes", [1, 2, 3, 8, 9, 16])
def test_no_token_has_more_bytes_than_allowed(driver, only_gpu, max_token_bytes):
    table = count_words([STORY], special_tokens=[]).table
    assert_same(driver, table, num_merges=200, max_token_bytes=max_token_bytes)


@pytest.mark.parametrize("tie_break", TIE_BREAKS)
def test_given_merges_come_first(driver, short_launches, tie_break):
    table = count_words(TEXTS, special_tokens=["<s>"]).table
    other = count_words([random_story(5, 400)], special_tokens=[]).table
    merges = _core.learn_merges(other, num_merges=150, tie_break=tie_break).merges
    learned = assert_same(driver, table, num_merges=100, tie_break=tie_break, given=merges)
    assert len(learned.merges) == 100


def test_given_merges_that_repeat_and_that_do_not_occur(driver, only_gpu):
    merges = [(97, 98), (97, 98), (256, 256), (120, 121), (258, 97), (97, 97), (256, 257), (99, 99)]
    table = table_of({b"abababa": 5, b"aaaa": 2, b"ccc": 1, b"abcab": 4})
    for num in range(len(merges) + 1):
        assert_same(driver, table, num_merges=20, given=np.array(merges[:num], np.uint32).reshape(-1, 2))


def test_given_merges_that_the_core_refuses_are_refused(driver):
    table = table_of({b"ab": 1})
    for merges in ([(256, 97)], [(97, 98), (97, 300)]):
        given_merges = np.array(merges, np.uint32)
        with pytest.raises(Exception) as expected:
            _core.learn_merges(table, num_merges=5, given=given_merges)
        with pytest.raises(type(expected.value)) as raised:
            learn(driver, table, num_merges=5, given=given_merges)
        assert str(raised.value) == str(expected.value)


@pytest.mark.parametrize("tie_break", TIE_BREAKS)
def test_ids_of_32_bits_after_65534_ids(driver, only_gpu, tie_break):
    merges = [(left, right) for right in range(128, 640) for left in range(128)][:65_300]
    assert 256 + len(merges) > merge_run.MOST_NARROW_IDS
    source = random.Random(8)
    counts = {bytes(source.choices(range(100, 160), k=source.randint(1, 20))): source.randint(1, 9) for _ in range(60)}
    assert_same(driver, table_of(counts), num_merges=80, tie_break=tie_break, given=np.array(merges, np.uint32))


def test_symbols_of_32_bits_for_many_merges_that_are_not_there(driver, only_gpu):
    table = table_of({b"ab" * 30_000 + bytes([97 + i]): 1 for i in range(2)})
    assert table.offsets[-1] > merge_run.MOST_NARROW_IDS
    learned = assert_same(driver, table, num_merges=1_000_000)
    assert len(learned.merges) < 40


@pytest.mark.parametrize("tie_break", TIE_BREAKS)
def test_the_cpu_learns_where_more_pairs_tie_than_a_block_can_order(driver, handed_over, tie_break):
    frequent = {b"mill": 90, b"mills": 80, b"river": 70}
    tied = {bytes([left, right]): 5 for left in range(128, 168) for right in range(200, 240)}
    learned = assert_same(driver, table_of(frequent | tied), num_merges=1000, tie_break=tie_break)
    assert len(learned.merges) == 1000 and len(handed_over) == 1
    num_before = int(
        re.fullmatch(
            r"after (\d+) merges, more pairs share a count than a GPU can order, so the CPU learned all of them",
            learned.reason,
        )[1]
    )
    assert 0 < num_before < 20


def test_the_cpu_learns_after_given_merges_too(driver, handed_over):
    tied = {bytes([left, right]): 5 for left in range(128, 168) for right in range(200, 240)}
    merges = np.array([(109, 105), (108, 108)], np.uint32)
    assert_same(driver, table_of({b"mill": 90, b"mills": 80} | tied), num_merges=100, given=merges)
    (task,) = handed_over
    assert task.given.tolist() == merges.tolist()


def test_the_arrays_of_the_run_are_gone_when_the_cpu_gets_the_words(emulated, handed_over):
    tied = {bytes([left, right]): 5 for left in range(128, 168) for right in range(200, 240)}
    table = table_of(tied)
    used = []

    def to_host():
        gc.collect()
        used.append(emulated.used)
        return table

    with emulated.active():
        words = upload_words(emulated, table)
        before = emulated.used
        learn_merges_on(emulated, words, MergeTask(100, "smallest-ids"), to_host=to_host)
    assert used == [before] and len(handed_over) == 1


def test_the_table_of_pairs_grows(driver, only_gpu, short_launches, monkeypatch):
    monkeypatch.setattr(merge_run, "LEAST_TABLE", 64)
    sizes = []
    grow = MergeRun.grow_table

    def record(self):
        sizes.append(self.state["table_mask"] + 1)
        return grow(self)

    monkeypatch.setattr(MergeRun, "grow_table", record)
    source = random.Random(5)
    table = table_of({bytes(source.choices(b"abcd", k=1500)): count for count in (1, 2, 3)})
    for tie_break in TIE_BREAKS:
        sizes.clear()
        assert_same(driver, table, num_merges=400, tie_break=tie_break)
        assert len(sizes) > 2 and sizes[0] == 64


def test_the_cpu_learns_where_the_table_has_no_room_to_grow(driver, handed_over, monkeypatch):
    monkeypatch.setattr(merge_run, "LEAST_TABLE", 64)
    monkeypatch.setattr(MergeRun, "grow_table", lambda self: False)
    source = random.Random(6)
    assert_same(driver, table_of({bytes(source.choices(b"abcd", k=1500)): 1}), num_merges=200)
    assert len(handed_over) == 1


def test_no_larger_table_than_the_memory_has_room_for(emulated, handed_over, monkeypatch):
    monkeypatch.setattr(merge_run, "LEAST_TABLE", 64)
    advance = MergeRun.advance

    def limit_memory(self, most_rounds):
        emulated.memory = 1000
        return advance(self, most_rounds)

    monkeypatch.setattr(MergeRun, "advance", limit_memory)
    source = random.Random(6)
    table = table_of({bytes(source.choices(b"abcd", k=1500)): 1})
    assert_same(emulated, table, num_merges=200)
    assert len(handed_over) == 1


def test_the_bytes_of_the_tokens_grow(driver, only_gpu, short_launches, monkeypatch):
    monkeypatch.setattr(merge_run, "BYTES_PER_TOKEN", 1)
    grown = []
    grow = MergeRun.grow_bytes
    monkeypatch.setattr(MergeRun, "grow_bytes", lambda self: grown.append(self.state["bytes_capacity"]) or grow(self))
    table = table_of({b"abcdefghijklmnopqrstuvwxyz" * 8: 2, b"abc": 5, b"zyx" * 20: 1})
    assert_same(driver, table, num_merges=100)
    assert len(grown) > 1


def test_tokens_that_differ_only_after_their_first_eight_bytes(driver, only_gpu):
    counts = {}
    for last in b"klmnop":
        counts[b"abcdefgh" + bytes([last]) + b"1"] = counts[b"abcdefgh" + bytes([last]) + b"2"] = 10
    assert_same(driver, table_of(counts), num_merges=60)


def test_the_cpu_learns_where_the_bytes_of_the_tokens_have_no_room_to_grow(emulated, handed_over, monkeypatch):
    monkeypatch.setattr(merge_run, "BYTES_PER_TOKEN", 1)
    grow = MergeRun.grow_bytes

    def limit_memory(self):
        emulated.memory = 0
        return grow(self)

    monkeypatch.setattr(MergeRun, "grow_bytes", limit_memory)
    learned = assert_same(emulated, table_of({b"abcdefghijklmnop" * 9: 3}), num_merges=300)
    assert len(handed_over) == 1 and "no room for more pairs or tokens" in learned.reason


def test_a_word_of_the_greatest_length(driver, only_gpu):
    source = random.Random(7)
    counts = {bytes(source.choices(b"abc", k=size)): 1 for size in (MOST_WORD_BYTES, MOST_WORD_BYTES - 1, 5)}
    assert_same(driver, table_of(counts), num_merges=40)


def test_the_cpu_learns_from_words_that_are_too_long(driver, handed_over):
    table = table_of({b"ab" * (MOST_WORD_BYTES // 2) + b"c": 1, b"abc": 4})
    assert_same(driver, table, num_merges=10)
    assert len(handed_over) == 1


@pytest.mark.parametrize("tie_break", TIE_BREAKS)
def test_counts_near_2_to_the_63(driver, only_gpu, tie_break):
    most = 2**63 // 6 - 1
    assert_same(
        driver, table_of({b"abcab": most // 2, b"bca": most // 4, b"aaaa": most // 8}), num_merges=10,
        tie_break=tie_break,
    )  # fmt: skip


@pytest.mark.parametrize("count", [2**62, 2**63 - 10])
def test_the_cpu_learns_from_counts_that_may_overflow(driver, handed_over, count):
    table = table_of({b"ab": count, b"cd": 5})
    assert_same(driver, table, num_merges=10)
    assert len(handed_over) == 1


def test_counts_that_overflow_are_the_error_of_the_core(driver):
    table = table_of({b"abxab": 2**62})  # the core names any of several pairs that overflow
    with pytest.raises(CountOverflowError) as expected:
        _core.learn_merges(table, num_merges=10)
    with pytest.raises(CountOverflowError) as raised:
        learn(driver, table, num_merges=10)
    assert str(raised.value) == str(expected.value)


def test_too_little_memory_is_an_error_before_anything_is_allocated(driver, monkeypatch):
    table = table_of({b"abab": 3})
    with driver.active():
        words = upload_words(driver, table)
        monkeypatch.setattr(driver, "free_bytes", lambda: 1 << 20)
        made = []
        monkeypatch.setattr(merge_run.DeviceState, "__setitem__", lambda *_: made.append(1))
        with pytest.raises(DeviceMemoryError, match=r"needs [\d,]+ bytes of .*, and 1,048,576 are free\. Stop other"):
            learn(driver, table, num_merges=10, words=words)
        assert not made


def test_the_memory_that_is_needed_is_the_memory_that_is_used(emulated):
    table = count_words([STORY], special_tokens=[]).table
    words = upload_words(emulated, table)
    task = MergeTask(100, "smallest-ids", 0, np.empty((0, 2), np.uint32), 1)
    run = MergeRun(emulated, words, task)
    planned = run._plan(words)
    for name, array in run.arrays.items():
        num, kind = planned[name]
        assert (len(array), array.dtype) == (num, kind), name


@pytest.mark.parametrize("tie_break", TIE_BREAKS)
def test_words_in_the_order_of_a_hash_table(driver, only_gpu, tie_break):
    counts = random_words(11, 80, letters="abcdefg", longest=9, greatest=4)
    table = table_of(counts)
    shuffled = list(counts)
    random.Random(1).shuffle(shuffled)
    other = table_of({word: counts[word] for word in shuffled})
    with driver.active():
        uploaded = upload_words(driver, other)
        words = DeviceWords(
            **{name: getattr(uploaded, name) for name in DeviceWords.__slots__ if name != "is_in_order"},
            is_in_order=False,
        )
        assert_same(driver, table, num_merges=100, tie_break=tie_break, words=words)


def test_progress_starts_with_setup_and_ends_with_all_merges(driver, only_gpu):
    reports = []
    table = count_words([STORY], special_tokens=[]).table
    assert_same(driver, table, num_merges=50, on_progress=lambda *report: reports.append(report))
    assert reports[0][0] == "setup" and reports[0][1] == reports[0][2]
    assert reports[-1] == ("merge", 50, 50)


def test_an_error_of_the_progress_bar_ends_the_run(driver):
    table = count_words([STORY], special_tokens=[]).table

    def stop(stage, *_):
        if stage == "merge":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        learn(driver, table, num_merges=50, on_progress=stop)
    assert_same(driver, table, num_merges=50)


@pytest.mark.parametrize("tie_break", TIE_BREAKS)
def test_the_check_finds_a_wrong_count(driver, tie_break):
    table = count_words([STORY], special_tokens=[]).table
    with driver.active():
        task = MergeTask(100, tie_break, 0, np.empty((0, 2), np.uint32), 1)
        run = MergeRun(driver, upload_words(driver, table), task)
        check_counts(driver, run)
        for _ in range(3):
            assert run.advance(10) == Outcome.RUNNING
            check_counts(driver, run)
        entries = driver.to_host(run.arrays["table"])
        (present,) = np.nonzero(entries[1::2])
        entries[2 * present[5] + 1] += np.uint64(1)
        driver.upload(run.arrays["table"], entries)
        with pytest.raises(DeviceError, match=r"after \d+ merges, 2 counts of pairs differ"):
            check_counts(driver, run)


@pytest.mark.parametrize("field", ["num_entries", "num_live"])
def test_the_check_finds_a_wrong_number(driver, field):
    with driver.active():
        task = MergeTask(100, "greatest-bytes", 0, np.empty((0, 2), np.uint32), 1)
        run = MergeRun(driver, upload_words(driver, table_of({b"abcabc": 4, b"bc": 1})), task)
        run.state[field] += 1
        with pytest.raises(DeviceError, match=field):
            check_counts(driver, run)


def test_the_check_is_made_only_if_the_variable_asks_for_it(driver, monkeypatch):
    calls = []
    monkeypatch.setattr(merging, "check_counts", lambda *_: calls.append(1))
    table = table_of({b"abab": 3})
    for value, num in (("1", 1), ("0", 1), ("", 1)):
        monkeypatch.setenv(merging.CHECK, value)
        learn(driver, table, num_merges=1)
        assert len(calls) == num


def test_two_runs_at_once_on_one_gpu_wait_for_each_other(driver):
    table = count_words([STORY], special_tokens=[]).table
    with ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(driver.active())
        assert_same(driver, table, num_merges=20)


def test_words_from_counts_equal_words_from_the_text(driver):
    counted = count_words([STORY], special_tokens=[])
    assert_same(driver, Words.from_counts(dict(counted.items())).table, num_merges=60, tie_break="smallest-ids")
