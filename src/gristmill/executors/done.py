"""`.ok` files: a task has made these files, so large, with these checksums; written last, so it never lies about less.

A reader trusts an `.ok` file only if its own checksum fits and every file it names has the size it names. Whoever reads
the files themselves compares their checksums on the way (`WorkFolder.open_checked`), and a file that does not fit makes
the task run again.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any

from gristmill import _core
from gristmill.executors.work_folder import FileEntry, WorkFolder

VERSION = 1


@dataclass(frozen=True, slots=True)
class Done:
    """What a task has made."""

    files: tuple[FileEntry, ...] = ()
    result: dict[str, Any] = field(default_factory=dict)  # small, and JSON


def write_done(folder: WorkFolder, name: str, done: Done) -> None:
    """Declare that the task `name` is done."""
    content = {"version": VERSION, "task": name, **asdict(done)}
    text = json.dumps(content, sort_keys=True)
    folder.write(f"{name}.ok", json.dumps({"xxh64": _checksum(text), "content": text}).encode())


def read_done(folder: WorkFolder, name: str) -> Done | None:
    """What the task `name` has made; None unless it is all there."""
    try:
        record = json.loads(folder.read(f"{name}.ok"))
        if _checksum(record["content"]) != record["xxh64"]:
            return None
        content = json.loads(record["content"])
        if (content.pop("version"), content.pop("task")) != (VERSION, name):
            return None
        done = Done(tuple(FileEntry(**entry) for entry in content["files"]), content["result"])
        is_whole = all(folder.size(entry.name) == entry.num_bytes for entry in done.files)
    except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return done if is_whole else None


def _checksum(text: str) -> str:
    return f"{_core.xxh64(text.encode()):016x}"
