"""Check whether a model fits the weights in a file, without allocating it.

config.json may be damaged or malicious: a model of 100,000 layers would fill the memory before its shapes are compared.
So the model is first built from tensors without data (torch's "meta" device), with a limit on the number of modules and
tensors that is proportional to the number of tensors in the file.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import module as torch_modules
from torch.overrides import TorchFunctionMode

from gristmill.errors import CheckpointError, GristmillError

__all__ = ["check_sizes", "compare_shapes"]

# Maximum number of modules and tensors of the model per tensor in the file: lists, dropouts, tied names.
PARTS_PER_TENSOR = 8
SPARE_PARTS = 1000
ADVICE = "Use the config that the weights were saved with."
SPARE_BYTES = 4 << 30  # for tensors that are not saved, such as position tables


class _TooManyPartsError(GristmillError):
    """The model has more modules than the limit for its weights."""


def check_sizes(build: Callable[[], nn.Module], weights: Mapping[str, Tensor], source: Path) -> None:
    """Raise `CheckpointError` unless the model that `build` would make has the shapes of `weights`.

    A model that cannot be built without data, because its constructor computes with its weights, passes. Only the
    number of its parts is limited then.
    """
    try:
        with _limited(PARTS_PER_TENSOR * len(weights) + SPARE_PARTS), torch.device("meta"), _WithoutData():
            model = build()
    except _TooManyPartsError:
        raise CheckpointError(
            f"{source}: the weights belong to another model: the config describes far more layers than the "
            f"{len(weights):,} tensors in the file. {ADVICE}"
        ) from None
    except NotImplementedError:  # raised by torch when data is needed
        return
    except (RuntimeError, TypeError, ValueError, OverflowError, MemoryError) as error:
        if "meta tensors" in str(error):
            return
        raise CheckpointError(f"{source}: the model that the config describes cannot be built: {error}") from None
    compare_shapes(model.state_dict(), weights, source)
    allowed = sum(tensor.nbytes for tensor in weights.values()) + SPARE_BYTES
    needed = sum(tensor.nbytes for tensor in (*model.parameters(), *model.buffers()))
    if needed > allowed:
        raise CheckpointError(
            f"{source}: the model that the config describes needs {needed:,} bytes, far more than its weights. Check "
            f"its context length."
        )


def compare_shapes(needed: Mapping[str, Tensor], there: Mapping[str, Tensor], source: Path) -> None:
    """Raise `CheckpointError` for the first tensor that is missing, unexpected, or of another shape."""
    for name in [*needed, *(name for name in there if name not in needed)]:
        if name not in there:
            raise CheckpointError(f"{source}: the weights belong to another model: {name!r} is missing. {ADVICE}")
        if name not in needed:
            raise CheckpointError(
                f"{source}: the weights belong to another model: {name!r} is not part of this model. {ADVICE}"
            )
        if there[name].shape != needed[name].shape:
            shapes = f"{list(there[name].shape)} in the file and {list(needed[name].shape)} in the model"
            raise CheckpointError(
                f"{source}: the weights belong to another model: {name!r} has shape {shapes}. {ADVICE}"
            )


class _WithoutData(TorchFunctionMode):
    """Create tensors without data even if a device is named, as for a table that is computed on the CPU."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if kwargs.get("device") is not None:
            kwargs["device"] = "meta"
        return func(*args, **kwargs)


@contextlib.contextmanager
def _limited(number: int) -> Iterator[None]:
    """Limit the number of submodules, parameters and buffers that this thread can register within the block."""
    left, thread = number, threading.get_ident()

    def count(*_: Any) -> None:
        nonlocal left
        if threading.get_ident() == thread:
            left -= 1
            if left < 0:
                raise _TooManyPartsError

    with contextlib.ExitStack() as hooks:
        for register in (
            torch_modules.register_module_module_registration_hook,
            torch_modules.register_module_parameter_registration_hook,
            torch_modules.register_module_buffer_registration_hook,
        ):
            hooks.callback(register(count).remove)
        yield
