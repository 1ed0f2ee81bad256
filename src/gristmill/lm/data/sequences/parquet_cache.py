"""Conversion of Parquet files into the cache: text becomes shards, lists of ids and vectors become flat files.

Shapes: R rows, with M ids or vectors of E numbers in all.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from gristmill import _core
from gristmill.corpus import FoundFiles, batches
from gristmill.encode.tokenizer import Tokenizer
from gristmill.errors import EmptyCorpusError, OptionError, SpecialTokenError
from gristmill.lm.data.sequences.cache import Entry, find_or_make
from gristmill.lm.data.sequences.parquet import Reader, Rows
from gristmill.progress import OnProgress, ProgressOption, open_progress
from gristmill.shards import encode_corpus
from gristmill.shards.end_of_text import AUTO, find_end_of_text
from gristmill.shards.layouts import LAYOUTS

__all__ = ["SHARDS_FOLDER", "Columns", "Request", "cached_lists", "cached_text"]

SHARDS_FOLDER = "shards"
SPLITS = ("train", "val")


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns that hold the sequences, and their kind."""

    kind: Literal["text", "tokens", "vectors"]
    names: tuple[str, ...]
    option: str = ""  # the option that named them, for errors


@dataclass(frozen=True, slots=True)
class Request:
    """Everything that determines the content of a cache entry."""

    files: FoundFiles
    columns: Columns
    tokenizer: Tokenizer | None
    val_fraction: float
    seed: int

    def to_json(self) -> dict[str, Any]:
        """Return the request as JSON, from which the name of the cache entry is computed."""
        return {
            "inputs": [
                {
                    "path": os.path.abspath(input.name) if input.is_local else input.name,  # noqa: PTH100
                    "bytes": input.num_bytes,
                    "modified_ns": input.modified_ns,
                }
                for input in self.files.inputs
            ],
            "kind": self.columns.kind,
            "columns": list(self.columns.names),
            "tokenizer_fingerprint": None if self.tokenizer is None else self.tokenizer.fingerprint,
            "val_fraction": self.val_fraction,
            "seed": self.seed,
        }


# Text


def cached_text(request: Request, root: Path, progress: ProgressOption) -> Entry:
    """Return the cache entry with shards of the text; encode the text if there is no such entry."""
    if request.tokenizer is None:
        raise OptionError(
            f"{request.files.paths[0]}: column {request.columns.names[0]!r} is text, and no tokenizer is given. Pass "
            f"tokenizer=, such as a tokenizer.json from train_tokenizer(); or tokens_column or embedding_columns to "
            f"train on another column."
        )
    return find_or_make(root, request.to_json(), partial(_encode, request, progress), keep_unfinished=True)


def _encode(request: Request, progress: ProgressOption, folder: Path) -> dict[str, Any]:
    assert request.tokenizer is not None
    encode_corpus(
        request.files,
        request.tokenizer,
        out=folder / SHARDS_FOLDER,
        end_of_text=_end_of_text(request.tokenizer),
        val_fraction=request.val_fraction,
        seed=request.seed,
        input_format="parquet",
        text_field=request.columns.names[0],
        progress=progress,
    )
    return {}


def _end_of_text(tokenizer: Tokenizer) -> str | None:
    """Return the option that ends sequences with the usual token, or None if the tokenizer has no such token."""
    try:
        find_end_of_text(tokenizer, AUTO, None, LAYOUTS["gristmill"])
    except SpecialTokenError:
        return None
    return AUTO


# Ids and vectors


def cached_lists(request: Request, root: Path, progress: ProgressOption) -> Entry:
    """Return the cache entry with the ids or vectors; write it if there is no such entry."""
    return find_or_make(root, request.to_json(), partial(_copy, request, progress), keep_unfinished=False)


