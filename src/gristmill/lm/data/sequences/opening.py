"""open_sequences: opens shards or Parquet files as the sequences of a run."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gristmill import _core
from gristmill.corpus import FoundFiles, Reading, find_files
from gristmill.corpus.skipped import without_skip_advice
from gristmill.encode.tokenizer import AnyTokenizer, Tokenizer, as_tokenizer
from gristmill.errors import CorpusError, DamagedInputError, EmptyCorpusError, OptionError
from gristmill.lm.data.identity import shards_identity
from gristmill.lm.data.sequences.cache import Entry, cache_root
from gristmill.lm.data.sequences.parquet import column_types
from gristmill.lm.data.sequences.parquet_cache import SHARDS_FOLDER, Columns, Request, cached_lists, cached_text
from gristmill.lm.data.sequences.source import FlatSequences, SequenceSource, ShardSequences
from gristmill.lm.data.token_dataset import check_seed
from gristmill.progress import ProgressOption
from gristmill.shards import Shards
from gristmill.shards.manifest import MANIFEST_FILE, PROGRESS_FILE, REPLACED_FILE, REQUEST_FILE

__all__ = ["SequenceData", "open_sequences"]

PathLike = str | os.PathLike[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceData:
    """The sequences for training and validation, and their metadata.

    Examples:
        ```python
        data = gm.lm.open_sequences("stories.parquet", tokenizer="tokenizer.json")
        print(data.train.num_sequences, data.vocab_size)
        ```
    """

    train: SequenceSource
    """Sequences to train on."""
    val: SequenceSource | None
    """Sequences to validate on, or None without a validation split."""
    tokenizer: Tokenizer | None
    """Tokenizer of the ids. None for vectors, and for ids whose tokenizer is not known."""
    vocab_size: int | None
    """Number of tokens. None for vectors."""
    embedding_dim: int | None
    """Size of the vectors. None for tokens."""
    identity: dict[str, Any]
    """Fingerprints by which a resumed run recognizes its data, with the keys of `identity.shards_identity`."""
    from_parquet: bool
    """Whether the data came from Parquet files."""
    messages: list[str] = field(default_factory=list)
    """Messages for the user."""


def open_sequences(
    data: PathLike | Sequence[PathLike] | Shards,
    *,
    max_sequence_length: int = 1000,
    tokenizer: AnyTokenizer | None = None,
    text_column: str | None = None,
    tokens_column: str | None = None,
    embedding_columns: str | Sequence[str] | None = None,
    val_fraction: float = 0.01,
    seed: int = 0,
    cache_dir: PathLike | None = None,
    progress: ProgressOption = None,
) -> SequenceData:
    """Return the sequences in `data`, one per document.

    Sequences longer than `max_sequence_length` are truncated. Sequences of shards and of Parquet text end with the
    end-of-text id unless they are truncated. Ids from Parquet files are used unchanged.

    Parquet files are converted to a cache once, which later runs reuse. Processes that need the same cache at the same
    time build it once.

    Args:
        data: A folder of shards, `gm.Shards`, or Parquet files: a file, a folder, a glob or a list.
        max_sequence_length: Maximum tokens per sequence.
        tokenizer: Tokenizer of the text column, as in `encode_corpus`. With a column of ids, it is used to check them.
        text_column: Column of text. Default: "text" if it exists.
        tokens_column: Column of lists of ids. Default: "tokens" or "input_ids" if there is no text.
        embedding_columns: Columns of vectors. Several ("a,b" or a list) are concatenated along the last axis.
        val_fraction: Share of the rows of Parquet files held out for validation. Shards have their own split.
        seed: Seed of that split. Rows are chosen by a hash of the seed and their content.
        cache_dir: Folder of the cache. Default: $XDG_CACHE_HOME/gristmill, or ~/.cache/gristmill.
        progress: Progress display while the cache is built, as in `train_tokenizer`.

    Raises:
        OptionError: An option is out of range or does not fit the data.
        CorpusError: A column is missing, has a wrong type, or the files hold nothing to train on.
        FileNotFoundError: There is no such file or folder.
        ShardsFormatError: The shards are damaged.

    Examples:
        ```python
        data = gm.lm.open_sequences("stories.parquet", tokenizer="tokenizer.json", max_sequence_length=500)
        ```
    """
    columns = _given_columns(text_column, tokens_column, embedding_columns)
    own = None if tokenizer is None else as_tokenizer(tokenizer)
    if isinstance(data, Shards) or (isinstance(data, str | os.PathLike) and _is_shards(data)):
        if columns is not None:
            raise OptionError(f"{columns.option} applies to Parquet files, but the data are shards. Leave it out.")
        return _of_shards(data if isinstance(data, Shards) else Shards(data), own, max_sequence_length)
    with _without_skip_hint():
        files = _find_parquet([data] if isinstance(data, str | os.PathLike) else data)
        columns = columns or _default_columns(files)
        request = Request(files, columns, own, _check_fraction(val_fraction), check_seed(seed))
        if columns.kind == "text":
            entry = cached_text(request, cache_root(cache_dir), progress)
            return _of_text(entry, request, max_sequence_length)
        entry = cached_lists(request, cache_root(cache_dir), progress)
        return _of_lists(entry, request, max_sequence_length)


# Which data


def _is_shards(data: PathLike) -> bool:
    """Whether the path is a folder of shards, complete or not."""
    marks = (MANIFEST_FILE, PROGRESS_FILE, REQUEST_FILE, REPLACED_FILE)
    return any((Path(data) / name).exists() for name in marks)


def _find_parquet(names: Sequence[PathLike]) -> FoundFiles:
    if not isinstance(names, Iterable):
        kind = type(names).__name__
        raise TypeError(f"data is of type {kind}. Pass a folder of shards, Parquet files or gristmill.Shards.")
    files = find_files(list(names), Reading(input_format="parquet"))
    if not files.inputs:
        raise EmptyCorpusError("the list of files is empty. Pass at least one Parquet file.")
    return files


def _given_columns(text: str | None, tokens: str | None, embeddings: str | Sequence[str] | None) -> Columns | None:
    given = []
    if text is not None:
        given.append(Columns("text", (text,), f"text_column={text!r}"))
    if tokens is not None:
        given.append(Columns("tokens", (tokens,), f"tokens_column={tokens!r}"))
    if embeddings is not None:
        parts = embeddings.split(",") if isinstance(embeddings, str) else embeddings
        given.append(Columns("vectors", tuple(part.strip() for part in parts), f"embedding_columns={embeddings!r}"))
    if len(given) > 1:
        raise OptionError(f"{' and '.join(columns.option for columns in given)} cannot be combined. Pass one of them.")
    for columns in given:
        if not columns.names or not all(columns.names) or len({*columns.names}) < len(columns.names):
            raise OptionError(f"{columns.option}: a column name is empty or repeated. Pass different column names.")
    return given[0] if given else None


def _default_columns(files: FoundFiles) -> Columns:
    types = column_types(files.inputs[0])
    if "text" in types:
        return Columns("text", ("text",))
    for name in ("tokens", "input_ids"):
        if name in types:
            return Columns("tokens", (name,))
    known = ", ".join(f"{name!r} ({type})" for name, type in list(types.items())[:20]) or "none"
    raise CorpusError(
        f"{files.paths[0]}: no column 'text', 'tokens' or 'input_ids' (columns: {known}). "
        f"Pass text_column, tokens_column or embedding_columns with the name of one."
    )


def _check_fraction(fraction: Any) -> float:
    if isinstance(fraction, bool) or not isinstance(fraction, int | float) or not 0 <= fraction < 1:
        raise OptionError(f"val_fraction must be >= 0 and < 1, got {fraction!r}. Pass 0 for no validation split.")
    return float(fraction)


@contextlib.contextmanager
def _without_skip_hint() -> Iterator[None]:
    """Adapt error messages: no advice to skip damaged inputs, and `text_column` instead of `text_field`."""
    try:
        yield
    except DamagedInputError as error:
        without_skip_advice(error)
        raise
    except CorpusError as error:
        if "text_field=" not in str(error):
            raise
        raise CorpusError(str(error).replace("text_field=", "text_column=")) from error


# Sequences


def _of_shards(
    shards: Shards,
    tokenizer: Tokenizer | None,
    max_sequence_length: int,
    *,
    from_parquet: bool = False,
    messages: Sequence[str] = (),
) -> SequenceData:
    made_with = shards.tokenizer_fingerprint
    if tokenizer is not None and made_with is not None and tokenizer.fingerprint != made_with:
        raise OptionError(
            f"the shards were made with another tokenizer (fingerprint {made_with[:12]}…, not "
            f"{tokenizer.fingerprint[:12]}…). Leave tokenizer out: the shards contain theirs."
        )
    train = ShardSequences(shards, max_sequence_length=max_sequence_length)
    if not train.num_sequences:
        where = "the Parquet files" if from_parquet else str(shards.paths[0].parent if shards.paths else "the shards")
        raise EmptyCorpusError(
            f"{where}: no training document has a token. Pass more text, or a smaller val_fraction if validation took "
            f"all documents."
        )
    val = None
    if shards.split == "train" and "val" in shards.splits:
        val = ShardSequences(shards.other_split("val"), max_sequence_length=max_sequence_length)
    return SequenceData(
        train=train,
        val=val if val is not None and val.num_sequences else None,
        tokenizer=shards.tokenizer,
        vocab_size=shards.vocab_size,
        embedding_dim=None,
        identity=shards_identity(shards),
        from_parquet=from_parquet,
        messages=list(messages),
    )


def _of_text(entry: Entry, request: Request, max_sequence_length: int) -> SequenceData:
    shards = Shards(entry.folder / SHARDS_FOLDER)
    messages = _cache_messages(entry, num_nulls=shards.manifest.num_nulls)
    if shards.end_of_text is None:
        messages.append(
            "the tokenizer has no end-of-text token, so the model cannot learn where a sequence ends. Train a "
            "tokenizer with the special token <|endoftext|>."
        )
    return _of_shards(shards, request.tokenizer, max_sequence_length, from_parquet=True, messages=messages)


def _of_lists(entry: Entry, request: Request, max_sequence_length: int) -> SequenceData:
    about, tokenizer, kind = entry.about, request.tokenizer, request.columns.kind
    assert kind != "text"
    train, val = (
        FlatSequences(
            entry.folder,
            split,
            kind=kind,
            embedding_dim=about["embedding_dim"],
            max_sequence_length=max_sequence_length,
        )
        for split in ("train", "val")
    )
    if not train.num_sequences:
        raise EmptyCorpusError(
            f"{request.files.paths[0]}: all {val.num_sequences:,} sequences were chosen for validation. "
            f"Pass a smaller val_fraction."
        )
    is_tokens = kind == "tokens"
    return SequenceData(
        train=train,
        val=val if val.num_sequences else None,
        tokenizer=tokenizer if is_tokens else None,
        vocab_size=(tokenizer.vocab_size if tokenizer is not None else about["max_id"] + 1) if is_tokens else None,
        embedding_dim=about["embedding_dim"],
        identity={
            "tokenizer_fingerprint": tokenizer.fingerprint if tokenizer is not None and is_tokens else None,
            "num_tokens": about["num_items"]["train"],
            "fingerprint": f"{_core.xxh64(json.dumps(entry.files, sort_keys=True).encode()):016x}",
        },
        from_parquet=True,
        messages=_cache_messages(entry, num_nulls=about["num_nulls"], num_empty=about["num_empty"]),
    )


def _cache_messages(entry: Entry, *, num_nulls: int, num_empty: int = 0) -> list[str]:
    messages = []
    if entry.is_new:
        messages.append(f"the Parquet files were converted to a cache in {entry.folder}; later runs reuse it.")
    if num_nulls:
        messages.append(f"skipped null rows: {num_nulls:,}.")
    if num_empty:
        messages.append(f"skipped empty rows: {num_empty:,}.")
    return messages
