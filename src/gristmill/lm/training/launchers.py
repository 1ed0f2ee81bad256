"""Launchers: the rank of this process when torchrun or Slurm's srun has started the run. Does not import torch.

A launcher sets environment variables for each process. If they are set, the launcher decides the number of processes,
and Gristmill starts none.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gristmill.errors import OptionError

__all__ = ["World", "find_world", "is_first_process", "num_restarts", "options_of_world", "unused_tasks"]

# Variables that torchrun sets. Other launchers, such as those of cloud providers, set the same ones.
OF_TORCHRUN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
# Slurm job names of interactive sessions, in which users start processes by hand. Lightning uses the same rule.
BY_HAND = ("bash", "interactive")


@dataclass(frozen=True, kw_only=True)
class World:
    """The processes that a launcher has started for a run, and the rank of this one."""

    launcher: str
    size: int
    rank: int
    devices: int
    """Processes per node: one per device."""
    num_nodes: int

    def __str__(self) -> str:
        return f"{self.size} process{'es' * (self.size > 1)} started by {self.launcher}"


def find_world(environment: Mapping[str, str] = os.environ) -> World | None:
    """Return the processes that the launcher has started, or None without a launcher.

    Raises `OptionError` if processes are divided unevenly among the nodes, or if the launcher is not supported.
    torchrun is checked first, because inside a Slurm job it may start the processes of each node.
    """
    world = _of_torchrun(environment) or _of_srun(environment)
    if world is None:
        _refuse_mpirun(environment)
        return None
    if world.devices * world.num_nodes != world.size:
        raise OptionError(
            f"{world.launcher} has started {world.size} processes unevenly on {world.num_nodes} nodes. Start the same "
            f"number on each: torchrun --nproc-per-node, or srun --ntasks-per-node."
        )
    return world


def is_first_process(environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether this is the process that writes files and shows progress on behalf of all."""
    world = find_world(environment)
    if world is not None:
        return world.rank == 0
    return all(_number(environment, name, "0") == 0 for name in ("LOCAL_RANK", "NODE_RANK"))


def options_of_world(requested: Mapping[str, Any], environment: Mapping[str, str] = os.environ) -> dict[str, int]:
    """Return `devices` and `num_nodes` of the launcher; {} without one. Raise `OptionError` if `requested` differs.

    1 is the default of both and counts as not passed.
    """
    world = find_world(environment)
    if world is None:
        return {}
    found = {"devices": world.devices, "num_nodes": world.num_nodes}
    for name, number in found.items():
        if requested.get(name, 1) not in (1, number):
            raise OptionError(
                f"{name}={requested[name]} does not fit the {world} ({world.num_nodes} x {world.devices}). "
                f"The launcher sets it: leave the option out, or pass {name}={number}."
            )
    return found


def num_restarts(environment: Mapping[str, str] = os.environ) -> int:
    """Return how often torchrun --max-restarts has restarted the processes; 0 without torchrun."""
    return _number(environment, "TORCHELASTIC_RESTART_COUNT", "0")


def _of_torchrun(environment: Mapping[str, str]) -> World | None:
    if "RANK" not in environment or "WORLD_SIZE" not in environment:
        return None
    size, rank = _number(environment, "WORLD_SIZE"), _number(environment, "RANK")
    missing = [name for name in OF_TORCHRUN if name not in environment]
    if missing and size == 1:
        return None
    if missing:
        raise OptionError(
            f"RANK and WORLD_SIZE={size} are set, but {' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} "
            f"not. Start the processes with torchrun or srun, which set all of them, or unset RANK and WORLD_SIZE."
        )
    devices = _number(environment, "LOCAL_WORLD_SIZE")
    num_nodes = _number(environment, "GROUP_WORLD_SIZE", str(max(1, size // max(1, devices))))
    launcher = "torchrun" if "TORCHELASTIC_RUN_ID" in environment else "a launcher that sets RANK"
    return World(launcher=launcher, size=size, rank=rank, devices=devices, num_nodes=num_nodes)


def _of_srun(environment: Mapping[str, str]) -> World | None:
    """Return the tasks of an srun step, or None.

    The shell of salloc or sbatch is not a step: SLURM_NTASKS is set, but it is a single process. A step with one task
    also returns None, so that `devices` can start further processes.
    """
    if "SLURM_STEP_NUM_TASKS" not in environment or environment.get("SLURM_JOB_NAME") in BY_HAND:
        return None
    size, num_nodes = _number(environment, "SLURM_STEP_NUM_TASKS"), _number(environment, "SLURM_STEP_NUM_NODES", "1")
    if size == 1:
        return None
    tasks = _tasks_per_node(environment.get("SLURM_STEP_TASKS_PER_NODE", "")) or [size // num_nodes]
    return World(
        launcher="srun",
        size=size,
        rank=_number(environment, "SLURM_PROCID"),
        devices=max(tasks),
        num_nodes=num_nodes,
    )


def _tasks_per_node(text: str) -> list[int]:
    """Return the distinct numbers of tasks on the nodes of a step.

    >>> _tasks_per_node("4(x2),3")
    [4, 3]
    """
    return [int(number) for number in re.findall(r"(?:^|,)(\d+)", text)]


def unused_tasks(environment: Mapping[str, str] = os.environ) -> str | None:
    """Return a message if this is the only process in a Slurm job with several tasks, otherwise None."""
    tasks = environment.get("SLURM_NTASKS", "1")
    if not tasks.isdecimal() or int(tasks) == 1 or find_world(environment) is not None:
        return None
    if "SLURM_STEP_NUM_TASKS" in environment or "LOCAL_RANK" in environment:
        return None
    return (
        f"the Slurm job has {tasks} tasks, but only one process runs. Put srun before the command to use all of them."
    )


def _refuse_mpirun(environment: Mapping[str, str]) -> None:
    size = environment.get("OMPI_COMM_WORLD_SIZE", "1")
    if size != "1":
        raise OptionError(
            f"mpirun has started {size} processes, but Gristmill does not support mpirun. Start them with torchrun or "
            f"srun."
        )


def _number(environment: Mapping[str, str], name: str, default: str | None = None) -> int:
    value = environment.get(name) or default
    if value is None or not value.isdecimal():
        found = f"is {value!r}, not a number" if value is not None else "is not set"
        raise OptionError(
            f"environment variable {name} {found}. Start the processes with torchrun or srun, which set it."
        )
    return int(value)
