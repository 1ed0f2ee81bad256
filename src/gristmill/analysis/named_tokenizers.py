"""Named tokenizers: a tokenizer by path, or by a published name if its files are already on this machine.

Nothing is downloaded unless the caller asks for it. Names of OpenAI's encodings are looked up in the cache of tiktoken
and in the package bpe-openai; other names, in the cache of the Hugging Face Hub.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import tempfile
from pathlib import Path
from typing import Any

from gristmill.encode.tokenizer import Tokenizer
from gristmill.errors import MissingPackageError, TokenizerFormatError
from gristmill.packages import load_package
from gristmill.small_files import read_small_file
from gristmill.tokenizer.formats.content import MAX_FILE_BYTES, may_be_hub_name
from gristmill.tokenizer.formats.tiktoken import PUBLISHED
from gristmill.tokenizer.pretrained import DOWNLOADED

__all__ = ["NAMES", "find_tokenizer", "may_be_published"]

# GPT-2 has the tokens, ids and pattern of r50k_base.
ALIASES = {"gpt2": "r50k_base"}
NAMES = (*ALIASES, *PUBLISHED)
FILE_SUFFIXES = (".bpe", ".gguf", ".gz", ".json", ".model", ".tiktoken", ".txt")
HUB_NAMES = {"gpt2": "openai-community/gpt2"}
_URL = "https://openaipublic.blob.core.windows.net/encodings/{}.tiktoken"
# SHA-256 of the files, as tiktoken records them.
CHECKSUMS = {
    "r50k_base": "306cd27f03c1a714eca7108e03d66b7dc042abe8c258b44c199a7ed9838dd930",
    "p50k_base": "94b5ca7dff4d00767bc256fdd1b27e5b17361d7b8a5f968547f9f23eb70d2069",
    "cl100k_base": "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
    "o200k_base": "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
}


def may_be_published(name: str) -> bool:
    """Return whether `name` has the form of a published name: one of `NAMES`, or owner/name on the Hugging Face Hub.

    >>> [may_be_published(name) for name in ("gpt2", "openai-community/gpt2", "folder/tok.json", "./gpt2", "shards")]
    [True, True, False, False, False]
    """
    return name in NAMES or ("/" in name and Path(name).suffix not in FILE_SUFFIXES and may_be_hub_name(name))


def find_tokenizer(name: str | os.PathLike[str], *, pattern: str | None = None, download: bool = False) -> Tokenizer:
    """Return the tokenizer at a path, or with a published name.

    name: the path of a tokenizer file or folder, the name of an encoding of OpenAI such as "cl100k_base" or "gpt2", or
        a name on the Hugging Face Hub such as "owner/name". A file or folder of this name comes first.
    pattern: pattern of a file whose format does not store one.
    download: whether a name that is not on this machine may be downloaded.

    Raises FileNotFoundError if there is no such file, and the name is unknown or not on this machine.
    """
    if not isinstance(name, str) or Path(name).exists():
        return _load(name, pattern)
    if not may_be_published(name):
        raise FileNotFoundError(f"{name}: no such file or folder. {_known()}")
    found = _published(name) if name in NAMES else None
    if found is not None:
        return found
    found = _from_hub_cache(HUB_NAMES.get(name, name), pattern)
    if found is not None:
        return found
    if not download:
        raise FileNotFoundError(_not_here(name))
    return Tokenizer.from_tiktoken(name) if name in NAMES else Tokenizer.from_pretrained(name, pattern=pattern)


def _load(path: str | os.PathLike[str], pattern: str | None) -> Tokenizer:
    """Return the tokenizer in a file or folder. The pattern is used only for files that do not store one."""
    try:
        return Tokenizer.load(path)
    except TokenizerFormatError:
        if pattern is None:
            raise
        return Tokenizer.load(path, pattern=pattern)


def _published(name: str) -> Tokenizer | None:
    encoding = ALIASES.get(name, name)
    pattern, specials = PUBLISHED[encoding]
    for path in (_in_tiktoken_cache(encoding), _in_bpe_openai(encoding)):
        if path is not None:
            return Tokenizer.load(path, format="tiktoken", pattern=pattern, special_tokens=specials)
    return None


def _in_tiktoken_cache(encoding: str) -> Path | None:
    """Return the file of an encoding in the cache of tiktoken, if it is there and not damaged."""
    folder = os.environ.get("TIKTOKEN_CACHE_DIR", os.environ.get("DATA_GYM_CACHE_DIR"))
    if folder == "":  # caching is switched off
        return None
    cache = Path(tempfile.gettempdir(), "data-gym-cache") if folder is None else Path(folder)
    path = cache / hashlib.sha1(_URL.format(encoding).encode(), usedforsecurity=False).hexdigest()
    if not _belongs_to_us(cache):
        return None
    try:
        data = read_small_file(path, what="an encoding", max_bytes=MAX_FILE_BYTES, error=TokenizerFormatError)
    except (OSError, TokenizerFormatError):
        return None
    return path if hashlib.sha256(data).hexdigest() == CHECKSUMS[encoding] else None


def _belongs_to_us(folder: Path) -> bool:
    """Whether a folder is of this user or the system. Another user could exchange a file after its checksum is read.

    Without a setting, the folder is in the temporary folder of the system, where any user can create it.
    """
    try:
        status = folder.lstat()
    except OSError:
        return False
    return not hasattr(os, "geteuid") or status.st_uid in (0, os.geteuid())


def _in_bpe_openai(encoding: str) -> Path | None:
    """Return the file of an encoding in the package bpe-openai, if it is installed. The package is not imported."""
    package = importlib.util.find_spec("bpe_openai")
    if package is None or package.origin is None:
        return None
    path = Path(package.origin).with_name("data") / f"{encoding}.tiktoken.gz"
    return path if path.is_file() else None


def _from_hub_cache(name: str, pattern: str | None) -> Tokenizer | None:
    """Return the tokenizer with this name in the cache of the Hugging Face Hub, if it is there."""
    try:
        hub: Any = load_package("huggingface_hub", needed_by=name)
    except MissingPackageError:
        return None
    try:
        folder = hub.snapshot_download(name, allow_patterns=list(DOWNLOADED), local_files_only=True)
    except Exception:  # the exception types vary between versions of huggingface_hub
        return None
    return _load(folder, pattern)


def _not_here(name: str) -> str:
    looked = "the cache of the Hugging Face Hub"
    if name in NAMES:
        looked = f"the cache of tiktoken, the package bpe-openai and {looked}"
    return (
        f"{name}: no such file or folder, and {looked} on this machine {'have' if name in NAMES else 'has'} no "
        f"tokenizer of this name. Pass a file or folder, or download=True to download it."
    )


def _known() -> str:
    names = ", ".join(NAMES)
    return f"Pass a tokenizer file or folder, or one of the names {names}, or owner/name on the Hugging Face Hub."
