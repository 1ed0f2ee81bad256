"""Rank and world size under torchrun or Slurm, read only from the environment."""

import os
import signal

import pytest

from gristmill.errors import OptionError
from gristmill.lm.training.devices import _environment
from gristmill.lm.training.launchers import find_world, is_first_process, options_of_world, unused_tasks
from gristmill.lm.training.stopping import StopSignals
from lm.tiny_runs import train

TORCHRUN = {
    **{"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4", "GROUP_RANK": "1"},
    **{"GROUP_WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "none", "MASTER_ADDR": "a", "MASTER_PORT": "1"},
}
# A shell of salloc or sbatch, and an srun step in it.
SHELL = {"SLURM_JOB_ID": "4242", "SLURM_JOB_NAME": "train", "SLURM_NTASKS": "6", "SLURM_PROCID": "0"}
STEP = {
    **SHELL,
    **{"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "6", "SLURM_STEP_NUM_NODES": "2", "SLURM_PROCID": "3"},
    **{"SLURM_STEP_TASKS_PER_NODE": "3(x2)", "SLURM_LOCALID": "0", "SLURM_NODEID": "1"},
    **{"SLURM_STEP_NODELIST": "gpu[07-08]", "SLURM_JOB_NODELIST": "gpu[01-08]"},
}


@pytest.fixture
def no_launcher(monkeypatch):
    for name in [name for name in os.environ if name in TORCHRUN or name.startswith("SLURM_")]:
        monkeypatch.delenv(name)


def test_every_process_of_torchrun_knows_its_place_without_devices():
    world = find_world(TORCHRUN)
    assert (world.rank, world.size, world.devices, world.num_nodes) == (5, 8, 4, 2)
    assert str(world) == "8 processes started by torchrun"
    firsts = [rank for rank in range(8) if is_first_process({**TORCHRUN, "RANK": str(rank)})]
    assert firsts == [0]


def test_the_first_process_of_the_second_node_is_not_the_first():
    assert not is_first_process({**TORCHRUN, "RANK": "4", "LOCAL_RANK": "0"})
    assert not is_first_process(STEP)  # SLURM_LOCALID is 0
    assert not is_first_process({"NODE_RANK": "1"})


def test_every_task_of_srun_knows_its_place_without_ntasks_per_node():
    world = find_world(STEP)
    assert (world.rank, world.size, world.devices, world.num_nodes) == (3, 6, 3, 2)
    assert str(world) == "6 processes started by srun"


@pytest.mark.parametrize(
    "environment",
    [
        {},
        SHELL,
        {**STEP, "SLURM_JOB_NAME": "bash"},
        {**STEP, "SLURM_JOB_NAME": "interactive"},
        {**STEP, "SLURM_STEP_NUM_TASKS": "1", "SLURM_PROCID": "0"},
        {"RANK": "0", "WORLD_SIZE": "1"},
        {"LOCAL_RANK": "0", "WORLD_SIZE": "2", "NODE_RANK": "0"},  # set by the first process for those it starts
    ],
    ids=["plain", "salloc", "named_bash", "named_interactive", "one_task", "image_of_a_cloud", "own_processes"],
)
def test_a_process_without_a_launcher_is_the_first_and_may_start_others(environment):
    assert find_world(environment) is None
    assert is_first_process(environment)
    assert options_of_world({"devices": 4}, environment) == {}


def test_torchrun_inside_a_job_of_slurm_decides():
    assert find_world({**STEP, **TORCHRUN}).launcher == "torchrun"


def test_a_slurm_shell_gets_a_message_that_its_tasks_are_not_used():
    assert "6 tasks, but only one process runs. Put srun before the command" in unused_tasks(SHELL)
    assert unused_tasks(STEP) is None
    assert unused_tasks({}) is None


def test_devices_come_from_the_launcher():
    assert options_of_world({}, TORCHRUN) == {"devices": 4, "num_nodes": 2}
    assert options_of_world({"devices": 4, "num_nodes": 1}, TORCHRUN) == {"devices": 4, "num_nodes": 2}


@pytest.mark.parametrize("name, number, right", [("devices", 8, 4), ("num_nodes", 3, 2)])
def test_devices_that_contradict_the_launcher_are_refused(name, number, right):
    said = rf"{name}={number} does not fit the 8 processes started by torchrun \(2 x 4\)\. The launcher.*{name}={right}"
    with pytest.raises(OptionError, match=said):
        options_of_world({name: number}, TORCHRUN)


def test_devices_that_contradict_the_launcher_are_refused_before_the_folder_is_made(
    tiny_shards, tmp_path, monkeypatch, no_launcher
):
    for name, value in TORCHRUN.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(OptionError, match="devices=2 does not fit"):
        train(tiny_shards, tmp_path / "run", devices=2)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "environment, message",
    [
        ({**TORCHRUN, "WORLD_SIZE": "7", "LOCAL_WORLD_SIZE": "3"}, "torchrun has started 7 processes unevenly on 2"),
        ({**STEP, "SLURM_STEP_NUM_TASKS": "5", "SLURM_STEP_TASKS_PER_NODE": "3,2"}, "srun has started 5 processes"),
        ({"RANK": "1", "WORLD_SIZE": "4"}, "LOCAL_RANK and LOCAL_WORLD_SIZE are not. Start .* torchrun or srun"),
        ({**TORCHRUN, "RANK": "one"}, "variable RANK is 'one', not a number"),
        ({**STEP, "SLURM_PROCID": ""}, "variable SLURM_PROCID is not set"),
        ({"OMPI_COMM_WORLD_SIZE": "4"}, "mpirun has started 4 processes"),
    ],
)
def test_what_a_launcher_cannot_have_meant_is_refused(environment, message):
    with pytest.raises(OptionError, match=message):
        find_world(environment)


def test_tasks_of_srun_meet_on_the_first_node_of_their_step(monkeypatch, no_launcher):
    """Lightning's own class rejects the step, because SLURM_NTASKS_PER_NODE is not set."""
    from gristmill.lm.training.config import TrainConfig

    for name, value in STEP.items():
        monkeypatch.setenv(name, value)
    environment = _environment(TrainConfig(devices=3, num_nodes=2))
    assert environment.main_address == "gpu07"
    assert (environment.global_rank(), environment.world_size(), environment.node_rank()) == (3, 6, 1)
    port = environment.main_port
    monkeypatch.setenv("SLURM_STEP_ID", "1")
    assert environment.main_port != port
    monkeypatch.setenv("MASTER_ADDR", "other")
    assert environment.main_address == "other"


# Signals


def test_a_signal_that_a_launcher_sends_twice_is_one_request():
    with StopSignals(repeat_seconds=60.0) as signals:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        assert signals.received == signal.SIGINT
    with pytest.raises(KeyboardInterrupt), StopSignals() as signals:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)


def test_a_signal_after_another_process_asked_to_stop_is_not_the_second():
    with StopSignals() as signals:
        signals.agreed = signal.SIGINT
        signal.raise_signal(signal.SIGINT)
        assert signals.received == signal.SIGINT


def test_the_warning_of_slurm_before_the_end_of_its_time_stops_a_run(monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "4242")
    ended = []
    before = signal.signal(signal.SIGTERM, lambda *_: ended.append("as by SIGTERM"))
    try:
        with StopSignals() as signals:
            signal.raise_signal(signal.SIGUSR1)
        assert signals.received == signal.SIGUSR1
        signals.act()
    finally:
        signal.signal(signal.SIGTERM, before)
    assert ended == ["as by SIGTERM"]
    assert signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL


def test_a_program_with_a_use_of_its_own_for_sigusr1_keeps_it(monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "4242")
    seen = []
    before = signal.signal(signal.SIGUSR1, lambda *_: seen.append(1))
    try:
        with StopSignals() as signals:
            signal.raise_signal(signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert seen == [1] and signals.received is None
