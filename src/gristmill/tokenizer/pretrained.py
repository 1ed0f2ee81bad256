"""`Tokenizer.from_pretrained`: a tokenizer by its folder, or by its name on the Hugging Face Hub.

A path that is there is read, whatever it is called. Anything else that looks like `owner/name` or `name` is a name on
the Hub: `huggingface_hub`, where it is installed, downloads the files of tokenizers and no others, or takes them from
its cache. Nothing that is downloaded is executed, and pickles are not among the files.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from gristmill.errors import OptionError, TokenizerFormatError
from gristmill.tokenizer.formats import read_tokenizer
from gristmill.tokenizer.parts import TokenizerParts

# The file that is read, in this order: of several, the first that says most.
EXACT_NAMES = ("tokenizer.json", "vocab.json", "encoder.json")
OTHER_NAMES = ("*.tiktoken", "*.tiktoken.gz", "*.model", "*.json")
DOWNLOADED = (*EXACT_NAMES, "merges.txt", "vocab.bpe", "tokenizer_config.json", "*.tiktoken", "*.model")

_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(?:/[A-Za-z0-9][\w.-]*)?")
# JSON files of a model's folder that hold no tokenizer.
_OTHER_JSON = re.compile(r"(?:.*_)?config\.json|special_tokens_map\.json|added_tokens\.json|.*\.index\.json")


def read_pretrained(name: str | os.PathLike[str], *, revision: str | None = None, **options: Any) -> TokenizerParts:
    """The tokenizer in a folder or file, or of this name on the Hub.

    revision: a branch, tag or commit on the Hub.
    options: those of `read_tokenizer`.
    """
    path = Path(name)
    if path.exists():
        if revision is not None:
            raise OptionError(
                f"revision={revision!r} is for names on the Hub, and {os.fspath(name)} is a path. Leave revision= out."
            )
        return read_tokenizer(find_tokenizer(path) if path.is_dir() else path, **options)
    text = os.fspath(name)
    if not isinstance(name, str) or not _HUB_NAME.fullmatch(text):
        raise FileNotFoundError(
            f"{text}: no such file or folder. Pass a folder with a tokenizer.json, or a name on the Hugging Face Hub "
            f"such as 'openai-community/gpt2'."
        )
    return read_tokenizer(find_tokenizer(_downloaded(text, revision), text), **options)


def find_tokenizer(folder: Path, name: str | None = None) -> Path:
    """The file of a folder that holds its tokenizer; `TokenizerFormatError`, which calls the folder `name`, if none."""
    shown = os.fspath(folder) if name is None else name
    for exact in EXACT_NAMES:
        if (folder / exact).exists():
            return folder / exact
    for pattern in OTHER_NAMES:
        found = sorted(path for path in folder.glob(pattern) if not _OTHER_JSON.fullmatch(path.name))
        if len(found) > 1:
            raise TokenizerFormatError(
                f"{shown}: has {len(found)} files that may be tokenizers: "
                f"{', '.join(path.name for path in found[:4])}. Pass the path of one."
            )
        if found:
            return found[0]
    raise TokenizerFormatError(
        f"{shown}: has no tokenizer that can be read. It needs a tokenizer.json, vocab.json and merges.txt, .tiktoken, "
        f".model of minbpe, or a file of Gristmill."
    )


def _downloaded(name: str, revision: str | None) -> Path:
    try:
        import huggingface_hub  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        raise FileNotFoundError(
            f"{name}: no such folder. To download it as a name on the Hugging Face Hub: pip install huggingface_hub"
        ) from None
    try:
        folder = huggingface_hub.snapshot_download(name, revision=revision, allow_patterns=list(DOWNLOADED))
    except Exception as error:  # of that library and of the one it downloads with, which change with its versions
        at = "" if revision is None else f" at revision={revision!r}"
        reason = next(iter(str(error).strip().splitlines()), "") or type(error).__name__
        raise FileNotFoundError(
            f"{name}: no such folder, and the Hugging Face Hub does not give it{at}: {reason:.300}"
        ) from error
    return Path(folder)
