"""Several processes on a CPU: the steps of one process with the summed batch, however they are started and ended.

Starting a process takes longer than a tiny run, so each world of processes trains several runs, once per module.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from gristmill.lm.training.run_lock import locked
from lm.launched_world import (
    command,
    environment,
    finish,
    free_port,
    job,
    of_srun,
    of_torchrun,
    outcomes,
    start_alone,
    start_world,
)
from lm.tiny_runs import assert_same_run, build_shards, records, tensors, train

OPTIONS = {"max_steps": 8, "log_interval": 1, "checkpoint_interval": 4, "val_check_interval": 4}
GPT = {**OPTIONS, "gradient_accumulation_steps": 2, "dropout": 0.2}
VAE = {
    **{"model": "vae", "context_length": 256, "max_sequence_length": 40, "latent_dim": 4, "use_dynamic_padding": True},
    **{"num_buckets": 2, "word_dropout": 0.2, "batch_norm_mu": 0.5, "update_frequency": 2, "window_size": 2},
    **{"plot_frequency": 0, "gradient_accumulation_steps": 2, **OPTIONS},
}

needs_two_cores = pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="one core, one device")


def losses(run, kind="train"):
    return [record["loss"] for record in records(run, kind)]


def with_resumed(folder, name, **options):
    """Return the jobs of a run and of its copy, resumed from the checkpoint in the middle."""
    return [
        job(folder / name, **options),
        job(folder / f"{name}-resumed", copy=folder / name, resume="auto", **options),
    ]


@pytest.fixture(scope="module")
def one_rank(tiny_shards, tmp_path_factory):
    """A run of one process, with 12 sequences per step."""
    run = tmp_path_factory.mktemp("one") / "run"
    train(tiny_shards, run, batch_size=12, **OPTIONS)
    return run


@pytest.fixture(scope="module")
def three_ranks(tiny_shards, tmp_path_factory):
    """Runs of three srun tasks, possibly on fewer cores. `held` is a folder in which another run trains."""
    folder = tmp_path_factory.mktemp("three")
    jobs = [run for name in ("ddp", "fsdp") for run in with_resumed(folder, name, strategy=name, **OPTIONS)]
    jobs += with_resumed(folder, "vae", strategy="ddp", **VAE)
    jobs.append(job(folder / "held", **OPTIONS))
    with locked(folder / "held", world="8 processes started by torchrun"):
        finish(start_world(command(folder, tiny_shards, jobs), 3, of_srun))
    return folder


@pytest.fixture(scope="module")
def mixture(tiny_shards, tmp_path_factory):
    """Two folders of shards with their weights."""
    other = build_shards(tmp_path_factory.mktemp("other") / "shards", seed=7, number=60)
    return [f"{tiny_shards}:0.7", f"{other}:0.3"]


@pytest.fixture(scope="module")
def two_ranks(tiny_shards, mixture, three_ranks, tmp_path_factory):
    """Runs of two processes, of which the first has started the second."""
    folder = tmp_path_factory.mktemp("two")
    both = {"devices": 2, "strategy": "ddp"}
    jobs = with_resumed(folder, "gpt", **GPT, **both)
    jobs += with_resumed(folder, "mixture", data=mixture, **OPTIONS, **both)
    jobs += with_resumed(folder, "vae", **VAE, **both | {"strategy": "fsdp"})
    for name in ("ddp", "fsdp"):
        fewer = {**OPTIONS, "devices": 2, "batch_size": 6, "strategy": name}
        jobs.append(job(folder / f"from-three-{name}", copy=three_ranks / name, resume="auto", **fewer))
    finish(start_alone(command(folder, tiny_shards, jobs)))
    return folder


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_three_ranks_take_the_steps_of_one_with_the_summed_batch(one_rank, three_ranks, strategy):
    assert losses(three_ranks / strategy) == pytest.approx(losses(one_rank), abs=2e-5)
    full = [[r["loss"] for r in records(run, "val") if r["full"]] for run in (one_rank, three_ranks / strategy)]
    assert full[0] == pytest.approx(full[1], abs=1e-4)
    one, three = tensors(one_rank, 8), tensors(three_ranks / strategy, 8)
    for name in one:
        torch.testing.assert_close(one[name], three[name], atol=1e-3, rtol=1e-2)


@needs_two_cores
def test_two_ranks_divide_a_mixture_as_one_with_the_summed_batch_takes_it(mixture, two_ranks, tmp_path):
    train(mixture, tmp_path / "one", batch_size=8, **OPTIONS)
    assert losses(two_ranks / "mixture") == pytest.approx(losses(tmp_path / "one"), abs=2e-5)
    whole = [
        [r["sources"] for r in records(run, "val") if r["full"]] for run in (tmp_path / "one", two_ranks / "mixture")
    ]
    assert list(whole[0][-1].values()) == pytest.approx(list(whole[1][-1].values()), abs=1e-4)


def posterior_steps(run):
    return [record["step"] for record in records(run, "posterior")]


@pytest.mark.parametrize("name", ["ddp", "fsdp", "vae"])
def test_three_ranks_resume_bit_exactly(three_ranks, name):
    """From its second step on, ddp packs gradients differently and adds those of three ranks in another order."""
    assert_same_run(three_ranks / name, three_ranks / f"{name}-resumed", 8)
    assert records(three_ranks / name, "posterior") == records(three_ranks / f"{name}-resumed", "posterior")
    assert posterior_steps(three_ranks / name) == ([2, 4, 6, 8] if name == "vae" else [])


@needs_two_cores
@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_a_run_of_three_ranks_resumes_on_two_up_to_rounding(one_rank, two_ranks, strategy):
    run = two_ranks / f"from-three-{strategy}"
    assert losses(run) == pytest.approx(losses(one_rank), abs=2e-5)
    (message,) = [r["message"] for r in records(run, "event") if "not bit-exact" in r["message"]]
    assert "devices was 3 and is now 2" in message


@needs_two_cores
@pytest.mark.parametrize("name", ["gpt", "vae", "mixture"])
def test_two_ranks_resume_bit_exactly_with_accumulation_and_dropout(two_ranks, name):
    assert_same_run(two_ranks / name, two_ranks / f"{name}-resumed", 8)
    assert records(two_ranks / name, "posterior") == records(two_ranks / f"{name}-resumed", "posterior")
    assert posterior_steps(two_ranks / name) == ([2, 4, 6, 8] if name == "vae" else [])


def test_every_rank_is_refused_a_folder_in_which_another_run_trains(three_ranks):
    refused = [Path(f"{three_ranks / 'held'}.error-{rank}").read_text() for rank in range(3)]
    assert len(set(refused)) == 1
    assert refused[0].startswith("BlockingIOError: ") and "(8 processes started by torchrun). Wait until" in refused[0]


# Ranks that receive a signal or exit


STOP = """
    end_step = Run.end_step
    def stop(run, *arguments):
        end_step(run, *arguments)
        if rank == {rank} and run.step == 6:
            os.kill(os.getpid(), signal.{name})
    Run.end_step = stop
