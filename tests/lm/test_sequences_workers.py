"""Workers: the same batches for any number of workers, no orphans, and errors that reach the run."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch

import gristmill as gm
from gristmill.arguments import usable_cores
from gristmill.lm.data.sequences import ShardSequences
from gristmill.lm.data.sequences.workers import Worker, arrays_in, new_slots
from lm.sequence_sources import Numbered, dataset, random_lengths, same
from scripts import run_script

torch.set_num_threads(1)
pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")

STEPS = [*range(25), 3, 4, 99, 100, 0]


@pytest.mark.parametrize("kind", ["tokens", "vectors"])
@pytest.mark.parametrize("num_workers", [1, 2])
def test_batches_are_the_same_for_any_number_of_workers_and_in_any_order(num_workers, kind):
    source = Numbered(random_lengths(100), kind)
    with dataset(source) as alone, dataset(source, num_workers=num_workers) as data:
        assert all(same(data.batch(step), alone.batch(step)) for step in STEPS)
        for step in range(5):
            for rank in (1, 0):
                assert same(data.batch(step, rank=rank, world_size=2), alone.batch(step, rank=rank, world_size=2))


def test_workers_read_shards_while_validation_runs(tiny_shards):
    source = ShardSequences(gm.Shards(tiny_shards), max_sequence_length=40)
    with dataset(source) as alone, dataset(source, num_workers=2, prefetch_factor=3, pin_memory=False) as data:
        for step in range(10):
            assert same(data.batch(step), alone.batch(step))
            assert all(map(same, data.validation_batches(2), alone.validation_batches(2)))


def test_the_generator_of_the_model_is_not_touched():
    torch.manual_seed(5)
    before = torch.get_rng_state()
    with dataset(num_workers=1) as data:
        data.batch(0)
        data.batch(7)
    assert torch.equal(torch.get_rng_state(), before)


def test_more_workers_than_cores_are_reduced_and_reported():
    cores = usable_cores()
    data = dataset(num_workers=cores + 3)
    assert data.num_workers == cores
    assert data.messages == [f"num_workers={cores + 3} is more than the {cores} cores: using {cores} workers."]
    assert dataset(num_workers=cores).messages == []


def children():
    """The worker processes of this one."""
    task = Path(f"/proc/self/task/{threading.get_native_id()}/children")
    return [int(number) for number in task.read_text().split()]


linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")


def is_running(number):
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def wait_until(condition, seconds):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)


@linux
def test_workers_live_on_from_call_to_call_and_close_ends_them():
    before = set(children())
    data = dataset(num_workers=1)
    assert set(children()) == before  # none before the first batch
    data.batch(0)
    workers = set(children()) - before
    assert len(workers) == 1
    for step in (1, 2, 50, 3):
        data.batch(step)
    assert set(children()) - before == workers
    data.close()
    data.close()
    assert not any(map(is_running, workers))
    assert same(data.batch(0), dataset().batch(0))
    data.close()


@pytest.fixture
def default_sigchld():
    """The default handler of SIGCHLD: a DataLoader of torch in another test leaves torch's handler, which raises."""
    handler = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGCHLD, handler)


@linux
def test_a_worker_that_dies_is_an_error_that_names_the_remedies_and_nothing_else_is_disturbed(default_sigchld):
    handler = signal.getsignal(signal.SIGCHLD)
    before = set(children())
    data = dataset(num_workers=1)
    data.batch(0)
    assert signal.getsignal(signal.SIGCHLD) == handler
    (worker,) = set(children()) - before
    os.kill(worker, signal.SIGKILL)
    wait_until(lambda: not is_running(worker), 10)
    time.sleep(0.2)  # no error is raised here
    with pytest.raises(gm.TrainingError, match=r"a data worker died.*/dev/shm.*--shm-size.*num_workers=0"):
        for step in range(1, 20):
            data.batch(step)
    assert same(data.batch(5), dataset().batch(5))  # new workers are started
    data.close()


class Broken(Numbered):
    def read(self, index):
        raise gm.ShardsFormatError("shard 7 has another size")


@pytest.mark.parametrize("num_workers", [0, 1])
def test_an_error_of_reading_is_raised_as_it_is(num_workers):
    data = dataset(Broken(random_lengths(20)), num_workers=num_workers)
    for _ in range(2):
        with pytest.raises(gm.ShardsFormatError, match=r"^shard 7 has another size$"):
            data.batch(0)
    data.close()


class Unusual(Exception):
    def __init__(self, place, reason):
        super().__init__(f"{place}: {reason}")

    def __reduce__(self):
        raise TypeError("cannot be pickled")


class Odd(Numbered):
    def read(self, index):
        raise Unusual("shard 7", "damaged")


def test_an_error_that_cannot_be_sent_is_described():
    with dataset(Odd(random_lengths(20)), num_workers=1) as data, pytest.raises(RuntimeError, match="Unusual: shard 7"):
        data.batch(0)


class Event:
    """A stand-in for a CUDA event, which the device has passed if `is_passed`."""

    def __init__(self):
        self.is_passed = self.was_awaited = False

    def query(self):
        return self.is_passed

    def synchronize(self):
        self.was_awaited |= not self.is_passed


