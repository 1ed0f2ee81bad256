"""The registry of models: for each name, the config class of the model and its network class.

    @gm.lm.register_model("mine", config=MyConfig)
    class MyModel(gm.lm.Model): ...

The built-in models are ordinary entries. Their networks need torch and are imported when a model is built.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar, get_args

from gristmill.arguments import nearest
from gristmill.errors import OptionError
from gristmill.lm.models.config import Averaging, DocumentModelConfig, ModelConfig, WindowModelConfig
from gristmill.lm.models.gpt.options import GPTConfig
from gristmill.lm.models.vae.options import VAEConfig
from gristmill.lm.option_types import option_fields

if TYPE_CHECKING:
    from gristmill.lm.models.model import Model

__all__ = ["BUILT_IN", "MODELS", "ModelEntry", "build_model", "find_model", "register_model"]

Network = TypeVar("Network", bound="type[Any]")

_NAME = re.compile(r"[a-z][a-z0-9_-]*")

# Keys in the records of every run. The statistics of a model cannot use these names.
RECORDED = frozenset(
    {
        *("kind", "step", "loss", "lr", "grad_norm", "grad_norm_max", "padding", "tokens", "tokens_per_second", "mfu"),
        *("mfu_matmul", "data_wait", "memory_bytes", "seconds", "bits_per_byte", "num_tokens", "full"),
    }
)


@dataclass(frozen=True)
class ModelEntry:
    """A registered model."""

    config: type[ModelConfig]
    """Class of the options."""
    network: type[Model] | str
    """Class of the network, or "module:Class", imported on first use."""

    def network_class(self) -> type[Model]:
        """Return the class of the network."""
        if isinstance(self.network, str):
            module, _, name = self.network.partition(":")
            found: type[Model] = getattr(importlib.import_module(module), name)
            return found
        return self.network


_entries: dict[str, ModelEntry] = {}
MODELS: Mapping[str, ModelEntry] = MappingProxyType(_entries)
"""The registered models by name, a read-only mapping."""


def register_model(name: str, *, config: type[ModelConfig], overwrite: bool = False) -> Callable[[Network], Network]:
    """Return a class decorator that registers a network under `name`.

    The network inherits from `Model` and is built from a `config`. Defining the same class again, for example by
    running a notebook cell twice, replaces it without `overwrite`. Built-in names cannot be replaced.

    Args:
        name: Name of the model, of lowercase letters, digits, '-' and '_'.
        config: Dataclass of its options, which inherits from `WindowModelConfig` or `DocumentModelConfig`. Each option
            needs a default that JSON can store: a number, text, True, False or None.
        overwrite: Replace another model of this name.

    Raises:
        OptionError: The name is taken or not allowed, an option has no such default, or the class is no usable network.

    Examples:
        ```python
        @gm.lm.register_model("mine", config=MyConfig)
        class MyModel(gm.lm.Model):
            def forward(self, tokens_BT): ...


        gm.lm.train("shards/", out="run/", model="mine")
        ```
    """
    _check_entry(name, config)

    def register(network: Network) -> Network:
        _check_network(name, config, network)
        if name in _entries and not overwrite and not _is_same_class(_entries[name].network, network):
            raise OptionError(
                f"register_model({name!r}): another model has this name. Choose another name, or pass overwrite=True "
                f"to replace it."
            )
        config.name = name
        _entries[name] = ModelEntry(config, network)
        return network

    return register


def _is_same_class(one: Any, other: type) -> bool:
    return (one.__module__, one.__qualname__) == (other.__module__, other.__qualname__)


def _check_entry(name: str, config: type[ModelConfig]) -> None:
    if not _NAME.fullmatch(name):
        raise OptionError(
            f"register_model({name!r}): the name is not allowed. Use lowercase letters, digits, '-' and '_'."
        )
    if name in BUILT_IN:
        raise OptionError(f"register_model({name!r}): a built-in model has this name. Choose another name.")
    if not (isinstance(config, type) and issubclass(config, WindowModelConfig | DocumentModelConfig)):
        raise OptionError(
            f"register_model({name!r}): config must be a dataclass that inherits from gm.lm.WindowModelConfig (windows "
            f"of tokens) or gm.lm.DocumentModelConfig (whole documents)."
        )
    if config.__dict__.get("name", name) != name:  # its own name, not an inherited one
        raise OptionError(
            f"register_model({name!r}): {config.__name__} is already the config of {config.name!r}. Inherit from it "
            f"and register the new class."
        )
    _check_options(name, config)


def _check_options(name: str, config: type[ModelConfig]) -> None:
    """Raise `OptionError` for options that would be ignored, or that config.json cannot store."""
    if inspect.get_annotations(config) and "__dataclass_params__" not in vars(config):
        raise OptionError(
            f"register_model({name!r}): {config.__name__} is not a dataclass itself, so its options would be ignored. "
            f"Write @dataclass(frozen=True, kw_only=True) above it."
        )
    for option, field in option_fields(config).items():
        if field.default is dataclasses.MISSING or not isinstance(field.default, int | float | str | None):
            raise OptionError(
                f"register_model({name!r}): the option {option!r} of {config.__name__} has no default that config.json "
                f"can store. Give it a number, text, True, False or None."
            )
    _check_statistics(name, config)
    taken = {preset: other for other in _entries if other != name for preset in _entries[other].config.PRESETS}
    for preset in vars(config).get("PRESETS", {}):
        if preset in taken:
            raise OptionError(
                f"register_model({name!r}): model={taken[preset]!r} already has a preset {preset!r}. Choose another "
                f"name for the preset."
            )


def _check_statistics(name: str, config: type[ModelConfig]) -> None:
    for statistic, average in config.STATISTICS.items():
        if statistic in RECORDED:
            raise OptionError(
                f"register_model({name!r}): the statistic {statistic!r} of {config.__name__} has the name of a value "
                f"that every run records. Choose another name."
            )
        if average not in get_args(Averaging):
            raise OptionError(
                f"register_model({name!r}): the statistic {statistic!r} of {config.__name__} is averaged by "
                f"{average!r}. Pass one of {', '.join(map(repr, get_args(Averaging)))}."
            )


def _check_network(name: str, config: type[ModelConfig], network: type[Any]) -> None:
    from gristmill.lm.models.model import Model  # needs torch, as every network does

    if not (isinstance(network, type) and issubclass(network, Model)):
        raise OptionError(
            f"register_model({name!r}): the network must be a class that inherits from gm.lm.Model and has a "
            f"forward(tokens_BT) or a loss(batch, schedule)."
        )
    if network.loss is not Model.loss:
        return
    if network.forward is Model.forward:
        raise OptionError(
            f"register_model({name!r}): {network.__name__} has neither forward nor loss. Add forward(tokens_BT), which "
            f"returns logits, or loss(batch, schedule)."
        )
    if issubclass(config, DocumentModelConfig):
        raise OptionError(
            f"register_model({name!r}): {network.__name__} has no loss(batch, schedule). Batches of documents have "
            f"the same tokens as inputs and targets, so the default loss would reward copying. Add a loss, or inherit "
            f"the config from gm.lm.WindowModelConfig."
        )


def find_model(name: str) -> ModelEntry:
    """Return the entry of a model; the `OptionError` for an unknown name lists the known names."""
    if not isinstance(name, str) or name not in _entries:  # a config file may have any value
        raise OptionError(
            f"model={name!r:.200} is not valid.{nearest(str(name), _entries)} Pass one of "
            f"{', '.join(map(repr, _entries))}. To use your own model, import the file that registers it: "
            f"plugin='my_model.py'."
        )
    return _entries[name]


def build_model(config: ModelConfig, *, seed: int = 0) -> Model:
    """Return the network of a config, with random weights drawn from `seed`.

    Torch's global generators are unchanged.
    """
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return find_model(config.name).network_class()(config)


def _register_built_in() -> frozenset[str]:
    built_in: dict[type[ModelConfig], str] = {
        GPTConfig: "gristmill.lm.models.gpt.network:GPT",
        VAEConfig: "gristmill.lm.models.vae.network:SequenceVAE",
    }
    _entries.update({config.name: ModelEntry(config, network) for config, network in built_in.items()})
    return frozenset(_entries)


BUILT_IN = _register_built_in()
