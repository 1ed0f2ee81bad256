"""One call in a separate process: its time, or the reason why there is no result; all its processes have ended."""

import os
import time
from dataclasses import asdict
from pathlib import Path

import pytest
from bench_tables import is_alive

from gristmill.bench.fresh_process import ChildFailed, NotInstalled, TimedOut, measure
from gristmill.bench.rivals import TrainJob


@pytest.fixture
def job(small_corpus):
    return asdict(TrainJob(str(small_corpus), 20, 1, 80))


def test_time_memory_and_facts_come_back_although_the_module_prints(fakes, job):
    sample = measure("fakes.chatty", job, num_threads=1)
    assert sample.facts["num_merges"] == 20
    assert 0 < sample.seconds < 60 and sample.cpu_seconds > 0
    assert sample.peak_rss_bytes >= sample.start_rss_bytes > 1e6


@pytest.mark.parametrize(
    ("module", "kind", "message"),
    [
        ("fakes.raising", ChildFailed, "crashed (exit status 1): second line"),
        ("fakes.segfault", ChildFailed, "crashed (killed by SIGSEGV)"),
        ("fakes.leaving", ChildFailed, "crashed: the process ended without a result"),
        ("fakes.needs_more", NotInstalled, "not installed: no_such_package_anywhere"),
    ],
)
def test_a_failure_is_one_line_with_the_reason(fakes, job, module, kind, message):
    with pytest.raises(kind) as caught:
        measure(module, job, num_threads=1)
    assert type(caught.value) is kind
    assert str(caught.value) == message


def test_a_hanging_process_is_ended_with_the_processes_it_started(fakes, job, tmp_path):
    pids = Path(os.environ["PID_FILE"])
    for seconds in (2, 8, 30):  # a busy machine may need longer for the imports
        with pytest.raises(TimedOut, match=f"timed out after {seconds} s"):
            measure("fakes.hanging", job, num_threads=1, timeout_seconds=seconds)
        if pids.exists():
            break
    deadline = time.monotonic() + 10
    while any(map(is_alive, pids.read_text().split())) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert [pid for pid in pids.read_text().split() if is_alive(pid)] == []
