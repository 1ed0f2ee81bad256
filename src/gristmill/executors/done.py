"""`.ok` files: record the files that a task has made, with sizes and checksums. They are written last.

A reader trusts an `.ok` file only if its checksum matches and every file it names has the recorded size. Readers of the
files themselves verify their checksums, and a mismatch makes the task run again. So a power failure that damages an
`.ok` file loses nothing, and the file is not flushed to the disk.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from gristmill import _core
from gristmill.errors import FormatError
from gristmill.executors.work_folder import FileEntry, WorkFolder, check_name, in_parallel
from gristmill.small_files import parse_json

VERSION = 1
MAX_BYTES = 64 << 20
MAX_ITEMS = 1 << 22


@dataclass(frozen=True, slots=True)
class Done:
    """The result of a task."""

    files: tuple[FileEntry, ...] = ()
    result: dict[str, Any] = field(default_factory=dict)  # small, JSON


def write_done(folder: WorkFolder, name: str, done: Done) -> None:
    """Record that the task `name` is done."""
    content = {"version": VERSION, "task": name, **asdict(done)}
    text = json.dumps(content, sort_keys=True)
    folder.write(f"{name}.ok", json.dumps({"xxh64": _checksum(text), "content": text}).encode(), durable=False)


def read_done(folder: WorkFolder, name: str) -> Done | None:
    """Return the result of the task `name`; None unless it is complete.

    A damaged `.ok` file gives None too: the task then runs again.
    """
    try:
        done = _parse(folder.read(f"{name}.ok", max_bytes=MAX_BYTES), name)
        is_whole = all(folder.size(entry.name) == entry.num_bytes for entry in done.files)
    except (FileNotFoundError, IsADirectoryError, ValueError):
        return None
    return done if is_whole else None


def read_all_done(folder: WorkFolder, names: Sequence[str]) -> list[Done | None]:
    """Return the results of many tasks, as `read_done` does, without a request for tasks that have not finished."""
    there = set(folder.names())
    return in_parallel(lambda name: read_done(folder, name) if f"{name}.ok" in there else None, names)


def _parse(data: bytes, name: str) -> Done:
    """Return the content of an `.ok` file; raise ValueError for anything that `write_done` does not write."""
    record = parse_json(data, error=FormatError, max_items=MAX_ITEMS)
    text = record.get("content") if isinstance(record, dict) else None
    if not isinstance(text, str) or record.get("xxh64") != _checksum(text):
        raise FormatError("damaged")
    content = parse_json(text.encode(), error=FormatError, max_items=MAX_ITEMS)
    if not isinstance(content, dict) or (content.get("version"), content.get("task")) != (VERSION, name):
        raise FormatError("of another task or version")
    files, result = content.get("files"), content.get("result")
    if not isinstance(files, list) or not isinstance(result, dict):
        raise FormatError("no files or result")
    return Done(tuple(map(_entry, files)), result)


def _entry(value: Any) -> FileEntry:
    if not isinstance(value, dict) or set(value) != {"name", "num_bytes", "xxh64"}:
        raise FormatError("a file without name, size and checksum")
    size, checksum = value["num_bytes"], value["xxh64"]
    if type(size) is not int or size < 0 or not isinstance(checksum, str):
        raise FormatError("an invalid size or checksum")
    return FileEntry(check_name(value["name"]), size, checksum)


def _checksum(text: str) -> str:
    return f"{_core.xxh64(text.encode('utf-8', 'surrogatepass')):016x}"
