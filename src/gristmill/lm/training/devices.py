"""Devices: Lightning Fabric on the devices of a run, with its processes started and torch configured."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import gc
import logging
import os
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from gristmill.errors import OptionError
from gristmill.lm.training.config import TrainConfig
from gristmill.lm.training.fabric import (
    ClusterEnvironment,
    Fabric,
    LightningEnvironment,
    ModelParallelStrategy,
    SLURMEnvironment,
    TorchElasticEnvironment,
)
from gristmill.lm.training.launchers import World, find_world, is_first_process
from gristmill.lm.training.precision import find_precision, precision_plugin
from gristmill.lm.training.processes import join_others, joining, one_error, start_others

__all__ = ["check_devices", "launch", "launched"]


@contextlib.contextmanager
def launched(config: TrainConfig) -> Iterator[tuple[Fabric, TrainConfig]]:
    """Call `launch`. If a process fails in the block, all fail with the same error; all leave the block together.

    Closes the process group at the end of the block, unless it existed before.
    """
    was_connected = _is_connected()
    try:
        with one_error():
            fabric, final_config = launch(config)
            yield fabric, final_config
            _leave_together(fabric)
    finally:
        if _is_connected() and not was_connected:
            torch.distributed.destroy_process_group()


def _is_connected() -> bool:
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def _leave_together(fabric: Fabric) -> None:
    """Wait for the other processes, after freeing objects that communicate and could wait for an exited process."""
    if fabric.world_size > 1:
        gc.collect()
        fabric.barrier()


def launch(config: TrainConfig) -> tuple[Fabric, TrainConfig]:
    """Return Fabric on the requested devices with its processes started, and the config with its precision set."""
    kind = check_devices(config)
    precision = find_precision(config.precision, device=kind, strategy=config.strategy, warns=is_first_process())
    config = dataclasses.replace(config, precision=precision)  # type: ignore[arg-type]
    _set_torch(config, kind)
    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="lightning_fabric.*")
        fabric = Fabric(
            accelerator=kind,
            devices=config.devices,
            num_nodes=config.num_nodes,
            strategy=_strategy(config),
            plugins=[precision_plugin(config.precision, kind), _environment(config)],
        )
        start_others(fabric.strategy)
        with joining():
            join_others(fabric.strategy)
            fabric.launch()
    return fabric, config


def check_devices(config: TrainConfig) -> str:
    """Return the requested kind of device; raise `OptionError` if this machine has fewer than `devices` of it."""
    there = {
        "cuda": torch.cuda.device_count() if torch.cuda.is_available() else 0,
        "mps": int(torch.backends.mps.is_available()),
        "cpu": os.cpu_count() or 1,
    }
    kind = next(name for name in there if there[name]) if config.device == "auto" else config.device
    if not there[kind]:
        raise OptionError(
            f"device={kind!r} is not available to torch on this machine. Pass device='cpu', or install a torch build "
            f"for it."
        )
    is_launched = find_world() is not None
    if config.devices > there[kind] and is_launched and kind != "cpu":  # processes may share cores, but not GPUs
        raise OptionError(
            f"{config.devices} processes were started on this machine, but torch finds {there[kind]} of kind "
            f"{kind!r}. Every process must see the devices of all processes. With Slurm, pass "
            f"--gpus-per-node={config.devices} and neither --gpus-per-task nor --gpu-bind."
        )
    if config.devices > there[kind] and not is_launched:
        has = f"{there[kind]} {'core' if kind == 'cpu' else 'device'}{'s' * (there[kind] > 1)}"
        raise OptionError(
            f"devices={config.devices} is more than the {has} of kind {kind!r} on this machine. "
            f"Pass devices <= {there[kind]}."
        )
    return kind


def _environment(config: TrainConfig) -> ClusterEnvironment:
    """Return the environment from which Fabric reads the rank. Its own choice is wrong in a Slurm shell."""
    world = find_world()
    if world is None or world.size != config.devices * config.num_nodes:  # `plan` runs in one process
        return LightningEnvironment()
    return _Srun(world) if world.launcher == "srun" else TorchElasticEnvironment()


class _Srun(SLURMEnvironment):  # type: ignore[misc]
    """An srun step started with any options. Lightning's class requires --ntasks-per-node."""

    def __init__(self, world: World) -> None:
        self._world = world

    @property
    def main_address(self) -> str:
        nodes = os.environ.get("SLURM_STEP_NODELIST") or os.environ.get("SLURM_JOB_NODELIST", "127.0.0.1")
        return os.environ.get("MASTER_ADDR") or self.resolve_root_node_address(nodes)

    @property
    def main_port(self) -> int:
        # All processes of a step compute the same port, and different steps on one node different ports.
        step = int(os.environ.get("SLURM_JOB_ID", "0")) * 7 + int(os.environ.get("SLURM_STEP_ID", "0"))
        return int(os.environ.get("MASTER_PORT") or 15_000 + step % 15_000)

    def world_size(self) -> int:
        return self._world.size

    def validate_settings(self, num_devices: int, num_nodes: int) -> None:
        """Check nothing: `TrainConfig` already has the numbers of the step."""


def _set_torch(config: TrainConfig, kind: str) -> None:
    if kind == "cuda":
        torch.set_float32_matmul_precision("high")
    if config.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True, warn_only=True)


def _strategy(config: TrainConfig) -> Any:
    if config.strategy != "fsdp":
        return config.strategy
    # Lightning's "fsdp" is the older FSDP1, which flattens weights and does not support CPUs.
    num_devices = config.devices * config.num_nodes
    shard = functools.partial(_shard, is_bf16=config.precision == "bf16-mixed")
    return ModelParallelStrategy(shard, data_parallel_size=num_devices, tensor_parallel_size=1)


def _shard(module: nn.Module, mesh: Any, *, is_bf16: bool) -> nn.Module:
    """Shard the weights of every block, and of the rest, over the devices. Each device keeps its part in float32.

    is_bf16: round the weights of blocks to bfloat16 before sending them, which halves the traffic and does not change
    results, because autocast rounds the operands of products anyway. Their gradients are summed in float32. Other
    weights, such as embeddings and the statistics of a posterior, stay float32, because a model may use them outside
    products. Inputs of blocks are not rounded, as in `ExactInputs`.
    """
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    devices = mesh["data_parallel"]
    policy = MixedPrecisionPolicy(cast_forward_inputs=False)
    if is_bf16:
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32, cast_forward_inputs=False)
    for name in module.model.SHARDED_UNITS:  # type: ignore[union-attr]
        for block in getattr(module.model, name, ()):
            fully_shard(block, mesh=devices, mp_policy=policy)
    fully_shard(module, mesh=devices, mp_policy=MixedPrecisionPolicy(cast_forward_inputs=False))
    return module
