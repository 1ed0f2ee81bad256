"""The exchange: complete shards in `.new` replace the finished shards in the parent folder.

| step | |
|---|---|
| 1 | `manifest.json` becomes `.replaced.json`: from here on, readers find no manifest |
| 2 | files of the old shards whose names the new ones do not use are removed |
| 3 | the files of the new shards are moved into the folder |
| 4 | `.new/manifest.json` becomes `manifest.json`: the new shards are complete |
| 5 | `.replaced.json` and `.new` are removed |

The process may be killed after any step. Starting the exchange again from step 1 gives the same result, because steps
that are done find nothing to do. Shards change only while there is no manifest, so a reader that finds its manifest
unchanged after opening a shard has opened the right one (`edition.py`).
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from pathlib import Path

from gristmill.publish import flush_folder
from gristmill.shards.layouts import LAYOUTS
from gristmill.shards.manifest import MANIFEST_FILE, NEW_FOLDER, REPLACED_FILE, Manifest, read_manifest_file
from gristmill.shards.names import OwnNames, files_of, refuse_other_files, remove, tidy


def exchange(out: Path) -> None:
    """Replace the finished shards in `out` by the complete ones in `.new`; continues an interrupted exchange."""
    new = out / NEW_FOLDER
    manifest = Manifest.read(new)
    tidy(new, OwnNames(LAYOUTS[manifest.layout], out.name))
    files = files_of(manifest)
    refuse_other_files(new, known=files)
    if (out / MANIFEST_FILE).is_file():
        _refuse_if_in_the_way(out, files - files_of(Manifest.read(out)))
        (out / MANIFEST_FILE).replace(out / REPLACED_FILE)
        flush_folder(out)
    remove(out, _replaced_files(out) - files)
    for name in sorted(files - {MANIFEST_FILE}):
        if os.path.lexists(new / name):  # otherwise it was moved before
            (new / name).replace(out / name)
    flush_folder(out)
    (new / MANIFEST_FILE).replace(out / MANIFEST_FILE)
    flush_folder(out)
    _clean_up(out)


def finish_exchange(out: Path) -> bool:
    """Finish an interrupted exchange; return whether there was one."""
    _check_new_folder(out / NEW_FOLDER)
    if (out / NEW_FOLDER / MANIFEST_FILE).is_file():
        exchange(out)
        return True
    if not (out / MANIFEST_FILE).is_file():
        return False
    was_interrupted = os.path.lexists(out / REPLACED_FILE)
    _clean_up(out)
    return was_interrupted


def _clean_up(out: Path) -> None:
    """Step 5. `.new` stays if it holds an unfinished run."""
    remove(out, [REPLACED_FILE])
    with contextlib.suppress(OSError):
        (out / NEW_FOLDER).rmdir()
    flush_folder(out)


def _replaced_files(out: Path) -> set[str]:
    try:
        data = read_manifest_file(out / REPLACED_FILE)
    except FileNotFoundError:
        return set()
    return files_of(Manifest.from_json(data, out / REPLACED_FILE))


def _refuse_if_in_the_way(out: Path, names: set[str]) -> None:
    for name in sorted(names):
        if os.path.lexists(out / name):
            message = "A new shard needs this name, but the file is not one of the old shards. Move it away"
            raise FileExistsError(errno.EEXIST, message, str(out / name))


def _check_new_folder(new: Path) -> None:
    """Raise if `.new` is not a folder: through a link, files of another folder would be moved."""
    try:
        mode = os.lstat(new).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISDIR(mode):
        what = "a symbolic link, which is not followed" if stat.S_ISLNK(mode) else "not a folder"
        message = f"New shards are made in this folder, but it is {what}. Remove it"
        raise FileExistsError(errno.EEXIST, message, str(new))
