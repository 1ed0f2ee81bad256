"""Kinds: all of them, by name. Modules are imported when a kind is needed: those of runs import torch."""

from __future__ import annotations

import importlib
from collections.abc import Iterable

from faults.mutated.kind import Kind

_LAYOUTS = ("gristmill", "nanogpt", "llmc", "megatron", "npy", "parquet", "datatrove")
# Name of each kind, its module, and its share of the files of a run.
_MODULES = {
    **dict.fromkeys(
        (
            *("tokenizer-gristmill", "tokenizer-huggingface", "tokenizer-gpt2", "tokenizer-tiktoken"),
            *("tokenizer-minbpe", "tokenizer-folder", "words"),
        ),
        "tokenizer_kinds",
    ),
    **dict.fromkeys(
        (
            *(f"shards-{layout}" for layout in _LAYOUTS),
            "shards-foreign",
            *(f"unfinished-{layout}" for layout in _LAYOUTS),
            "job",
        ),
        "shard_kinds",
    ),
    **dict.fromkeys(
        ("text", "json-lines", "gzip", "zstd", "parquet", "arrow", "conversations", "chat-template", "prompts"),
        "corpus_kinds",
    ),
    **dict.fromkeys(
        (
            *("run-metrics", "run-description", "run-lock", "run-checkpoint", "run-parts", "train-config"),
            *("model-folder", "plain-checkpoint", "sequence-cache"),
        ),
        "run_kinds",
    ),
}
KIND_NAMES = list(_MODULES)
NEED_TORCH = ("run-checkpoint", "run-parts", "model-folder", "plain-checkpoint")
# Files of a kind compared with the others: kinds whose files take longer to read get fewer.
_FAST = (
    *("tokenizer-gristmill", "tokenizer-tiktoken", "tokenizer-minbpe", "words", "text", "json-lines", "gzip", "zstd"),
    *("parquet", "arrow", "conversations", "prompts", "job", "run-lock", "plain-checkpoint"),
)
SLOW = ("run-checkpoint", "model-folder", *(f"unfinished-{layout}" for layout in _LAYOUTS))
_SHARES = dict.fromkeys(_FAST, 4.0) | dict.fromkeys(SLOW, 0.2)


def find_kind(name: str) -> Kind:
    """Return the kind with this name."""
    module = importlib.import_module(f"faults.mutated.{_MODULES[name]}")
    kinds: list[Kind] = module.KINDS
    return next(kind for kind in kinds if kind.name == name)


def shares(files: int, names: Iterable[str]) -> dict[str, int]:
    """Return how many of `files` each kind gets."""
    parts = {name: _SHARES.get(name, 1.0) for name in names}
    whole = sum(parts.values())
    return {name: max(1, round(files * part / whole)) for name, part in parts.items()}
