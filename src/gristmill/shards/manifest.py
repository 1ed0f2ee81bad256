"""manifest.json: what a folder of shards holds, from what it was made, and a checksum of every file.

It is written last: a folder has it once everything in it is whole, and readers trust only what it names. It says
nothing of time, threads or the place of the folder, so the same command gives the same bytes. Its last line is a
checksum of those before. Everything in it is checked when it is read: no file that it names can lie outside the folder.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NoReturn, TypeVar

import numpy as np

from gristmill.errors import ShardsFormatError
from gristmill.shards.layouts import LAYOUTS

__all__ = ["EndOfText", "InputEntry", "Manifest", "ShardEntry", "Split"]

FORMAT = "gristmill-shards"
VERSION = 1
MANIFEST_FILE = "manifest.json"
PROGRESS_FILE = "progress.json"
REQUEST_FILE = ".request.json"  # what an unfinished run was asked for
REPLACED_FILE = ".replaced.json"  # the manifest of shards that are just being replaced
NEW_FOLDER = ".new"  # shards that will replace finished ones
TOKENIZER_FILE = "tokenizer.json"
SPLITS = ("train", "val")
DTYPES = ("uint16", "uint32", "int32")
MAX_BYTES = 1 << 30  # a million shards

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
    source_bytes: int  # of the texts, before they were encoded: what bits per byte are reckoned with
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What a folder of shards holds."""

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
        manifest = cls.of_json(data, Path(folder) / MANIFEST_FILE)
        if not checksum_fits(data):
            raise ShardsFormatError(f"{Path(folder) / MANIFEST_FILE}: {EDITED}")
        return manifest

    @classmethod
    def of_json(cls, data: bytes, path: Path) -> Manifest:
        """What the file says, whatever its checksum; `path` is for the errors."""
        try:
            content = json.loads(data.decode(), parse_constant=_refuse_constant)
        except (UnicodeDecodeError, json.JSONDecodeError, RecursionError, ShardsFormatError) as error:
            raise ShardsFormatError(f"{path}: it is not JSON: {error or type(error).__name__}") from None
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            raise ShardsFormatError(f'{path}: it is not a manifest of shards: it has no "format": "{FORMAT}".')
        if type(content.get("version")) is not int or content["version"] != VERSION:
            raise ShardsFormatError(
                f"{path}: it has version {content.get('version')!r:.80}, and this Gristmill reads version {VERSION}."
            )
        fields = {key: value for key, value in content.items() if key not in ("format", "version", "checksum")}
        try:
            manifest = _check_manifest(fields, "")
            _check_names(manifest)
        except ShardsFormatError as error:
            raise ShardsFormatError(f"{path}: {error}") from None
        return manifest


EDITED = "its checksum does not fit its contents: it was edited or damaged. Encode again, or restore it."


def read_manifest(folder: str | os.PathLike[str]) -> bytes:
    """The bytes of the manifest of the folder; an error that says what the folder is where it has none."""
    place = Path(folder)
    path = place / MANIFEST_FILE
    try:
        with path.open("rb") as file:
            num_bytes = os.fstat(file.fileno()).st_size
            if num_bytes > MAX_BYTES:
                raise ShardsFormatError(f"{path}: it has {num_bytes:,} bytes; a manifest has at most {MAX_BYTES:,}.")
            return file.read(num_bytes)
    except FileNotFoundError:
        place.stat()  # the folder itself may be missing
        raise ShardsFormatError(f"{place}: {_why_no_manifest(place)}") from None


def _why_no_manifest(folder: Path) -> str:
    """What a folder without a manifest is, and what to do about it."""
    if (folder / NEW_FOLDER / MANIFEST_FILE).exists():
        return (
            "its shards are being replaced, or were when the run was interrupted. If no run is at work, run the same "
            "`gristmill encode` command again to finish: the new shards are complete."
        )
    if (folder / PROGRESS_FILE).exists() or (folder / REQUEST_FILE).exists():
        return "unfinished: run the same command again to go on."
    return f"not a folder of shards: it has no {MANIFEST_FILE}. `gristmill encode` makes one."


def checksum_fits(data: bytes) -> bool:
    """Whether the file ends with the checksum of what comes before."""
    return data == _with_checksum(data.rpartition(_CHECKSUM_KEY)[0])


def _with_checksum(body: bytes) -> bytes:
    """The file whose lines but for the last two are `body`: the SHA-256 is that of the file without its checksum."""
    return body + _CHECKSUM_KEY + hashlib.sha256(body + _END).hexdigest().encode() + b'"' + _END


def _refuse_constant(name: str) -> NoReturn:
    raise ShardsFormatError(f"it holds {name}.")


# Reading: for each key a function (value, where it stands) that returns what it was given, checked, or raises.

_Check = Callable[[Any, str], Any]
_Record = TypeVar("_Record")