def _copy(request: Request, progress: ProgressOption, folder: Path) -> dict[str, Any]:
    """Write the sequences of all files to `folder`, and return their metadata."""
    kind = request.columns.kind
    assert kind != "text"
    vocab_size = None if request.tokenizer is None else request.tokenizer.vocab_size
    reader = Reader(kind, request.columns.names, vocab_size)
    about = {"num_nulls": 0, "num_empty": 0, "max_id": 0}
    with ExitStack() as stack:
        on_progress = stack.enter_context(open_progress(progress))
        writers = {split: stack.enter_context(closing(_SplitWriter(folder, split))) for split in SPLITS}
        for rows in _read_all(reader, request.files, on_progress):
            about["num_nulls"] += rows.num_nulls
            about["num_empty"] += rows.num_empty
            if kind == "tokens":
                about["max_id"] = max(about["max_id"], int(rows.items.max(initial=0)))
            _write(rows, writers, request.val_fraction, request.seed)
        for writer in writers.values():
            writer.finish()
    if not sum(writer.num_sequences for writer in writers.values()):
        raise EmptyCorpusError(
            f"{request.files.paths[0]}: column {request.columns.names[0]!r} has no sequences (null rows: "
            f"{about['num_nulls']:,}, empty rows: {about['num_empty']:,}). Pass a column with data."
        )
    return {
        **about,
        "embedding_dim": sum(reader.dims.values()) if kind == "vectors" else None,
        "num_items": {split: writer.num_items for split, writer in writers.items()},
    }


def _read_all(reader: Reader, files: FoundFiles, on_progress: OnProgress | None) -> Iterator[Rows]:
    done = 0
    for number, input in enumerate(files.inputs):
        for rows in reader.read(input):
            yield rows
            if on_progress is not None:
                share = done + int(input.num_bytes * rows.share)
                on_progress("encode", share, files.num_bytes, files=number, num_files=len(files.inputs))
        done += input.num_bytes


def _write(rows: Rows, writers: dict[str, _SplitWriter], val_fraction: float, seed: int) -> None:
    if not val_fraction:
        writers["train"].write(rows.items, rows.lengths_R)
        return
    is_val_R = _is_val(rows, val_fraction, seed)
    is_val_M = np.repeat(is_val_R, rows.lengths_R)
    writers["train"].write(rows.items[~is_val_M], rows.lengths_R[~is_val_R])
    writers["val"].write(rows.items[is_val_M], rows.lengths_R[is_val_R])


def _is_val(rows: Rows, val_fraction: float, seed: int) -> NDArray[np.bool_]:
    """Choose the rows for validation by a hash of their first bytes, so that duplicates are in the same split."""
    data = np.ascontiguousarray(rows.items).reshape(-1).view(np.uint8)
    ends_R = np.cumsum(rows.lengths_R) * (rows.items[:1].nbytes or rows.items.itemsize)
    begins_R = np.concatenate([[0], ends_R[:-1]]).astype(np.int64)
    hashes_R = _core.hash_spans(data, begins_R[: len(ends_R)], ends_R, seed, batches.MIN_STRETCH_BYTES)
    return hashes_R < np.uint64(val_fraction * 2**64)


class _SplitWriter:
    """Writes the two files of a split that `FlatSequences` reads."""

    def __init__(self, folder: Path, split: str) -> None:
        self._folder, self._split = folder, split
        self._file = (folder / f"{split}.bin").open("xb")
        self._lengths: list[NDArray[np.int64]] = []
        self.num_items = 0

    @property
    def num_sequences(self) -> int:
        return sum(map(len, self._lengths))

    def write(self, items: NDArray[Any], lengths_R: NDArray[np.int64]) -> None:
        """Append sequences."""
        self._file.write(np.ascontiguousarray(items).data)
        self._lengths.append(lengths_R)
        self.num_items += len(items)

    def finish(self) -> None:
        """Write the ends of all sequences."""
        self._file.close()
        lengths = np.concatenate(self._lengths) if self._lengths else np.zeros(0, np.int64)
        np.save(self._folder / f"{self._split}.ends.npy", np.cumsum(lengths, dtype="<i8"), allow_pickle=False)

    def close(self) -> None:
        """Close the file."""
        self._file.close()
