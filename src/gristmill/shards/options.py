"""The options of `encode_corpus` that decide the bytes it writes, defined in this one place."""

from __future__ import annotations

from typing import Literal

from numpy.typing import DTypeLike

from gristmill.corpus import ReadOptions
from gristmill.encode.special_rules import NONE, Specials


class EncodeOptions(ReadOptions, total=False):
    """The options of `encode_corpus` that decide which bytes it writes. They include `ReadOptions`.

    format: gristmill (read by `Shards`), nanogpt, llmc, megatron, npy, parquet or datatrove.
    end_of_text: the special token that separates documents, by name or id. "auto": <|endoftext|> or a similar token;
        None: no separator.
    end_of_text_position: "after" or "before" each document. Default: the convention of the format.
    allowed_special: special tokens that become ids where a document spells them out. Default: they are plain text.
    dtype: type of the ids. Default: uint16 if all ids fit, otherwise uint32. Only for gristmill, npy, parquet.
    shard_tokens: ids per file. Default: 100 million; for nanogpt and megatron, a single file of any size.
    tokens_column: name of the column of ids; only for parquet. Default: "tokens".
    val_fraction, seed: the share of the documents that goes to the split "val". The choice depends on a hash of the
        seed and of the first 64 KiB of a document, so it does not change when files are renamed, reordered or added.
    """

    format: str
    end_of_text: str | int | None
    end_of_text_position: Literal["after", "before"] | None
    allowed_special: Specials
    dtype: DTypeLike | None
    shard_tokens: int | None
    tokens_column: str | None
    val_fraction: float
    seed: int


DEFAULTS: EncodeOptions = {
    "format": "gristmill",
    "end_of_text": "auto",
    "end_of_text_position": None,
    "allowed_special": NONE,
    "dtype": None,
    "shard_tokens": None,
    "tokens_column": None,
    "val_fraction": 0.0,
    "seed": 0,
}
