"""Kinds: whether a path is a run, a folder of shards or a tokenizer."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from gristmill.analysis.named_tokenizers import NAMES
from gristmill.report.records import METRICS_FILE
from gristmill.shards.folder_kind import is_shard_folder
from gristmill.tokenizer.formats import FORMATS, HEAD_BYTES, IN_FOLDER

__all__ = ["KNOWN", "Kind", "kind_of"]

Kind = Literal["run", "shards", "tokenizer"]

KNOWN = (
    "a run folder of train-model (with metrics.jsonl), a folder of shards (with manifest.json, or token files of "
    "nanoGPT, llm.c, Megatron-LM or datatrove), or a tokenizer file or folder (tokenizer.json, .tiktoken, vocab.json "
    "with merges.txt, .model)"
)


def kind_of(path: Path) -> Kind | None:
    """Return what `path` is, or None if it is nothing that Gristmill knows. Only the beginning of files is read."""
    if (path / METRICS_FILE).is_file():
        return "run"
    if is_shard_folder(path):
        return "shards"
    if path.is_dir():
        files = [file for name in IN_FOLDER["auto"] for file in sorted(path.glob(name))]
        return "tokenizer" if any(map(_is_tokenizer, files)) else None
    if not path.exists() and str(path) in NAMES:
        return "tokenizer"
    return "tokenizer" if _is_tokenizer(path) else None


def _is_tokenizer(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        head = file.read(HEAD_BYTES)
    return any(format.recognizes(path, head) for format in FORMATS.values())
