"""Options that a run takes from the folder in `init_from`, besides weights: sizes, tokenizer, chat template.

The folder is a run or a Hugging Face model. Options that are not passed are taken from it. A passed size that
contradicts the weights is an error even if the shapes match: with a different number of heads, the weights are
meaningless. A resumed run has its own tokenizer and template in its folder.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from gristmill.errors import OptionError
from gristmill.lm.data.chat_jinja import CHAT_TEMPLATE_FILE, has_template
from gristmill.lm.data.options import TOKENIZER_FILE
from gristmill.lm.explain import CHECKPOINTS, is_run
from gristmill.lm.models.gpt.options import GPTConfig
from gristmill.lm.option_types import option_fields
from gristmill.lm.training.config import load_config
from gristmill.lm.training.pretrained import is_pretrained, pretrained_options

__all__ = ["with_base", "with_own_files", "with_sizes_of_base"]

# Options that may differ: no weight depends on them, and training adapts to them. Long contexts are often trained
# last, with a greater rope_theta.
FREE_SIZES = frozenset({"context_length", "rope_theta", "sliding_window"})


def with_base(requested: Mapping[str, Any], *, left_out: Collection[str] = ()) -> dict[str, Any]:
    """Return the options of a new run, completed with those of the folder in `init_from`.

    left_out: options in `requested` that only have their default value, so the folder may replace them.
    """
    given = {name: value for name, value in requested.items() if name not in left_out}
    found = {**requested, **with_sizes_of_base(given)}
    if found.get("init_from") is None or not found.get("conversations"):
        return found
    return with_own_files(Path(found["init_from"]), found)


def with_sizes_of_base(requested: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options with the sizes of the model in `init_from`; raise `OptionError` if one contradicts them."""
    start = requested.get("init_from")
    if start is None:
        return dict(requested)
    given = {name: value for name, value in requested.items() if value is not None}
    there, free = _sizes_of_base(Path(start), requested.get("model") or GPTConfig.name)
    for name, value in there.items():
        if name not in free and given.get(name, value) != value:
            raise OptionError(
                f"{name}={given[name]!r} does not fit init_from={str(start)!r}: the model there has "
                f"{'none' if value is None else repr(value)}. Leave {name} out, and any preset that sets it."
            )
    return {**requested, **there, **given}


def _sizes_of_base(folder: Path, model: str) -> tuple[dict[str, Any], frozenset[str]]:
    """Return (sizes of the model in a folder, names that may differ). Sizes are {} if it has no model of this kind.

    Whether the folder has a model at all is checked when its weights are read.
    """
    if is_pretrained(folder):
        return pretrained_options(folder, model), FREE_SIZES
    if not _is_run(folder):
        return {}, FREE_SIZES
    config = load_config(folder).model
    sizes = config.sizes() if config.name == model else {}
    options = {name: value for name, value in sizes.items() if name in option_fields(type(config))}
    return options, FREE_SIZES | {
        "vocab_size"
    }  # a run pads its embedding table, which leaves rows for new special tokens


def with_own_files(folder: Path, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a run on conversations, with the tokenizer and chat template of a folder as defaults.

    The folder is a run or a Hugging Face model.
    """
    found = dict(options)
    if found.get("tokenizer") is None and (folder / TOKENIZER_FILE).is_file():
        found["tokenizer"] = str(folder / TOKENIZER_FILE if _is_run(folder) else folder)
    if found.get("chat_template") is None and has_template(folder):
        own = folder / CHAT_TEMPLATE_FILE
        found["chat_template"] = str(own if own.is_file() and _is_run(folder) else folder)
    return found


def _is_run(folder: Path) -> bool:
    """Return whether this is the folder of a run. A Hugging Face folder has a config.json too, but no checkpoints."""
    return is_run(folder) and (folder / CHECKPOINTS).is_dir()
