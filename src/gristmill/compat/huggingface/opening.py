"""Loading the tokenizer of the stand-in from an object, a file, or a folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from gristmill.compat.huggingface.roles import ROLES
from gristmill.encode.tokenizer import Tokenizer, as_tokenizer
from gristmill.errors import OptionError, TokenizerFormatError
from gristmill.tokenizer.formats import HEAD_BYTES, huggingface
from gristmill.tokenizer.formats.content import parse_json, read_content
from gristmill.tokenizer.formats.tokenizer_config import NAME as CONFIG_NAME

__all__ = ["check_folder", "given_tokenizer", "has_their_file", "read_settings"]


def given_tokenizer(tokenizer_object: Any, tokenizer_file: str | os.PathLike[str] | None) -> Tokenizer:
    """Return the tokenizer that was passed, as an object or as a file; exactly one of them must be given."""
    if (tokenizer_object is None) == (tokenizer_file is None):
        got = "neither" if tokenizer_file is None else "both"
        raise OptionError(
            f"pass exactly one of tokenizer_object, such as a gristmill.Tokenizer, and tokenizer_file, got {got}."
        )
    if tokenizer_file is not None:
        return Tokenizer.load(tokenizer_file)
    return as_tokenizer(tokenizer_object, "tokenizer_object")


def check_folder(folder: str | os.PathLike[str]) -> Path:
    """Return the path of an existing folder."""
    path = Path(folder)
    if not path.is_dir():
        raise FileNotFoundError(
            f"{os.fspath(folder)}: no such folder. Pass a folder with a tokenizer; nothing is downloaded."
        )
    return path


def has_their_file(folder: Path) -> bool:
    """Whether a folder has a tokenizer.json that transformers can read."""
    path = folder / huggingface.TOKENIZER_NAME
    return path.is_file() and huggingface.recognizes(path, read_content(path, HEAD_BYTES))


def read_settings(folder: Path) -> dict[str, Any]:
    """Return the settings in a folder's tokenizer_config.json that the stand-in has; empty if the file is missing."""
    path = folder / CONFIG_NAME
    if not path.is_file():
        return {}
    try:
        config = parse_json(read_content(path))
    except TokenizerFormatError as error:
        raise TokenizerFormatError(f"{path}: {str(error).removeprefix(f'{path}: ')}") from None
    if not isinstance(config, dict):
        raise TokenizerFormatError(f"{path}: not a JSON object. The file is damaged.")
    settings = {
        name: config[name] for name in ("padding_side", "truncation_side", "model_max_length") if name in config
    }
    for role in ROLES:
        token = config.get(role)
        settings[role] = token.get("content") if isinstance(token, dict) else token
    return settings
