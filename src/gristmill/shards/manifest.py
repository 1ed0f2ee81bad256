"""manifest.json: what a folder of shards holds, from what it was made, and a checksum of every file.

It is written last: a folder has it once everything in it is whole, and readers trust only what it names. It says
nothing of time, threads or the place of the folder, so the same command gives the same bytes. Its last line is a
checksum of those before. Everything in it is checked when it is read: no file that it names can lie outside the folder.
"""

from __future__ import annotations

import dataclasses
import errno
import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from gristmill.corpus.inputs import shown
from gristmill.errors import ShardsFormatError, warn_user
from gristmill.shards.explain import refuse_url, what_instead
from gristmill.small_files import parse_json, read_small_file

__all__ = ["EndOfText", "InputEntry", "Manifest", "ShardEntry", "Split"]

FORMAT = "gristmill-shards"
VERSION = 1
MANIFEST_FILE = "manifest.json"
PROGRESS_FILE = "progress.json"
REQUEST_FILE = ".request.json"  # what an unfinished run was asked for
REPLACED_FILE = ".replaced.json"  # the manifest of shards that are just being replaced
NEW_FOLDER = ".new"  # shards that will replace finished ones
PARTS_FOLDER = ".parts"  # a job of an executor, unfinished
TOKENIZER_FILE = "tokenizer.json"
SPLITS = ("train", "val")
MAX_BYTES = 1 << 30  # a million shards, and as many inputs
MAX_ITEMS = 1 << 25

