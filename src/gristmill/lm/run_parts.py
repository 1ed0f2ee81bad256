"""The parts that a run is put together from: its settled config, its module, its optimizers, its data and its meter."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from gristmill.errors import OptionError, TrainingError
from gristmill.lm.auto_batch import find_batch_size
from gristmill.lm.checkpoint import build_model
from gristmill.lm.config import TrainConfig, asked_global_batch, resolved
from gristmill.lm.dataset import TokenDataset
from gristmill.lm.evaluate import LossModule
from gristmill.lm.meters import Meter, device_name, device_peak
from gristmill.lm.optim import Optimizers, build_optimizer
from gristmill.shards import Shards

if TYPE_CHECKING:
    from lightning_fabric import Fabric

__all__ = ["DTYPES", "new_meter", "new_module", "new_optimizers", "open_data", "settled"]

DTYPES = {"bf16-mixed": torch.bfloat16, "16-mixed": torch.float16, "32": torch.float32}

Tell = Callable[[str], None]


def settled(
    fabric: Fabric, config: TrainConfig, shards: Shards, state: dict[str, Any] | None, tell: Tell
) -> TrainConfig:
    """The config with every number settled. A batch size that a run has found before, it keeps."""
    size = config.batch_size
    if size == "auto" and state is not None:
        size = state["config"]["batch_size"]
    if size == "auto":
        size = _find_batch_size(fabric, config, shards)
        tell(f"batch_size auto: {size} sequences at once on each device.")
    assert isinstance(size, int)
    return resolved(config, shards, batch_size=size, world_size=fabric.world_size)


def _find_batch_size(fabric: Fabric, config: TrainConfig, shards: Shards) -> int:
    per_device, rest = divmod(asked_global_batch(config, fabric.world_size), fabric.world_size)
    if rest:
        raise OptionError(
            f"global_batch_size={config.global_batch_size} is not a multiple of {fabric.world_size} devices."
        )
    small = dataclasses.replace(config, batch_size=1)
    model = build_model(resolved(small, shards, batch_size=1, world_size=fabric.world_size))
    size = find_batch_size(
        model.to(fabric.device),
        per_device=per_device,
        context_length=config.context_length,
        device=fabric.device,
        autocast=fabric.autocast,
    )
    # The smallest device decides for all.
    return int(fabric.all_reduce(torch.tensor(float(size)), reduce_op="min"))


def new_module(fabric: Fabric, config: TrainConfig, model: nn.Module) -> nn.Module:
    """The loss of the model, compiled if that was asked for, and shared among the devices."""
    module: nn.Module = LossModule(model)
    if config.compile_model:
        mode = None if config.compile_mode == "default" else config.compile_mode
        module = torch.compile(module, mode=mode)  # type: ignore[assignment]
    wrapped: nn.Module = fabric.setup_module(module)
    return wrapped.train()


def new_optimizers(config: TrainConfig, model: nn.Module) -> Optimizers:
    """The optimizers of the model, after its weights were put where they stay."""
    return build_optimizer(
        model,
        config.optimizer,
        lr=config.learning_rate,
        weight_decay=config.weight_decay,
        betas=(config.beta1, config.beta2),
        eps=config.eps,
        muon_lr=config.muon_learning_rate,
        muon_momentum=config.muon_momentum,
    )


def open_data(
    config: TrainConfig, shards: Shards, device: torch.device, tell: Tell
) -> tuple[TokenDataset, Shards | None, TokenDataset | None]:
    """The training data, and the validation split with its data; None where there is none to speak of."""
    assert isinstance(config.batch_size, int)  # it is resolved
    open_dataset = partial(
        TokenDataset,
        context_length=config.context_length,
        batch_size=config.batch_size,
        seed=config.seed,
        document_mask=config.document_mask,
        device=device,
    )
    dataset = open_dataset(shards)
    if "val" not in shards.manifest.splits:
        tell("the shards have no validation split. Encode with --val-fraction to have one.")
        return dataset, None, None
    val_shards = Shards(shards.paths[0].parent, split="val")
    try:
        return dataset, val_shards, open_dataset(val_shards)
    except TrainingError as error:  # too short
        tell(f"there is no validation: in the validation split {error}")
        return dataset, None, None


def new_meter(
    fabric: Fabric, config: TrainConfig, model: nn.Module, *, matmul_flops: float, seconds_before: float
) -> Meter:
    """The meter of the run, which has lasted for `seconds_before` already."""
    assert config.global_batch_size is not None  # it is resolved
    return Meter(
        fabric.device,
        capacity=config.log_interval,
        tokens_per_step=config.global_batch_size * config.context_length,
        flops_per_token=float(model.flops_per_token(config.context_length)),  # type: ignore[operator]
        num_devices=fabric.world_size,
        peak=device_peak(device_name(fabric.device), config.precision),
        matmul_flops=matmul_flops,
        seconds_before=seconds_before,
        reduce=fabric.all_reduce if fabric.world_size > 1 else None,
    )
