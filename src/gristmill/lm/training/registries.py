"""The registries of optimizers and schedules: their names are known without torch, and a user's file may add to them.

def lion(model, *, lr, weight_decay):
    return my_package.Lion(model.parameters(), lr=lr, weight_decay=weight_decay)

gm.lm.register_optimizer("lion", lion)
gm.lm.register_schedule("inverse-sqrt", lambda step, *, warmup_steps: min((step + 1) / warmup_steps, …))
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gristmill.lm.registry import Registry, check_parameters

__all__ = ["OPTIMIZERS", "SCHEDULES", "register_optimizer", "register_schedule"]

_HERE = "gristmill.lm.training"
OPTIMIZERS = Registry("optimizer", {name: f"{_HERE}.optimizers:build_{name}" for name in ("adamw", "muon")})
SCHEDULES = Registry("schedule", {name: f"{_HERE}.schedules:{name}" for name in ("cosine", "wsd", "constant")})


# What the functions get as keywords, if they have a parameter of that name.
OPTIMIZER_OPTIONS = ("lr", "weight_decay", "betas", "eps", "fused", "muon_lr", "muon_momentum")
SCHEDULE_OPTIONS = ("total_steps", "warmup_steps", "final_fraction", "decay_fraction")


def register_optimizer(name: str, build: Callable[..., Any], *, overwrite: bool = False) -> None:
    """Make `optimizer=name` train with what `build(model, …)` returns: a torch.optim.Optimizer, or several in a list.

    `build` gets as keywords those of the options that it has a parameter for: lr, weight_decay, betas, eps (and, as
    the built-in ones do, fused, muon_lr and muon_momentum). The learning rate of every group follows the schedule. A
    checkpoint holds the state of any optimizer that keeps tensors and plain numbers for each parameter; a group's
    plain numbers are saved too. The run resumes bit-exactly.

    A name that is taken is refused unless `overwrite`.
    """
    check_parameters(f"optimizer {name!r}", build, OPTIMIZER_OPTIONS)
    OPTIMIZERS.register(name, build, overwrite=overwrite)


def register_schedule(name: str, function: Callable[..., float], *, overwrite: bool = False) -> None:
    """Make `schedule=name` scale the learning rate of each step by what `function(step, …)` returns, 0 or greater.

    `step` counts from 0. As keywords the function gets those that it has a parameter for: total_steps, warmup_steps,
    final_fraction, decay_fraction. The function does its own warm-up. It must return the same for the same
    step, or a resumed run would differ.

    A name that is taken is refused unless `overwrite`.
    """
    check_parameters(f"schedule {name!r}", function, SCHEDULE_OPTIONS)
    SCHEDULES.register(name, function, overwrite=overwrite)
