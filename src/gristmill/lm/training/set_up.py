"""Set up a run: resolved config, compiled module, optimizers, datasets and meter."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from gristmill.errors import OptionError, TrainingError
from gristmill.lm.data.batch import Batch
from gristmill.lm.data.mixed_data import MixedData
from gristmill.lm.data.training_data import Dataset, TrainingData
from gristmill.lm.models.model import Kernels, Model
from gristmill.lm.models.registry import build_model
from gristmill.lm.training.auto_batch import find_batch_size
from gristmill.lm.training.config import TrainConfig, requested_global_batch, resolved
from gristmill.lm.training.kernels import use_kernels
from gristmill.lm.training.losses import LossModule
from gristmill.lm.training.meters import Meter, device_name, device_peak, free_bytes
from gristmill.lm.training.optimizers import Optimizers, build_optimizer
from gristmill.report import figures

if TYPE_CHECKING:
    from lightning_fabric import Fabric

__all__ = [
    "DTYPES",
    "DTYPES_OF_PRODUCTS",
    "check_mask",
    "mark_length",
    "new_meter",
    "new_model",
    "new_module",
    "new_optimizers",
    "open_datasets",
    "precision_of_products",
    "recompute_blocks",
    "resolve_config",
    "share_buffers",
    "validation_module",
]

DTYPES = {"bf16-mixed": torch.bfloat16, "16-mixed": torch.float16, "32": torch.float32}
DTYPES_OF_PRODUCTS = {**DTYPES, "float8": torch.float8_e4m3fn}

Notify = Callable[[str], None]


def resolve_config(
    fabric: Fabric, config: TrainConfig, data: TrainingData, state: dict[str, Any] | None, notify: Notify
) -> TrainConfig:
    """Return the config with every number filled in. A resumed run keeps the batch size it has found before."""
    size = config.batch_size
    if size == "auto" and state is not None:
        size = state["config"]["batch_size"]
    if size == "auto":
        size = _find_batch_size(fabric, config, data)
        notify(f"batch_size auto: {size} sequences per micro-batch on each device.")
    assert isinstance(size, int)
    return resolved(config, data, batch_size=size, world_size=fabric.world_size)


def _find_batch_size(fabric: Fabric, config: TrainConfig, data: TrainingData) -> int:
    total = requested_global_batch(config, fabric.world_size)
    small = resolved(
        dataclasses.replace(config, batch_size=1, global_batch_size=total),
        data,
        batch_size=1,
        world_size=fabric.world_size,
    )
    model = build_model(small.model, seed=config.seed).to(fabric.device)
    use_kernels(config, model, fabric.device)
    if config.activation_checkpointing:
        recompute_blocks(model)
    size = find_batch_size(
        model,
        per_device=total // fabric.world_size,
        sequence_length=config.model.sequence_length,
        device=fabric.device,
        autocast=fabric.autocast,
        num_parts=fabric.world_size if config.strategy == "fsdp" else 1,
    )
    # The device with the least memory decides for all.
    return int(fabric.all_reduce(torch.tensor(float(size)), reduce_op="min"))


def check_mask(config: TrainConfig, device: torch.device) -> None:
    """Raise `TrainingError` if the attention masks of a step need more memory than is free, on a CPU.

    Otherwise the system would kill the process without a message. A GPU raises an error by itself.
    """
    assert isinstance(config.batch_size, int)  # the config is resolved
    model, num_layers = config.model, 1 if config.activation_checkpointing else getattr(config.model, "num_layers", 1)
    num_pairs = model.num_masked_pairs(batch_size=config.batch_size)
    # One boolean per pair, which the attention of each layer converts to a number and keeps for the backward pass.
    needed = num_pairs * (1 + num_layers * DTYPES[config.precision].itemsize)
    if device.type != "cpu" or num_pairs == 0 or (free := free_bytes()) is None or needed <= free:
        return
    helps = [
        f"a shorter {model.LENGTH}",
        *["a smaller batch_size with a larger gradient_accumulation_steps"] * (config.batch_size > 1),
        *["activation_checkpointing=True"] * (not config.activation_checkpointing),
        "a GPU",
    ]
    raise TrainingError(
        f"{model.LENGTH}={model.sequence_length} with batch_size={config.batch_size} does not fit in memory: on a "
        f"CPU, the attention masks of a step cover {num_pairs:,} pairs of tokens and need {figures.size(needed)}, but "
        f"only {figures.size(free)} is free. Use one of: {', '.join(helps)}."
    )


def new_model(config: TrainConfig) -> Model:
    """Return the model of the run; raise `OptionError` if samples are requested and it cannot generate text."""
    model = build_model(config.model, seed=config.seed)
    if config.sample_interval and not model.can_write:
        raise OptionError(
            f"sample_interval={config.sample_interval}: model={config.model.name!r} cannot write text, because "
            f"{type(model).__name__} has no forward(tokens_BT) that returns logits. Leave sample_interval out."
        )
    return model


def new_module(fabric: Fabric, config: TrainConfig, model: Model, kernels: Kernels | None) -> nn.Module:
    """Return the loss module of the model, compiled if requested, and set up on the devices.

    Kernels already do what a compiler would do, so a model that uses them is not compiled.
    """
    if config.activation_checkpointing:
        recompute_blocks(model)
    module: nn.Module = LossModule(model)
    if config.compile_model and kernels is None:
        module = _compiled(module, config)
    wrapped: nn.Module = fabric.setup_module(module)
    return wrapped.train()


def recompute_blocks(model: Model) -> None:
    """Make each block of the model keep only its input in training, and recompute it in the backward pass.

    Dropout draws the same numbers both times, so gradients are the same. Parameters keep their names. A block must not
    change buffers in its forward pass, because they would change twice.
    """
    blocks = [block for name in model.SHARDED_UNITS for block in getattr(model, name, ())]
    if not blocks:
        raise OptionError(
            f"activation_checkpointing=True: {type(model).__name__} has no layers under the names in SHARDED_UNITS, "
            f"{', '.join(map(repr, model.SHARDED_UNITS))}. Set SHARDED_UNITS of the model to the names of its layer "
            f"lists, or pass activation_checkpointing=False."
        )
    for block in blocks:
        _recompute(block)


def _recompute(block: nn.Module) -> None:
    forward = block.forward

    def recomputed(*args: Any, **kwargs: Any) -> Any:
        if not (block.training and torch.is_grad_enabled()):
            return forward(*args, **kwargs)
        return checkpoint(forward, *args, use_reentrant=False, **kwargs)

    block.forward = recomputed


def _compiled(module: nn.Module, config: TrainConfig) -> nn.Module:
    if config.model.varying_lengths:
        from torch._inductor import config as inductor_config

        # For sums over a dynamic length, torch 2.11 generates code that fails ("shape is invalid for input"), or fails
        # itself when it compares loop sizes.
        settings: Any = inductor_config.triton
        for name in ("mix_order_reduction", "coalesce_tiling_analysis"):
            if hasattr(settings, name):
                setattr(settings, name, False)
    mode = None if config.compile_mode == "default" else config.compile_mode
    return torch.compile(module, mode=mode)  # type: ignore[return-value]


def validation_module(config: TrainConfig, model: Model, module: nn.Module) -> nn.Module:
    """Return the module for validation: the training module, or the plain model if recompiling would not pay off."""
    is_eager = config.compile_model and model.VALIDATES_EAGERLY and config.strategy != "fsdp"
    return LossModule(model) if is_eager else module


def mark_length(batch: Batch) -> Batch:
    """Mark the length of the batch as dynamic, so that one graph is compiled for all lengths, and return the batch.

    By default, torch would compile one graph for the first length, and another one for any length at the second.
    """
    for tensor in vars(batch).values():
        if tensor is not None:
            torch._dynamo.maybe_mark_dynamic(tensor, 1)
    return batch


def new_optimizers(config: TrainConfig, model: nn.Module, kernels: Kernels | None) -> Optimizers:
    """Return the optimizers of the model. Call this after the weights are on their devices."""
    return build_optimizer(
        model,
        config.optimizer,
        lr=config.learning_rate,
        weight_decay=config.weight_decay,
        betas=(config.beta1, config.beta2),
        eps=config.eps,
        muon_lr=config.muon_learning_rate,
        muon_momentum=config.muon_momentum,
        copies=None if kernels is None else kernels.copies,
    )


def open_datasets(
    fabric: Fabric, config: TrainConfig, data: TrainingData, notify: Notify
) -> tuple[Dataset, Dataset | None]:
    """Return the training data and the validation data, which is None if the split is missing or too short."""
    assert isinstance(config.batch_size, int)  # the config is resolved
    batches: Any = {
        "batch_size": config.batch_size,
        "seed": config.seed,
        "device": fabric.device,
        "vocab_size": config.model.vocab_size,
    }
    dataset = data.open_dataset("train", **batches)
    assert dataset is not None  # the data was opened for it
    messages = [*data.messages, *getattr(dataset, "messages", ())]
    messages += data.start_messages(dataset, world_size=fabric.world_size)
    messages += config.model.start_messages(batch_size=config.batch_size)
    if isinstance(data, MixedData):
        assert config.max_steps is not None and config.global_batch_size is not None  # the config is resolved
        messages += data.length_messages(config.max_steps * config.global_batch_size)
    for message in messages:
        notify(message)
    try:
        val_dataset = data.open_dataset("val", **batches)
    except TrainingError as error:  # too short
        notify(f"no validation: in the validation split {error}")
        return dataset, None
    if val_dataset is None:
        notify(data.no_validation)
    return dataset, val_dataset


def precision_of_products(config: TrainConfig) -> str:
    """Return the precision whose peak the MFU is relative to: "float8" if any products use 8-bit floats."""
    return config.precision if config.float8 == "off" else "float8"


def new_meter(
    fabric: Fabric,
    config: TrainConfig,
    model: Model,
    *,
    sequence_length: float,
    matmul_flops: float | None,
    seconds_before: float,
) -> Meter:
    """Return the meter of the run. `seconds_before` is its duration before it was resumed."""
    return Meter(
        fabric.device,
        capacity=config.log_interval,
        flops_per_token=float(model.flops_per_token(round(sequence_length))),
        stats=tuple(config.model.STATISTICS),
        num_devices=fabric.world_size,
        peak=device_peak(device_name(fabric.device), precision_of_products(config)),
        matmul_flops=matmul_flops,
        seconds_before=seconds_before,
        reduce=fabric.all_reduce if fabric.world_size > 1 else None,
    )


def share_buffers(fabric: Fabric, model: nn.Module) -> None:
    """Copy the running statistics of the first rank, which are the saved ones, to all ranks, as ddp does."""
    if fabric.world_size > 1:
        kept = model.state_dict().keys()
        for name, buffer in model.named_buffers():
            if name in kept:
                torch.distributed.broadcast(buffer, 0)
