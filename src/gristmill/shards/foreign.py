"""Folders of token files that other programs made, without a manifest, for `Shards`.

| the folder has | layout |
|---|---|
| `manifest.json` | the layout in the manifest; this module is not used |
| `X.idx` that begins with `MMIDIDX`, and `X.bin` | Megatron-LM |
| `X.bin` that begins with 20240520 or 20240801 | llm.c |
| `X.ds` | datatrove |
| `train.bin` or `val.bin`, and none of the above | nanoGPT |

A file with "val", "valid", "validation" or "test" as a word in its name belongs to that split, every other to "train".
The tokenizer, the size of the texts and the checksums are unknown.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from gristmill.errors import ShardsFormatError
from gristmill.shards.inputs import sample_input
from gristmill.shards.layouts import FoundFile, recognize
from gristmill.shards.layouts.layout import split_of
from gristmill.shards.manifest import Manifest, ShardEntry, Split
from gristmill.small_files import open_regular

UNKNOWN = 0  # number of documents in files without an index


def read_foreign(folder: Path) -> Manifest | None:
    """Return a manifest for the folder, as far as its files show; None if no layout recognizes it.

    `vocab_size` is 0, `tokenizer_fingerprint` empty, and the checksums of the files are of samples of their content.
    """
    recognized = recognize(folder)
    if recognized is None:
        return None
    layout, files = recognized
    first = files[0]
    for file in files:
        if file.dtype != first.dtype or (file.index is None) != (first.index is None):
            raise ShardsFormatError(
                f"{folder}: {first.file} and {file.file} do not belong together: the type of their tokens differs, or "
                f"only one has an index. Move them into separate folders."
            )
    splits: dict[str, list[ShardEntry]] = {}
    for file in files:
        splits.setdefault(split_of(file.file), []).append(_entry(folder, file))
    return Manifest(
        layout=layout.name,
        dtype=first.dtype.name,
        vocab_size=0,
        tokenizer_fingerprint="",
        end_of_text=None,
        splits={name: _split(entries) for name, entries in splits.items()},
        inputs=(),
        num_nulls=0,
        options={},
        command="",
    )


def checksum_of(manifest: Manifest) -> str:
    """Return a checksum that identifies a foreign folder by the names, sizes and samples of its files."""
    return hashlib.sha256(manifest.to_json()).hexdigest()


def _entry(folder: Path, file: FoundFile) -> ShardEntry:
    path = folder / file.file
    num_bytes = path.stat().st_size
    with open_regular(path, error=ShardsFormatError) as stream:

        def read_at(offset: int, size: int) -> bytes:
            stream.seek(offset)
            return stream.read(size)

        samples = sample_input(read_at, num_bytes)
    return ShardEntry(
        file=file.file,
        tokens=file.num_tokens,
        documents=file.num_documents or UNKNOWN,
        bytes=num_bytes,
        xxh64=samples,
        index=file.index,
        index_xxh64=None,
    )


def _split(entries: list[ShardEntry]) -> Split:
    return Split(
        documents=sum(entry.documents for entry in entries),
        tokens=sum(entry.tokens for entry in entries),
        source_bytes=0,
        shards=tuple(entries),
    )
