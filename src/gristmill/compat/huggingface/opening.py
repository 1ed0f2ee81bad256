"""Where a tokenizer comes from: an object, a file, or a folder that `save_pretrained` wrote."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from gristmill.compat.huggingface.roles import ROLES
from gristmill.encode.tokenizer import Tokenizer, as_tokenizer
from gristmill.errors import OptionError, TokenizerFormatError
from gristmill.tokenizer.formats.content import parse_json, read_content

__all__ = ["find_tokenizer_json", "given_tokenizer", "read_settings"]


def given_tokenizer(tokenizer_object: Any, tokenizer_file: str | os.PathLike[str] | None) -> Tokenizer:
    """The tokenizer that was passed, as an object or as a file; one of the two must be there."""
    if (tokenizer_object is None) == (tokenizer_file is None):
        raise OptionError("pass either tokenizer_object, such as a gristmill.Tokenizer, or tokenizer_file.")
    if tokenizer_file is not None:
        return Tokenizer.load(tokenizer_file)
    return as_tokenizer(tokenizer_object, "tokenizer_object")


def find_tokenizer_json(folder: str | os.PathLike[str]) -> Path:
    """The tokenizer.json of a folder."""
    path = Path(folder, "tokenizer.json")
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file. Pass a folder with a tokenizer.json; nothing is downloaded.")
    return path


def read_settings(path: Path) -> dict[str, Any]:
    """Those settings of a tokenizer_config.json that we have too; none where there is no such file."""
    if not path.is_file():
        return {}
    try:
        config = parse_json(read_content(path))
    except TokenizerFormatError as error:
        raise TokenizerFormatError(f"{path}: {str(error).removeprefix(f'{path}: ')}") from None
    if not isinstance(config, dict):
        raise TokenizerFormatError(f"{path}: is not a JSON object.")
    settings = {
        name: config[name] for name in ("padding_side", "truncation_side", "model_max_length") if name in config
    }
    for role in ROLES:
        token = config.get(role)
        settings[role] = token.get("content") if isinstance(token, dict) else token
    return settings
