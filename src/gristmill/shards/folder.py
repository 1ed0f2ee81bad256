"""The folder that shards are written to: what may be there already, what a killed run goes on with, and what is left
behind when a run fails.

| in the folder | means |
|---|---|
| `manifest.json` | finished shards: who asks for the same has nothing to do, who asks for something else is refused |
| `.request.json`, `progress.json` | unfinished ones: what was asked for, and how far it has come; the same goes on |
| `.new/` | shards that will replace finished ones (`overwrite`); those stay until the new ones are complete |
| `.replaced.json` | the manifest of shards that are just being replaced |
| anything else | refused, and never removed |

Everything is decided while the folder is locked, and the lock ends with the process, however it ends.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import stat
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

from gristmill.corpus import batches
from gristmill.errors import GristmillError, ShardsFormatError, ShardsMismatchError
from gristmill.publish import flush_folder, publish
from gristmill.shards.layouts import LAYOUTS
from gristmill.shards.manifest import (
    MANIFEST_FILE,
    MAX_BYTES,
    MAX_ITEMS,
    PROGRESS_FILE,
    REQUEST_FILE,
    SPLITS,
    TOKENIZER_FILE,
    Manifest,
    ShardEntry,
    read_manifest_file,
)
from gristmill.shards.request import Request, differences, request_of_manifest
from gristmill.small_files import parse_json, read_small_file

FORMAT = "gristmill-progress"
VERSION = 1
REPLACED_FILE = ".replaced.json"
NEW_FOLDER = ".new"
# Names that only a run which was killed leaves behind.
_LEFTOVER = re.compile(r"\..*\.(part|tmp\.\d+(\.\d+)?)")
_BEGUN = re.compile(r"\.\.request\.json\.tmp\.\d+(\.\d+)?")  # before anything else is there


class Folder:
    """A folder that one process writes shards to. Use it in a `with` block: what a failure leaves is put in order."""

    def __init__(self, out: str | os.PathLike[str], request: Request, *, overwrite: bool) -> None:
        self._out = Path(os.path.abspath(out))  # noqa: PTH100  `..` and `.` are no names
        self._request = request
        self._overwrite = overwrite
        self.path = self._out  # where to write
        self.finished: Manifest | None = None  # all is done already
        self.state: dict[str, Any] | None = None  # where to go on

    @property
    def name(self) -> str:
        """What the folder is called, also while the shards are made in another."""
        return self._out.name

    def __enter__(self) -> Folder:
        _check_place(self._out)
        self._lock = _create_and_lock(self._out)
        try:
            self._look()
        except BaseException:
            os.close(self._lock)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is not None and self.finished is None:
                with contextlib.suppress(OSError, GristmillError):
                    self._put_in_order()
        finally:
            os.close(self._lock)

    def save(self, state: dict[str, Any], parts: dict[str, int]) -> None:
        """Write down how far the run has come; `parts` are the hidden files it needs to go on, with their sizes."""
        self._publish(PROGRESS_FILE, _with_checksum({"state": state, "parts": parts, "batches": batches.VERSION}))

    def start_again(self) -> None:
        """Give up what an earlier run has left."""
        self._clear(self._request.layout)
        self._begin()

    def finish(self, manifest: Manifest) -> None:
        """Declare the shards complete."""
        self._publish(MANIFEST_FILE, manifest.to_json())
        _tidy(self.path)
        if self.path != self._out:
            _install(self._out)

    # What is there

    def _look(self) -> None:
        """Find out whether the shards are finished, begun, or still to begin."""
        if (self._out / NEW_FOLDER / MANIFEST_FILE).is_file():
            _install(self._out)  # killed while finished shards were being replaced by complete ones
        if (self._out / MANIFEST_FILE).is_file():
            manifest = Manifest.read(self._out)
            _tidy(self._out)
            if not self._overwrite:
                self.finished = self._checked(manifest)
                return
            _refuse_other_files(self._out, known={*_files_of(manifest), NEW_FOLDER})
            self.path = self._out / NEW_FOLDER
            self.path.mkdir(exist_ok=True)
        self.state = self._find_state()

    def _checked(self, manifest: Manifest) -> Manifest:
        """The manifest that is there, if it answers the request and its shards are there too."""
        if self._request.inputs is None:
            raise self._mismatch("Holds finished shards already, and documents of an iterable cannot be compared")
        self._refuse_if_different(request_of_manifest(manifest), "Holds finished shards")
        for split in manifest.splits.values():
            check_shards(self._out, split.shards)
        return manifest

    def _find_state(self) -> dict[str, Any] | None:
        """The state of an unfinished run that is to go on; None where this run begins, in a folder now empty."""
        there = self._read_request()
        if there is not None:
            comparable = there.get("inputs") is not None or self._request.inputs is not None
            if comparable and not differences(there, self._request.to_json()):
                return self._read_state()
            if comparable and self.path == self._out and not self._overwrite:
                self._refuse_if_different(there, "Holds unfinished shards")
            self._clear(str(there.get("layout")))
        _remove(self.path, [path.name for path in self.path.iterdir() if _BEGUN.fullmatch(path.name)])
        _refuse_other_files(self.path, known=())
        self._begin()
        return None

    def _read_request(self) -> dict[str, Any] | None:
        """What the unfinished run was asked for; None if there is none."""
        from gristmill.shards import schema

        try:
            request = _read(self.path / REQUEST_FILE)
            schema.check_request(request)
            return request
        except FileNotFoundError:
            if not (self.path / PROGRESS_FILE).exists():
                return None
        except ShardsFormatError:
            pass
        if not self._overwrite:
            raise ShardsFormatError(
                f"{self.path}: what the unfinished run was asked for ({REQUEST_FILE}) is missing or damaged, so it "
                f"cannot go on. Pass overwrite=True to start again, or another folder."
            )
        self._clear(self._request.layout)
        return None

    def _read_state(self) -> dict[str, Any] | None:
        from gristmill.shards import schema

        try:
            progress = _read(self.path / PROGRESS_FILE)
            schema.check_progress(progress, num_inputs=len(self._request.inputs or ()))
        except FileNotFoundError:
            _remove(self.path, [path.name for path in _leftovers(self.path)])
            return None
        except ShardsFormatError:
            progress = {}
        if progress.get("batches") == batches.VERSION:
            return dict(progress["state"])
        if not self._overwrite:
            raise ShardsFormatError(
                f"{self.path / PROGRESS_FILE}: it is damaged or of another version of Gristmill, so the run cannot go "
                f"on. Pass overwrite=True to start again, or another folder."
            )
        self.start_again()
        return None

    # What is done about it

    def _begin(self) -> None:
        self.state = None
        try:
            self._publish(REQUEST_FILE, _with_checksum(self._request.to_json()))
        except BaseException:
            self._put_in_order()
            raise

    def _publish(self, name: str, data: bytes) -> None:
        with publish(self.path / name) as file:
            file.write(data)

    def _refuse_if_different(self, there: dict[str, Any], what: str) -> None:
        found = differences(there, self._request.to_json())
        if found:
            raise self._mismatch(f"{what} of another kind: {'; '.join(found)}")

    def _mismatch(self, why: str) -> ShardsMismatchError:
        remedy = "Pass another folder, or overwrite=True to replace them"
        return ShardsMismatchError(errno.EEXIST, f"{why}. {remedy}", str(self._out))

    def _put_in_order(self) -> None:
        """Leave what a later run can use, and nothing else.

        What that is, the disk says: an interruption may have come right behind the last step towards it.
        """
        if (self.path / MANIFEST_FILE).is_file():
            return
        try:
            parts = _read(self.path / PROGRESS_FILE)["parts"]
        except FileNotFoundError:
            self._clear(self._request.layout)
            with contextlib.suppress(OSError):
                self.path.rmdir()  # unless there was something else in it
            return
        for path in _leftovers(self.path):
            size = parts.get(path.name)
            if size is None or path.is_symlink():
                path.unlink()
            elif path.stat().st_size > size:
                os.truncate(path, size)

    def _clear(self, layout_name: str) -> None:
        """Remove all that a run with this layout has written; an error, and nothing removed, if there is more."""
        own = {TOKENIZER_FILE, MANIFEST_FILE, PROGRESS_FILE, REQUEST_FILE}
        own |= {path.name for path in _leftovers(self.path)}
        own |= set(_shard_names(self.path, layout_name, self.name))
        _refuse_other_files(self.path, known=own)
        _remove(self.path, own)


def check_shards(folder: Path, shards: Iterable[ShardEntry]) -> None:
    """Raise unless every shard is there and has its size; its content is for `gristmill verify`."""
    for shard in shards:
        for name, size in ((shard.file, shard.bytes), (shard.index, None)):
            if name is None:
                continue
            try:
                status = os.lstat(folder / name)
            except FileNotFoundError:
                status = None
            if status is None or (size is not None and status.st_size != size):
                raise ShardsFormatError(
                    f"{folder / name}: the shard is missing or has another size than it was given. "
                    f"Restore it, or pass overwrite=True to make all shards again."
                )


def _check_place(out: Path) -> None:
    try:
        status = os.lstat(out)
    except FileNotFoundError:
        if not out.parent.is_dir():
            raise FileNotFoundError(errno.ENOENT, "No such folder to write to", str(out.parent)) from None
        if not os.access(out.parent, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, "No permission to write in this folder", str(out.parent)) from None
        return
    if stat.S_ISLNK(status.st_mode):
        raise FileExistsError(errno.EEXIST, "Is a symbolic link, which is not followed. Pass a folder", str(out))
    if not stat.S_ISDIR(status.st_mode):
        raise NotADirectoryError(errno.ENOTDIR, "Is a file. Pass the name of a folder", str(out))
    if not os.access(out, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, "No permission to write in this folder", str(out))


def _create_and_lock(folder: Path) -> int:
    """The folder, open and locked."""
    while True:
        with contextlib.suppress(FileExistsError):
            folder.mkdir()
        try:
            descriptor = os.open(folder, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0))
        except FileNotFoundError:
            continue  # whoever had it has failed, and removed it
        try:
            _lock(descriptor, folder)
            if os.path.samestat(os.fstat(descriptor), os.lstat(folder)):
                return descriptor
        except FileNotFoundError:
            pass  # likewise, between our two steps
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _lock(descriptor: int, folder: Path) -> None:
    try:
        import fcntl
    except ImportError:
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in (errno.EAGAIN, errno.EACCES):
            raise
        raise BlockingIOError(error.errno, "Another process is writing shards here", str(folder)) from None


def _install(out: Path) -> None:
    """Put the complete shards in `.new` into the place of those in the folder.

    Any step may be the last one before a kill: done again from the beginning, the result is the same. A file of the
    same name is replaced by renaming; one that is no longer in `.new` is in its place already.
    """
    new = out / NEW_FOLDER
    _tidy(new)
    manifest = Manifest.read(new)
    if (out / MANIFEST_FILE).is_file():
        (out / MANIFEST_FILE).replace(out / REPLACED_FILE)
    with contextlib.suppress(FileNotFoundError):
        replaced = Manifest.of_json(read_manifest_file(out / REPLACED_FILE), out / REPLACED_FILE)
        _remove(out, _files_of(replaced) - _files_of(manifest))
    for name in _files_of(manifest) - {MANIFEST_FILE}:
        if os.path.lexists(new / name):
            (new / name).replace(out / name)
    flush_folder(out)
    (new / MANIFEST_FILE).replace(out / MANIFEST_FILE)
    _remove(out, [REPLACED_FILE])
    new.rmdir()
    flush_folder(out)


def _tidy(folder: Path) -> None:
    """Remove what was needed only until the shards were finished."""
    _remove(folder, [PROGRESS_FILE, REQUEST_FILE, *(path.name for path in _leftovers(folder))])
    flush_folder(folder)


def _files_of(manifest: Manifest) -> set[str]:
    """The files of finished shards, and of nothing else."""
    shards = [shard for split in manifest.splits.values() for shard in split.shards]
    indexes = {shard.index for shard in shards if shard.index is not None}
    return {shard.file for shard in shards} | indexes | {manifest.tokenizer_file, MANIFEST_FILE}


def _shard_names(folder: Path, layout_name: str, name: str) -> Iterator[str]:
    """What shards of this layout are called, as many of them as the folder could hold."""
    if layout_name not in LAYOUTS:
        return
    layout, num_files = LAYOUTS[layout_name], sum(1 for _ in folder.iterdir())
    for number in range(2 * num_files):  # a kill may have left a gap
        for split in SPLITS:
            yield layout.token_file(name, split, number)
            yield layout.index_file(name, split, number) or layout.token_file(name, split, number)


def _leftovers(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if _LEFTOVER.fullmatch(path.name) and not path.is_dir()]


def _refuse_other_files(folder: Path, *, known: Collection[str]) -> None:
    others = sorted(path.name for path in folder.iterdir() if path.name not in known)
    if others:
        shown = ", ".join(others[:3]) + ", …" * (len(others) > 3)
        message = f"Holds other files ({shown}), which are never replaced. Pass a new or empty folder"
        raise FileExistsError(errno.EEXIST, message, str(folder))


def _remove(folder: Path, files: Iterable[str]) -> None:
    for file in files:
        (folder / file).unlink(missing_ok=True)


def _with_checksum(content: dict[str, Any]) -> bytes:
    content = {"format": FORMAT, "version": VERSION, **content}
    return _dump({**content, "checksum": hashlib.sha256(_dump(content)).hexdigest()})


def _read(path: Path) -> dict[str, Any]:
    """What `_with_checksum` gave; `ShardsFormatError` for anything else."""
    try:
        data = read_small_file(path, what="a record of a run", max_bytes=MAX_BYTES, error=ShardsFormatError)
        content = parse_json(data, error=ShardsFormatError, max_items=MAX_ITEMS)
        checksum = content.pop("checksum")
        is_whole = hashlib.sha256(_dump(content)).hexdigest() == checksum
        if is_whole and (content.pop("format"), content.pop("version")) == (FORMAT, VERSION):
            return dict(content)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        pass
    raise ShardsFormatError(f"{path}: it is damaged, or not one of this version of Gristmill.")


def _dump(content: dict[str, Any]) -> bytes:
    return json.dumps(content, indent=1).encode("ascii") + b"\n"
