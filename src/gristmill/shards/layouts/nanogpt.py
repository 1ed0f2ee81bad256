"""nanoGPT: `train.bin` and `val.bin`, raw uint16 without a header, and `meta.pkl`, which describes the vocabulary.

Without `meta.pkl` nanoGPT assumes the 50,304 ids of padded GPT-2: `train.py` would make a model of another size, and
`sample.py` would decode its ids with GPT-2's tokenizer. `meta.pkl` is a pickle, which Gristmill writes and never reads:
a dict of `vocab_size`, `itos` (the text of each id) and `stoi` (the id of each character that is a token).

These files have no magic number, so a foreign folder is recognized only by their names, after all other layouts
(`recognize` tries this one last).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gristmill.errors import OptionError, ShardsFormatError
from gristmill.shards.layouts.layout import NUM_UINT16, UINT16, FoundFile, Layout

META_FILE = "meta.pkl"


class NanogptLayout(Layout):
    """Raw uint16, one file per split."""

    name = "nanogpt"
    shard_tokens = None
    extra_names = (META_FILE,)

    def dtype(self, vocab_size: int) -> np.dtype[Any]:
        """Return uint16: the file does not record a type, and its readers expect uint16."""
        if vocab_size > NUM_UINT16:
            raise OptionError(
                f"the format 'nanogpt' has ids up to 65535 (uint16), but the vocabulary has {vocab_size:,} ids. "
                f"Pass format='gristmill', 'llmc' or 'megatron', which allow larger vocabularies."
            )
        return UINT16

    def token_file(self, name: str, split: str, number: int) -> str:
        """`train.bin`."""
        assert number == 0
        return f"{split}.bin"

    def extra_file(self, name: str, vocab: Mapping[int, bytes], vocab_size: int) -> bytes:
        """Return the pickle of {"vocab_size": int, "itos": {id: text}, "stoi": {character: id}}."""
        itos = {id: token.decode("utf-8", "replace") for id, token in vocab.items()}
        stoi: dict[str, int] = {}
        for id, text in itos.items():
            if len(text) == 1 and text.encode() == vocab[id]:
                stoi.setdefault(text, id)
        return b"\x80\x02" + _pickled({"vocab_size": vocab_size, "itos": itos, "stoi": stoi}) + b"."

    def find_files(self, folder: Path, names: Sequence[str]) -> list[FoundFile]:
        """Return `train.bin` and `val.bin`, if they exist."""
        return [_found(folder / name) for name in ("train.bin", "val.bin") if name in names]


def _found(path: Path) -> FoundFile:
    num_tokens, rest = divmod(path.stat().st_size, UINT16.itemsize)
    if rest:
        raise ShardsFormatError(
            f"{path}: nanoGPT files have two bytes per token, but this file has an odd number of bytes. Copy it again "
            f"if it is truncated."
        )
    return FoundFile(path.name, num_tokens, UINT16)


def _pickled(value: int | str | Mapping[Any, Any]) -> bytes:
    """Return the opcodes of pickle protocol 2 for a dict of plain values.

    Not `pickle.dumps`: its bytes depend on which strings are the same object, and files must not differ.
    """
    if isinstance(value, int):
        return b"J" + struct.pack("<i", value)
    if isinstance(value, str):
        data = value.encode()
        return b"X" + struct.pack("<I", len(data)) + data
    return b"}(" + b"".join(_pickled(key) + _pickled(item) for key, item in value.items()) + b"u"
