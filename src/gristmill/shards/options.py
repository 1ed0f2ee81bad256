"""The options of `encode_corpus` that decide the bytes it writes, spelled here and nowhere else."""

from __future__ import annotations

from typing import Literal

from numpy.typing import DTypeLike

from gristmill.corpus import ReadOptions
from gristmill.encode.special_rules import NONE, Specials


class EncodeOptions(ReadOptions, total=False):
    """What `encode_corpus` takes beside the corpus, the tokenizer and how to run; `ReadOptions` are among it.

    format: gristmill (read by `Shards`), nanogpt, llmc, megatron, npy, parquet or datatrove.
    end_of_text: the special token that marks documents, by name or id. "auto": <|endoftext|> or the like; None: none.
    end_of_text_position: "after" or "before" each document. Default: what the format's own tools do.
    allowed_special: special tokens that become ids where a document spells them out. Default: they are plain text.
    dtype: of the ids; default: uint16 where that holds them all, otherwise uint32. Only for gristmill, npy, parquet.
    shard_tokens: ids per file. Default: 100 million; one file, whatever its size, for nanogpt and megatron.
    tokens_column: the name of the column of ids; only for parquet. Default: "tokens".
    val_fraction, seed: this share of the documents goes into the split "val", chosen by a hash of the seed and of how
        a document begins (its first 64 KiB): the same ones however files are named, ordered or added.
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
