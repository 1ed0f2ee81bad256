"""manifest.json: the contents of a folder of shards, the inputs it was made from, and a checksum of every file.

The manifest is written last: a folder that has one is complete, and readers trust only the files it names. It records
no times, thread counts or folder paths, so the same command writes the same bytes. Its last line is a checksum of the
lines before it. Readers check everything in it: no file that it names can be outside the folder.
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
REQUEST_FILE = ".request.json"  # the request of an unfinished run
REPLACED_FILE = ".replaced.json"  # manifest of the shards that are being replaced
NEW_FOLDER = ".new"  # shards that will replace finished ones
PARTS_FOLDER = ".parts"  # unfinished job of an executor
TOKENIZER_FILE = "tokenizer.json"
SPLITS = ("train", "val")
MAX_BYTES = 1 << 30  # enough for a million shards and a million inputs
MAX_ITEMS = 1 << 25

_CHECKSUM_KEY = b',\n "checksum": "'
_END = b"\n}\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardEntry:
    """One shard: a token file and, in most layouts, its index."""

    file: str
    tokens: int
    documents: int  # that end in this shard
    bytes: int  # of the token file
    xxh64: str  # of the token file, 16 hexadecimal digits
    index: str | None
    index_xxh64: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """The shards of a split, in order, and their totals."""

    documents: int
    tokens: int
    source_bytes: int  # of the texts before encoding: the denominator of bits per byte
    shards: tuple[ShardEntry, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class InputEntry:
    """One file of the corpus, as it was when it was read."""

    path: str  # or URL
    format: str
    compression: str  # "" for none
    bytes: int  # on the disk
    modified_ns: int | None  # None if the file system does not report it
    samples: str  # result of `sample_input`, 16 hexadecimal digits; "" if not computed
    skipped: str | None  # reason, for a file that was skipped


@dataclass(frozen=True, slots=True, kw_only=True)
class EndOfText:
    """The id that separates documents, and whether it comes after or before them."""

    id: int
    token: str
    position: Literal["after", "before"]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Manifest:
    """Contents of a folder of shards. Its repr is one line; `dataclasses.asdict` returns everything.

    Attributes:
        layout: Format of the token files, a key of `gristmill.shards.LAYOUTS`.
        dtype: NumPy type of the ids, such as "uint16".
        vocab_size: All ids are below this number.
        tokenizer_file: Name of the tokenizer file in the folder.
        tokenizer_fingerprint: Fingerprint of the tokenizer that made the ids.
        end_of_text: The id that separates documents; None if there is no separator.
        splits: Shards and totals of each split, by name.
        inputs: The files of the corpus as they were when they were read. Empty for an iterable of documents.
        num_nulls: Number of records without a text, which were skipped.
        options: The options of `encode_corpus`.
        command: The command line that makes the same shards.

    Examples:
        ```python
        manifest = gm.Manifest.read("shards/")
        manifest.splits["train"].tokens
        ```
    """

    layout: str
    dtype: str
    vocab_size: int
    tokenizer_file: str = TOKENIZER_FILE
    tokenizer_fingerprint: str
    end_of_text: EndOfText | None
    splits: dict[str, Split]
    inputs: tuple[InputEntry, ...]
    num_nulls: int
    options: dict[str, Any]
    command: str

    @property
    def token_dtype(self) -> np.dtype[Any]:
        """NumPy type of the tokens in the files: little-endian on every machine."""
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
        """Return the bytes of manifest.json.

        Examples:
            >>> manifest = Manifest(
            ...     layout="gristmill", dtype="uint16", vocab_size=256, tokenizer_fingerprint=64 * "0",
            ...     end_of_text=None,
            ...     splits={}, inputs=(), num_nulls=0, options={}, command="gristmill encode")
            >>> manifest.to_json().splitlines()[1]
            b' "format": "gristmill-shards",'
        """
        content = {"format": FORMAT, "version": VERSION} | dataclasses.asdict(self)
        body = json.dumps(content, indent=1, allow_nan=False).encode("ascii").removesuffix(_END[:-1])
        return _with_checksum(body)

    @classmethod
    def read(cls, folder: str | os.PathLike[str]) -> Manifest:
        """Return the manifest of a folder.

        Args:
            folder: The folder of shards.

        Raises:
            ShardsFormatError: The manifest is missing, invalid, or does not match its checksum.
            OSError: The folder does not exist or cannot be read.
        """
        data = read_manifest(folder)
        manifest = cls.from_json(data, Path(folder) / MANIFEST_FILE)
        if not checksum_fits(data):
            raise ShardsFormatError(f"{Path(folder) / MANIFEST_FILE}: {EDITED}")
        return manifest

    @classmethod
    def from_json(cls, data: bytes, path: str | os.PathLike[str]) -> Manifest:
        """Return the manifest in `data`, without checking its checksum.

        Args:
            data: The bytes of manifest.json.
            path: The path or URL of the file, for error messages.

        Raises:
            ShardsFormatError: `data` is not a valid manifest.

        Examples:
            ```python
            path = Path("shards/manifest.json")
            manifest = gm.Manifest.from_json(path.read_bytes(), path)
            ```
        """
        import msgspec  # imported here to keep `import gristmill` fast

        from gristmill.shards.schema import check_manifest

        content = parse_json(data, source=path, error=ShardsFormatError, max_items=MAX_ITEMS)
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            raise ShardsFormatError(f'{path}: not a manifest of shards: it has no "format": "{FORMAT}".')
        if type(content.get("version")) is not int or content["version"] != VERSION:
            raise ShardsFormatError(
                f"{path}: version {content.get('version')!r:.80} is not supported; this Gristmill reads version "
                f"{VERSION}. Install the version of Gristmill that made it, or encode again."
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
        """Return `from_json(data, path)`. Deprecated name of `from_json`.

        Args:
            data: The bytes of manifest.json.
            path: The path of the file, for error messages.

        Raises:
            ShardsFormatError: `data` is not a valid manifest.

        Examples:
            ```python
            manifest = gm.Manifest.from_json(data, path)  # instead of gm.Manifest.of_json(data, path)
            ```
        """
        warn_user("Manifest.of_json() is deprecated. Use Manifest.from_json().", DeprecationWarning)
        return cls.from_json(data, path)


EDITED = "the checksum does not match the contents: the file was edited or damaged. Restore it or encode again."


def read_manifest(folder: str | os.PathLike[str]) -> bytes:
    """Return the bytes of the manifest of the folder; if it is missing, raise an error that describes the folder."""
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
            if not path.exists():  # otherwise an overwrite has just finished, and `why` is out of date
                raise ShardsFormatError(f"{shown(place)}: {why}") from None


def has_files_of_runs(folder: Path) -> bool:
    """Whether `encode_corpus` has written to the folder, finished or not."""
    names = (MANIFEST_FILE, PROGRESS_FILE, REQUEST_FILE, REPLACED_FILE, NEW_FOLDER)
    return any(os.path.lexists(folder / name) for name in names)


def _why_no_manifest(folder: Path) -> str:
    """Describe a folder without a manifest, and what to do about it."""
    if (folder / NEW_FOLDER / MANIFEST_FILE).exists():
        return (
            "its shards are being replaced, or a run was interrupted while it replaced them. If no run is active, call "
            "encode_corpus() again in the same way to finish: the new shards are complete."
        )
    if (folder / PROGRESS_FILE).exists() or (folder / REQUEST_FILE).exists():
        return "unfinished: run the same command again to resume."
    return f"not a folder of shards: it has no {MANIFEST_FILE}. {what_instead(folder)}"


def read_manifest_file(path: Path) -> bytes:
    """Return the bytes of a manifest file, whatever its name."""
    return read_small_file(path, what="a manifest", max_bytes=MAX_BYTES, error=ShardsFormatError)


def checksum_fits(data: bytes) -> bool:
    """Whether the file ends with the checksum of its other lines."""
    return data == _with_checksum(data.rpartition(_CHECKSUM_KEY)[0])


def _with_checksum(body: bytes) -> bytes:
    """Append the checksum lines to `body`; the SHA-256 is of the file without its checksum."""
    return body + _CHECKSUM_KEY + hashlib.sha256(body + _END).hexdigest().encode() + b'"' + _END


def _check_shards(manifest: Manifest) -> None:
    """Raise if a file is named twice, an index and its checksum do not come together, or a total exceeds 63 bits."""
    seen = {manifest.tokenizer_file}
    for split_name, split in manifest.splits.items():
        for what, total in (
            ("tokens", sum(shard.tokens for shard in split.shards)),
            ("documents", sum(shard.documents for shard in split.shards)),
        ):
            if total >= 2**63:
                raise ShardsFormatError(
                    f"the shards of splits.{split_name} have {total:,} {what}; the limit is 2^63 - 1."
                )
        for shard in split.shards:
            if (shard.index is None) != (shard.index_xxh64 is None):
                raise ShardsFormatError(
                    f"{shard.file} has an index without a checksum, or a checksum without an index. Restore the "
                    f"manifest or encode again."
                )
            for name in (shard.file, shard.index):
                if name in seen:
                    raise ShardsFormatError(f"the file {name} is listed twice.")
                if name is not None:
                    seen.add(name)
