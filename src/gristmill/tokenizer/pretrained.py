"""`Tokenizer.from_pretrained`: a tokenizer from a folder, or by name from the Hugging Face Hub.

An existing path is read. Any other string of the form `owner/name` or `name` is a name on the Hub: the package
`huggingface_hub` downloads the tokenizer files, and no others, or takes them from its cache. No downloaded code is
executed, and pickles are not among the files.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from gristmill.errors import OptionError
from gristmill.packages import load_package
from gristmill.tokenizer.formats import read_tokenizer
from gristmill.tokenizer.formats.content import checked_path, may_be_hub_name
from gristmill.tokenizer.parts import TokenizerParts

# Not every *.json, because the folder of a model may have large ones that are not tokenizers.
DOWNLOADED = (
    *("tokenizer.json", "vocab.json", "encoder.json", "merges.txt", "vocab.bpe", "tokenizer_config.json"),
    *("*.tiktoken", "*.model"),
)


def read_pretrained(name: str | os.PathLike[str], *, revision: str | None = None, **options: Any) -> TokenizerParts:
    """Return the tokenizer in a folder or file, or with this name on the Hub.

    revision: a branch, tag or commit on the Hub.
    options: options of `read_tokenizer`.
    """
    path = checked_path(name, "name")
    if not isinstance(revision, str | None):
        raise OptionError(
            f"revision={revision!r} is of type {type(revision).__name__}. Pass the name of a branch, tag or commit."
        )
    if path.exists():
        if revision is not None:
            raise OptionError(
                f"revision={revision!r} applies to names on the Hub, but {os.fspath(name)} is a path. Leave it out."
            )
        return read_tokenizer(path, **options)
    text = os.fspath(name)
    if not isinstance(name, str) or not may_be_hub_name(text):
        raise FileNotFoundError(
            f"{text}: no such file or folder. Pass a folder with a tokenizer.json, or a name on the Hugging Face Hub "
            f"such as 'openai-community/gpt2'."
        )
    return read_tokenizer(_downloaded(text, revision), name=text, **options)


def _downloaded(name: str, revision: str | None) -> Path:
    huggingface_hub = load_package(
        "huggingface_hub", needed_by=f"{name}: no such folder. To download it from the Hugging Face Hub, Gristmill"
    )
    try:
        folder = huggingface_hub.snapshot_download(name, revision=revision, allow_patterns=list(DOWNLOADED))
    except Exception as error:  # the exception types vary between versions of huggingface_hub and its HTTP library
        at = "" if revision is None else f" at revision={revision!r}"
        reason = next(iter(str(error).strip().splitlines()), "") or type(error).__name__
        raise FileNotFoundError(
            f"{name}: no such folder, and the download from the Hugging Face Hub failed{at}: {reason:.300}"
        ) from error
    return Path(folder)
