"""Precision: which one a device gets, mixed precision that leaves a model's inputs alone, and the scaler of gradients.

Lightning's plugin for mixed precision rounds every input of a module to 16 bits. A model knows better: torch rounds the
operands of matrix products anyway, and a loss that compares with its input, or is multiplied with a weight, needs all
bits of them.
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
    """Mixed precision that hands a module its inputs as they are."""

    def convert_input(self, data: Any) -> Any:
        """The inputs, not rounded."""
        return data


def precision_plugin(precision: str, device: str) -> Precision:
    """The plugin of Fabric for a settled precision ("bf16-mixed", "16-mixed" or "32") on a device such as "cuda"."""
    if precision == "32":
        return Precision()
    kind: Literal["16-mixed", "bf16-mixed"] = "16-mixed" if precision == "16-mixed" else "bf16-mixed"
    return ExactInputs(kind, device)


def find_precision(precision: str, *, device: str, strategy: str, warns: bool = True) -> str:
    """The precision to use for the one that was asked for.

    "auto" is bf16-mixed on a GPU that computes in it, and 32 elsewhere. For 16-mixed, a CPU has no fast kernels: there
    it is a warning, and bf16-mixed where the CPU multiplies matrices in it, otherwise 32.
    """
    if precision == "auto":
        on_gpu = device == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
        return "bf16-mixed" if on_gpu else "32"
    if precision == "16-mixed" and device == "cpu":
        instead = "bf16-mixed" if _cpu_has_bf16() else "32"
        if warns:
            warn_user(
                f"precision='16-mixed' needs a GPU, and this run is on a CPU: it uses precision={instead!r} instead. "
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
    """Whether the CPU has instructions for products of bfloat16; without them torch is slower than in float32."""
    capabilities: Mapping[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
    return any(bool(capabilities.get(name)) for name in ("amx_bf16", "avx512_bf16", "bf16"))


def restore_scaler(fabric: Fabric, state: Mapping[str, Any]) -> None:
    """Take up the loss scale of a checkpoint. Without one on either side, a run in 16-mixed starts with torch's own."""
    if state:
        fabric.strategy.precision.load_state_dict(dict(state))