def _wrong(value: Any, where: str, expected: str) -> NoReturn:
    raise ShardsFormatError(f"{where} is {json.dumps(value)[:80]}; it must be {expected}.")


def _count(value: Any, where: str) -> int:
    if type(value) is not int or not 0 <= value < 2**63:  # type(): `true` is an int to Python
        _wrong(value, where, "a whole number from 0 to 2^63 - 1")
    return value


def _whole_number(value: Any, where: str) -> int:
    return value if type(value) is int else _wrong(value, where, "a whole number")


def _text(value: Any, where: str) -> str:
    return value if isinstance(value, str) else _wrong(value, where, "a text")


def _one_of(*values: str) -> _Check:
    expected = "one of " + ", ".join(map(repr, values))
    return lambda value, where: value if value in values else _wrong(value, where, expected)


def _matching(pattern: str, expected: str) -> _Check:
    matches = re.compile(pattern, re.ASCII).fullmatch
    return lambda value, where: value if isinstance(value, str) and matches(value) else _wrong(value, where, expected)


# Not hidden, and without what separates folders, drives and streams on any system.
_PLAIN_NAME = re.compile(r'[^./\\:"<>|?*\x00-\x1f][^/\\:"<>|?*\x00-\x1f]*')


def _file_name(value: Any, where: str) -> str:
    """A name that can only be that of a file in the folder itself."""
    if not isinstance(value, str) or not _PLAIN_NAME.fullmatch(value) or value in (MANIFEST_FILE, PROGRESS_FILE):
        _wrong(value, where, "the name of a file in this folder, without a path and not hidden")
    return value


def _or_none(check: _Check) -> _Check:
    return lambda value, where: None if value is None else check(value, where)


def _json_object(value: Any, where: str) -> dict[str, Any]:
    return value if isinstance(value, dict) else _wrong(value, where, "an object")


def _list_of(check: _Check) -> _Check:
    def checked(value: Any, where: str) -> tuple[Any, ...]:
        if not isinstance(value, list):
            _wrong(value, where, "a list")
        return tuple([check(item, f"{where}[{i}]") for i, item in enumerate(value)])

    return checked


def _record_of(kind: type[_Record], checks: Mapping[str, _Check]) -> Callable[[Any, str], _Record]:
    def checked(value: Any, where: str) -> _Record:
        prefix = where and where + "."
        if not isinstance(value, dict):
            _wrong(value, where, "an object")
        if value.keys() != checks.keys():
            missing, unknown = sorted(checks.keys() - value.keys()), sorted(value.keys() - checks.keys())
            raise ShardsFormatError(
                f"the key {prefix}{missing[0]} is missing."
                if missing
                else f"the key {prefix}{unknown[0]} is not known."
            )
        return kind(**{key: check(value[key], prefix + key) for key, check in checks.items()})

    return checked


_sha256 = _matching("[0-9a-f]{64}", "64 hexadecimal digits")
_xxh64 = _matching("[0-9a-f]{16}", "16 hexadecimal digits")

_check_shard = _record_of(
    ShardEntry,
    {
        "file": _file_name,
        "tokens": _count,
        "documents": _count,
        "bytes": _count,
        "xxh64": _xxh64,
        "index": _or_none(_file_name),
        "index_xxh64": _or_none(_xxh64),
    },
)

_check_split = _record_of(
    Split,
    {"documents": _count, "tokens": _count, "source_bytes": _count, "shards": _list_of(_check_shard)},
)


def _check_splits(value: Any, where: str) -> dict[str, Split]:
    known = _one_of(*SPLITS)
    splits = _json_object(value, where)
    return {known(name, f"a name in {where}"): _check_split(split, f"{where}.{name}") for name, split in splits.items()}


_check_input = _record_of(
    InputEntry,
    {
        "path": _text,
        "format": _text,
        "compression": _text,
        "bytes": _count,
        "modified_ns": _or_none(_whole_number),
        "samples": _matching("([0-9a-f]{16})?", "16 hexadecimal digits"),
        "skipped": _or_none(_text),
    },
)

_check_end_of_text = _record_of(EndOfText, {"id": _count, "token": _text, "position": _one_of("after", "before")})

_check_manifest = _record_of(
    Manifest,
    {
        "layout": _one_of(*LAYOUTS),
        "dtype": _one_of(*DTYPES),
        "vocab_size": _count,
        "tokenizer_file": _file_name,
        "tokenizer_fingerprint": _sha256,
        "end_of_text": _or_none(_check_end_of_text),
        "splits": _check_splits,
        "inputs": _list_of(_check_input),
        "num_nulls": _count,
        "options": _json_object,
        "command": _text,
    },
)


def _check_names(manifest: Manifest) -> None:
    """Raise if two entries name the same file, or one has only half an index."""
    seen = {manifest.tokenizer_file}
    for split in manifest.splits.values():
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
