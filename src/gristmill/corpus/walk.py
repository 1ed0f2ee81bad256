"""Local files in a folder or matching a glob. Both follow links by the same rules.

A walk through a folder, or by `**` in a glob, enters no folder twice. It follows links to folders outside the folder it
started from. It follows a link to a folder inside only if that folder is hidden, because otherwise it finds the files
under their own path. `*` follows every link except one back to a folder that the path already goes through. A folder
that cannot be listed is an error, because its files would be missing from the corpus.
"""

from __future__ import annotations

import errno
import fnmatch
import glob
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

# (device, inode) of each folder that a path goes through.
Trail: TypeAlias = tuple[tuple[int, int], ...]
# Function that lists the entries of a folder.
Lister: TypeAlias = Callable[[str], "list[os.DirEntry[str]]"]
# Errors of a link that does not lead to a folder.
_LEADS_NOWHERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


def files_below(folder: str) -> list[str]:
    """Return all visible files below a folder, sorted by the bytes of their path."""
    return _sorted_files(_match(folder, ["**"], _extend((), folder), _list))


def files_that_match(pattern: str) -> list[str]:
    """Return the files that match a glob, each once, sorted by the bytes of their path."""
    return _sorted_files(matches(pattern))


def matches(pattern: str) -> Iterator[str]:
    """Yield the files that match a glob, by the rules of the `glob` module, in any order, possibly repeated.

    `**` matches any number of folders. Hidden names match only a pattern that begins with a dot.
    """
    return _matches(pattern, _list)


class BoundedSearch:
    """Finds out whether globs match anything, by checking at most `max_entries` files and folders in total."""

    def __init__(self, max_entries: int) -> None:
        self._num_left = max_entries
        self._met_locked = False

    def has_match(self, pattern: str) -> bool | None:
        """Whether a glob matches a file. None if there are too many files, or a folder cannot be listed."""
        self._met_locked = False
        try:
            if next(_matches(pattern, self._list), None) is not None:
                return True
        except (_TooManyEntriesError, PermissionError):
            return None
        return None if self._met_locked else False

    def _list(self, folder: str) -> list[os.DirEntry[str]]:
        """Same as the function `_list`, but a folder that cannot be listed does not end the search."""
        entries = []
        try:
            with os.scandir(folder or os.curdir) as listed:
                for entry in listed:
                    if self._num_left == 0:
                        raise _TooManyEntriesError
                    self._num_left -= 1
                    entries.append(entry)
        except PermissionError:
            self._met_locked = True
        return entries


class _TooManyEntriesError(Exception):
    """The search would take too long."""


def _matches(pattern: str, list_folder: Lister) -> Iterator[str]:
    head = pattern
    parts: list[str] = []
    while glob.has_magic(head):
        head, part = os.path.split(head)
        parts.insert(0, part)
    if parts and os.path.isdir(head or os.curdir):  # noqa: PTH112
        yield from _match(head, parts, _extend((), head), list_folder)


def _sorted_files(paths: Iterator[str]) -> list[str]:
    return sorted(set(paths), key=os.fsencode)


def _match(folder: str, parts: list[str], trail: Trail, list_folder: Lister) -> Iterator[str]:
    """Yield the files below `folder` that match `parts`. `trail` has the folders of the path to it."""
    part, rest = parts[0], parts[1:]
    if part == "**":
        for place, entries, longer in _walk(folder, trail, list_folder):
            if rest:
                yield from _match(place, rest, longer, list_folder)
            else:
                yield from (os.path.join(place, entry.name) for entry in entries if not _is_folder(entry))  # noqa: PTH118
    elif glob.has_magic(part):
        is_match = _name_matcher(part)
        for entry in list_folder(folder):
            if is_match(entry.name):
                path = os.path.join(folder, entry.name)  # noqa: PTH118
                if not rest:
                    yield from [] if _is_folder(entry) else [path]
                elif (entered := _enter(entry, path, trail)) is not None:
                    yield from _match(path, rest, entered, list_folder)
    else:  # a name, which may lead back to a folder of the path, because it was written explicitly
        path = os.path.join(folder, part)  # noqa: PTH118
        if not rest:
            yield from [path] if os.path.lexists(path) and not os.path.isdir(path) else []  # noqa: PTH112
        elif os.path.isdir(path):  # noqa: PTH112
            yield from _match(path, rest, _extend(() if part == os.pardir else trail, path), list_folder)


def _walk(folder: str, trail: Trail, list_folder: Lister) -> Iterator[tuple[str, list[os.DirEntry[str]], Trail]]:
    """Yield a folder and all visible folders below it, each once, with its visible entries."""
    root = os.path.realpath(folder or os.curdir)
    entered = set(trail)
    waiting = [(folder, trail)]  # no recursion, because the folders may be arbitrarily deep
    while waiting:
        place, trail = waiting.pop()
        # Sorted, so that the order of a listing does not decide which of two links to a folder is entered.
        entries = sorted((entry for entry in list_folder(place) if not entry.name.startswith(".")), key=_name)
        yield place, entries, trail
        below = []
        for entry in entries:
            path = os.path.join(place, entry.name)  # noqa: PTH118
            if entry.is_symlink() and _is_found_inside(os.path.realpath(path), root):
                continue
            longer = _enter(entry, path, trail)
            if longer is not None and longer[-1] not in entered:
                entered.add(longer[-1])
                below.append((path, longer))
        waiting += reversed(below)


def _name(entry: os.DirEntry[str]) -> bytes:
    return os.fsencode(entry.name)


def _is_found_inside(path: str, root: str) -> bool:
    """Whether a walk from `root` reaches `path` without links: it is inside, and no folder on the way is hidden."""
    inside = os.path.join(root, "")  # noqa: PTH118
    if not os.path.join(path, "").startswith(inside):  # noqa: PTH118
        return False
    return not any(part.startswith(".") for part in Path(path[len(inside) :]).parts)


def _enter(entry: os.DirEntry[str], path: str, trail: Trail) -> Trail | None:
    """Return the trail into a folder; None if it is not a folder, or the trail already goes through it."""
    if not _is_folder(entry):
        return None
    longer = _extend(trail, path)
    return None if longer[-1] in trail else longer


def _is_folder(entry: os.DirEntry[str]) -> bool:
    """Whether an entry is a folder or a link to one. Needs a system call only for links."""
    try:
        return entry.is_dir()
    except OSError as error:
        if error.errno in _LEADS_NOWHERE:
            return False
        raise


def _extend(trail: Trail, folder: str) -> Trail:
    status = os.stat(folder or os.curdir)  # noqa: PTH116
    return (*trail, (status.st_dev, status.st_ino))


def _list(folder: str) -> list[os.DirEntry[str]]:
    with os.scandir(folder or os.curdir) as entries:
        return list(entries)


def _name_matcher(pattern: str) -> Callable[[str], bool]:
    is_match = re.compile(fnmatch.translate(os.path.normcase(pattern))).match
    takes_hidden = pattern.startswith(".")
    return lambda name: (takes_hidden or not name.startswith(".")) and is_match(os.path.normcase(name)) is not None
