"""Runs in several real processes on a CPU, started in the ways that users start them.

start_world   one process per rank, with the environment that a launcher gives each of them
start_alone   one process, which starts the others itself
train_on_two  trainings by a process that starts a second one
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

# Each job trains in its own folder. {trouble} runs in every process, with access to `rank` and the names it may patch.
SCRIPT = """
import json, os, shutil, signal, sys, time
from pathlib import Path
sys.path[:0] = json.loads(sys.argv[1])
from gristmill.lm.training.run import Run
from lm.tiny_runs import train
rank = next((int(os.environ[name]) for name in ("RANK", "SLURM_PROCID", "LOCAL_RANK") if name in os.environ), 0)

def prepare(job, done):
    # The run as it was before its last checkpoint; the other ranks wait until it is there.
    if rank == 0:
        shutil.copytree(job["copy"], job["out"])
        shutil.rmtree(Path(job["out"], "checkpoints", "step-000008"))
        done.touch()
    while not done.exists():
        time.sleep(0.02)

{trouble}
if __name__ == "__main__":
    for job in json.loads(sys.argv[3]):
        if "copy" in job:
            prepare(job, Path(job["out"] + ".ready"))
        try:
            train(job["data"] or sys.argv[2], job["out"], **job["options"])
        except OSError as error:
            Path(f"{{job['out']}}.error-{{rank}}").write_text(f"{{type(error).__name__}}: {{error}}")
"""


def job(out, *, copy=None, data=None, **options):
    """One training run of a script, on `data` instead of the shared shards.

    copy: a finished run whose last checkpoint is dropped first.
    """
    return {"out": str(out), "data": data, "options": options} | ({} if copy is None else {"copy": str(copy)})


def command(folder: Path, shards, jobs, trouble="") -> list[str]:
    """Return the command that runs the jobs one after the other."""
    script = folder / "script.py"
    script.write_text(SCRIPT.format(trouble=textwrap.dedent(trouble)))
    return [str(script), json.dumps([path for path in sys.path if path]), str(shards), json.dumps(jobs)]


def environment(**added) -> dict[str, str]:
    """Return the environment of a process, without variables that a launcher of the tests may have set."""
    ours = ("RANK", "WORLD_SIZE", "LOCAL_", "NODE_RANK", "GROUP_", "MASTER_", "SLURM_", "TORCHELASTIC_")
    return {key: value for key, value in os.environ.items() if not key.startswith(ours)} | {
        "OMP_NUM_THREADS": "1",
        **{key: str(value) for key, value in added.items()},
    }


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def of_torchrun(rank, size, port):
    """Return the variables that torchrun sets for a process."""
    return environment(
        **{"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size, "GROUP_WORLD_SIZE": 1},
        **{"GROUP_RANK": 0, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "TORCHELASTIC_RUN_ID": "none"},
    )


def of_srun(rank, size, port):
    """Return the variables that srun sets for a task of a step on one node."""
    return environment(
        **{"SLURM_JOB_ID": 4242, "SLURM_JOB_NAME": "train", "SLURM_NTASKS": size, "SLURM_STEP_NUM_TASKS": size},
        **{"SLURM_STEP_ID": 0, "SLURM_STEP_NUM_NODES": 1, "SLURM_STEP_TASKS_PER_NODE": size, "SLURM_PROCID": rank},
        **{"SLURM_LOCALID": rank, "SLURM_NODEID": 0, "SLURM_STEP_NODELIST": "127.0.0.1", "MASTER_PORT": port},
    )


def start_world(arguments, size, launcher):
    """Start one process per rank, as `launcher` does."""
    port = free_port()
    return [
        subprocess.Popen(
            [sys.executable, *arguments],
            env=launcher(rank, size, port),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(size)
    ]


def start_alone(arguments):
    """Start one process, which starts the others itself if `devices` > 1."""
    return [
        subprocess.Popen(
            [sys.executable, *arguments],
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
    ]


def outcomes(processes, seconds=120):
    """Return (exit code, stdout, stderr) of each process. A process that hangs fails the test."""
    found = []
    try:
        for process in processes:
            output, errors = process.communicate(timeout=seconds)
            found.append((process.returncode, output, errors))
    except subprocess.TimeoutExpired:
        pytest.fail("the run hangs")
    finally:
        for process in processes:
            process.kill()
    return found


def finish(processes):
    """Do the same, and check that all processes succeed."""
    found = outcomes(processes)
    for code, _, errors in found:
        assert code == 0, errors[-3000:]
    return found


def train_on_two(folder, shards, runs, *, before="", **options):
    """Train in a new process, which starts the second one, as a command would. `before` runs in both first.

    runs: the strategy of each run by its folder. Starting processes takes longer than a tiny run.
    """
    jobs = [job(out, devices=2, strategy=strategy, **options) for out, strategy in runs.items()]
    finish(start_alone(command(folder, shards, jobs, before)))
