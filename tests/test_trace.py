"""The trace of a run: what is recorded, on which row, and what happens to the file."""

from __future__ import annotations

import errno
import json
import os
import threading
import time
from pathlib import Path

import pytest

import gristmill as gm
from gristmill import _core, trace
from texts import STORY
from trace_checks import ReadTrace

TEXT = STORY * 200


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    for number in range(12):
        (folder / f"{number:02d}.jsonl").write_text(json.dumps({"text": STORY * 20}) + "\n")
    return folder


def train(**options):
    return gm.train_tokenizer([TEXT] * 8, vocab_size=400, progress=None, **options)


def test_training_has_a_row_per_thread_and_its_stages_are_those_of_the_profile(tmp_path):
    with gm.recording(tmp_path / "trace.json"):
        tok = train(num_threads=2)
    read = ReadTrace(tmp_path / "trace.json")
    assert read.threads() == {"main", "main · core 1"}
    assert sum(span["args"]["bytes"] for span in read.spans("count block")) == 8 * len(TEXT.encode())
    assert sum(span["args"]["merges"] for span in read.spans("merges")) == len(tok.merge_ids)
    for stage in tok.profile.stages:
        total = sum(span["dur"] for span in read.spans(stage.stage, "main")) / 1e6
        assert total == pytest.approx(stage.seconds, abs=0.5)  # a wrong unit would be off by a factor of 1,000
    stages = sum(span["dur"] for stage in tok.profile.stages for span in read.spans(stage.stage, "main"))
    assert stages / 1e6 <= tok.profile.seconds


def test_recording_changes_no_result(corpus, tmp_path):
    outputs = {}
    for name in ("plain", "recorded"):
        with gm.recording(tmp_path / "trace.json" if name == "recorded" else None):
            tok = gm.train_tokenizer(corpus, vocab_size=400, num_threads=2, progress=None)
            gm.encode_corpus(corpus, tok, out=tmp_path / name, num_threads=2, progress=None)
        outputs[name] = tok.merges, (tmp_path / name / "shard-00000.bin").read_bytes()
    assert outputs["plain"] == outputs["recorded"]


def test_encoding_a_corpus_has_rows_for_readers_encoders_and_the_writer(corpus, tmp_path):
    tok = train()
    with gm.recording(tmp_path / "trace.json"):
        gm.encode_corpus(corpus, tok, out=tmp_path / "shards", num_threads=2, progress=None)
    names = ReadTrace(tmp_path / "trace.json").names()
    assert {"read", "write", "sync"} <= names["main"]
    assert names["encode 0"] == {"find documents", "encode"}
    readers = {thread for thread in names if thread.startswith("read ")}
    # Twelve files have twelve reader threads, of which two run at a time. A thread may need a moment to end.
    assert readers and len(readers) < 12
    assert all(names[thread] == {"read batch"} for thread in readers)


def test_tasks_of_worker_processes_are_rows_of_their_own_process(corpus, tmp_path):
    with gm.recording(tmp_path / "trace.json"):
        tok = gm.train_tokenizer(corpus, vocab_size=300, executor=gm.Processes(num_workers=1), progress=None)
    read = ReadTrace(tmp_path / "trace.json")
    (worker,) = {process for process in read.processes.values() if process != "gristmill"}
    ran = {span["name"]: span for span in read.rows[worker, "tasks"]}
    expected = {f"{task.stage}-{task.number:05d}": task for task in tok.profile.tasks}
    assert ran.keys() == expected.keys()
    for name, task in expected.items():
        assert ran[name]["dur"] == pytest.approx(task.seconds * 1e6, abs=0.25)
        assert ran[name]["args"] == {"bytes": task.num_bytes}
    assert {span["pid"] for span in ran.values()} == {int(task.worker) for task in tok.profile.tasks}
    assert not any(name in names for names in read.names().values() for name in ran), "a task is on two rows"


def test_tasks_of_threads_are_spans_of_their_thread(corpus, tmp_path):
    executor = gm.Local(num_workers=1, work_folder=tmp_path / "work")
    with gm.recording(tmp_path / "trace.json"):
        gm.count_words(corpus, executor=executor, progress=None)
    read = ReadTrace(tmp_path / "trace.json")
    assert set(read.processes.values()) == {"gristmill"}
    assert "count-00000" in read.names()["task 0"]


def test_processes_that_match_a_slow_pattern_have_rows(tmp_path):
    with gm.recording(tmp_path / "trace.json"):
        gm.count_words([STORY], pattern=r"\w+|\W+", num_threads=1, progress=None)
    read = ReadTrace(tmp_path / "trace.json")
    assert read.spans("match pattern") and len(read.processes) == 2


def test_a_failing_block_writes_what_was_recorded_until_then(tmp_path):
    with pytest.raises(ZeroDivisionError), gm.recording(tmp_path / "trace.json"):
        train()
        with trace.span("fails"):
            _ = 1 / 0
    read = ReadTrace(tmp_path / "trace.json")
    assert read.spans("merge") and read.spans("fails")
    assert trace.current() is None


