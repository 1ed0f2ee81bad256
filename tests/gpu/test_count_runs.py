"""count on a GPU: progress, interruptions and errors, and several counters on the same GPUs."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
import weakref
from pathlib import Path

import numpy as np
import pytest
from counts import SMALL, Spans, add_texts, assert_same, assert_same_tables, count_on_cpu, count_on_gpu, make_counter
from emulator import EmulatedDriver

from gristmill.errors import DeviceMemoryError
from gristmill.gpu import counting, word_table
from gristmill.gpu.driver import all_active
from texts import STORY, random_story, random_text

TEXTS = [STORY, random_story(1, 300), random_text(2, 300), "", STORY[100:], "z" * 3000, "<s>" * 20]


@pytest.fixture(autouse=True)
def small_arena(monkeypatch):
    monkeypatch.setattr(word_table, "FIRST_ARENA_BYTES", 1 << 16)


@pytest.fixture
def ends_its_threads():
    """Fail if the test leaves a thread, of the core or of Python."""
    before = num_threads()
    yield
    deadline = time.monotonic() + 10
    # Linux lists a thread for a moment after it was joined.
    while num_threads() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert num_threads() <= before


def num_threads() -> int:
    tasks = Path("/proc/self/task")
    return len(list(tasks.iterdir())) if tasks.exists() else threading.active_count()


# Progress


@pytest.mark.parametrize("seconds", [0, 1000])
def test_progress_only_grows_and_ends_with_the_total(drivers, monkeypatch, seconds):
    monkeypatch.setattr(counting, "PROGRESS_SECONDS", seconds)
    calls = []
    spans = Spans.of(TEXTS)

    def add(counter):
        for _ in range(2):
            counter.add_spans(*spans)

    assert_same(drivers, add, on_progress=lambda *call: calls.append(call))
    total = sum(len(text.encode() if isinstance(text, str) else text) for text in TEXTS)
    assert {(stage, of) for stage, _, of in calls} == {("count", total)}
    done = [done for _, done, _ in calls]
    assert done.count(total) == 2
    first = done[: done.index(total) + 1]
    assert first == sorted(first) and done[len(first) :] == sorted(done[len(first) :])
    assert (len(done) > 20) == (seconds == 0)


def test_the_progress_of_no_bytes_ends_too(driver):
    calls = []
    assert_same([driver], [b"", b""], on_progress=lambda *call: calls.append(call))
    assert calls == [("count", 0, 0)]


# Errors


class StopError(Exception):
    pass


def test_an_error_of_the_progress_bar_ends_the_readers_and_the_counter(drivers, tmp_path, ends_its_threads):
    path = tmp_path / "text"
    path.write_text(STORY * 20)
    errors = []  # a kept error must not keep the readers

    def stop(*_):
        raise StopError

    with all_active(drivers):
        for add in (add_texts([STORY * 20]), lambda counter: counter.add_files([path])):
            counter = make_counter(drivers, on_progress=stop)
            with pytest.raises(StopError) as caught:
                add(counter)
            errors.append(caught.value)
            for use in (add, lambda counter: counter.finish()):
                with pytest.raises(ValueError, match="has finished or failed"):
                    use(counter)
    assert_same(drivers, TEXTS)


def test_ctrl_c_ends_the_count(drivers, ends_its_threads):
    timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT))
    with all_active(drivers):
        counter = make_counter(drivers)
        with pytest.raises(KeyboardInterrupt):
            try:
                timer.start()
                for _ in range(200):  # some seconds
                    add_texts(TEXTS)(counter)
            finally:
                timer.join()
        with pytest.raises(ValueError, match="has finished or failed"):
            counter.finish()
    assert_same(drivers, TEXTS)


def test_a_finished_counter_is_not_used_again(driver):
    with driver.active():
        counter = make_counter([driver])
        add_texts([STORY])(counter)
        counter.finish()
        for use in (add_texts([STORY]), lambda counter: counter.add_files([]), lambda counter: counter.finish()):
            with pytest.raises(ValueError, match="has finished or failed"):
                use(counter)
        assert counter.last_cut(b"a b c d") > 0


def test_arguments_that_are_wrong_are_errors(driver):
    with driver.active():
        with pytest.raises(ValueError, match="pattern"):
            make_counter([driver], pattern="gpt9")
        with pytest.raises(ValueError, match="special"):
            make_counter([driver], specials=[b""])
        for begins, ends in (([0], [9]), ([2], [1]), ([-1], [1]), ([0, 1], [1])):
            with pytest.raises((ValueError, IndexError)):
                make_counter([driver]).add_spans(b"text", np.array(begins), np.array(ends))


# Several counters


def test_two_counters_after_each_other_and_at_the_same_time(drivers):
    assert_same(drivers, TEXTS)
    assert_same(drivers, TEXTS[::-1], pattern="cl100k")
    with all_active(drivers):
        one, two = make_counter(drivers), make_counter(drivers)
        for text in TEXTS:
            add_texts([text])(one)
            add_texts([text, "other"])(two)
        found = [counter.finish()[0].to_host() for counter in (two, one)]
    for texts, table in zip(([text for pair in TEXTS for text in (pair, "other")], TEXTS), found, strict=True):
        assert_same_tables(table, count_on_cpu(add_texts(texts))[0])


def test_a_counter_that_is_dropped_leaves_nothing(drivers):
    with all_active(drivers):
        counter = make_counter(drivers)
        add_texts(TEXTS)(counter)
        reference = weakref.ref(counter)
        del counter
        assert reference() is None
        assert_same(drivers, TEXTS)


def test_counts_without_a_wait_too_few_are_those_of_a_slow_gpu(late_pair):
    # The first slots of a chunk go to one GPU, and the rest of the last one to another.
    for drivers in (late_pair[:1], late_pair):
        for slot_bytes in (100, 330):
            sizes = {"chunk_bytes": 1000, "slot_bytes": slot_bytes, "ring_bytes": 5 * slot_bytes}
            assert_same(drivers, TEXTS, specials=[b"<s>", b"river"], **sizes)
            assert_same(drivers, TEXTS, specials=[b"<s><s>"], **sizes)


def test_texts_that_a_slow_gpu_has_not_copied_when_the_next_ones_are_read(late_pair):
    def add(counter):
        for text in TEXTS:
            add_texts([text])(counter)

    assert_same(late_pair, add, chunk_bytes=10_000)


def test_a_slow_gpu_waits_before_a_chunk_is_enlarged_or_the_table_grows(late_pair):
    words = " ".join(map(str, range(5000)))
    assert_same(late_pair[:1], ["a" * 9000 + " b", "c" * 5000, words, words[::-1]])
    sizes = {"chunk_bytes": 1 << 14, "slot_bytes": 1 << 12, "ring_bytes": 1 << 14}
    assert_same(late_pair, [words, words[::-1], "a" * 9000], most_slots=1, **sizes)


def test_a_ring_with_room_for_one_slot(late_pair):
    assert_same(late_pair, TEXTS, chunk_bytes=900, slot_bytes=400, ring_bytes=400)


@pytest.mark.parametrize("num", [1, 2, 5])
def test_the_same_words_for_any_number_of_threads_and_gpus(emulated, num):
    assert_same([emulated] * num, TEXTS * 3, num_threads=num)


def test_words_that_several_gpus_have_found_are_counted_once(drivers):
    long = "internationalization"
    texts = [f"{long} a {long}s {i} " * 12 for i in range(12)]
    found = assert_same(drivers, texts, min_frequency=13)
    assert len(found) < 8
    assert_same(drivers, texts, **{**SMALL, "chunk_bytes": 100, "slot_bytes": 50})


def test_threads_that_share_a_gpu_wait_for_each_other(driver):
    active, most, errors = [], [], []
    expected, _ = count_on_cpu(add_texts(TEXTS))

    def count():
        try:
            with driver.active():
                active.append(1)
                most.append(len(active))
                counter = make_counter([driver])
                add_texts(TEXTS)(counter)
                table = counter.finish()[0].to_host()
                active.pop()
            assert_same_tables(table, expected)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors and max(most) == 1


class SlowlyActiveDriver(EmulatedDriver):
    @contextlib.contextmanager
    def active(self):
        with super().active():
            time.sleep(0.02)  # for the other thread to become active elsewhere
            yield


def test_threads_that_name_their_gpus_in_another_order_do_not_wait_forever(kernel_folder):
    pair = [SlowlyActiveDriver(kernel_folder), SlowlyActiveDriver(kernel_folder)]
    together = threading.Barrier(2)

    def use(drivers):
        together.wait()
        with all_active(drivers):
            pass

    threads = [threading.Thread(target=use, args=(drivers,), daemon=True) for drivers in (pair, pair[::-1])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert not any(thread.is_alive() for thread in threads)


def test_a_gpu_whose_memory_is_full_counts_the_next_texts(emulated):
    emulated.memory = 1 << 16
    with pytest.raises(DeviceMemoryError):
        count_on_gpu([emulated], add_texts(TEXTS))
    emulated.memory = 1 << 30
    assert_same([emulated], TEXTS)