def test_a_slot_is_used_again_only_when_its_batch_has_been_copied():
    def fill(arrays, sequences_B, width):
        arrays[0][:] = sequences_B[:, None]

    worker = Worker(new_slots(3 * 64).view(3, 64), fill, None)
    events = [Event() for _ in range(3)]
    for number, event in enumerate(events):
        worker.ask(np.array([number, number]), 4)
        slot = worker.answer()
        assert slot == number and arrays_in(worker.slots[slot], 2, 4, None)[0].tolist() == [[number] * 4] * 2
        worker.give_back(slot, event)
    worker.ask(np.array([7, 7]), 4)  # no slot is free: it waits for the first copy
    assert (worker.answer(), [event.was_awaited for event in events]) == (0, [True, False, False])
    events[1].is_passed = events[2].is_passed = True
    worker.ask(np.array([8, 8]), 4)
    assert (worker.answer(), [event.was_awaited for event in events]) == (1, [True, False, False])
    worker.stop()


class Nosy(Numbered):
    """Sequences that encode whether the worker ignores Ctrl-C and has not initialized CUDA."""

    def read(self, index):
        quiet = signal.getsignal(signal.SIGINT) == signal.SIG_IGN
        return np.array([os.getpid() % 60_000, quiet, torch.cuda.is_initialized()])


def test_workers_leave_ctrl_c_to_the_run_and_cuda_alone():
    with dataset(Nosy([3] * 9), num_workers=1) as data:
        process, quiet, cuda = data.batch(0).inputs_BT[0][:3].tolist()
    assert process != os.getpid() % 60_000 and quiet and not cuda


RUN = """
import sys, time
import gristmill as gm
from gristmill.lm.data.sequences import SequenceDataset, ShardSequences
def main():
    import multiprocessing
    multiprocessing.set_start_method(sys.argv[2])
    source = ShardSequences(gm.Shards(sys.argv[1]), max_sequence_length=40)
    options = dict(batch_size=3, seed=1, use_dynamic_padding=True, num_workers=2)
    data = SequenceDataset(source, max_sequence_length=40, **options)
    print([data.batch(step).inputs_BT.tolist() for step in (0, 1, 2, 9)], flush=True)
    if sys.argv[3] == "stay":
        for step in range(10**9):
            data.batch(step)
            time.sleep(0.01)
if __name__ == "__main__":
    main()
"""


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_every_way_to_start_processes_gives_the_same_batches_and_a_program_may_forget_to_close(
    tiny_shards, tmp_path, method
):
    (tmp_path / "run.py").write_text(RUN)
    arguments = [sys.executable, tmp_path / "run.py", tiny_shards, method, "end"]
    answer = subprocess.run(arguments, capture_output=True, text=True, timeout=120)
    assert (answer.returncode, answer.stderr) == (0, "")
    with dataset(ShardSequences(gm.Shards(tiny_shards), max_sequence_length=40)) as data:
        assert answer.stdout.strip() == str([data.batch(step).inputs_BT.tolist() for step in (0, 1, 2, 9)])


def session_of(process):
    try:
        return os.getsid(process) if is_running(process) else None
    except ProcessLookupError:  # it has just ended
        return None


@linux
@pytest.mark.parametrize(
    ("method", "number"),
    [
        ("fork", signal.SIGKILL),
        ("fork", signal.SIGINT),
        ("fork", signal.SIGTERM),
        ("spawn", signal.SIGKILL),
        ("forkserver", signal.SIGKILL),
    ],
)
def test_no_worker_outlives_the_run(tiny_shards, tmp_path, method, number):
    (tmp_path / "run.py").write_text(RUN)
    arguments = [sys.executable, tmp_path / "run.py", tiny_shards, method, "stay"]
    run = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    run.stdout.readline()  # the workers have started
    processes = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
    group = [process for process in processes if session_of(process) == run.pid]
    assert len(group) >= 1 + min(2, usable_cores())
    if number == signal.SIGINT:
        os.killpg(run.pid, number)  # as a terminal does
    else:
        run.send_signal(number)
    _, error = run.communicate(timeout=30)
    assert run.returncode != 0
    if number == signal.SIGINT:
        assert error.count("KeyboardInterrupt") == 1, error  # the run's own
    wait_until(lambda: not any(map(is_running, group)), 20)


@linux
def test_a_forked_child_has_workers_of_its_own(tiny_shards):
    answer = run_script(
        """
        import os, sys
        import gristmill as gm
        from gristmill.lm.data.sequences import SequenceDataset, ShardSequences
        source = ShardSequences(gm.Shards(sys.argv[1]), max_sequence_length=40)
        data = SequenceDataset(source, max_sequence_length=40, batch_size=3, seed=1, num_workers=1)
        data.batch(0)
        child = os.fork()
        found = [data.batch(step).inputs_BT.tolist() for step in range(1, 5)]
        data.close()
        print(found, flush=True)
        if not child:
            os._exit(0)
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        """,
        tiny_shards,
    )
    assert answer.returncode == 0, answer.stderr
    lines = answer.stdout.splitlines()
    assert len(lines) == 2 and lines[0] == lines[1]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("pin_memory", [True, False])
def test_batches_on_a_gpu_are_those_of_the_cpu(tiny_shards, num_workers, pin_memory):
    source = ShardSequences(gm.Shards(tiny_shards), max_sequence_length=40)
    options = {"num_workers": num_workers, "pin_memory": pin_memory}
    with dataset(source) as plain, dataset(source, device="cuda", **options) as data:
        for step in range(20):
            batch = data.batch(step)
            assert batch.inputs_BT.is_cuda and same(batch.to("cpu"), plain.batch(step))
        # Copies overlap with work of the GPU and with batches that the workers make meanwhile.
        busy = torch.randn(4096, 4096, device="cuda")
        found = []
        for step in range(60):
            busy @ busy
            found.append(data.batch(step))
        assert all(same(batch.to("cpu"), plain.batch(step)) for step, batch in enumerate(found))
        pairs = zip(data.validation_batches(), plain.validation_batches(), strict=True)
        assert all(same(batch.to("cpu"), other) for batch, other in pairs)
