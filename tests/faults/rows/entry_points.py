"""The functions that read a user's corpus, for rows whose fault is in an input."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gristmill as gm

TOKENIZER = gm.Tokenizer([(b"t", b"e"), (b"te", b"x"), (b"tex", b"t")], special_tokens=["<|endoftext|>"])


def count(path: Path, _: Path, **options: Any) -> gm.Words:
    return gm.count_words(path, num_threads=1, progress=None, **options)


def train(path: Path, _: Path, **options: Any) -> gm.Tokenizer:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", gm.EarlyStopWarning)
        return gm.train_tokenizer(path, vocab_size=300, num_threads=1, progress=None, **options)


_numbers = itertools.count()


def encode(path: Path, folder: Path, **options: Any) -> list[int]:
    """Return all ids of the shards of a corpus. An error must leave no manifest, so no reader sees any shard."""
    out = folder / f"shards-{next(_numbers)}"
    try:
        run = gm.encode_corpus(path, TOKENIZER, out=out, num_threads=1, progress=None, **options)
    except Exception:
        assert not (out / "manifest.json").exists()
        raise
    return [int(id) for document in run.shards("train") for id in document]


def encode_file(path: Path, _: Path) -> list[int]:
    ids: list[int] = TOKENIZER.encode_file(path, num_threads=1).tolist()
    return ids


ENTRY_POINTS: dict[str, Callable[..., Any]] = {
    "count_words": count,
    "train_tokenizer": train,
    "encode_corpus": encode,
    "encode_file": encode_file,
}
