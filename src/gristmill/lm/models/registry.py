"""The registry of models: a name, the options of the model, and the network made from them.

    @gm.lm.register_model("mine", config=MyConfig)
    class MyModel(gm.lm.Model): ...

The built-in models are entries like any other. Their networks need torch, and are imported when one is built.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from gristmill.arguments import nearest
from gristmill.errors import OptionError
from gristmill.lm.models.config import DocumentModelConfig, ModelConfig, WindowModelConfig
from gristmill.lm.models.gpt.options import GPTConfig
from gristmill.lm.models.vae.options import VAEConfig
from gristmill.lm.option_types import option_fields

if TYPE_CHECKING:
    from gristmill.lm.models.model import Model

__all__ = ["BUILT_IN", "MODELS", "ModelEntry", "build_model", "find_model", "register_model"]

Network = TypeVar("Network", bound="type[Any]")

_NAME = re.compile(r"[a-z][a-z0-9_-]*")


@dataclass(frozen=True)
class ModelEntry:
    """A model that can be trained."""

    config: type[ModelConfig]
    network: type[Model] | str  # a class, or "module:Class" of one that is imported when it is needed

    def network_class(self) -> type[Model]:
        """The class of the network."""
        if isinstance(self.network, str):
            module, _, name = self.network.partition(":")
            found: type[Model] = getattr(importlib.import_module(module), name)
            return found
        return self.network


_entries: dict[str, ModelEntry] = {}
MODELS: Mapping[str, ModelEntry] = MappingProxyType(_entries)
"""The models that can be trained, by name."""


def register_model(name: str, *, config: type[ModelConfig], overwrite: bool = False) -> Callable[[Network], Network]:
    """Make a model known as `name`: a decorator for its network, a `Model` that is built from a `config`.

    config: the dataclass of its options, which inherits from `WindowModelConfig` or `DocumentModelConfig`. Each option
        needs a default that JSON can hold: a number, text, True, False or None.
    overwrite: replace another model of this name. A class that is defined again, as when the cell of a notebook runs
        twice, needs no permission; the built-in names cannot be replaced.
    """
    _check_entry(name, config)

    def register(network: Network) -> Network:
        _check_network(name, config, network)
        if name in _entries and not overwrite and not _is_same_class(_entries[name].network, network):
            raise OptionError(
                f"register_model({name!r}): there is another model of this name. Choose another one, or pass "
                f"overwrite=True to replace it."
            )
        config.name = name
        _entries[name] = ModelEntry(config, network)
        return network

    return register


def _is_same_class(one: Any, other: type) -> bool:
    return (one.__module__, one.__qualname__) == (other.__module__, other.__qualname__)


def _check_entry(name: str, config: type[ModelConfig]) -> None:
    if not _NAME.fullmatch(name):
        raise OptionError(f"register_model({name!r}): pass a name of lowercase letters, digits, '-' and '_'.")
    if name in BUILT_IN:
        raise OptionError(f"register_model({name!r}): the name is taken by a built-in model. Pass another one.")
    if not (isinstance(config, type) and issubclass(config, WindowModelConfig | DocumentModelConfig)):
        raise OptionError(
            f"register_model({name!r}): config must be a dataclass that inherits from gm.lm.WindowModelConfig (windows "
            f"of tokens) or gm.lm.DocumentModelConfig (whole documents)."
        )
    if config.__dict__.get("name", name) != name:  # its own, not that of a config it inherits from
        raise OptionError(
            f"register_model({name!r}): {config.__name__} is the config of {config.name!r} already. Inherit from it "
            f"and register the new class."
        )
    _check_options(name, config)


def _check_options(name: str, config: type[ModelConfig]) -> None:
    """Refuse options that would get lost, or that config.json cannot hold."""
    if inspect.get_annotations(config) and "__dataclass_params__" not in vars(config):
        raise OptionError(
            f"register_model({name!r}): {config.__name__} is not a dataclass itself, so its options would be ignored. "
            f"Write @dataclass(frozen=True, kw_only=True) above it."
        )
    for option, field in option_fields(config).items():
        if field.default is dataclasses.MISSING or not isinstance(field.default, int | float | str | None):
            raise OptionError(
                f"register_model({name!r}): the option {option!r} of {config.__name__} has no default that config.json "
                f"can hold. Give it a number, text, True, False or None."
            )
    taken = {preset: other for other in _entries if other != name for preset in _entries[other].config.PRESETS}
    for preset in vars(config).get("PRESETS", {}):
        if preset in taken:
            raise OptionError(
                f"register_model({name!r}): the preset {preset!r} is one of model={taken[preset]!r}. Choose another "
                f"name for it."
            )


def _check_network(name: str, config: type[ModelConfig], network: type[Any]) -> None:
    from gristmill.lm.models.model import Model  # it needs torch, as every network does

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
            f"register_model({name!r}): {network.__name__} has no loss, and a batch of documents has the same tokens "
            f"as inputs and as targets: the usual loss would reward copying them. Add loss(batch, schedule), or "
            f"inherit the config from gm.lm.WindowModelConfig."
        )


def find_model(name: str) -> ModelEntry:
    """The entry of a model; `OptionError` names those there are."""
    if name not in _entries:
        raise OptionError(
            f"model={name!r} is not known.{nearest(str(name), _entries)} Pass one of "
            f"{', '.join(map(repr, _entries))}. A model of your own is known once the file that registers it was "
            f"imported: plugin='my_model.py'."
        )
    return _entries[name]


def build_model(config: ModelConfig, *, seed: int = 0) -> Model:
    """The network that a config describes, with random weights drawn from `seed`. Torch's generators are left alone."""
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
