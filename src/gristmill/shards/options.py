"""The options of `encode_corpus` that decide the bytes it writes, defined in this one place."""

from __future__ import annotations

from typing import Literal

from numpy.typing import DTypeLike

from gristmill.corpus import ReadOptions
from gristmill.encode.special_rules import NONE, Specials


class EncodeOptions(ReadOptions, total=False):
    """The options of `encode_corpus` that decide which bytes it writes. They include `ReadOptions`.

    Attributes:
        format: "gristmill" (read by `Shards`), "nanogpt", "llmc", "megatron", "npy", "parquet" or "datatrove".
        end_of_text: Special token that separates documents, by name or id. "auto": <|endoftext|> or a similar token;
            None: no separator.
        end_of_text_position: "after" or "before" each document. Default: the convention of the format.
        allowed_special: Special tokens in a document that become their ids, or "all". Default: they are plain text.
        dtype: Type of the ids. Default: uint16 if it can represent all ids, otherwise uint32. Only for gristmill, npy
            and parquet.
        shard_tokens: Ids per file. Default: 100 million; for nanogpt and megatron, a single file of any size.
        tokens_column: Name of the column of ids; only for parquet. Default: "tokens".
        val_fraction: Share of the documents that goes to the split "val". Which documents depends on a hash of the seed
            and of the first 64 KiB of a document, so it does not change when files are renamed, reordered or added.
        seed: Seed of that choice.
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
