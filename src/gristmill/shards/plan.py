"""Plan of a run: the checked arguments of `encode_corpus`, and the part of them that is recorded."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from gristmill.arguments import check_num_threads, check_whole_number, nearest
from gristmill.corpus import Corpus, FoundFiles, Reading, Source, open_corpus
from gristmill.count import Words
from gristmill.encode.document_encoder import DocumentEncoder
from gristmill.encode.dropout import check_seed
from gristmill.encode.ids import check_dtype
from gristmill.encode.tokenizer import Tokenizer, as_tokenizer
from gristmill.errors import OptionError
from gristmill.shards.end_of_text import find_end_of_text
from gristmill.shards.explain import check_path
from gristmill.shards.inputs import fingerprints, recorded_name
from gristmill.shards.layouts import Layout, check_layout
from gristmill.shards.layouts.parquet import COLUMN
from gristmill.shards.manifest import MANIFEST_FILE, REPLACED_FILE, REQUEST_FILE, TOKENIZER_FILE, EndOfText
from gristmill.shards.options import DEFAULTS, EncodeOptions
from gristmill.shards.request import Request


@dataclass(frozen=True, slots=True)
class Plan:
    """The checked arguments of a run."""

    source: Source
    tokenizer: Tokenizer
    encoder: DocumentEncoder
    layout: Layout
    dtype: np.dtype[Any]
    shard_tokens: int | None
    val_fraction: float
    seed: int
    num_threads: int
    reading: Reading
    request: Request

    @classmethod
    def checked(
        cls,
        corpus: Corpus,
        tokenizer: Any,
        *,
        out: str | os.PathLike[str],
        num_threads: int | None,
        options: EncodeOptions,
    ) -> Plan:
        """Check the arguments of `encode_corpus` and return the plan."""
        tokenizer = as_tokenizer(tokenizer)
        if not check_path(out, "out"):
            raise OptionError("out is empty. Pass the path of the output folder.")
        if isinstance(corpus, Words):
            raise TypeError(
                "corpus is a Words object, which holds distinct pieces and their counts, not documents. "
                "Pass the corpus that they were counted from."
            )
        given: EncodeOptions = {**DEFAULTS, **options}
        layout, tokens_column = _check_column(check_layout(given["format"]), given["tokens_column"])
        end_of_text = find_end_of_text(tokenizer, given["end_of_text"], given["end_of_text_position"], layout)
        reading = _check_reading(options, end_of_text)
        threads = check_num_threads(num_threads)
        allowed = given["allowed_special"]
        encoder = tokenizer.document_encoder(
            allowed_special=allowed,
            end_of_text=None if end_of_text is None else end_of_text.id,
            before=end_of_text is not None and end_of_text.position == "before",
            num_threads=threads,
        )
        source = _without_own_files(open_corpus(corpus, reading), out)
        shard_tokens = _check_shard_tokens(given["shard_tokens"], layout)
        val_fraction = _check_fraction(given["val_fraction"])
        seed = check_seed(_not_none("seed", given["seed"]))
        dtype = _check_width(given["dtype"], layout, tokenizer.vocab_size)
        recorded = {
            "shard_tokens": shard_tokens,
            "val_fraction": val_fraction,
            "seed": seed,
            "allowed_special": allowed if isinstance(allowed, str) else sorted(allowed),
            **reading.options(),
        }
        if tokens_column is not None:
            recorded["tokens_column"] = tokens_column
        request = Request(
            layout=layout.name,
            dtype=dtype.name,
            vocab_size=tokenizer.vocab_size,
            tokenizer_fingerprint=tokenizer.fingerprint,
            end_of_text=end_of_text,
            inputs=fingerprints(source.inputs) if isinstance(source, FoundFiles) else None,
            options=recorded,
            command=_command(source, given, recorded),
        )
        return cls(
            source=source,
            tokenizer=tokenizer,
            encoder=encoder,
            layout=layout,
            dtype=dtype,
            shard_tokens=shard_tokens,
            val_fraction=val_fraction,
            seed=seed,
            num_threads=threads,
            reading=reading,
            request=request,
        )

    @property
    def splits(self) -> list[str]:
        """Names of the splits."""
        return ["train", "val"] if self.val_fraction else ["train"]


def _check_reading(options: EncodeOptions, end_of_text: EndOfText | None) -> Reading:
    """Return the read options among all options. By default, the end-of-text token separates documents."""
    reading = {name: value for name, value in options.items() if name not in DEFAULTS}
    known = [*DEFAULTS, *Reading().options()]
    for name in reading:
        if name not in known:
            hint = nearest(name, [*known, "num_threads", "overwrite", "progress"])
            raise TypeError(
                f"encode_corpus() got an unexpected keyword argument {name!r}.{hint} It takes {', '.join(known)}."
            )
    separator = {} if end_of_text is None else {"separator": end_of_text.token}
    return Reading.checked(reading, **separator)


def _without_own_files(source: Source, out: str | os.PathLike[str]) -> Source:
    """Exclude the files of an earlier run from the corpus, if the output folder is inside a folder of the corpus."""
    written = (MANIFEST_FILE, REQUEST_FILE, REPLACED_FILE)
    if not isinstance(source, FoundFiles) or not any((Path(out) / file).exists() for file in written):
        return source
    prefix = os.path.join(os.path.abspath(out), "")  # noqa: PTH100, PTH118
    kept = [input for input in source.inputs if not os.path.abspath(input.name).startswith(prefix)]  # noqa: PTH100
    return FoundFiles(tuple(kept))


def _not_none(name: str, value: Any) -> Any:
    if value is None:
        raise OptionError(f"{name} must be an int, got None. A resumed run needs the same value.")
    return value


def _check_shard_tokens(shard_tokens: Any, layout: Layout) -> int | None:
    if shard_tokens is None:
        return layout.shard_tokens
    number = check_whole_number("shard_tokens", shard_tokens)
    if layout.shard_tokens is None:
        raise OptionError(f"shard_tokens={number} does not apply: {layout.name} has one file per split. Leave it out.")
    if number < 1:
        raise OptionError(f"shard_tokens must be >= 1, got {number}.")
    layout.check_num_tokens(number)
    return number


def _check_column(layout: Layout, column: Any) -> tuple[Layout, str | None]:
    """Return the layout with this column, and the name to record; None for the default and layouts without columns."""
    if column is None:
        return layout, None
    if not isinstance(column, str):
        raise OptionError(
            f"tokens_column={column!r} is of type {type(column).__name__}. Pass a str such as 'input_ids'."
        )
    if not column or not column.isprintable():
        raise OptionError(f"tokens_column={column!r} is not a valid column name. Pass a name such as 'input_ids'.")
    return layout.with_tokens_column(column), None if column == COLUMN else column


def _check_fraction(fraction: Any) -> float:
    if isinstance(fraction, bool) or not isinstance(fraction, int | float | np.floating):
        raise OptionError(f"val_fraction={fraction!r} is of type {type(fraction).__name__}. Pass a number.")
    if not 0 <= fraction < 1:
        raise OptionError(f"val_fraction must be >= 0 and < 1, got {fraction}. Pass 0 for no validation split.")
    return float(fraction)


def _check_width(dtype: DTypeLike | None, layout: Layout, vocab_size: int) -> np.dtype[Any]:
    natural = layout.dtype(vocab_size)
    if dtype is None:
        return natural
    kind = check_dtype(dtype, vocab_size)
    if kind.name not in ("uint16", "uint32", natural.name):
        raise OptionError(f"dtype={kind} is not supported for token files. Pass 'uint16' or 'uint32', or leave it out.")
    if kind != natural and not layout.any_width:
        raise OptionError(
            f"dtype={kind} does not apply: with this vocabulary, {layout.name} files are {natural}. Leave it out."
        )
    return kind.newbyteorder("<")


def _command(source: Source, given: EncodeOptions, recorded: dict[str, Any]) -> str:
    """Return the command line that makes the same files, run in the folder with its tokenizer."""
    names: Sequence[str] = [*map(recorded_name, source.paths)] if isinstance(source, FoundFiles) else ["DOCUMENTS"]
    words = ["gristmill", "encode", *names, "-t", TOKENIZER_FILE]
    dtype = given["dtype"]
    asked: dict[str, Any] = {name: given[name] for name in ("format", "end_of_text", "end_of_text_position")}
    asked |= {"dtype": None if dtype is None else np.dtype(dtype).name, **recorded}
    usual: dict[str, Any] = {**DEFAULTS, "shard_tokens": check_layout(given["format"]).shard_tokens}
    usual |= {"allowed_special": [], **Reading().options()}
    for name, value in asked.items():
        if value == usual[name]:
            continue
        values = value if isinstance(value, list) else ["none" if value is None else str(value)]
        words += [f"--{name.replace('_', '-')}", *values]
    return shlex.join(words)