def test_an_interruption_in_the_core_keeps_the_spans_of_its_threads(tmp_path):
    def interrupt(progress):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), gm.recording(tmp_path / "trace.json"):
        gm.train_tokenizer([TEXT] * 8, vocab_size=400, num_threads=2, progress=interrupt)
    read = ReadTrace(tmp_path / "trace.json")
    assert read.spans("count", "main") and not read.spans("merge")


def test_an_earlier_trace_is_replaced_and_any_other_file_refused(tmp_path):
    path = tmp_path / "trace.json"
    for name in ("first", "second"):
        with gm.recording(path), trace.span(name):
            pass
    assert [span["name"] for span in ReadTrace(path).rows["gristmill", "main"]] == ["second"]
    path.write_text('{"merges": []}')
    with pytest.raises(FileExistsError, match="not a trace"), gm.recording(path):
        raise AssertionError("the work has begun")
    assert path.read_text() == '{"merges": []}'


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_in_the_place_of_the_trace_is_refused_without_waiting_for_its_writer(tmp_path):
    os.mkfifo(tmp_path / "trace.json")
    with pytest.raises(FileExistsError, match="not a trace of Gristmill"), gm.recording(tmp_path / "trace.json"):
        pytest.fail("the block ran")


def test_a_trace_that_cannot_be_written_is_an_error_before_the_work(tmp_path):
    with pytest.raises(FileNotFoundError, match="Create it first"), gm.recording(tmp_path / "none" / "trace.json"):
        raise AssertionError("the work has begun")
    with pytest.raises(IsADirectoryError), gm.recording(tmp_path):
        raise AssertionError("the work has begun")


def test_the_error_of_the_block_is_not_hidden_by_a_trace_that_cannot_be_written(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(trace, "publish", full)
    with pytest.raises(ValueError, match="mine") as raised, gm.recording(tmp_path / "trace.json"):
        raise ValueError("mine")
    assert "No space left" in "".join(raised.value.__notes__)
    with pytest.raises(OSError, match="No space left"), gm.recording(tmp_path / "trace.json"):
        pass
    assert trace.current() is None


def test_recordings_do_not_nest():
    with gm.recording() as outer:
        with pytest.raises(gm.OptionError, match="in progress"), gm.recording():
            raise AssertionError("two recordings")
        assert trace.current() is outer


def test_without_a_recording_nothing_is_recorded(monkeypatch):
    assert trace.span("a") is trace.span("b", bytes=1)
    monkeypatch.setattr(trace, "add_native", lambda *_: pytest.fail("the core has recorded"))
    assert train().profile.memory == ()


def test_a_call_of_the_core_that_began_before_the_recording_is_left_out():
    with gm.recording() as recorded:
        now = _core.steady_nanoseconds()
        trace.add_native(1, [("early", None, now - 10**12, now, 0), ("late", "bytes", now, now + 5, 7)], 0)
    assert [(span[0], span[3]) for row in recorded._rows for span in row.spans] == [("late", {"bytes": 7})]


def test_spans_that_do_not_fit_are_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(trace, "MAX_SPANS_PER_ROW", 5)
    with gm.recording(tmp_path / "trace.json") as recorded:
        for number in range(8):
            with trace.span("work", number=number):
                pass
    assert (recorded.num_spans, recorded.num_dropped) == (5, 3)
    read = ReadTrace(tmp_path / "trace.json")
    assert read.content["otherData"]["dropped_spans"] == 3
    assert [span["args"]["number"] for span in read.spans("work")] == [0, 1, 2, 3, 4]


def test_a_thread_takes_the_row_of_an_ended_thread_with_the_same_role():
    def work():
        with trace.span("work"):
            pass

    def start(name):
        thread = threading.Thread(target=work, name=name)
        thread.start()
        return thread

    with gm.recording() as recorded:
        for number in range(3):
            start(f"gristmill-read-{number}").join()
        start("other").join()
    rows = {row.name: len(row.spans) for row in recorded._rows}
    assert rows == {"read 0": 3, "other 0": 1}


def test_threads_that_run_at_the_same_time_have_rows_of_their_own():
    both = threading.Barrier(2)

    def work():
        with trace.span("work"):
            both.wait(30)

    with gm.recording() as recorded:
        threads = [threading.Thread(target=work, name=f"gristmill-read-{number}") for number in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert {row.name: len(row.spans) for row in recorded._rows} == {"read 0": 1, "read 1": 1}


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the system does not report resident memory")
def test_memory_is_sampled_inside_a_recording(tmp_path):
    with gm.recording(tmp_path / "trace.json"):
        profile = train().profile
        time.sleep(2.5 * trace.MEMORY_INTERVAL_SECONDS)
    seconds = [at for at, _ in profile.memory]
    assert seconds == sorted(seconds) and seconds[0] == 0 < seconds[-1]
    assert all(1e6 < size < 1e12 for _, size in profile.memory)
    assert len(ReadTrace(tmp_path / "trace.json").memory) >= 3


def test_a_forked_process_does_not_write_the_trace_of_its_parent(tmp_path):
    path = tmp_path / "trace.json"
    with gm.recording(path) as recorded:
        recorded.pid = -1  # as a forked process sees it
    assert not path.exists() and not recorded.is_saved
