"""Decides whether a run computes its step with Triton kernels, and says why not."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from gristmill.errors import OptionError
from gristmill.lm.models.gpt.options import FLOAT8_MULTIPLE, GPTConfig

if TYPE_CHECKING:
    from gristmill.lm.models.model import Kernels, Model
    from gristmill.lm.training.config import TrainConfig

__all__ = ["describe_kernels", "use_kernels"]

CAPABILITY, FLOAT8_CAPABILITY = (8, 0), (8, 9)


def use_kernels(
    config: TrainConfig, model: Model, device: torch.device, *, notify: Callable[[str], object] = lambda message: None
) -> Kernels | None:
    """Let the model use kernels, if model, options and device allow it; return None if not.

    `float8` needs kernels, so it raises `OptionError` with the reason. `notify` gets a message if kernels would be used
    but do not work on this machine, or with the size of the heads, because that option is not about kernels.
    """
    reason, uses_float8 = _why_not(config, model, device), config.float8 != "off"
    is_expected = not (isinstance(config.model, GPTConfig) and reason == config.model.unsupported_heads)
    if reason is None:
        if uses_float8:
            _check_float8(config, device)
        reason, is_expected = why_not_compiled(device, uses_float8), False
    if reason is None:
        return model.use_kernels(float8=config.float8, is_deterministic=config.deterministic)
    if uses_float8:
        raise OptionError(
            f"float8={config.float8!r} needs the Triton kernels of a model, which this run cannot use: {reason}. "
            f"Change that, or pass float8='off'."
        )
    if not is_expected:
        notify(f"no Triton kernels: {reason}. The run continues with plain torch, more slowly.")
    return None


def describe_kernels(config: TrainConfig, kernels: Kernels | None) -> list[str]:
    """Return a message for the start of a run that uses kernels."""
    if kernels is None:
        return []
    small = "" if config.float8 == "off" else f", with products in 8-bit floats (float8={config.float8!r})"
    ignored = ", so compile_model has no effect" if config.compile_model else ""
    return [f"Triton kernels compute the training step{small}{ignored}. kernels='plain' turns them off."]


def _why_not(config: TrainConfig, model: Model, device: torch.device) -> str | None:
    """Return the first reason against kernels, or None."""
    reasons = {
        "kernels='plain'": config.kernels == "plain",
        f"it runs on device {device.type!r}, and kernels need an NVIDIA GPU": device.type != "cuda",
        "Triton is not installed": importlib.util.find_spec("triton") is None,
        f"precision={config.precision!r}, and kernels need 'bf16-mixed'": config.precision != "bf16-mixed",
        "strategy='fsdp'": config.strategy == "fsdp",
        "activation_checkpointing=True": config.activation_checkpointing,
    }
    found = next((reason for reason, applies in reasons.items() if applies), None)
    return found or _why_not_on(device) or model.why_no_kernels()


def _why_not_on(device: torch.device) -> str | None:
    """Return the reason of a GPU against kernels, or None."""
    if torch.version.hip is not None:
        return "it runs on a GPU of AMD, and kernels need an NVIDIA GPU"
    capability = torch.cuda.get_device_capability(device)
    if capability < CAPABILITY:
        name = torch.cuda.get_device_name(device)
        return f"{name} has compute capability {_shown(capability)}, and kernels need {_shown(CAPABILITY)} or newer"
    return None


@functools.cache
def why_not_compiled(device: torch.device, uses_float8: bool = False) -> str | None:
    """Return why Triton cannot compile and run a kernel on this device, or None. It needs a C compiler, for example.

    uses_float8: also compare the bytes of converted numbers, because a version of Triton writes some of them wrong.
    """
    try:
        is_right = _adds_correctly(device) and (not uses_float8 or _converts_correctly(device))
    except Exception as error:  # of any kind: the compiler is another program
        first = next(iter(str(error).splitlines()), "")
        return f"Triton cannot compile them here ({type(error).__name__}: {first.rstrip('.')})"
    return None if is_right else "a kernel of Triton returned a wrong result"


def _adds_correctly(device: torch.device) -> bool:
    from gristmill.lm.kernels.embedding import add_embedding_gradient
    from gristmill.lm.kernels.launching import on_device_of

    row, id = torch.zeros(1, 16, device=device), torch.zeros(1, dtype=torch.int64, device=device)
    with on_device_of(row):
        add_embedding_gradient(row, torch.ones_like(row), id, is_deterministic=False)
    return bool((row == 1).all())


def _converts_correctly(device: torch.device) -> bool:
    """Return whether a matrix and its transpose have the bytes that plain torch computes."""
    from gristmill.lm.kernels.float8 import E4M3, E5M2, Site, plain_float8, quantized
    from gristmill.lm.kernels.launching import on_device_of

    numbers = torch.arange(-4096, 4096, device=device).reshape(64, 128).bfloat16() / 16
    one = torch.ones(4, device=device)
    for dtype in (E4M3, E5M2):
        site = Site(dtype, one[:1], one[:1], torch.zeros(4, device=device)[:1])
        with on_device_of(numbers):
            straight, turned = quantized(numbers, site, columns=True)
        expected = plain_float8(numbers, site).view(torch.uint8)
        assert straight is not None and turned is not None
        if not (straight.view(torch.uint8).equal(expected) and turned.view(torch.uint8).equal(expected.t())):
            return False
    return True


def _shown(capability: tuple[int, int]) -> str:
    return ".".join(map(str, capability))


def _check_float8(config: TrainConfig, device: torch.device) -> None:
    capability = torch.cuda.get_device_capability(device)
    if capability < FLOAT8_CAPABILITY:
        raise OptionError(
            f"float8={config.float8!r} needs a GPU of compute capability 8.9 or newer, such as L4, RTX 4090 or H100, "
            f"but {torch.cuda.get_device_name(device)} has {_shown(capability)}. Pass float8='off'."
        )
    size, length = config.batch_size, config.model.sequence_length
    if size == "auto" and length % FLOAT8_MULTIPLE:  # its first trial is a single sequence
        raise OptionError(
            f"batch_size='auto' with float8={config.float8!r} needs a context_length that is a multiple of "
            f"{FLOAT8_MULTIPLE}, but it is {length}. Change context_length, or pass a number as batch_size, or "
            f"float8='off'."
        )
    if isinstance(size, int) and size * length % FLOAT8_MULTIPLE:
        raise OptionError(
            f"float8={config.float8!r} needs a multiple of {FLOAT8_MULTIPLE} tokens per micro-batch, but "
            f"batch_size={size} x context_length={length} is not one. Pass a context_length that is a multiple of "
            f"{FLOAT8_MULTIPLE}, or float8='off'."
        )
