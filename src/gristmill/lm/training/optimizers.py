"""Optimizers of a model. Their state is plain tensors, which a checkpoint stores without pickle."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import torch
from torch import Tensor, nn

from gristmill.errors import CheckpointError, OptionError, TrainingError
from gristmill.lm.registry import accepted_options
from gristmill.lm.training.muon import Muon
from gristmill.lm.training.registries import OPTIMIZERS, register_optimizer
from gristmill.lm.training.triton_adamw import TritonAdamW

if TYPE_CHECKING:
    from gristmill.lm.kernels.weight_copies import WeightCopies

__all__ = ["OPTIMIZERS", "Optimizers", "build_optimizer", "register_optimizer"]

_FUSED_DEVICES = ("cuda", "cpu")
_HEADS = ("head", "lm_head")
# For these optimizers, a checkpoint must have each tensor, in the shape of its parameter. The state of other optimizers
# is not checked.
_KEYS: Mapping[type[torch.optim.Optimizer], tuple[str, ...]] = {
    torch.optim.AdamW: ("step", "exp_avg", "exp_avg_sq"),
    TritonAdamW: ("step", "exp_avg", "exp_avg_sq"),
    Muon: ("momentum",),
}
_NOT_SAVED = ("params", "lr", "base_lr")  # keys of a group: weights have their own file, and the schedule sets lr

Fused: TypeAlias = bool | Literal["auto"]
# Number of equally sized matrices stacked in a weight, or the rows of each.
Stacked: TypeAlias = int | tuple[int, ...]


def build_optimizer(
    model: nn.Module,
    name: str = "adamw",
    *,
    lr: float,
    weight_decay: float = 0.1,
    betas: tuple[float, float] = (0.9, 0.95),
    eps: float = 1e-8,
    fused: Fused = "auto",
    muon_lr: float = 0.02,
    muon_momentum: float = 0.95,
    copies: WeightCopies | None = None,
) -> Optimizers:
    """Return the optimizers of all parameters of `model`, which must be on its device and not wrapped.

    Weight decay applies to weights with two or more dimensions, except embeddings. Weights with one dimension (norms,
    biases) are not decayed, and neither are embeddings: a step updates only a few of their rows, but decay would shrink
    all.

    "adamw" optimizes all parameters. "muon" optimizes the two-dimensional weights inside the model with `muon_lr`;
    embeddings, the head (a module named "head" or "lm_head") and the rest use AdamW with `lr`. If a model has
    `stacked_weights()`, a mapping such as {"blocks.0.attention.qkv.weight": 3}, Muon treats each of these weights as
    that many stacked matrices. A tuple such as (64, 16, 16) gives the rows of each. Other names are those passed to
    `register_optimizer`.

    copies: copies of the weights for kernels. AdamW is then a kernel too, and writes them.
    """
    _check(fused, {"lr": lr, "eps": eps, "muon_lr": muon_lr}, weight_decay, (*betas, muon_momentum))
    OPTIMIZERS.check(name, "name")
    build = OPTIMIZERS[name]
    options = {"lr": lr, "weight_decay": weight_decay, "betas": betas, "eps": eps}
    options |= {"fused": fused, "muon_lr": muon_lr, "muon_momentum": muon_momentum, "copies": copies}
    built = build(model, **accepted_options(build, options))
    if isinstance(built, Optimizers):
        return built
    several = list(built) if isinstance(built, list | tuple) else [built]
    for each in several:
        if not isinstance(each, torch.optim.Optimizer):
            raise OptionError(
                f"optimizer {name!r} returned a {type(each).__name__}. Return a torch.optim.Optimizer, or a list of "
                f"them."
            )
    return Optimizers(name, several, _held(name, several, model))


def build_adamw(
    model: nn.Module,
    *,
    lr: float,
    weight_decay: float,
    betas: tuple[float, float],
    eps: float,
    fused: Fused,
    copies: WeightCopies | None,
) -> Optimizers:
    """Return AdamW for all parameters."""
    kinds = _parameters_by_kind(model)
    adamw, held = _adamw(kinds, lr=lr, weight_decay=weight_decay, betas=betas, eps=eps, fused=fused, copies=copies)
    return Optimizers("adamw", adamw, held)


def build_muon(
    model: nn.Module,
    *,
    lr: float,
    weight_decay: float,
    betas: tuple[float, float],
    eps: float,
    fused: Fused,
    muon_lr: float,
    muon_momentum: float,
    copies: WeightCopies | None,
) -> Optimizers:
    """Return Muon for the matrices inside the model and AdamW for the rest."""
    kinds = _parameters_by_kind(model)
    hidden = kinds.pop("hidden")
    adamw, held = _adamw(kinds, lr=lr, weight_decay=weight_decay, betas=betas, eps=eps, fused=fused, copies=copies)
    muon = Muon(_muon_groups(model, hidden), lr=muon_lr, momentum=muon_momentum, weight_decay=weight_decay)
    return Optimizers("muon", [*adamw, muon], {**held, **hidden})


def _adamw(
    kinds: dict[str, dict[str, Tensor]],
    *,
    weight_decay: float,
    fused: Fused,
    copies: WeightCopies | None,
    **options: Any,
) -> tuple[list[torch.optim.Optimizer], dict[str, Tensor]]:
    """Return ([AdamW], or [] without parameters for it; its parameters by name)."""
    plain = {**kinds.pop("embedding"), **kinds.pop("vector")}
    decayed = {key: parameter for of_kind in kinds.values() for key, parameter in of_kind.items()}
    held = {**decayed, **plain}
    if not held:
        return [], {}
    groups = [_group(decayed.values(), weight_decay=weight_decay), _group(plain.values(), weight_decay=0.0)]
    if copies is not None:
        return [TritonAdamW(groups, copies=copies, **options)], held
    is_fused = _can_be_fused(list(held.values())) if fused == "auto" else fused
    return [torch.optim.AdamW(groups, fused=is_fused or None, **options)], held


def _held(name: str, optimizers: Sequence[torch.optim.Optimizer], model: nn.Module) -> Mapping[str, Tensor]:
    """Return the parameters of the model that the optimizers hold, by name."""
    held = {id(each) for optimizer in optimizers for group in optimizer.param_groups for each in group["params"]}
    named = {_bare(key): parameter for key, parameter in model.named_parameters() if id(parameter) in held}
    if len(named) < len(held):
        raise OptionError(
            f"optimizer {name!r} has {len(held) - len(named)} parameters that are not the model's. Build it from "
            f"model.parameters() or model.named_parameters()."
        )
    return named


class Optimizers:
    """One or more optimizers that together hold each parameter once, used as one.

    `torch_optimizers` are the torch optimizers, for a gradient scaler or a wrapper that needs them. Calling their
    `step` through a wrapper is allowed. Parameters may be sharded (DTensor).
    """

    def __init__(
        self, name: str, optimizers: Sequence[torch.optim.Optimizer], parameters: Mapping[str, Tensor]
    ) -> None:
        """`parameters`: all parameters, by their names in the saved state."""
        self.name = name
        self.torch_optimizers = tuple(optimizers)
        self._parameters = dict(parameters)
        self._scale = 1.0
        self._owners = {
            id(parameter): optimizer
            for optimizer in self.torch_optimizers
            for group in optimizer.param_groups
            for parameter in group["params"]
        }
        for group in self._groups():
            group["base_lr"] = group["lr"]

    def step(self) -> None:
        """Update the parameters from their gradients."""
        for optimizer in self.torch_optimizers:
            optimizer.step()

    def zero_grad(self) -> None:
        """Delete all gradients."""
        for optimizer in self.torch_optimizers:
            optimizer.zero_grad(set_to_none=True)

    def set_learning_rate(self, scale: float) -> None:
        """Set each learning rate to `scale` times its initial value."""
        self._scale = scale
        for group in self._groups():
            group["lr"] = group["base_lr"] * scale

    @property
    def learning_rate(self) -> float:
        """Current learning rate of the first optimizer, which is AdamW if it is used."""
        return float(self.torch_optimizers[0].param_groups[0]["lr"])

    def num_decayed(self) -> tuple[int, int]:
        """Return the number of weights with and without weight decay."""
        counts = [0, 0]
        for group in self._groups():
            counts[not group.get("weight_decay")] += sum(parameter.numel() for parameter in group["params"])
        return counts[0], counts[1]

    # State

    def state_tensors(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return (tensors by names such as "blocks.0.mlp.weight.exp_avg", values for JSON): the whole state.

        The tensors are not copies: the next step changes them. Before the first step there are none. The JSON values
        are the numbers that an optimizer keeps besides tensors, and those of its groups unless they are constant.
        """
        tensors: dict[str, Any] = {}
        numbers: dict[str, Any] = {}
        for name, parameter in self._parameters.items():
            for key, value in self._owners[id(parameter)].state.get(parameter, {}).items():
                self._check_savable(key, value)
                (tensors if isinstance(value, Tensor) else numbers)[f"{name}.{key}"] = value
        values: dict[str, Any] = {"optimizer": self.name, "learning_rate_scale": self._scale}
        if numbers:
            values["state"] = numbers
        if groups := [_plain_values(group) for group in self._changing_groups()]:
            values["groups"] = groups
        return tensors, values

    def load_state_tensors(self, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> None:
        """Restore the result of `state_tensors`, from any device; raise `CheckpointError` if it does not fit."""
        if values.get("optimizer") != self.name:
            raise CheckpointError(
                f"the checkpoint has the state of optimizer {values.get('optimizer')!r}, but this run uses "
                f"{self.name!r}. Resume with the original optimizer."
            )
        states: dict[str, dict[str, Any]] = {name: {} for name in self._parameters}
        for full_name, value in {**tensors, **values.get("state", {})}.items():
            name, _, key = full_name.rpartition(".")
            if name not in states:
                raise CheckpointError(
                    f"the checkpoint has optimizer state for {full_name!r}, which is not in the model. Resume with the "
                    f"original model."
                )
            states[name][key] = self._fitted(name, key, value)
        for name, state in states.items():
            self._check_complete(name, state)
        groups, saved = self._changing_groups(), values.get("groups", [])
        if len(groups) != len(saved):
            raise CheckpointError(
                f"the checkpoint has {len(saved)} groups of optimizer {self.name!r}, but this run has {len(groups)}. "
                f"Resume with the original optimizer."
            )
        for name, parameter in self._parameters.items():  # nothing is changed before every check has passed
            optimizer = self._owners[id(parameter)]
            optimizer.state.pop(parameter, None)
            if states[name]:
                optimizer.state[parameter] = states[name]
        for group, plain in zip(groups, saved, strict=True):
            group.update({key: tuple(value) if isinstance(value, list) else value for key, value in plain.items()})
        self.set_learning_rate(float(values.get("learning_rate_scale", 1.0)))

    def _fitted(self, name: str, key: str, value: Any) -> Any:
        """Return a copy of a tensor on the device that the optimizer needs; return a number unchanged."""
        parameter = self._parameters[name]
        optimizer = self._owners[id(parameter)]
        if not isinstance(value, Tensor):
            return value
        if type(optimizer) in _KEYS:
            _check_fit(f"{name}.{key}", value, key, parameter)
        if key == "step":  # on the device of the weights for a fused optimizer, otherwise in main memory
            of_device = optimizer.defaults.get("fused") or optimizer.defaults.get("capturable")
            return value.detach().clone().to(parameter.device if of_device else "cpu")
        if value.shape != parameter.shape:
            return value.detach().clone().to(parameter.device)
        if _is_sharded(parameter):
            from torch.distributed.tensor import distribute_tensor

            return distribute_tensor(value.to(parameter.device), parameter.device_mesh, parameter.placements)  # type: ignore[attr-defined]
        return torch.empty_like(parameter, dtype=value.dtype, requires_grad=False).copy_(value)

    def _check_complete(self, name: str, state: Mapping[str, Any]) -> None:
        keys = _KEYS.get(type(self._owners[id(self._parameters[name])]), ())
        if state and (missing := [key for key in keys if key not in state]):
            raise CheckpointError(
                f"the checkpoint has no {f'{name}.{missing[0]}'!r}: its optimizer state is incomplete. Resume from "
                f"another checkpoint, or start a new run with init_from, which needs only the weights."
            )

    def _check_savable(self, key: Any, value: Any) -> None:
        is_named = isinstance(key, str) and "." not in key
        if not is_named or not (isinstance(value, Tensor) or _is_plain(value)):
            raise TrainingError(
                f"optimizer {self.name!r} keeps {key!r}, a {type(value).__name__}, for a parameter. A checkpoint can "
                f"store only tensors and finite numbers, under names without a dot. Change the optimizer to keep only "
                f"those, or use another one."
            )

    def _changing_groups(self) -> list[dict[str, Any]]:
        """Return the groups whose numbers may change between steps: those of optimizers that are not built in."""
        theirs = [optimizer for optimizer in self.torch_optimizers if type(optimizer) not in _KEYS]
        return [group for optimizer in theirs for group in optimizer.param_groups]

    def _groups(self) -> list[dict[str, Any]]:
        return [group for optimizer in self.torch_optimizers for group in optimizer.param_groups]


def _check_fit(full_name: str, value: Tensor, key: str, parameter: Tensor) -> None:
    shape = torch.Size() if key == "step" else parameter.shape
    dtype = torch.float32 if key == "step" else parameter.dtype
    if value.shape != shape or value.dtype != dtype:
        raise CheckpointError(
            f"the checkpoint's {full_name!r} is {value.dtype} {tuple(value.shape)}, but the model needs {dtype} "
            f"{tuple(shape)}. Resume with the original configuration."
        )


def _is_plain(value: Any) -> bool:
    """Return whether a value survives a round trip through JSON unchanged."""
    return value is None or isinstance(value, bool | int | str) or (isinstance(value, float) and math.isfinite(value))


def _plain_values(group: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a group that JSON can store: plain values, and tuples of them as lists."""
    kept = {key: value for key, value in group.items() if key not in _NOT_SAVED}
    plain = {key: value for key, value in kept.items() if _is_plain(value)}
    return plain | {
        key: list(value) for key, value in kept.items() if isinstance(value, tuple) and all(map(_is_plain, value))
    }


def _parameters_by_kind(model: nn.Module) -> dict[str, dict[str, Tensor]]:
    """Return the parameters by kind and name. A tied weight has its first name."""
    embeddings = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    kinds: dict[str, dict[str, Tensor]] = {
        kind: {} for kind in ("hidden", "head", "embedding", "other matrix", "vector")
    }
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            name = _bare(name)
            kinds[_kind(name, parameter, id(parameter) in embeddings)][name] = parameter
    if not any(kinds.values()):
        raise OptionError("the model has no parameters that require a gradient. Set requires_grad of those to train.")
    return kinds


def _bare(name: str) -> str:
    """Return the name without the prefix that torch.compile adds."""
    return name.replace("_orig_mod.", "")


def _kind(name: str, parameter: Tensor, is_embedding: bool) -> str:
    modules = name.split(".")[:-1]
    if is_embedding or "embedding" in modules:
        return "embedding"
    if parameter.ndim < 2:
        return "vector"
    if any(module in _HEADS for module in modules):
        return "head"
    return "hidden" if parameter.ndim == 2 else "other matrix"


def _group(parameters: Iterable[Tensor], **options: Any) -> dict[str, Any]:
    return {"params": list(parameters), **options}


def _muon_groups(model: nn.Module, weights: Mapping[str, Tensor]) -> list[dict[str, Any]]:
    if not weights:
        raise OptionError(
            "optimizer='muon' needs two-dimensional weights other than embeddings and head, but the model has none. "
            "Pass optimizer='adamw'."
        )
    stacked: Mapping[str, Stacked] = model.stacked_weights() if hasattr(model, "stacked_weights") else {}  # type: ignore[operator]
    groups: dict[Stacked, list[Tensor]] = defaultdict(list)
    for name, weight in weights.items():
        parts = stacked.get(name, 1)
        _check_stacked(name, weight.shape[0], parts)
        groups[parts].append(weight)
    in_order = sorted(groups, key=lambda parts: (0, (parts,)) if isinstance(parts, int) else (1, parts))
    return [_group(groups[parts], num_stacked=parts) for parts in in_order]


def _check_stacked(name: str, num_rows: int, parts: Stacked) -> None:
    if isinstance(parts, int) and num_rows % parts:
        raise OptionError(
            f"stacked_weights: {name} has {num_rows} rows, which is not a multiple of {parts}. Return a divisor of its "
            f"rows."
        )
    if not isinstance(parts, int) and sum(parts) != num_rows:
        raise OptionError(
            f"stacked_weights: {name} has {num_rows} rows, but the parts {parts} have {sum(parts)}. Return parts with "
            f"{num_rows} rows in total."
        )


def _is_sharded(parameter: Tensor) -> bool:
    return hasattr(parameter, "device_mesh")  # a DTensor; importing its module takes half as long as importing torch


def _can_be_fused(parameters: Sequence[Tensor]) -> bool:
    return all(p.device.type in _FUSED_DEVICES and p.is_floating_point() for p in parameters)


def _check(fused: Any, positive: Mapping[str, float], weight_decay: float, betas: tuple[float, ...]) -> None:
    if not (isinstance(fused, bool) or fused == "auto"):
        raise OptionError(f"fused={fused!r} is not valid. Pass 'auto', True or False.")
    for argument, value in positive.items():
        if not 0 < value < float("inf"):
            raise OptionError(f"{argument} must be > 0, got {value}.")
    if not 0 <= weight_decay < float("inf"):
        raise OptionError(f"weight_decay must be >= 0, got {weight_decay}.")
    for beta in betas:
        if not 0 <= beta < 1:
            raise OptionError(f"betas and momentum must be >= 0 and < 1, got {beta}.")
