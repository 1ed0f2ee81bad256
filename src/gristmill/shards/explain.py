"""What was passed where a folder of shards belongs, and what to run first: for the errors of readers."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from gristmill.corpus.inputs import shown
from gristmill.errors import OptionError

NUM_LOOKED_AT = 1000  # names of a folder
TOKENIZER_ENDINGS = (".json", ".model", ".tiktoken", ".gguf")
TOKEN_ENDINGS = (".bin", ".idx", ".ds", ".index", ".npy")
TEXT_ENDINGS = (".txt", ".md", ".jsonl", ".ndjson", ".csv", ".tsv", ".parquet", ".arrow", ".gz", ".zst", ".xz", ".bz2")
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/+(.*)")  # `Path` makes one slash of two
ENCODE = "Encode it first with encode_corpus(), and pass the folder that this writes."


def check_path(path: Any, name: str = "folder") -> str:
    """`path` as a str, if it is a path; `name` is that of the argument."""
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"{name}={path!r} is a {type(path).__name__}. Pass the path of a folder.")
    text = os.fsdecode(path)
    if "\0" in text:
        raise OptionError(f"{name}={text!r} holds a null character, which no path has. Pass the path of a folder.")
    return text


def refuse_url(path: Path) -> None:
    """Raise OptionError if a path that is not there is a URL."""
    found = _URL.fullmatch(str(path))
    if found:
        raise OptionError(
            f"{found[1]}://{found[2]} is a URL, and shards are read from a folder of this machine. Copy the "
            f"whole folder to this machine, and pass the copy."
        )


def what_instead(path: Path) -> str:
    """What stands at `path`, where no shards do, and what to do."""
    if path.is_dir():
        return _what_folder(path)
    name = path.name.lower()
    if name.endswith(TOKENIZER_ENDINGS):
        return "It looks like a tokenizer, not like a folder of shards. Encode a corpus with it first: encode_corpus()"
    if name.endswith(TOKEN_ENDINGS):
        return f"It is a single token file. Pass the folder that it lies in: {shown(path.parent)}"
    kind = "Parquet file" if name.endswith(".parquet") else "file of text" if name.endswith(TEXT_ENDINGS) else "file"
    return f"It is a {kind}, not a folder of shards. {ENCODE.rstrip('.')}"


def _what_folder(folder: Path) -> str:
    names = [entry.name for entry, _ in zip(folder.iterdir(), range(NUM_LOOKED_AT), strict=False)]
    texts = sorted(name for name in names if name.lower().endswith(TEXT_ENDINGS))
    if texts:
        return f"It holds files of a corpus, such as {shown(texts[0])}. {ENCODE}"
    return "encode_corpus() makes one."
