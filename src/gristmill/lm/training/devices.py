"""Devices: Lightning Fabric on what a run is computed on, its processes started, and torch set for it."""

from __future__ import annotations

import dataclasses
import logging
import os
import warnings
from typing import Any

import torch
from lightning_fabric import Fabric
from lightning_fabric.strategies import ModelParallelStrategy
from torch import nn

from gristmill.errors import OptionError
from gristmill.lm.training.config import TrainConfig
from gristmill.lm.training.precision import find_precision, precision_plugin

__all__ = ["is_first_process", "launch"]


def launch(config: TrainConfig) -> tuple[Fabric, TrainConfig]:
    """Fabric on the devices that were asked for, its processes started, and the config with its precision settled."""
    kind = _find_device(config)
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
            plugins=[precision_plugin(config.precision, kind)],
        )
        fabric.launch()
    return fabric, config


def _find_device(config: TrainConfig) -> str:
    there = {
        "cuda": torch.cuda.device_count() if torch.cuda.is_available() else 0,
        "mps": int(torch.backends.mps.is_available()),
        "cpu": os.cpu_count() or 1,
    }
    kind = next(name for name in there if there[name]) if config.device == "auto" else config.device
    if not there[kind]:
        raise OptionError(f"device={kind!r}: torch finds none here. Pass device='cpu', or install a torch made for it.")
    if config.devices > there[kind] and kind != "cpu":
        raise OptionError(
            f"devices={config.devices}: this machine has {there[kind]} of kind {kind!r}. Pass devices <= {there[kind]}."
        )
    return kind


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
    return ModelParallelStrategy(_shard, data_parallel_size=num_devices, tensor_parallel_size=1)


def _shard(module: nn.Module, mesh: Any) -> nn.Module:
    """Divide the weights of every block, and of the rest, among the devices."""
    from torch.distributed.fsdp import fully_shard

    devices = mesh["data_parallel"]
    for name in module.model.SHARDED_UNITS:  # type: ignore[union-attr]
        for block in getattr(module.model, name, ()):
            fully_shard(block, mesh=devices)
    fully_shard(module, mesh=devices)
    return module


def is_first_process() -> bool:
    """Whether this is the process that others are started from, or would be."""
    return all(int(os.environ.get(name, "0")) == 0 for name in ("RANK", "LOCAL_RANK", "NODE_RANK"))
