"""The optimizers of a model, with a state of plain tensors that a checkpoint can hold without pickle."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from gristmill.errors import CheckpointError, OptionError
from gristmill.lm.training.muon import Muon

__all__ = ["OPTIMIZERS", "Optimizers", "build_optimizer"]

OPTIMIZERS = ("adamw", "muon")
_FUSED_DEVICES = ("cuda", "cpu")
_HEADS = ("head", "lm_head")
_ADAMW_KEYS = ("step", "exp_avg", "exp_avg_sq")
_MUON_KEYS = ("momentum",)


def build_optimizer(
    model: nn.Module,
    name: str = "adamw",
    *,
    lr: float,
    weight_decay: float = 0.1,
    betas: tuple[float, float] = (0.9, 0.95),
    eps: float = 1e-8,
    fused: bool | Literal["auto"] = "auto",
    muon_lr: float = 0.02,
    muon_momentum: float = 0.95,
) -> Optimizers:
    """The optimizers of all parameters of `model`, which must lie on its device and be bare: names are kept.

    Weight decay is for weights of two and more dimensions except embeddings. What has one dimension (norms, biases)
    and embeddings, of which a step touches a few rows but decay would shrink all, have none.

    "adamw" takes care of all of them. "muon" takes the two-dimensional weights inside the model, with `muon_lr`;
    embeddings, the head (a module named "head" or "lm_head") and the rest stay with AdamW and `lr`. Where a model has
    `stacked_weights()`, a mapping such as {"blocks.0.attention.qkv.weight": 3}, Muon treats such a weight as so many
    matrices on top of each other.
    """
    _check(name, fused, {"lr": lr, "eps": eps, "muon_lr": muon_lr}, weight_decay, (*betas, muon_momentum))
    kinds = _parameters_by_kind(model)
    for_muon = kinds.pop("hidden") if name == "muon" else {}
    plain = {**kinds.pop("embedding"), **kinds.pop("vector")}
    decayed = {key: parameter for of_kind in kinds.values() for key, parameter in of_kind.items()}
    optimizers: list[torch.optim.Optimizer] = []
    if decayed or plain:
        groups = [_group(decayed.values(), weight_decay=weight_decay), _group(plain.values(), weight_decay=0.0)]
        is_fused = _can_be_fused([*decayed.values(), *plain.values()]) if fused == "auto" else fused
        optimizers.append(torch.optim.AdamW(groups, lr=lr, betas=betas, eps=eps, fused=is_fused or None))
    if name == "muon":
        groups = _muon_groups(model, for_muon)
        optimizers.append(Muon(groups, lr=muon_lr, momentum=muon_momentum, weight_decay=weight_decay))
    return Optimizers(name, optimizers, {**decayed, **plain, **for_muon})


class Optimizers:
    """One or more optimizers that together hold each parameter once, used as one.

    `torch_optimizers` are those of torch, for a scaler of gradients or a wrapper that must see them; everything here
    stays valid when steps are taken through such a wrapper. Parameters may be sharded (DTensor), except under Muon.
    """

    def __init__(
        self, name: str, optimizers: Sequence[torch.optim.Optimizer], parameters: Mapping[str, Tensor]
    ) -> None:
        """`parameters`: all of them, by the names their state is to have."""
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
        """Change the parameters along their gradients."""
        for optimizer in self.torch_optimizers:
            optimizer.step()

    def zero_grad(self) -> None:
        """Drop all gradients."""
        for optimizer in self.torch_optimizers:
            optimizer.zero_grad(set_to_none=True)

    def set_learning_rate(self, scale: float) -> None:
        """Set each learning rate to `scale` times the one it was built with."""
        self._scale = scale
        for group in self._groups():
            group["lr"] = group["base_lr"] * scale

    @property
    def learning_rate(self) -> float:
        """The present learning rate of the first optimizer, AdamW where there is one."""
        return float(self.torch_optimizers[0].param_groups[0]["lr"])

    def num_decayed(self) -> tuple[int, int]:
        """How many numbers have weight decay, and how many have none."""
        counts = [0, 0]
        for group in self._groups():
            counts[group["weight_decay"] == 0] += sum(parameter.numel() for parameter in group["params"])
        return counts[0], counts[1]

    # State

    def state_tensors(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """All state: tensors named as "blocks.0.mlp.weight.exp_avg", and a few values for JSON.

        The tensors are those in use, not copies: the next step changes them. Before the first step there are none.
        """
        tensors = {}
        for name, parameter in self._parameters.items():
            for key, value in self._owners[id(parameter)].state.get(parameter, {}).items():
                tensors[f"{name}.{key}"] = value
        return tensors, {"optimizer": self.name, "learning_rate_scale": self._scale}

    def load_state_tensors(self, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> None:
        """Take over what `state_tensors` gave, wherever its tensors lie; `CheckpointError` if it does not fit."""
        if values.get("optimizer") != self.name:
            raise CheckpointError(
                f"the checkpoint has the state of optimizer {values.get('optimizer')!r}, and this is {self.name!r}. "
                f"Train on with the optimizer that was used."
            )
        states = {name: self._state_of(name, parameter, tensors) for name, parameter in self._parameters.items()}
        known = {f"{name}.{key}" for name, state in states.items() for key in state}
        if unknown := sorted(tensors.keys() - known):
            raise CheckpointError(f"the checkpoint has optimizer state for {unknown[0]!r}, which the model has not.")
        for name, parameter in self._parameters.items():  # all of it fits: change nothing before
            optimizer = self._owners[id(parameter)]
            optimizer.state.pop(parameter, None)
            if states[name]:
                optimizer.state[parameter] = states[name]
        self.set_learning_rate(float(values.get("learning_rate_scale", 1.0)))

    def _state_of(self, name: str, parameter: Tensor, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        optimizer = self._owners[id(parameter)]
        keys = _MUON_KEYS if isinstance(optimizer, Muon) else _ADAMW_KEYS
        found = {key: tensors[f"{name}.{key}"] for key in keys if f"{name}.{key}" in tensors}
        if found and len(found) < len(keys):
            missing = next(key for key in keys if key not in found)
            raise CheckpointError(f"the checkpoint has no {f'{name}.{missing}'!r}: its optimizer state is incomplete.")
        return {key: _fitted(f"{name}.{key}", value, key, parameter, optimizer) for key, value in found.items()}

    def _groups(self) -> list[dict[str, Any]]:
        return [group for optimizer in self.torch_optimizers for group in optimizer.param_groups]


def _fitted(name: str, value: Tensor, key: str, parameter: Tensor, optimizer: torch.optim.Optimizer) -> Tensor:
    """A copy of the tensor where the optimizer wants it."""
    shape = torch.Size() if key == "step" else parameter.shape
    dtype = torch.float32 if key == "step" else parameter.dtype
    if value.shape != shape or value.dtype != dtype:
        raise CheckpointError(
            f"the checkpoint's {name!r} is {value.dtype} {tuple(value.shape)}, and the model needs {dtype} "
            f"{tuple(shape)}. Train on with the configuration that was used."
        )
    if key == "step":  # beside the weights for a fused optimizer, otherwise in main memory
        return value.detach().clone().to(parameter.device if optimizer.defaults.get("fused") else "cpu")
    if _is_sharded(parameter):
        from torch.distributed.tensor import distribute_tensor

        return distribute_tensor(value.to(parameter.device), parameter.device_mesh, parameter.placements)  # type: ignore[attr-defined]
    return torch.empty_like(parameter, requires_grad=False).copy_(value)


def _parameters_by_kind(model: nn.Module) -> dict[str, dict[str, Tensor]]:
    """The parameters by kind and name. A weight under two names, as a tied embedding, counts under its first."""
    embeddings = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    kinds: dict[str, dict[str, Tensor]] = {
        kind: {} for kind in ("hidden", "head", "embedding", "other matrix", "vector")
    }
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            name = name.replace("_orig_mod.", "")  # what a compiled module puts into its names
            kinds[_kind(name, parameter, id(parameter) in embeddings)][name] = parameter
    if not any(kinds.values()):
        raise OptionError("the model has no parameters that require a gradient, so there is nothing to train.")
    return kinds


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
            "name='muon' needs two-dimensional weights besides embeddings and head, and the model has none. "
            "Pass name='adamw'."
        )
    if any(map(_is_sharded, weights.values())):
        raise OptionError(
            "name='muon' needs whole matrices, and those of this model are sharded. Pass name='adamw', or do not shard."
        )
    stacked: Mapping[str, int] = model.stacked_weights() if hasattr(model, "stacked_weights") else {}  # type: ignore[operator]
    groups: dict[int, list[Tensor]] = defaultdict(list)
    for name, weight in weights.items():
        number = stacked.get(name, 1)
        if weight.shape[0] % number:
            raise OptionError(f"stacked_weights: {name} has {weight.shape[0]} rows, which {number} does not divide.")
        groups[number].append(weight)
    return [_group(group, num_stacked=number) for number, group in sorted(groups.items())]


def _is_sharded(parameter: Tensor) -> bool:
    return hasattr(parameter, "device_mesh")  # a DTensor, whose module takes as long to import as half of torch


def _can_be_fused(parameters: Sequence[Tensor]) -> bool:
    return all(p.device.type in _FUSED_DEVICES and p.is_floating_point() for p in parameters)


def _check(name: str, fused: Any, positive: Mapping[str, float], weight_decay: float, betas: tuple[float, ...]) -> None:
    if name not in OPTIMIZERS:
        raise OptionError(f"name={name!r} is not an optimizer. Pass one of {', '.join(map(repr, OPTIMIZERS))}.")
    if not (isinstance(fused, bool) or fused == "auto"):
        raise OptionError(f"fused={fused!r} is not known. Pass 'auto', True or False.")
    for argument, value in positive.items():
        if not 0 < value < float("inf"):
            raise OptionError(f"{argument}={value} is out of range. Pass {argument} > 0.")
    if not 0 <= weight_decay < float("inf"):
        raise OptionError(f"weight_decay={weight_decay} is out of range. Pass weight_decay >= 0.")
    for beta in betas:
        if not 0 <= beta < 1:
            raise OptionError(f"a beta or momentum of {beta} is out of range. Pass 0 <= beta < 1.")
