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
import shutil
import stat
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
# Names that only a run which was killed leaves behind.
_LEFTOVER = re.compile(r"\..*\.(part|tmp\.\d+(\.\d+)?)")


class Folder:
    """A folder that one process writes shards to. Use it in a `with` block: what a failure leaves is put in order."""

    def __init__(self, out: str | os.PathLike[str], request: Request, *, overwrite: bool) -> None:
        self._out = Path(os.path.abspath(out))  # noqa: PTH100  `..` and `.` are no names
        self._request = request
        self._overwrite = overwrite
        self._saved: dict[str, int] = {}  # parts that progress.json knows, with their sizes
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
        if self._is_finished():
            if not self._overwrite:
                self.finished = self._check_finished()
                return self
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
        self._saved = parts
        self.state = state

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

    def _is_finished(self) -> bool:
        return (self._out / MANIFEST_FILE).is_file()

    def _check_finished(self) -> Manifest:
        """The manifest that is there, if it answers the request."""
        manifest = Manifest.read(self._out)
        if self._request.inputs is None:
            raise ShardsMismatchError(
                errno.EEXIST, f"Holds finished shards already, {_CANNOT_COMPARE}. {_REMEDY}", str(self._out)
            )
        self._refuse_if_different(request_of_manifest(manifest), "Holds finished shards")
        return manifest

    def _find_state(self) -> dict[str, Any] | None:
        """The state of an unfinished run that is to go on; None where this run begins, in a folder now empty."""
        if (self.path / MANIFEST_FILE).is_file():  # complete, but killed before it took its place
            self._clear(Manifest.read(self.path).layout)
        progress = self._read_progress()
        if progress is not None and self._request.inputs is not None:
            if self.path == self._out and not self._overwrite:
                self._refuse_if_different(progress["request"], "Holds unfinished shards")
                return self._resumable(progress)
            if not differences(progress["request"], self._request.to_json()):
                return self._resumable(progress)
        self._clear(_layout_of(progress))
        _refuse_other_files(self.path)
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
        self._saved = progress["parts"]
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
            if self._overwrite:
                return None
            raise ShardsFormatError(
                f"{path}: it is damaged, and the run cannot go on. Pass overwrite=True to start again."
            ) from None
        return dict(content)

    def _refuse_if_different(self, there: dict[str, Any], what: str) -> None:
        found = differences(there, self._request.to_json())
        if found:
            raise ShardsMismatchError(
                errno.EEXIST, f"{what} of another kind: {'; '.join(found)}. {_REMEDY}", str(self._out)
            )

    def _put_in_order(self) -> None:
        """Leave what a later run can use, and nothing else."""
        if self.state is None:
            self._clear(self._request.layout)
            with contextlib.suppress(OSError):
                self.path.rmdir()  # unless there was something else in it
            return
        for path in _leftovers(self.path):
            if path.name not in self._saved:
                path.unlink()
            elif path.stat().st_size > self._saved[path.name]:
                os.truncate(path, self._saved[path.name])

    def _clear(self, layout_name: str) -> None:
        """Remove all that a run with this layout has written."""
        if layout_name in LAYOUTS:
            for split in SPLITS:
                self._remove_shards(LAYOUTS[layout_name], split)
        for name in (TOKENIZER_FILE, MANIFEST_FILE, PROGRESS_FILE):
            (self.path / name).unlink(missing_ok=True)
        _remove_leftovers(self.path)

    def _remove_shards(self, layout: Layout, split: str) -> None:
        for number in count():
            files = [layout.token_file(self.name, split, number), layout.index_file(self.name, split, number)]
            there = [self.path / file for file in files if file is not None and os.path.lexists(self.path / file)]
            if not there:
                return
            for path in there:
                path.unlink()

    def _unlock(self) -> None:
        os.close(self._lock)


_CANNOT_COMPARE = "and documents of an iterable cannot be compared with them"
_REMEDY = "Pass another folder, or overwrite=True to replace them"


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


def _layout_of(progress: dict[str, Any] | None) -> str:
    return str(progress["request"].get("layout")) if progress is not None else ""


def _remove_leftovers(folder: Path) -> None:
    for path in _leftovers(folder):
        path.unlink()


def _leftovers(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if _LEFTOVER.fullmatch(path.name) and not path.is_dir()]


def _refuse_other_files(folder: Path) -> None:
    others = sorted(path.name for path in folder.iterdir())
    if others:
        shown = ", ".join(others[:3]) + ", …" * (len(others) > 3)
        raise FileExistsError(
            errno.EEXIST,
            f"Holds other files ({shown}), which are not replaced. Pass a new or empty folder",
            str(folder),
        )


def _replace_folder(out: Path, new: Path) -> None:
    old = _beside(out, "old")
    shutil.rmtree(old, ignore_errors=True)
    out.rename(old)
    new.rename(out)
    flush_folder(out.parent)
    shutil.rmtree(old, ignore_errors=True)


def _complete_replacement(out: Path) -> None:
    """Do what is left of `_replace_folder`, if it was killed between its two steps."""
    new = _beside(out, "new")
    if not os.path.lexists(out) and (new / MANIFEST_FILE).is_file():
        new.rename(out)
        shutil.rmtree(_beside(out, "old"), ignore_errors=True)


def _beside(out: Path, suffix: str) -> Path:
    return out.parent / f".{out.name}.{suffix}"
