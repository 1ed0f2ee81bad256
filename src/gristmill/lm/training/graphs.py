"""Decides whether a run replays its steps from CUDA graphs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from gristmill.lm.training.cuda_capture import CudaCapture
from gristmill.lm.training.graphed_step import Capture, Compute, GraphedStep
from gristmill.lm.training.set_up import mark_length

if TYPE_CHECKING:
    from gristmill.lm.models.model import Kernels, Model
    from gristmill.lm.training.config import TrainConfig

__all__ = ["describe_graphs", "graphed_step", "why_no_graphs"]

MAX_WIDTHS = 32  # each has a graph, which takes time to capture and memory for its results
# These modes of torch.compile capture graphs by themselves.
GRAPH_MODES = ("reduce-overhead", "max-autotune")


def why_no_graphs(
    config: TrainConfig,
    model: Model,
    dataset: Any,
    device: torch.device,
    *,
    world_size: int = 1,
    kernels: Kernels | None = None,
) -> str | None:
    """Return the first reason against CUDA graphs in a run, or None."""
    widths = _widths(dataset)
    reasons = {
        "cuda_graphs='off'": config.cuda_graphs == "off",
        f"the device is of type {device.type!r}": device.type != "cuda",
        f"there are {world_size} devices": world_size > 1,
        f"strategy={config.strategy!r}": config.strategy != "auto",
        "precision='16-mixed'": config.precision == "16-mixed",
        "activation_checkpointing=True": config.activation_checkpointing,
        "deterministic=True": config.deterministic and kernels is not None,
        f"compile_mode={config.compile_mode!r}": config.compile_model and config.compile_mode in GRAPH_MODES,
        f"{type(model).__name__}.CAPTURES_STEPS is False": kernels is None and not model.CAPTURES_STEPS,
        "the data have no fixed set of batch lengths": not widths,
        f"batches have {len(widths)} lengths, more than {MAX_WIDTHS}": len(widths) > MAX_WIDTHS,
    }
    return next((reason for reason, applies in reasons.items() if applies), None)


def graphed_step(
    config: TrainConfig,
    model: Model,
    dataset: Any,
    device: torch.device,
    compute: Compute,
    *,
    kernels: Kernels | None = None,
    capture: Capture | None = None,
) -> GraphedStep:
    """Return the graphs of a run. `capture`: how to capture; by default as CUDA graphs."""
    widths, options = _widths(dataset), dict[str, Any]()
    if kernels is not None:
        options = {"prepare": kernels.opened, "before_replay": kernels.refresh, "others": kernels.changed}
    elif config.compile_model and config.model.varying_lengths:
        options = {"prepare": mark_length}
    return GraphedStep(
        compute,
        model,
        widths=widths,
        device=device,
        capture=CudaCapture(device) if capture is None else capture,
        is_single=len(widths) == config.gradient_accumulation_steps == 1,
        **options,
    )


def describe_graphs(dataset: Any) -> str:
    """Return a message for the start of a run that uses graphs."""
    number = len(_widths(dataset))
    lengths = f"each of the {number} batch lengths" if number > 1 else "the batch length"
    return (
        f"CUDA graphs replay the training step. The first step of {lengths} takes longer. cuda_graphs='off' turns them "
        f"off."
    )


def _widths(dataset: Any) -> Sequence[int]:
    widths: Sequence[int] = getattr(dataset, "bounds", ())
    return widths
