"""A folder of shards at a URL, such as `s3://bucket/shards`, as `folder.py` has one of this machine.

The tasks of an executor write to it, and the manifest goes last. Object stores have neither locks nor a way to exchange
folders: of two runs at once one may undo what the other does, and `overwrite` removes the old shards first.
"""

from __future__ import annotations

import errno
import os
import tempfile
from functools import partial
from pathlib import Path
from typing import TypeAlias

from gristmill.corpus.inputs import is_url
from gristmill.encode.tokenizer import Tokenizer
from gristmill.errors import ShardsFormatError, ShardsMismatchError
from gristmill.executors.job import JOB_FILE
from gristmill.executors.work_folder import open_work_folder
from gristmill.shards.folder import Folder
from gristmill.shards.layouts import LAYOUTS, Layout
from gristmill.shards.manifest import (
    EDITED,
    MANIFEST_FILE,
    MAX_BYTES,
    PARTS_FOLDER,
    TOKENIZER_FILE,
    Manifest,
    checksum_fits,
)
from gristmill.shards.names import OwnNames, files_of
from gristmill.shards.request import Request, differences, request_of_manifest
from gristmill.shards.tokenizer_changes import explain_tokenizer


class RemoteFolder:
    """A folder at a URL that shards are written to. What it offers is what `Folder` offers to a run in parts."""

    def __init__(self, out: str, request: Request, *, overwrite: bool, tokenizer: Tokenizer) -> None:
        self.location = out.rstrip("/")
        self.request = request
        self.finished: Manifest | None = None
        self._folder = open_work_folder(self.location)
        self._parts = open_work_folder(f"{self.location}/{PARTS_FOLDER}")
        self._overwrite, self._tokenizer = overwrite, tokenizer

    @property
    def name(self) -> str:
        """The last part of the URL."""
        return self.location.rpartition("/")[2]

    @property
    def has_parts(self) -> bool:
        """Whether an executor has begun the shards."""
        return self._parts.size(JOB_FILE) is not None

    @property
    def is_of_this_process(self) -> bool:
        """Whether no other process can see it."""
        return self.location.startswith("memory://")

    def refuse_state(self) -> None:
        """Nothing: only executors write to URLs."""

    def __enter__(self) -> RemoteFolder:
        manifest = self._read_manifest()
        if manifest is not None and not self._overwrite:
            self.finished = self._checked(manifest)
        elif manifest is not None:
            self._folder.discard(MANIFEST_FILE)  # first: without it, nobody takes the rest for shards
            for name in sorted(files_of(manifest)):
                self._folder.discard(name)
        elif not self.has_parts:
            self._refuse_other_files()
        elif self._overwrite:
            for name in filter(self._is_own, self._folder.names()):
                self._folder.discard(name)
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing: what was finished of the parts stays for a later run."""

    def save_tokenizer(self, layout: Layout) -> None:
        """Write the tokenizer, and what the tools of the layout want to know of it."""
        with tempfile.TemporaryDirectory() as folder:
            self._tokenizer.save(Path(folder) / TOKENIZER_FILE)
            self._folder.write(TOKENIZER_FILE, (Path(folder) / TOKENIZER_FILE).read_bytes())
        for name in layout.extra_names:
            self._folder.write(name, layout.extra_file(name, self._tokenizer.vocab, self._tokenizer.vocab_size))

    def finish(self, manifest: Manifest) -> None:
        """Declare the shards complete."""
        self._folder.write(MANIFEST_FILE, manifest.to_json())
        self._parts.remove()

    def _read_manifest(self) -> Manifest | None:
        try:
            data = self._folder.read(MANIFEST_FILE, max_bytes=MAX_BYTES)
        except FileNotFoundError:
            return None
        manifest = Manifest.from_json(data, Path(self.location))
        if not checksum_fits(data):
            raise ShardsFormatError(f"{self.location}/{MANIFEST_FILE}: {EDITED}")
        return manifest

    def _checked(self, manifest: Manifest) -> Manifest:
        """The manifest that is there, if it answers the request and its shards are there too."""
        explain = partial(explain_tokenizer, Path(self.location) / TOKENIZER_FILE, now=self._tokenizer)
        found = differences(request_of_manifest(manifest), self.request.to_json(), explain)
        if found:
            raise ShardsMismatchError(
                errno.EEXIST,
                f"The folder holds finished shards made with other options or inputs: {'; '.join(found)}. Pass another "
                f"folder, or overwrite=True to replace them",
                self.location,
            )
        for shard in (shard for split in manifest.splits.values() for shard in split.shards):
            if self._folder.size(shard.file) != shard.bytes:
                raise ShardsFormatError(
                    f"{self.location}/{shard.file}: the shard is missing or has another size than it was given. "
                    f"Restore it, or pass overwrite=True to make all shards again."
                )
        return manifest

    def _refuse_other_files(self) -> None:
        others = sorted(set(self._folder.names()) - {PARTS_FOLDER})
        if others:
            some = ", ".join(others[:3]) + ", …" * (len(others) > 3)
            message = f"The folder holds other files ({some}), which are never replaced. Pass a new or empty folder"
            raise FileExistsError(errno.EEXIST, message, self.location)

    def _is_own(self, name: str) -> bool:
        return any(name in OwnNames(layout, self.name) for layout in LAYOUTS.values())


AnyFolder: TypeAlias = Folder | RemoteFolder


def check_place(out: str | os.PathLike[str]) -> str | os.PathLike[str]:
    """A path or URL; the path for a URL of this machine.

    >>> check_place("file:///data/shards"), check_place("s3://bucket/shards")
    ('/data/shards', 's3://bucket/shards')
    """
    return out.removeprefix("file://").removeprefix("local://") if isinstance(out, str) else out


def is_remote(out: str | os.PathLike[str]) -> bool:
    """Whether a place is a URL."""
    return isinstance(out, str) and is_url(out)


def open_folder(out: str | os.PathLike[str], request: Request, *, overwrite: bool, tokenizer: Tokenizer) -> AnyFolder:
    """The folder of shards at a path or URL."""
    kind = RemoteFolder if is_remote(out) else Folder
    return kind(os.fspath(out), request, overwrite=overwrite, tokenizer=tokenizer)


def shown_place(out: str | os.PathLike[str]) -> Path | str:
    """The path or URL of a folder of shards as a run gives it to its caller."""
    return str(out) if is_remote(out) else Path(out)
