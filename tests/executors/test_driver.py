"""The driver, with workers that follow a script, on a clock that only they advance."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

import gristmill as gm
from gristmill.executors import driver
from gristmill.executors.calls import Call, Outcome
from gristmill.executors.done import Done, read_done, write_done
from gristmill.executors.driver import run_calls, run_stages
from gristmill.executors.executor import Finished, Workers
from gristmill.executors.watch import Watch
from gristmill.executors.work_folder import DamagedPartError, LocalWorkFolder


@dataclass
class Clock:
    now: float = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(driver, "time", made)
    return made


DIED = "died"


@dataclass
class ScriptedWorkers(Workers):
    """Each attempt at a call takes some seconds and then ends as `script(number, attempt)` specifies."""

    clock: Clock
    script: Callable[[int, int], tuple[float, object]]
    workers: int = 2
    node: str = ""
    most_under_way: int = 0
    num_attempts: dict[str, int] = field(default_factory=dict)
    cancelled: list[int] = field(default_factory=list)
    _calls: dict[int, tuple[Call, float, object]] = field(default_factory=dict)  # by ticket: seconds left, the end

    @property
    def num_workers(self):
        return self.workers

    def submit(self, call):
        attempt = self.num_attempts[call.name] = self.num_attempts.get(call.name, 0) + 1
        ticket = sum(self.num_attempts.values())
        self._calls[ticket] = (call, *self.script(call.number, attempt))
        self.most_under_way = max(self.most_under_way, len(self._calls))
        return ticket

    def cancel(self, ticket):
        self.cancelled.append(self._calls.pop(ticket)[0].number)

    def wait(self, seconds):
        running = dict(list(self._calls.items())[: self.workers])
        step = min([seconds, *(left for _, left, _ in running.values())])
        self.clock.now += step
        finished = []
        for ticket, (call, left, end) in running.items():
            self._calls[ticket] = (call, left - step, end)
            if left <= step:
                del self._calls[ticket]
                finished.append(self._finished(ticket, call, end))
        return finished

    def _finished(self, ticket, call, end):
        if end == DIED:
            return Finished(ticket, error=gm.WorkerError("status -9."), worker_died=True, node="node-7")
        if isinstance(end, BaseException):
            return Finished(ticket, error=end, node=self.node)
        done = Done((), {"made": end})
        return Finished(ticket, Outcome(call, done, "here", "1", 1.0, is_reused=False))


def calls(number, num_bytes=100):
    return [Call("encode", "gristmill.shards.tasks:encode_part", "work", index, num_bytes) for index in range(number)]


def test_outcomes_are_in_the_order_of_the_calls_however_they_end(clock):
    workers = ScriptedWorkers(clock, lambda number, attempt: (10.0 - number, number), workers=3)
    outcomes = run_calls(workers, calls(8), Watch(None))
    assert [outcome.done.result["made"] for outcome in outcomes] == list(range(8))


def test_only_a_few_calls_for_each_worker_are_under_way(clock):
    workers = ScriptedWorkers(clock, lambda number, attempt: (1.0, number), workers=3)
    run_calls(workers, calls(100), Watch(None))
    assert workers.most_under_way == 3 * driver.CALLS_PER_WORKER


def test_a_stage_without_calls_is_done_at_once(clock):
    assert run_calls(ScriptedWorkers(clock, lambda number, attempt: (1.0, 0)), [], Watch(None)) == []


def test_a_call_whose_worker_died_runs_again_and_is_counted(clock):
    def script(number, attempt):
        return 1.0, DIED if number == 1 and attempt < 3 else number

    watch = Watch(None)
    outcomes = run_calls(ScriptedWorkers(clock, script), calls(3), watch)
    assert [outcome.done.result["made"] for outcome in outcomes] == [0, 1, 2]
    assert watch.num_retries == 2
    assert {task.number: task.attempts for task in watch.tasks} == {0: 1, 1: 3, 2: 1}


def test_a_call_that_always_loses_its_worker_is_an_error_with_task_number_of_attempts_and_node(clock):
    workers = ScriptedWorkers(clock, lambda number, attempt: (1.0, DIED if number == 1 else number))
    with pytest.raises(gm.WorkerError, match=r"encode-00001 lost its worker 4 times .*node-7.*status -9"):
        run_calls(workers, calls(3), Watch(None))
    assert workers.num_attempts["encode-00001"] == driver.MAX_ATTEMPTS


def test_a_task_whose_storage_fails_briefly_runs_again(clock):
    def script(number, attempt):
        return 1.0, gm.RemoteInputError("s3://bucket/a: 503.") if number == 1 and attempt < 4 else number

    watch = Watch(None)
    assert len(run_calls(ScriptedWorkers(clock, script), calls(3), watch)) == 3
    assert watch.num_retries == 3


def test_the_error_of_a_storage_that_always_fails_is_raised_as_it_is(clock):
    error = gm.RemoteInputError("s3://bucket/a: 403.")
    workers = ScriptedWorkers(clock, lambda number, attempt: (1.0, error if number == 1 else number))
    with pytest.raises(gm.RemoteInputError) as raised:
        run_calls(workers, calls(3), Watch(None))
    assert raised.value is error
    assert workers.num_attempts["encode-00001"] == driver.MAX_ATTEMPTS


def test_the_error_of_a_task_is_raised_as_it_is_and_ends_the_others(clock):
    error = gm.InputChangedError("a.txt: it changed.")
    workers = ScriptedWorkers(clock, lambda number, attempt: (1.0, error) if number == 1 else (50.0, number), workers=3)
    with pytest.raises(gm.InputChangedError) as raised:
        run_calls(workers, calls(6), Watch(None))
    assert raised.value is error
    assert error.__notes__ == ["In the task encode-00001."]
    assert workers.num_attempts["encode-00001"] == 1
    assert sorted(workers.cancelled) == [0, 2, 3, 4, 5]


@pytest.mark.parametrize(
    "error", [OSError(28, "No space left on device"), MemoryError(), gm.RemoteInputError("s3://a/b: timed out.")]
)
def test_what_one_machine_of_a_cluster_lacks_is_tried_again_elsewhere(clock, error):
    def script(number, attempt):
        return 1.0, error if number == 1 and attempt < 3 else number

    watch = Watch(None)
    outcomes = run_calls(ScriptedWorkers(clock, script, node="node-7"), calls(3), watch)
    assert [outcome.done.result["made"] for outcome in outcomes] == [0, 1, 2]
    assert watch.num_retries == 2


def test_what_all_machines_of_a_cluster_lack_is_an_error_with_the_node_and_the_folders(clock):
    full = OSError(28, "No space left on device")
    workers = ScriptedWorkers(clock, lambda number, attempt: (1.0, full), node="node-7")
    with pytest.raises(OSError, match=r"No space .*task encode-00000 on the node node-7\)\. The task writes to work"):
        run_calls(workers, calls(1), Watch(None))
    assert workers.num_attempts["encode-00000"] == driver.MAX_ATTEMPTS


def test_an_input_that_one_machine_of_a_cluster_does_not_see_is_an_error_with_the_node(clock):
    missing = FileNotFoundError(2, "No such file or directory", "/data/a.txt")
    workers = ScriptedWorkers(clock, lambda number, attempt: (1.0, missing), node="node-7")
    with pytest.raises(
        FileNotFoundError, match=r"node-7\). All machines must be able to access the inputs .*: '/data/a.txt'"
    ):
        run_calls(workers, calls(1), Watch(None))
    assert workers.num_attempts["encode-00000"] == 1


def test_an_input_that_is_another_one_on_a_machine_of_a_cluster_is_an_error_with_the_node(clock):
    changed = gm.InputChangedError("a.txt changed while it was read.")
    workers = ScriptedWorkers(clock, lambda number, attempt: (1.0, changed), node="node-7")
    with pytest.raises(gm.InputChangedError, match=r"a.txt changed .* on the node node-7\. All machines must"):
        run_calls(workers, calls(1), Watch(None))


def test_a_full_disk_of_the_only_machine_is_an_error_at_once(clock):
    full = OSError(28, "No space left on device", "parts/encode-00001.ids")
    workers = ScriptedWorkers(clock, lambda number, attempt: (1.0, full))
    with pytest.raises(OSError, match="No space") as raised:
        run_calls(workers, calls(1), Watch(None))
    assert raised.value is full
    assert workers.num_attempts["encode-00000"] == 1


def test_of_errors_at_the_same_time_that_of_the_first_part_is_raised(clock):
    workers = ScriptedWorkers(clock, lambda number, attempt: (1.0, ValueError(str(number))), workers=4)
    workers.wait = lambda seconds: ScriptedWorkers.wait(workers, seconds)[::-1]
    with pytest.raises(ValueError, match="0"):
        run_calls(workers, calls(4), Watch(None))


def test_calls_are_cancelled_when_the_one_who_watches_raises(clock):
    def stop(*_, **__):
        raise KeyboardInterrupt

    workers = ScriptedWorkers(clock, lambda number, attempt: (50.0, number))
    with pytest.raises(KeyboardInterrupt):
        run_calls(workers, calls(2), Watch(stop))
    assert sorted(workers.cancelled) == [0, 1]


def test_a_call_that_takes_far_longer_than_the_others_gets_a_copy_and_the_first_to_end_wins(clock):
    def script(number, attempt):
        return (1e9, "slow") if (number, attempt) == (2, 1) else (2.0, f"attempt {attempt}")

    watch = Watch(None)
    workers = ScriptedWorkers(clock, script)
    outcomes = run_calls(workers, calls(5), watch)
    assert outcomes[2].done.result == {"made": "attempt 2"}
    assert workers.cancelled == [2]  # the slow copy
    assert (watch.num_copies, watch.num_retries) == (1, 0)
    assert clock.now < 1100


def test_the_first_of_two_copies_may_end_first_too(clock):
    def script(number, attempt):
        return (30.0 if attempt == 1 else 1e9) if number == 2 else 2.0, f"attempt {attempt}"

    workers = ScriptedWorkers(clock, script)
    outcomes = run_calls(workers, calls(5), Watch(None))
    assert outcomes[2].done.result == {"made": "attempt 1"}
    assert workers.cancelled == [2]


def test_no_copy_is_made_while_other_calls_wait_or_no_worker_is_idle(clock):
    workers = ScriptedWorkers(clock, lambda number, attempt: (60.0 if number < 2 else 1.0, number), workers=2)
    run_calls(workers, calls(2), Watch(None))
    assert set(workers.num_attempts.values()) == {1}


def test_a_part_that_is_larger_than_the_others_may_take_as_much_longer(clock):
    large = [*calls(4), Call("encode", "gristmill.shards.tasks:encode_part", "work", 4, 100 * 50)]
    workers = ScriptedWorkers(clock, lambda number, attempt: (50.0 if number == 4 else 1.0, number))
    run_calls(workers, large, Watch(None))
    assert set(workers.num_attempts.values()) == {1}


def test_a_copy_whose_worker_dies_leaves_the_call_to_the_first_one(clock):
    def script(number, attempt):
        if number != 2:
            return 2.0, number
        return (40.0, "first") if attempt == 1 else (1.0, DIED)

    workers = ScriptedWorkers(clock, script)
    outcomes = run_calls(workers, calls(5), Watch(None))
    assert outcomes[2].done.result == {"made": "first"}


def stages(folder, calls_of):
    """Two stages; the second has one call."""

    def second(outcomes):
        assert [outcome.call.stage for outcome in outcomes] == ["encode"] * len(calls_of)
        return [Call("assemble", "gristmill.shards.tasks:assemble", str(folder.path), 0, 100)]

    return [lambda _: calls_of, second]


@pytest.mark.parametrize("times", [1, 3])
def test_a_task_whose_files_a_later_stage_finds_damaged_runs_again(clock, tmp_path, times):
    folder = LocalWorkFolder(tmp_path)
    for number in range(3):
        write_done(folder, f"encode-{number:05d}", Done())
    discarded = []

    class Damaging(ScriptedWorkers):
        def submit(self, call):
            if call.stage == "encode" and read_done(folder, call.name) is None:
                discarded.append(call.name)
                write_done(folder, call.name, Done())
            return super().submit(call)

        def _finished(self, ticket, call, end):
            if call.stage == "assemble" and len(discarded) < times:
                return Finished(ticket, error=DamagedPartError("checksum.", task="encode-00001"))
            return super()._finished(ticket, call, end)

    watch = Watch(None)
    workers = Damaging(clock, lambda number, attempt: (1.0, number))
    first, second = run_stages(workers, folder, stages(folder, calls(3)), watch)
    assert discarded == ["encode-00001"] * times
    assert (len(first), len(second), watch.num_retries) == (3, 1, times)
    assert len(watch.tasks) == 4


def test_a_task_whose_files_are_damaged_every_time_is_an_error(clock, tmp_path):
    class Damaging(ScriptedWorkers):
        def _finished(self, ticket, call, end):
            if call.stage == "assemble":
                return Finished(ticket, error=DamagedPartError("checksum.", task="encode-00001"))
            return super()._finished(ticket, call, end)

    workers = Damaging(clock, lambda number, attempt: (1.0, number))
    folder = LocalWorkFolder(tmp_path)
    with pytest.raises(DamagedPartError, match="checksum"):
        run_stages(workers, folder, stages(folder, calls(3)), Watch(None))
    assert workers.num_attempts["encode-00001"] == driver.MAX_ATTEMPTS
