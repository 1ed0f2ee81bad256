"""Cache of converted Parquet files, which later runs reuse.

    sequences-0123…/meta.json          the request, the result, and the checksums of the files
                    train.bin, …       the sequences, as `FlatSequences` reads them
                    shards/            or shards, if the column is text
    .sequences-0123….new/              the same while it is being built
    .sequences-0123….lock              locked by the process that builds it; another one waits, and gets its name

The name is a hash of everything that determines the content, so another input, column or tokenizer gets another folder.
A damaged entry is rebuilt. A folder gets its final name only when all its files are complete and flushed to disk.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

from gristmill._core import Xxh64
from gristmill.errors import CheckpointError, warn_user
from gristmill.lock import waiting_lock
from gristmill.publish import flush_folder, publish
from gristmill.small_files import parse_json, read_small_file

__all__ = ["Entry", "cache_root", "find_or_make"]

FORMAT = "gristmill-sequences"
VERSION = 1
META_FILE = "meta.json"
_BLOCK_BYTES = 1 << 22
_MAX_META_BYTES = 1 << 28


@dataclass(frozen=True, slots=True)
class Entry:
    """A complete folder of the cache."""

    folder: Path
    about: dict[str, Any]  # metadata returned by `make`
    files: dict[str, str]  # XXH64 of each file by name
    is_new: bool


def cache_root(cache_dir: str | os.PathLike[str] | None) -> Path:
    """Return `cache_dir`, or the cache folder of this user: $XDG_CACHE_HOME/gristmill, or ~/.cache/gristmill."""
    if cache_dir is not None:
        return Path(cache_dir).absolute()
    home = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(home) if Path(home).is_absolute() else Path.home() / ".cache") / "gristmill"


def find_or_make(
    root: Path, request: Mapping[str, Any], make: Callable[[Path], dict[str, Any]], *, keep_unfinished: bool
) -> Entry:
    """Return the entry for `request`, built by `make` if it is missing or damaged.

    `request` is everything that determines the content. make(folder) writes the files and returns their metadata. With
    `keep_unfinished` the folder contains the files of an interrupted call, from which `make` resumes; otherwise it is
    empty.
    """
    request = {"format": FORMAT, "version": VERSION, **request}
    name = f"sequences-{hashlib.sha256(_dump(request)).hexdigest()[:32]}"
    found = _read(root / name, request)
    if found is not None:
        return found
    _make_root(root)
    with waiting_lock(root / f".{name}.lock", on_wait=partial(_warn_of_wait, root / name)):
        # Another process may have built it while this one waited.
        found = _read(root / name, request)
        if found is None:
            _make(root / name, request, make, keep_unfinished)
            found = _read(root / name, request, is_new=True)
    assert found is not None, "the new entry is not complete"
    return found


def _make(
    folder: Path, request: Mapping[str, Any], make: Callable[[Path], dict[str, Any]], keep_unfinished: bool
) -> None:
    new = folder.with_name(f".{folder.name}.new")
    if not keep_unfinished:
        shutil.rmtree(new, ignore_errors=True)
    new.mkdir(exist_ok=True)
    (new / META_FILE).unlink(missing_ok=True)  # left by a process that was killed just before the rename
    try:
        about = make(new)
        content = {"request": request, "about": about, "files": _describe(new)}
        with publish(new / META_FILE) as file:
            file.write(_dump({**content, "checksum": hashlib.sha256(_dump(content)).hexdigest()}))
        if folder.exists():  # damaged
            shutil.rmtree(folder)
        new.rename(folder)
    except BaseException as error:
        if isinstance(error, OSError) and error.filename is None:  # the error of a full disk has no file name
            error.filename = str(folder.parent)
        # After an error, the input will differ next time; only an interruption can be resumed.
        if isinstance(error, Exception) or not keep_unfinished:
            shutil.rmtree(new, ignore_errors=True)
        raise
    flush_folder(folder.parent)


def _describe(folder: Path) -> dict[str, dict[str, Any]]:
    """Return size, time and checksum of every file, flushed to disk."""
    entries = {}
    for path in sorted(folder.rglob("*")):
        if path.is_dir():
            flush_folder(path)
            continue
        with path.open("rb+") as file:
            os.fsync(file.fileno())
        status = path.stat()
        entries[path.relative_to(folder).as_posix()] = {
            "bytes": status.st_size,
            "modified_ns": status.st_mtime_ns,
            "xxh64": _checksum(path),
        }
    return entries


def _read(folder: Path, request: Mapping[str, Any], *, is_new: bool = False) -> Entry | None:
    """Return the entry if it is complete."""
    try:
        data = read_small_file(folder / META_FILE, what="an entry", max_bytes=_MAX_META_BYTES, error=CheckpointError)
        content = parse_json(data, error=CheckpointError)
        checksum = content.pop("checksum")
        if checksum != hashlib.sha256(_dump(content)).hexdigest() or content["request"] != request:
            return None
        if not all(_is_inside(name) and _is_intact(folder / name, entry) for name, entry in content["files"].items()):
            return None
        files = {name: entry["xxh64"] for name, entry in content["files"].items()}
        return Entry(folder, content["about"], files, is_new)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _is_inside(name: str) -> bool:
    """Whether a name from a cache, which may be that of someone else, is that of a file below its folder."""
    path = PurePosixPath(name)
    return not path.is_absolute() and ".." not in path.parts


def _is_intact(path: Path, entry: Mapping[str, Any]) -> bool:
    """Whether the file is unchanged. Its content is read only if its modification time differs."""
    status = path.lstat()
    if not stat.S_ISREG(status.st_mode) or status.st_size != entry["bytes"]:
        return False
    return status.st_mtime_ns == int(entry["modified_ns"]) or _checksum(path) == str(entry["xxh64"])


def _checksum(path: Path) -> str:
    digest = Xxh64()
    with path.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()


def _make_root(root: Path) -> None:
    try:
        root.mkdir(parents=True, exist_ok=True)
        if not os.access(root, os.W_OK | os.X_OK):
            raise PermissionError
    except OSError as error:
        raise OSError(
            error.errno or 13, "Cannot write the cache of Parquet files. Pass another cache_dir", str(root)
        ) from error


def _warn_of_wait(place: Path, holder: str) -> None:
    warn_user(
        f"{place}: waiting until {holder} has converted the same Parquet files. Both runs then read its result.",
        UserWarning,
    )


def _dump(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, indent=1, sort_keys=True, allow_nan=False).encode("ascii")
