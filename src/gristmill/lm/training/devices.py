"""Devices: Lightning Fabric on what a run is computed on, with its processes started and torch set up for it."""

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
    """`launch`, and within the block one error for all processes, which leave the block together.

    The connection between them ends with the block, unless it was there before: whoever made it ends it.
    """
    was_connected = _is_connected()
    try:
        with one_error():
            fabric, settled = launch(config)
            yield fabric, settled
            _leave_together(fabric)
    finally:
        if _is_connected() and not was_connected:
            torch.distributed.destroy_process_group()


def _is_connected() -> bool:
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def _leave_together(fabric: Fabric) -> None:
    """Wait for the other processes, with nothing left that talks to them and would wait for one that is gone."""
    if fabric.world_size > 1:
        gc.collect()
        fabric.barrier()


def launch(config: TrainConfig) -> tuple[Fabric, TrainConfig]:
    """Fabric on the devices that were asked for, its processes started, and the config with its precision settled."""
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
    """The kind of device that `config` asks for; an error where this machine has none, or fewer than `devices`."""
    there = {
        "cuda": torch.cuda.device_count() if torch.cuda.is_available() else 0,
        "mps": int(torch.backends.mps.is_available()),
        "cpu": os.cpu_count() or 1,
    }
    kind = next(name for name in there if there[name]) if config.device == "auto" else config.device
    if not there[kind]:
        raise OptionError(f"device={kind!r}: torch finds none here. Pass device='cpu', or install a torch made for it.")
    is_launched = find_world() is not None
    if config.devices > there[kind] and is_launched and kind != "cpu":  # cores may be shared, GPUs not
        raise OptionError(
            f"{config.devices} processes were started on this machine, and this one finds {there[kind]} of kind "
            f"{kind!r}. Every process must see the devices of all: with Slurm, pass --gpus-per-node={config.devices} "
            f"and neither --gpus-per-task nor --gpu-bind."
        )
    if config.devices > there[kind] and not is_launched:
        has = f"{there[kind]} {'core' if kind == 'cpu' else 'device'}{'s' * (there[kind] > 1)}"
        raise OptionError(
            f"devices={config.devices} is more than the {has} of kind {kind!r} on this machine. "
            f"Pass devices <= {there[kind]}."
        )
    return kind


def _environment(config: TrainConfig) -> ClusterEnvironment:
    """Where Fabric learns which process this is. What it would find by itself is wrong in a shell of Slurm."""
    world = find_world()
    if world is None or world.size != config.devices * config.num_nodes:  # one process plans the work of all
        return LightningEnvironment()
    return _Srun(world) if world.launcher == "srun" else TorchElasticEnvironment()


class _Srun(SLURMEnvironment):  # type: ignore[misc]
    """A step of srun, whatever options started it: Lightning's class insists on --ntasks-per-node."""

    def __init__(self, world: World) -> None:
        self._world = world

    @property
    def main_address(self) -> str:
        nodes = os.environ.get("SLURM_STEP_NODELIST") or os.environ.get("SLURM_JOB_NODELIST", "127.0.0.1")
        return os.environ.get("MASTER_ADDR") or self.resolve_root_node_address(nodes)

    @property
    def main_port(self) -> int:
        # All processes of a step find the same port, and two steps on one node different ones.
        step = int(os.environ.get("SLURM_JOB_ID", "0")) * 7 + int(os.environ.get("SLURM_STEP_ID", "0"))
        return int(os.environ.get("MASTER_PORT") or 15_000 + step % 15_000)

    def world_size(self) -> int:
        return self._world.size

    def validate_settings(self, num_devices: int, num_nodes: int) -> None:
        """Nothing is left to check: `TrainConfig` has the numbers of the step."""


def _set_torch(config: TrainConfig, kind: str) -> None:
    if kind == "cuda":
        torch.set_float32_matmul_precision("high")
    if config.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True, warn_only=True)


def _strategy(config: TrainConfig) -> Any:
    if config.strategy != "fsdp":
        return config.strategy
    # Lightning's own "fsdp" is the older form, which has only flat pieces of weights and no CPU.
    num_devices = config.devices * config.num_nodes
    shard = functools.partial(_shard, is_bf16=config.precision == "bf16-mixed")
    return ModelParallelStrategy(shard, data_parallel_size=num_devices, tensor_parallel_size=1)


def _shard(module: nn.Module, mesh: Any, *, is_bf16: bool) -> nn.Module:
    """Divide the weights of every block, and of the rest, among the devices; each keeps its part in float32.

    is_bf16: the weights of blocks are rounded to bfloat16 before they are sent, which halves the traffic and changes
    nothing: autocast rounds the operands of products anyway. Their gradients are summed in float32. The rest, such as
    embeddings and the statistics of a posterior, stays float32: a model may use it outside products. Inputs of blocks
    are left alone, as by `ExactInputs`.
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
