"""Registries of optimizers and schedules. Names are available without importing torch; plugins can add entries.

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


# Keyword arguments passed to the registered functions, if they have a parameter of that name.
OPTIMIZER_OPTIONS = ("lr", "weight_decay", "betas", "eps", "fused", "muon_lr", "muon_momentum")
SCHEDULE_OPTIONS = ("total_steps", "warmup_steps", "final_fraction", "decay_fraction")


def register_optimizer(name: str, build: Callable[..., Any], *, overwrite: bool = False) -> None:
    """Register an optimizer: `optimizer=name` then trains with the result of `build(model, …)`.

    The learning rate of every parameter group follows the schedule. A checkpoint holds the state of any optimizer that
    keeps tensors and plain numbers for each parameter, and the plain numbers of its groups, so the run resumes
    bit-exactly.

    Args:
        name: Value of the option `optimizer`: lowercase letters, digits, "-" and "_", starting with a letter.
        build: Function that takes the model and returns a `torch.optim.Optimizer` or a list of them. It receives the
            keywords lr, weight_decay, betas, eps, fused, muon_lr and muon_momentum if it has parameters of that name.
        overwrite: Replace an optimizer already registered under this name.

    Raises:
        OptionError: The name is invalid or already taken, `build` is not callable, or it requires a parameter that it
            would not receive.

    Examples:
        ```python
        def lion(model, *, lr, weight_decay):
            return my_package.Lion(model.parameters(), lr=lr, weight_decay=weight_decay)

        gm.lm.register_optimizer("lion", lion)
        gm.lm.train("shards/", out="run/", optimizer="lion")
        ```
    """
    check_parameters(f"optimizer {name!r}", build, OPTIMIZER_OPTIONS)
    OPTIMIZERS.register(name, build, overwrite=overwrite)


def register_schedule(name: str, function: Callable[..., float], *, overwrite: bool = False) -> None:
    """Register a schedule: `schedule=name` then multiplies the learning rate of each step by `function(step, …)`.

    The function also implements the warm-up. It must return the same number for the same step; otherwise a resumed run
    would differ from an uninterrupted one.

    Args:
        name: Value of the option `schedule`: lowercase letters, digits, "-" and "_", starting with a letter.
        function: Function that takes the step, counted from 0, and returns a factor >= 0. It receives the keywords
            total_steps, warmup_steps, final_fraction and decay_fraction if it has parameters of that name.
        overwrite: Replace a schedule already registered under this name.

    Raises:
        OptionError: The name is invalid or already taken, `function` is not callable, or it requires a parameter that
            it would not receive.

    Examples:
        ```python
        def inverse_sqrt(step, *, warmup_steps):
            return min((step + 1) / warmup_steps, (warmup_steps / (step + 1)) ** 0.5)

        gm.lm.register_schedule("inverse-sqrt", inverse_sqrt)
        gm.lm.train("shards/", out="run/", schedule="inverse-sqrt", warmup_steps=100)
        ```
    """
    check_parameters(f"schedule {name!r}", function, SCHEDULE_OPTIONS)
    SCHEDULES.register(name, function, overwrite=overwrite)
