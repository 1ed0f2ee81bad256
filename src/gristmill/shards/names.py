"""Which files in a folder of shards a run may have written, by their names.

A run removes only files that it may have written: a file with a fixed name, a shard or index of its layout, the part of
a shard, or the temporary file of any of these. It never touches any other file.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Container, Iterable
from pathlib import Path

from gristmill.corpus.inputs import shown
from gristmill.executors.work_folder import LocalWorkFolder
from gristmill.publish import flush_folder
from gristmill.shards.journal import JOURNAL_FILE
from gristmill.shards.layouts import LAYOUTS, Layout
from gristmill.shards.manifest import (
    MANIFEST_FILE,
    PARTS_FOLDER,
    PROGRESS_FILE,
    REQUEST_FILE,
    SPLITS,
    TOKENIZER_FILE,
    Manifest,
    ShardEntry,
)

# Files that only an unfinished run needs.
RUN_FILES = (PROGRESS_FILE, REQUEST_FILE, JOURNAL_FILE)
_FIXED = frozenset((TOKENIZER_FILE, MANIFEST_FILE, *RUN_FILES))
_PART = re.compile(r"\.(?P<file>.+?)(\.ends)?\.part")
_TEMPORARY = re.compile(r"\.(?P<file>.+)\.tmp\.\d+(\.\d+)?", re.ASCII)  # as `publish` names them
_NUMBER = re.compile(r"\d{1,18}", re.ASCII)


class OwnNames:
    """The file names that runs use: `name in names` is True if a run may have written a file with this name.

    >>> from gristmill.shards.layouts import LAYOUTS
    >>> names = OwnNames(LAYOUTS["npy"], "out")
    >>> [name in names for name in ("train-00001.npy", ".train-00001.npy.part", "train-1.npy", ".notes.part")]
    [True, True, False, False]
    """

    def __init__(self, layout: Layout | None, name: str) -> None:
        """The names of runs with this layout in a folder called `name`; without a layout, the names all runs use."""
        self._layout, self._name = layout, name

    def __contains__(self, file: object) -> bool:
        return isinstance(file, str) and (self._is_fixed(file) or self.is_shard(file) or self.is_leftover(file))

    def _is_fixed(self, file: str) -> bool:
        return file in _FIXED or (self._layout is not None and file in self._layout.extra_names)

    def is_shard(self, file: str) -> bool:
        """Whether this can be the name of a shard or its index."""
        layout, name = self._layout, self._name
        if layout is None:
            return False
        # The number in the name determines the shard, and only the exact name of that shard counts. A layout may count
        # from 1.
        numbers = {0}
        if layout.shard_tokens is not None:
            for digits in _NUMBER.findall(file):
                numbers |= {int(digits), max(int(digits) - 1, 0)}
        return any(
            file in (layout.token_file(name, split, number), layout.index_file(name, split, number))
            for split in SPLITS
            for number in numbers
        )

    def is_leftover(self, file: str) -> bool:
        """Whether only an interrupted run leaves a file with this name: a part or a temporary file."""
        if found := _PART.fullmatch(file):
            return self.is_shard(found["file"])
        if found := _TEMPORARY.fullmatch(file):
            return self._is_fixed(found["file"]) or self.is_shard(found["file"])
        return False

    def leftovers(self, folder: Path) -> list[str]:
        """Return the parts and temporary files in `folder`."""
        return [entry.name for entry in folder.iterdir() if self.is_leftover(entry.name) and not is_folder(entry)]


def temporaries_of(name: str, folder: Path) -> list[str]:
    """Return the temporary files in `folder` that `publish` makes for a file called `name`."""
    found = ((entry, _TEMPORARY.fullmatch(entry.name)) for entry in folder.iterdir())
    return [entry.name for entry, match in found if match and match["file"] == name and not is_folder(entry)]


def files_of(manifest: Manifest) -> set[str]:
    """Return the names of all files of finished shards."""
    shards = [shard for split in manifest.splits.values() for shard in split.shards]
    indexes = {shard.index for shard in shards if shard.index is not None}
    extra = LAYOUTS[manifest.layout].extra_names
    return {shard.file for shard in shards} | indexes | {manifest.tokenizer_file, MANIFEST_FILE, *extra}


def sizes_of(shard: ShardEntry, layout: Layout) -> list[tuple[str, int]]:
    """Return the names and sizes of the files of a shard."""
    sizes = [(shard.file, shard.bytes)]
    if shard.index is not None:
        sizes.append((shard.index, layout.index_bytes(shard.documents)))
    return sizes


def refuse_other_files(folder: Path, *, known: Container[str], known_folder: str | None = None) -> None:
    """Raise if the folder holds a file that is not in `known`, or a folder other than `known_folder`."""
    others = sorted(
        entry.name
        for entry in folder.iterdir()
        if (entry.name != known_folder if is_folder(entry) else entry.name not in known)
    )
    if others:
        some = ", ".join(map(shown, others[:3])) + ", …" * (len(others) > 3)
        message = f"The folder holds other files ({some}), which are never replaced. Pass a new or empty folder"
        raise FileExistsError(errno.EEXIST, message, str(folder))


def remove(folder: Path, files: Iterable[str]) -> None:
    """Remove those of the files that exist. A link is removed, not its target."""
    for file in files:
        (folder / file).unlink(missing_ok=True)


def remove_parts(folder: Path) -> None:
    """Remove the work folder of an executor."""
    parts = folder / PARTS_FOLDER
    if is_folder(parts):
        LocalWorkFolder(parts).remove()


def tidy(folder: Path, names: OwnNames) -> None:
    """Remove the files that only an unfinished run needs."""
    remove_parts(folder)
    remove(folder, [*RUN_FILES, *names.leftovers(folder)])
    flush_folder(folder)


def is_folder(path: Path) -> bool:
    """Whether it is a folder; False for a link to a folder."""
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except FileNotFoundError:
        return False
