"""Journal of an unfinished run: one JSON line per published shard.

Each checkpoint appends only the new shards, so its cost does not grow with their number. progress.json records how many
bytes of the journal are valid and their SHA-256, and is replaced after the journal is on the disk. Bytes after these,
left by a run that was killed, are ignored, and the next checkpoint overwrites them.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gristmill.errors import ShardsFormatError
from gristmill.publish import flush_folder
from gristmill.shards.disk import create_file, open_file, sync, write_all
from gristmill.shards.manifest import MAX_BYTES, MAX_ITEMS, ShardEntry
from gristmill.small_files import count_items

JOURNAL_FILE = ".shards.jsonl"


class Journal:
    """The published shards of each split, as far as they are recorded."""

    def __init__(self, folder: Path) -> None:
        """An empty journal; the content of the file is ignored unless it is `read`."""
        self._path = folder / JOURNAL_FILE
        self._num_bytes = 0
        self._digest = hashlib.sha256()
        self._num_written: dict[str, int] = {}

    def read(self, mark: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
        """Return the entries of each split up to `mark`, the result of `append`; raise if they are damaged."""
        from gristmill.shards import schema  # imported late, as in folder.py

        shards: dict[str, list[dict[str, Any]]] = {}
        try:
            data = self._first_bytes(mark["bytes"])
            self._digest.update(data)
            if self._digest.hexdigest() != mark["sha256"] or count_items(data) > MAX_ITEMS:
                raise ValueError("checksum or number of items")
            for entry in map(json.loads, data.splitlines()):
                shards.setdefault(entry.pop("split"), []).append(entry)
            schema.check_journal(shards)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise ShardsFormatError(
                f"{self._path}: the list of published shards of the unfinished run is missing or damaged, so the run "
                f"cannot resume. Pass overwrite=True to start again, or another folder."
            ) from None
        self._num_bytes = len(data)
        self._num_written = {split: len(entries) for split, entries in shards.items()}
        return shards

    def _first_bytes(self, number: int) -> bytes:
        if number == 0:  # the file may not exist yet
            return b""
        with open_file(self._path) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode) or not 0 < number <= min(status.st_size, MAX_BYTES):
                raise ValueError("size")
            return file.read(number)

    def append(self, shards: Mapping[str, Sequence[ShardEntry]]) -> dict[str, Any]:
        """Append the new entries of `shards`, all published shards of each split; return the mark for `read`."""
        lines = [
            json.dumps({"split": split, **dataclasses.asdict(shard)}) + "\n"
            for split, published in shards.items()
            for shard in published[self._num_written.get(split, 0) :]
        ]
        if lines:
            self._write("".join(lines).encode("ascii"))
            self._num_written = {split: len(published) for split, published in shards.items()}
        return {"bytes": self._num_bytes, "sha256": self._digest.hexdigest()}

    def _write(self, data: bytes) -> None:
        with open_file(self._path) if self._num_bytes else create_file(self._path) as file:
            file.seek(self._num_bytes)
            write_all(file, data)
            sync(file)
        if not self._num_bytes:
            flush_folder(self._path.parent)
        self._num_bytes += len(data)
        self._digest.update(data)