"""


@pytest.mark.parametrize("moment", ["in_a_step", "in_a_validation"])
def test_sigterm_to_one_rank_stops_all_at_the_same_step_with_a_checkpoint(tiny_shards, tmp_path, moment):
    """A long log_interval does not delay it, and either all ranks or none interrupt a validation."""
    interval = 6 if moment == "in_a_validation" else 0
    options = {**OPTIONS, "max_steps": 100_000, "log_interval": 50_000, "val_check_interval": interval}
    options |= {"limit_val_batches": None, "batch_size": 1}
    arguments = command(tmp_path, tiny_shards, [job(tmp_path / "run", **options)], STOP.format(rank=1, name="SIGTERM"))
    found = outcomes(start_world(arguments, 2, of_torchrun))
    assert [code for code, _, _ in found] == [-signal.SIGTERM] * 2, found
    (message,) = [r["message"] for r in records(tmp_path / "run", "event") if "stopped" in r["message"]]
    step = int(message.split()[3].rstrip(";"))
    assert step in (6, 7, 8)
    assert (tmp_path / f"run/checkpoints/step-{step:06d}").is_dir()
    if moment == "in_a_validation":
        assert records(tmp_path / "run", "val") == []


def of_two_nodes(rank, size, port):
    """Return the variables that torchrun sets for the only process on a node."""
    return {**of_torchrun(rank, size, port), "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "GROUP_WORLD_SIZE": "2"} | {
        "GROUP_RANK": str(rank)
    }


def test_machines_that_do_not_share_the_run_folder_are_refused_before_the_first_step(tiny_shards, tmp_path):
    here = f"""
        from gristmill.lm.training import run_folder
        run_folder.SHARED_SECONDS = 0.5
        os.makedirs(f"{tmp_path}/disk-{{rank}}")
        os.chdir(f"{tmp_path}/disk-{{rank}}")
    """
    jobs = [job(tmp_path / "shared", **OPTIONS), job("own", **OPTIONS)]
    (first, _, errors), (second, _, _) = outcomes(
        start_world(command(tmp_path, tiny_shards, jobs, here), 2, of_two_nodes)
    )
    assert (first, second) == (1, 1)
    assert "own: on " in errors and "(rank 1) this is not the folder that the first process writes to" in errors
    assert (tmp_path / "shared/checkpoints/step-000008").is_dir()
    assert not (tmp_path / "disk-0/own").exists()


def torchrun(*arguments):
    """Run torchrun with two processes."""
    port = f"--master-port={free_port()}"
    return subprocess.Popen(
        [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", port, *arguments],
        env=environment(PYTHONPATH=":".join(path for path in sys.path if path)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@needs_two_cores
def test_a_run_of_torchrun_with_a_killed_rank_is_resumed_bit_exactly(tiny_shards, two_ranks, tmp_path):
    """The remaining rank names the killed one. The command line resumes the run and prints everything once."""
    run = tmp_path / "run"
    options = {**GPT, "strategy": "ddp"}
    arguments = command(tmp_path, tiny_shards, [job(run, **options)], STOP.format(rank=1, name="SIGKILL"))
    ((code, _, errors),) = outcomes([torchrun(*arguments)])
    assert code == 1
    assert "TrainingError: the process of rank 1 (of 0 to 1) has ended or does not answer" in errors, errors[-3000:]
    flags = ["-o", str(run), "--resume", "--progress", "none"]
    ((code, output, errors),) = outcomes([torchrun("-m", "gristmill", "train-model", str(tiny_shards), *flags)])
    assert code == 0, errors[-3000:]
    assert output.count("steps") == 1, output
    assert_same_run(two_ranks / "gpt", run, 8)
