"""Whether a model fits the weights in a file, found without building it.

config.json may be damaged or hostile: a model of 100,000 layers would fill the memory before its shapes were compared.
So the model is made of tensors without data first (torch's "meta" device), and only as many modules and tensors of it
as the weights in the file can account for.
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

# A tensor of the file stands for at most so many modules and tensors of the model: lists, dropouts, tied names.
PARTS_PER_TENSOR = 8
SPARE_PARTS = 1000
SPARE_BYTES = 4 << 30  # of tensors that no file holds, such as tables of positions


class _TooManyPartsError(GristmillError):
    """The model has more modules than its weights can account for."""


def check_sizes(build: Callable[[], nn.Module], weights: Mapping[str, Tensor], source: Path) -> None:
    """Raise `CheckpointError` unless the model that `build` would make has the shapes of `weights`.

    A model that cannot be built without data, because it computes with its weights when it is made, passes: then only
    the number of its parts is limited.
    """
    try:
        with _limited(PARTS_PER_TENSOR * len(weights) + SPARE_PARTS), torch.device("meta"), _WithoutData():
            model = build()
    except _TooManyPartsError:
        raise CheckpointError(
            f"{source}: it is of another model: the one that the config describes has far more layers than the "
            f"{len(weights):,} tensors of the file."
        ) from None
    except NotImplementedError:  # what torch raises where data is needed
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
            f"{source}: the model that the config describes needs {needed:,} bytes, far more than its weights. Is its "
            f"context length right?"
        )


def compare_shapes(needed: Mapping[str, Tensor], there: Mapping[str, Tensor], source: Path) -> None:
    """Raise `CheckpointError` for the first tensor that a model needs and a file does not have, or the reverse."""
    for name in [*needed, *(name for name in there if name not in needed)]:
        if name not in there:
            raise CheckpointError(f"{source}: it is of another model: it has no {name!r}.")
        if name not in needed:
            raise CheckpointError(f"{source}: it is of another model: {name!r} is not part of this one.")
        if there[name].shape != needed[name].shape:
            shapes = f"{list(there[name].shape)} there, {list(needed[name].shape)} in this one"
            raise CheckpointError(f"{source}: it is of another model: {name!r} has shape {shapes}.")


class _WithoutData(TorchFunctionMode):
    """Makes tensors without data also where a device is named, as for a table that is computed on the CPU."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if kwargs.get("device") is not None:
            kwargs["device"] = "meta"
        return func(*args, **kwargs)


@contextlib.contextmanager
def _limited(number: int) -> Iterator[None]:
    """Within the block, this thread can give its modules so many submodules, parameters and buffers, and no more."""
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