_CHECKSUM_KEY = b',\n "checksum": "'
_END = b"\n}\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardEntry:
    """One shard: a token file, and its index where the layout has one."""

    file: str
    tokens: int
    documents: int  # that end in it
    bytes: int  # of the token file
    xxh64: str  # of the token file, 16 hexadecimal digits
    index: str | None
    index_xxh64: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """The shards of a split, in order, and what they hold together."""

    documents: int
    tokens: int
    source_bytes: int  # of the texts, before they were encoded: the denominator of bits per byte
    shards: tuple[ShardEntry, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class InputEntry:
    """One file of the corpus, as it was when it was read."""

    path: str  # or URL
    format: str
    compression: str  # "" for none
    bytes: int  # on the disk
    modified_ns: int | None  # None where the file system does not tell
    samples: str  # what `sample_input` gave, 16 hexadecimal digits; "" where it was not asked
    skipped: str | None  # why, for a file that was left out


@dataclass(frozen=True, slots=True, kw_only=True)
class EndOfText:
    """The id that separates documents, and on which side of them it stands."""

    id: int
    token: str
    position: Literal["after", "before"]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Manifest:
    """What a folder of shards holds. Printed, it is one line; `dataclasses.asdict` gives all of it."""

    layout: str
    dtype: str
    vocab_size: int
    tokenizer_file: str = TOKENIZER_FILE
    tokenizer_fingerprint: str
    end_of_text: EndOfText | None
    splits: dict[str, Split]
    inputs: tuple[InputEntry, ...]
    num_nulls: int  # records without a text, left out
    options: dict[str, Any]
    command: str

    @property
    def token_dtype(self) -> np.dtype[Any]:
        """The type of the tokens in the files: little-endian on every machine."""
        return np.dtype(self.dtype).newbyteorder("<")

    def __repr__(self) -> str:
        splits = ", ".join(
            f"{name}: {split.documents:,} documents, {split.tokens:,} tokens, {len(split.shards):,} shards"
            for name, split in self.splits.items()
        )
        return (
            f"<Manifest: layout {self.layout!r}, {self.dtype}, vocabulary {self.vocab_size:,}, "
            f"{len(self.inputs):,} inputs; {splits}>"
        )

    def to_json(self) -> bytes:
        """The file.

        >>> manifest = Manifest(
        ...     layout="gristmill", dtype="uint16", vocab_size=256, tokenizer_fingerprint=64 * "0", end_of_text=None,
        ...     splits={}, inputs=(), num_nulls=0, options={}, command="gristmill encode")
        >>> manifest.to_json().splitlines()[1]
        b' "format": "gristmill-shards",'
        """
        content = {"format": FORMAT, "version": VERSION} | dataclasses.asdict(self)
        body = json.dumps(content, indent=1, allow_nan=False).encode("ascii").removesuffix(_END[:-1])
        return _with_checksum(body)

    @classmethod
    def read(cls, folder: str | os.PathLike[str]) -> Manifest:
        """The manifest of the folder; `ShardsFormatError` for one that is missing, unsound or was edited."""
        data = read_manifest(folder)
        manifest = cls.from_json(data, Path(folder) / MANIFEST_FILE)
        if not checksum_fits(data):
            raise ShardsFormatError(f"{Path(folder) / MANIFEST_FILE}: {EDITED}")
        return manifest

    @classmethod
    def from_json(cls, data: bytes, path: str | os.PathLike[str]) -> Manifest:
        """What the file says, whatever its checksum; `path`, or a URL, is for the errors."""
        import msgspec  # here, so that `import gristmill` does not wait for it

        from gristmill.shards.schema import check_manifest

        content = parse_json(data, source=path, error=ShardsFormatError, max_items=MAX_ITEMS)
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            raise ShardsFormatError(f'{path}: it is not a manifest of shards: it has no "format": "{FORMAT}".')
        if type(content.get("version")) is not int or content["version"] != VERSION:
            raise ShardsFormatError(
                f"{path}: it has version {content.get('version')!r:.80}, and this Gristmill reads version {VERSION}."
            )
        fields = {key: value for key, value in content.items() if key not in ("format", "version", "checksum")}
        try:
            check_manifest(fields)
            manifest = msgspec.convert(fields, cls)
            _check_shards(manifest)
        except ShardsFormatError as error:
            raise ShardsFormatError(f"{path}: {error}") from None
        return manifest

    @classmethod
    def of_json(cls, data: bytes, path: Path) -> Manifest:
        """Deprecated: the old name of `from_json`."""
        warn_user("Manifest.of_json() is now called Manifest.from_json().", DeprecationWarning)
        return cls.from_json(data, path)


EDITED = "its checksum does not fit its contents: it was edited or damaged. Restore it, or encode into a new folder."


def read_manifest(folder: str | os.PathLike[str]) -> bytes:
    """The bytes of the manifest of the folder; an error that says what the folder is where it has none."""
    place = Path(folder)
    path = place / MANIFEST_FILE
    while True:
        try:
            return read_manifest_file(path)
        except NotADirectoryError:
            raise NotADirectoryError(errno.ENOTDIR, what_instead(place), str(place)) from None
        except FileNotFoundError:
            if not os.path.lexists(place):
                refuse_url(place)
            place.stat()  # the folder itself may be missing
            why = _why_no_manifest(place)
            if not path.exists():  # otherwise an overwrite has ended since, and what was found is out of date
                raise ShardsFormatError(f"{shown(place)}: {why}") from None


def has_files_of_runs(folder: Path) -> bool:
    """Whether `encode_corpus` has been at work in the folder, finished or not."""
    names = (MANIFEST_FILE, PROGRESS_FILE, REQUEST_FILE, REPLACED_FILE, NEW_FOLDER)
    return any(os.path.lexists(folder / name) for name in names)


def _why_no_manifest(folder: Path) -> str:
    """What a folder without a manifest is, and what to do about it."""
    if (folder / NEW_FOLDER / MANIFEST_FILE).exists():
        return (
            "its shards are being replaced, or were when the run was interrupted. If no run is at work, call "
            "encode_corpus() again in the same way to finish: the new shards are complete."
        )
    if (folder / PROGRESS_FILE).exists() or (folder / REQUEST_FILE).exists():
        return "unfinished: run the same command again to resume."
    return f"not a folder of shards: it has no {MANIFEST_FILE}. {what_instead(folder)}"


def read_manifest_file(path: Path) -> bytes:
    """The bytes of a manifest, whatever its name."""
    return read_small_file(path, what="a manifest", max_bytes=MAX_BYTES, error=ShardsFormatError)


def checksum_fits(data: bytes) -> bool:
    """Whether the file ends with the checksum of what comes before."""
    return data == _with_checksum(data.rpartition(_CHECKSUM_KEY)[0])


def _with_checksum(body: bytes) -> bytes:
    """The file whose lines but for the last two are `body`: the SHA-256 is that of the file without its checksum."""
    return body + _CHECKSUM_KEY + hashlib.sha256(body + _END).hexdigest().encode() + b'"' + _END


def _check_shards(manifest: Manifest) -> None:
    """Raise if two entries name the same file, one has only half an index, or all together are more than can be."""
    seen = {manifest.tokenizer_file}
    for split_name, split in manifest.splits.items():
        for what, total in (
            ("tokens", sum(shard.tokens for shard in split.shards)),
            ("documents", sum(shard.documents for shard in split.shards)),
        ):
            if total >= 2**63:
                raise ShardsFormatError(f"the shards of splits.{split_name} have {total:,} {what}, beyond 2^63 - 1.")
        for shard in split.shards:
            if (shard.index is None) != (shard.index_xxh64 is None):
                raise ShardsFormatError(
                    f"{shard.file} has an index without a checksum, or a checksum without an index."
                )
            for name in (shard.file, shard.index):
                if name in seen:
                    raise ShardsFormatError(f"the file {name} is named twice.")
                if name is not None:
                    seen.add(name)
