"""Precision: choice per device, mixed precision that does not round a model's inputs, and the gradient scaler.

Lightning's plugin for mixed precision rounds every input of a module to 16 bits. That is unnecessary, because torch
rounds the operands of matrix products anyway, and harmful: a loss that is compared with its input, or multiplied by a
weight, needs all bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

import torch

from gristmill.errors import OptionError, warn_user
from gristmill.lm.training.fabric import MixedPrecision, Precision

if TYPE_CHECKING:
    from lightning_fabric import Fabric

__all__ = ["ExactInputs", "find_precision", "precision_plugin", "restore_scaler"]


class ExactInputs(MixedPrecision):  # type: ignore[misc]
    """Mixed precision that passes the inputs of a module unchanged."""

    def convert_input(self, data: Any) -> Any:
        """Return the inputs without rounding them."""
        return data


def precision_plugin(precision: str, device: str) -> Precision:
    """Return the Fabric plugin for a precision ("bf16-mixed", "16-mixed" or "32") on a device such as "cuda"."""
    if precision == "32":
        return Precision()
    kind: Literal["16-mixed", "bf16-mixed"] = "16-mixed" if precision == "16-mixed" else "bf16-mixed"
    return ExactInputs(kind, device)


def find_precision(precision: str, *, device: str, strategy: str, warns: bool = True) -> str:
    """Return the precision to use for the requested one.

    "auto" is bf16-mixed on a GPU with bfloat16 hardware, and 32 elsewhere. A CPU has no fast kernels for 16-mixed: it
    warns, and uses bf16-mixed if the CPU has instructions for bfloat16 products, otherwise 32.
    """
    if precision == "auto":
        on_gpu = device == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
        return "bf16-mixed" if on_gpu else "32"
    if precision == "16-mixed" and device == "cpu":
        instead = "bf16-mixed" if _cpu_has_bf16() else "32"
        if warns:
            warn_user(
                f"precision='16-mixed' needs a GPU. This run is on a CPU and uses precision={instead!r} instead. "
                f"Pass precision={instead!r} to avoid this warning.",
                UserWarning,
            )
        return instead
    if precision == "16-mixed" and strategy == "fsdp":
        raise OptionError(
            "precision='16-mixed' does not work with strategy='fsdp'. Pass precision='bf16-mixed' or '32', or "
            "strategy='ddp'."
        )
    return precision


def _cpu_has_bf16() -> bool:
    """Return whether the CPU has instructions for bfloat16 products. Without them bfloat16 is slower than float32."""
    capabilities: Mapping[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
    return any(bool(capabilities.get(name)) for name in ("amx_bf16", "avx512_bf16", "bf16"))


def restore_scaler(fabric: Fabric, state: Mapping[str, Any]) -> None:
    """Restore the loss scale of a checkpoint. Without a saved one, a run in 16-mixed starts with torch's default."""
    if state:
        fabric.strategy.precision.load_state_dict(dict(state))
