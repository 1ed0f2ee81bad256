"""Kinds: whether a path is a run, a folder of shards or a tokenizer."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from gristmill.analysis.named_tokenizers import NAMES, may_be_published
from gristmill.report.records import CONFIG_FILE, METRICS_FILE
from gristmill.shards.folder_kind import is_shard_folder
from gristmill.tokenizer.formats import IN_FOLDER, may_be_tokenizer

__all__ = ["KNOWN", "Kind", "is_run_folder", "kind_of"]

Kind = Literal["run", "shards", "tokenizer"]

KNOWN = (
    "a run folder of train-model (with metrics.jsonl), a folder of shards (with manifest.json, or token files of "
    "nanoGPT, llm.c, Megatron-LM or datatrove), a tokenizer file or folder (tokenizer.json, .tiktoken, vocab.json "
    f"with merges.txt, .model), or the name of a published tokenizer ({', '.join(NAMES)}, or "
    f"owner/name on the Hugging Face Hub)"
)


def kind_of(path: Path) -> Kind | None:
    """Return what `path` is, or None if it is nothing that Gristmill knows. Only the beginning of files is read.

    A path that does not exist is a tokenizer if it may be a published name. Only `find_tokenizer` knows whether a
    tokenizer of this name exists.
    """
    if is_run_folder(path):
        return "run"
    if is_shard_folder(path):
        return "shards"
    if path.is_dir():
        files = [file for name in IN_FOLDER["auto"] for file in sorted(path.glob(name))]
        return "tokenizer" if any(map(may_be_tokenizer, files)) else None
    if not path.exists():
        return "tokenizer" if may_be_published(str(path)) else None
    return "tokenizer" if may_be_tokenizer(path) else None


def is_run_folder(folder: Path) -> bool:
    """Return whether a training run has started in this folder. It may not have records yet."""
    return (folder / METRICS_FILE).is_file() or ((folder / CONFIG_FILE).is_file() and (folder / "checkpoints").is_dir())
