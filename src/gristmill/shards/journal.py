"""The journal of an unfinished run: one line of JSON for each shard that is published.

Each checkpoint adds the shards that are new, so that it costs the same however many there are. How many bytes of the
journal count, and their SHA-256, stand in progress.json, which is replaced as a whole after the journal is on the disk:
what a kill leaves after these bytes is ignored, and written over by the next checkpoint.
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
from gristmill.shards.manifest import MAX_BYTES, ShardEntry

JOURNAL_FILE = ".shards.jsonl"


class Journal:
    """The published shards of each split, as far as they are written down."""

    def __init__(self, folder: Path) -> None:
        """A journal without entries; what the file holds is ignored unless it is `read`."""
        self._path = folder / JOURNAL_FILE
        self._num_bytes = 0
        self._digest = hashlib.sha256()
        self._num_written: dict[str, int] = {}

    def read(self, mark: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
        """The entries of each split up to `mark`, which `append` gave; `ShardsFormatError` if they are damaged."""
        from gristmill.shards import schema  # not at the top, as in folder.py

        shards: dict[str, list[dict[str, Any]]] = {}
        try:
            data = self._first_bytes(mark["bytes"])
            self._digest.update(data)
            if self._digest.hexdigest() != mark["sha256"]:
                raise ValueError("checksum")
            for entry in map(json.loads, data.splitlines()):
                shards.setdefault(entry.pop("split"), []).append(entry)
            schema.check_journal(shards)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise ShardsFormatError(
                f"{self._path}: the list of the shards that the unfinished run has published is missing or damaged, so "
                f"the run cannot resume. Pass overwrite=True to start again, or another folder."
            ) from None
        self._num_bytes = len(data)
        self._num_written = {split: len(entries) for split, entries in shards.items()}
        return shards

    def _first_bytes(self, number: int) -> bytes:
        if number == 0:  # there may be no file yet
            return b""
        with open_file(self._path) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode) or not 0 < number <= min(status.st_size, MAX_BYTES):
                raise ValueError("size")
            return file.read(number)

    def append(self, shards: Mapping[str, Sequence[ShardEntry]]) -> dict[str, Any]:
        """Add what is new in `shards`, all published shards of each split; what to pass to `read` once it is safe."""
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
