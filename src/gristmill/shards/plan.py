"""What `encode_corpus` is to do: its arguments, checked, and what is written down of them."""

from __future__ import annotations

import dataclasses
import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import DTypeLike

from gristmill.arguments import check_num_threads, check_whole_number
from gristmill.corpus import Corpus, Documents, Files, Reading, ReadOptions, open_corpus
from gristmill.count import Words
from gristmill.encode.dropout import check_seed
from gristmill.encode.ids import check_dtype
from gristmill.encode.special_rules import NONE, Specials
from gristmill.encode.tokenizer import Tokenizer, check_tokenizer
from gristmill.errors import OptionError
from gristmill.shards.end_of_text import find_end_of_text
from gristmill.shards.inputs import fingerprints
from gristmill.shards.layouts import Layout, check_layout
from gristmill.shards.manifest import MANIFEST_FILE, REQUEST_FILE, TOKENIZER_FILE
from gristmill.shards.request import Request


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do, every argument checked."""

    source: Files | Documents
    tokenizer: Tokenizer
    layout: Layout
    dtype: np.dtype[Any]
    shard_tokens: int | None
    val_fraction: float
    seed: int
    allowed_special: Specials
    num_threads: int
    reading: Reading
    request: Request

    @classmethod
    def checked(
        cls,
        corpus: Corpus,
        tokenizer: Tokenizer,
        *,
        out: str | os.PathLike[str],
        format: str,
        end_of_text: str | int | None,
        end_of_text_position: str | None,
        allowed_special: Specials,
        dtype: DTypeLike | None,
        shard_tokens: int | None,
        val_fraction: float,
        seed: int,
        num_threads: int | None,
        reading: ReadOptions,
    ) -> Plan:
        check_tokenizer(tokenizer)
        if isinstance(corpus, Words):
            raise TypeError(
                "corpus is a Words: it holds distinct pieces and their counts, not documents. "
                "Pass the corpus that they were counted from."
            )
        layout = check_layout(format)
        mark = find_end_of_text(tokenizer, end_of_text, end_of_text_position, layout)
        options = cast(ReadOptions, {"separator": mark.token, **reading}) if mark is not None else reading
        how = Reading.checked(options, documents="separator")
        tokenizer._rules.rule(allowed_special, NONE)
        source = _without_own_files(open_corpus(corpus, how), out)
        asked = {
            "shard_tokens": _check_shard_tokens(shard_tokens, layout),
            "val_fraction": _check_fraction(val_fraction),
            "seed": check_seed(_not_none("seed", seed)),
            "allowed_special": allowed_special if isinstance(allowed_special, str) else sorted(allowed_special),
            **dataclasses.asdict(how),
        }
        kind = _check_width(dtype, layout, tokenizer.vocab_size)
        request = Request(
            layout=layout.name,
            dtype=kind.name,
            vocab_size=tokenizer.vocab_size,
            tokenizer_fingerprint=tokenizer.fingerprint,
            end_of_text=mark,
            inputs=fingerprints(source.inputs) if isinstance(source, Files) else None,
            options=asked,
            command=_command(source, format, end_of_text, end_of_text_position, dtype, asked),
        )
        return cls(
            source=source,
            tokenizer=tokenizer,
            layout=layout,
            dtype=kind,
            shard_tokens=asked["shard_tokens"],
            val_fraction=asked["val_fraction"],
            seed=asked["seed"],
            allowed_special=allowed_special,
            num_threads=check_num_threads(num_threads),
            reading=how,
            request=request,
        )

    @property
    def splits(self) -> list[str]:
        return ["train", "val"] if self.val_fraction else ["train"]


def _without_own_files(source: Files | Documents, out: str | os.PathLike[str]) -> Files | Documents:
    """The corpus without what an earlier run has written, where the output folder lies in a folder of the corpus."""
    if isinstance(source, Documents) or not any((Path(out) / file).exists() for file in (MANIFEST_FILE, REQUEST_FILE)):
        return source
    prefix = os.path.join(os.path.abspath(out), "")  # noqa: PTH100, PTH118
    kept = [input for input in source.inputs if not os.path.abspath(input.name).startswith(prefix)]  # noqa: PTH100
    return Files(tuple(kept))


def _not_none(name: str, value: Any) -> Any:
    if value is None:
        raise OptionError(f"{name}=None is not a number. Pass an int: a run that goes on needs the same one.")
    return value


def _check_shard_tokens(shard_tokens: Any, layout: Layout) -> int | None:
    if shard_tokens is None:
        return layout.shard_tokens
    number = check_whole_number("shard_tokens", shard_tokens)
    if layout.shard_tokens is None:
        raise OptionError(f"shard_tokens={number}, but {layout.name} has one file for each split. Leave it out.")
    if number < 1:
        raise OptionError(f"shard_tokens={number} is too small. Pass shard_tokens >= 1.")
    layout.check_num_tokens(number)
    return number


def _check_fraction(fraction: Any) -> float:
    if isinstance(fraction, bool) or not isinstance(fraction, int | float | np.floating):
        raise OptionError(f"val_fraction={fraction!r} is a {type(fraction).__name__}. Pass a number.")
    if not 0 <= fraction < 1:
        raise OptionError(f"val_fraction={fraction} is out of range. Pass 0 for no validation split, or less than 1.")
    return float(fraction)


def _check_width(dtype: DTypeLike | None, layout: Layout, vocab_size: int) -> np.dtype[Any]:
    natural = layout.dtype(vocab_size)
    if dtype is None:
        return natural
    kind = check_dtype(dtype, vocab_size)
    if kind.name not in ("uint16", "uint32", natural.name):
        raise OptionError(f"dtype={kind} is not one of token files. Pass 'uint16', 'uint32' or None.")
    if kind != natural and not layout.any_width:
        raise OptionError(f"dtype={kind}, but {layout.name} files of this vocabulary are {natural}. Leave it out.")
    return kind.newbyteorder("<")


def _command(
    source: Files | Documents,
    format: str,
    end_of_text: str | int | None,
    position: str | None,
    dtype: DTypeLike | None,
    asked: dict[str, Any],
) -> str:
    """The command line that makes the same files in a folder, with the tokenizer that lies in it."""
    names: Sequence[str] = source.paths if isinstance(source, Files) else ["DOCUMENTS"]
    words = ["gristmill", "encode", *names, "-t", TOKENIZER_FILE]
    given: dict[str, Any] = {"format": format, "end_of_text": end_of_text, "end_of_text_position": position}
    given |= {"dtype": None if dtype is None else np.dtype(dtype).name, **asked}
    usual: dict[str, Any] = {
        "format": "gristmill",
        "end_of_text": "auto",
        "shard_tokens": check_layout(format).shard_tokens,
    }
    usual |= {"val_fraction": 0.0, "seed": 0, "allowed_special": [], **dataclasses.asdict(Reading())}
    for name, value in given.items():
        if value == usual.get(name):
            continue
        values = value if isinstance(value, list) else ["none" if value is None else str(value)]
        words += [f"--{name.replace('_', '-')}", *values]
    return shlex.join(words)
