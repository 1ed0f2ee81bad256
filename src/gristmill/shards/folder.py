"""The folder that shards are written to: what may be there already, what a killed run goes on with, and what is left
behind when a run fails.

While shards are made, `progress.json` stands where `manifest.json` will stand: it holds what was asked for and how far
the run has come. A run that is asked for the same goes on from there; one that is asked for something else is refused.
With `overwrite`, finished shards that are there stay until the new ones are complete: those are made in a folder beside
them, `.NAME.new`, which takes their place at the end.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import stat
from collections.abc import Collection, Iterable
from itertools import count
from pathlib import Path
from typing import Any

from gristmill.errors import ShardsFormatError, ShardsMismatchError
from gristmill.publish import flush_folder, publish
from gristmill.shards.layouts import LAYOUTS, Layout
from gristmill.shards.manifest import MANIFEST_FILE, PROGRESS_FILE, SPLITS, TOKENIZER_FILE, Manifest
from gristmill.shards.request import Request, differences, request_of_manifest

FORMAT = "gristmill-progress"
VERSION = 1
# Names that only a run which was killed leaves behind; the second ones before anything else.
_LEFTOVER = re.compile(r"\..*\.(part|tmp\.\d+(\.\d+)?)")
_BEGUN = re.compile(r"\.progress\.json\.tmp\.\d+(\.\d+)?")


class Folder:
    """A folder that one process writes shards to. Use it in a `with` block: what a failure leaves is put in order."""

    def __init__(self, out: str | os.PathLike[str], request: Request, *, overwrite: bool) -> None:
        self._out = Path(os.path.abspath(out))  # noqa: PTH100  `..` and `.` are no names
        self._request = request
        self._overwrite = overwrite
        self.path = self._out
        self.finished: Manifest | None = None  # all is done already
        self.state: dict[str, Any] | None = None  # where to go on

    @property
    def name(self) -> str:
        """What the folder is called, also while it has another name."""
        return self._out.name

    def __enter__(self) -> Folder:
        _complete_replacement(self._out)
        _check_place(self._out)
        if (self._out / MANIFEST_FILE).is_file():
            if not self._overwrite:
                self.finished = self._check_finished()
                return self
            _refuse_other_files(self._out, known=_files_of(self._out))
            self.path = _beside(self._out, "new")
        self._lock = _create_and_lock(self.path)
        try:
            self.state = self._find_state()
        except BaseException:
            self._unlock()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self.finished is not None:
            return
        try:
            if kind is not None:
                with contextlib.suppress(OSError):
                    self._put_in_order()
        finally:
            self._unlock()

    def save(self, state: dict[str, Any], parts: dict[str, int]) -> None:
        """Write down how far the run has come; `parts` are the hidden files it needs to go on, with their sizes."""
        self._publish(PROGRESS_FILE, self._progress(state, parts))

    def start_again(self) -> None:
        """Give up what an earlier run has left."""
        self._clear(self._request.layout)
        self._begin()

    def finish(self, manifest: Manifest) -> None:
        """Declare the shards complete."""
        self._publish(MANIFEST_FILE, manifest.to_json())
        (self.path / PROGRESS_FILE).unlink(missing_ok=True)
        _remove_leftovers(self.path)
        flush_folder(self.path)
        if self.path != self._out:
            _replace_folder(self._out, self.path)

    def _publish(self, name: str, data: bytes) -> None:
        with publish(self.path / name) as file:
            file.write(data)

    def _progress(self, state: dict[str, Any] | None, parts: dict[str, int]) -> bytes:
        content = {
            "format": FORMAT,
            "version": VERSION,
            "request": self._request.to_json(),
            "state": state,
            "parts": parts,
        }
        return json.dumps(content, indent=1).encode("ascii") + b"\n"

    def _check_finished(self) -> Manifest:
        """The manifest that is there, if it answers the request."""
        manifest = Manifest.read(self._out)
        if self._request.inputs is None:
            raise self._mismatch("Holds finished shards already, and documents of an iterable cannot be compared")
        self._refuse_if_different(request_of_manifest(manifest), "Holds finished shards")
        return manifest

    def _find_state(self) -> dict[str, Any] | None:
        """The state of an unfinished run that is to go on; None where this run begins, in a folder now empty."""
        if (self.path / MANIFEST_FILE).is_file():  # complete, but killed before it took its place
            self._clear(Manifest.read(self.path).layout)
        progress = self._read_progress()
        if progress is not None:
            there, asked = progress["request"], self._request.to_json()
            if there.get("inputs") is not None or self._request.inputs is not None:
                if not differences(there, asked):
                    return self._resumable(progress)
                if self.path == self._out and not self._overwrite:
                    self._refuse_if_different(there, "Holds unfinished shards")
            self._clear(str(there.get("layout")))
        _remove(self.path, [path.name for path in self.path.iterdir() if _BEGUN.fullmatch(path.name)])
        _refuse_other_files(self.path, known=())
        self._begin()
        return None

    def _begin(self) -> None:
        self.state = None
        try:
            self._publish(PROGRESS_FILE, self._progress(None, {}))
        except BaseException:
            self._put_in_order()
            raise

    def _resumable(self, progress: dict[str, Any]) -> dict[str, Any] | None:
        state: dict[str, Any] | None = progress["state"]
        if state is None:
            _remove_leftovers(self.path)
        return state

    def _read_progress(self) -> dict[str, Any] | None:
        path = self.path / PROGRESS_FILE
        try:
            content = json.loads(path.read_bytes())
            if content["format"] != FORMAT or content["version"] != VERSION:
                raise ValueError
            if not all(isinstance(content[key], dict) for key in ("request", "parts")):
                raise ValueError
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError, RecursionError):
            raise ShardsFormatError(
                f"{path}: it is damaged or not one of Gristmill, and the run cannot go on. Remove it, or pass another "
                f"folder."
            ) from None
        return dict(content)

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
        progress = self._read_progress()
        if progress is None or progress["state"] is None:
            self._clear(self._request.layout)
            with contextlib.suppress(OSError):
                self.path.rmdir()  # unless there was something else in it
            return
        for path in _leftovers(self.path):
            size = progress["parts"].get(path.name)
            if size is None or path.is_symlink():
                path.unlink()
            elif path.stat().st_size > size:
                os.truncate(path, size)

    def _clear(self, layout_name: str) -> None:
        """Remove all that a run with this layout has written; an error, and nothing removed, if there is more."""
        written = {TOKENIZER_FILE, MANIFEST_FILE, PROGRESS_FILE, *(path.name for path in _leftovers(self.path))}
        if layout_name in LAYOUTS:
            for split in SPLITS:
                written |= self._find_shards(LAYOUTS[layout_name], split)
        _refuse_other_files(self.path, known=written)
        _remove(self.path, written)

    def _find_shards(self, layout: Layout, split: str) -> set[str]:
        found: set[str] = set()
        for number in count():
            files = [layout.token_file(self.name, split, number), layout.index_file(self.name, split, number)]
            there = {file for file in files if file is not None and os.path.lexists(self.path / file)}
            if not there or there <= found:  # some layouts have one file, whatever the number
                return found
            found |= there
        raise AssertionError("unreachable")

    def _unlock(self) -> None:
        os.close(self._lock)


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
    """The folder, open and locked: the lock ends with the process, however it ends."""
    with contextlib.suppress(FileExistsError):
        folder.mkdir()
    descriptor = os.open(folder, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0))
    try:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except ImportError:
        pass
    except OSError as error:
        os.close(descriptor)
        if error.errno not in (errno.EAGAIN, errno.EACCES):
            raise
        raise BlockingIOError(error.errno, "Another process is writing shards here", str(folder)) from None
    return descriptor


def _remove_leftovers(folder: Path) -> None:
    for path in _leftovers(folder):
        path.unlink()


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


def _files_of(folder: Path) -> set[str]:
    """The files of finished shards, and of nothing else."""
    manifest = Manifest.read(folder)
    shards = [shard for split in manifest.splits.values() for shard in split.shards]
    indexes = {shard.index for shard in shards if shard.index is not None}
    return {shard.file for shard in shards} | indexes | {manifest.tokenizer_file, MANIFEST_FILE}


def _replace_folder(out: Path, new: Path) -> None:
    out.rename(_beside(out, "old"))
    new.rename(out)
    flush_folder(out.parent)
    _remove_old(out)


def _complete_replacement(out: Path) -> None:
    """Do what is left of `_replace_folder`, if it was killed between its steps."""
    new = _beside(out, "new")
    if not os.path.lexists(out) and (new / MANIFEST_FILE).is_file():
        new.rename(out)
    if (_beside(out, "old") / MANIFEST_FILE).is_file():
        _remove_old(out)


def _remove_old(out: Path) -> None:
    """Remove the shards that were replaced; what somebody has put beside them meanwhile stays in `.NAME.old`."""
    old = _beside(out, "old")
    with contextlib.suppress(OSError):
        files = _files_of(old)
        _remove(old, files - {MANIFEST_FILE})
        _remove(old, {MANIFEST_FILE})  # last: without it nobody would know what the others are
        old.rmdir()


def _beside(out: Path, suffix: str) -> Path:
    return out.parent / f".{out.name}.{suffix}"
