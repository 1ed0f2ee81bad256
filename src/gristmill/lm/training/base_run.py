"""What a run takes over from the run that `init_from` names, besides its weights: sizes, tokenizer, chat template.

Only options that are not passed are taken over. A run that is resumed has its own tokenizer and template in its folder.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gristmill.lm.data.chat_jinja import CHAT_TEMPLATE_FILE, has_template
from gristmill.lm.data.options import TOKENIZER_FILE
from gristmill.lm.explain import CHECKPOINTS, is_run
from gristmill.lm.models.gpt.options import GPTConfig
from gristmill.lm.models.registry import find_model
from gristmill.lm.option_types import option_fields
from gristmill.lm.training.config import load_config

__all__ = ["sizes_of_base", "with_base", "with_own_files"]


def with_base(options: Mapping[str, Any], *, has_defaults: bool = False) -> dict[str, Any]:
    """The options of a new run, with those underneath that come from the run of `init_from`.

    has_defaults: the options hold all there are, so that one with its default value was not asked for.
    """
    base = options.get("init_from")
    if base is None:
        return dict(options)
    model = options.get("model", GPTConfig.name)
    defaults = option_fields(find_model(model).config)
    found = dict(options)
    for name, value in sizes_of_base(base, model).items():
        if found.get(name) is None or (has_defaults and found[name] == defaults[name].default):
            found[name] = value
    return with_own_files(Path(base), found) if found.get("conversations") else found


def sizes_of_base(base: str | Path, model: str) -> dict[str, Any]:
    """The options that the weights of a run were made for; {} where it is no run, or has another model.

    Whether there is a run at all is checked when its weights are read.
    """
    if not _is_run(Path(base)):
        return {}
    options = load_config(Path(base)).to_json()
    kind = find_model(model).config
    names = kind.SIZES & option_fields(kind).keys()
    return {name: options[name] for name in names} if options["model"] == model else {}


def with_own_files(folder: Path, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a run on conversations, with the tokenizer and the chat template of a folder where none is given.

    The folder is that of a run, or one of Hugging Face.
    """
    found = dict(options)
    if found.get("tokenizer") is None and (folder / TOKENIZER_FILE).is_file():
        found["tokenizer"] = str(folder / TOKENIZER_FILE if _is_run(folder) else folder)
    if found.get("chat_template") is None and has_template(folder):
        own = folder / CHAT_TEMPLATE_FILE
        found["chat_template"] = str(own if own.is_file() and _is_run(folder) else folder)
    return found


def _is_run(folder: Path) -> bool:
    """Whether it is the folder of a run. One of Hugging Face has a config.json too, and no checkpoints."""
    return is_run(folder) and (folder / CHECKPOINTS).is_dir()
