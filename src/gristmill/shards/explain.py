"""Error messages of readers for a path that is not a folder of shards: what it is, and what to run first."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from gristmill.corpus.inputs import shown
from gristmill.errors import OptionError

NUM_LOOKED_AT = 1000  # file names of a folder
TOKENIZER_ENDINGS = (".json", ".model", ".tiktoken", ".gguf")
TOKEN_ENDINGS = (".bin", ".idx", ".ds", ".index", ".npy")
TEXT_ENDINGS = (".txt", ".md", ".jsonl", ".ndjson", ".csv", ".tsv", ".parquet", ".arrow", ".gz", ".zst", ".xz", ".bz2")
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/+(.*)")  # `Path` turns two slashes into one
ENCODE = "Encode it first with encode_corpus(), and pass the output folder."


def check_path(path: Any, name: str = "folder") -> str:
    """Return `path` as a str, checked; `name` is the name of the argument."""
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"{name} must be the path of a folder, got {path!r} ({type(path).__name__}).")
    text = os.fsdecode(path)
    if "\0" in text:
        raise OptionError(f"{name}={text!r} contains a null character. Pass the path of a folder.")
    return text


def refuse_url(path: Path) -> None:
    """Raise OptionError if a missing path is a URL."""
    found = _URL.fullmatch(str(path))
    if found:
        raise OptionError(
            f"{found[1]}://{found[2]} is a URL; shards are read from a local folder only. Copy the whole folder to "
            f"this machine, and pass the copy."
        )


def what_instead(path: Path) -> str:
    """Describe what `path` is instead of a folder of shards, and what to do."""
    if path.is_dir():
        return _what_folder(path)
    name = path.name.lower()
    if name.endswith(TOKENIZER_ENDINGS):
        return "It looks like a tokenizer, not a folder of shards. Encode a corpus with it first: encode_corpus()"
    if name.endswith(TOKEN_ENDINGS):
        return f"It is a single token file. Pass its folder: {shown(path.parent)}"
    kind = "Parquet file" if name.endswith(".parquet") else "text file" if name.endswith(TEXT_ENDINGS) else "file"
    return f"It is a {kind}, not a folder of shards. {ENCODE.rstrip('.')}"


def _what_folder(folder: Path) -> str:
    names = [entry.name for entry, _ in zip(folder.iterdir(), range(NUM_LOOKED_AT), strict=False)]
    texts = sorted(name for name in names if name.lower().endswith(TEXT_ENDINGS))
    if texts:
        return f"It holds corpus files such as {shown(texts[0])}. {ENCODE}"
    return "Make one with encode_corpus()."
