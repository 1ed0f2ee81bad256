"""A folder of shards at a URL, such as `s3://bucket/shards`: the counterpart of `folder.py`.

The tasks of an executor write to it, and the manifest is written last. Object stores have no locks and cannot swap
folders: two runs at once may undo each other's work, and `overwrite` removes the old shards first. While it does, their
manifest is named `.replaced.json`, so that a later run knows which files they are.
"""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path
from typing import TypeAlias

from gristmill.corpus.inputs import is_url
from gristmill.encode.tokenizer import Tokenizer
from gristmill.errors import OptionError, ShardsFormatError, ShardsMismatchError
from gristmill.executors.job import JOB_FILE
from gristmill.executors.work_folder import in_parallel, open_work_folder
from gristmill.shards.folder import LOST_SHARD, LOST_TOKENIZER, UNKNOWN_FILES, Folder
from gristmill.shards.layouts import LAYOUTS, Layout
from gristmill.shards.manifest import (
    EDITED,
    MANIFEST_FILE,
    MAX_BYTES,
    PARTS_FOLDER,
    REPLACED_FILE,
    TOKENIZER_FILE,
    Manifest,
    checksum_fits,
)
from gristmill.shards.names import OwnNames, files_of, sizes_of
from gristmill.shards.request import Request, differences, request_of_manifest
from gristmill.shards.tokenizer_changes import explain_tokenizer
from gristmill.tokenizer.formats import gristmill_json


class RemoteFolder:
    """A folder at a URL that shards are written to, with the methods of `Folder` that a run in parts needs."""

    def __init__(self, out: str, request: Request, *, overwrite: bool, tokenizer: Tokenizer) -> None:
        self.location = out.rstrip("/")
        self.request = request
        self.finished: Manifest | None = None
        self._folder = open_work_folder(self.location)
        self._parts = open_work_folder(f"{self.location}/{PARTS_FOLDER}")
        self._overwrite, self._tokenizer = overwrite, tokenizer

    @property
    def name(self) -> str:
        """Last component of the URL."""
        return self.location.rpartition("/")[2]

    @property
    def has_parts(self) -> bool:
        """Whether an executor has started the shards."""
        return self._parts.size(JOB_FILE) is not None

    def refuse_state(self) -> None:
        """Do nothing: only executors write to URLs."""

    def __enter__(self) -> RemoteFolder:
        manifest = self._read_manifest(MANIFEST_FILE)
        if manifest is not None and not self._overwrite:
            self.finished = self._checked(manifest)
            if self.has_parts:  # of a run that was killed right after it finished
                self._parts.remove()
            return self
        if manifest is not None:
            self._folder.write(REPLACED_FILE, manifest.to_json())
            self._folder.discard(MANIFEST_FILE)  # first: without it, no reader takes the rest for shards
        self._remove_replaced()
        if not self.has_parts:
            self._refuse_other_files()
        elif self._overwrite:
            for name in filter(self._is_own, self._folder.names()):
                self._folder.discard(name)
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing: finished parts stay for a later run."""

    def save_tokenizer(self, layout: Layout) -> None:
        """Write the tokenizer and the extra files of the layout."""
        self._folder.write(TOKENIZER_FILE, gristmill_json.content(self._tokenizer.parts))
        for name in layout.extra_names:
            self._folder.write(name, layout.extra_file(name, self._tokenizer.vocab, self._tokenizer.vocab_size))

    def finish(self, manifest: Manifest) -> None:
        """Publish the manifest, which makes the shards complete."""
        self._folder.write(MANIFEST_FILE, manifest.to_json())

    def _read_manifest(self, name: str) -> Manifest | None:
        try:
            data = self._folder.read(name, max_bytes=MAX_BYTES)
        except FileNotFoundError:
            return None
        url = f"{self.location}/{name}"
        try:
            manifest = Manifest.from_json(data, url)
        except ShardsFormatError as error:
            raise ShardsFormatError(f"{error} {UNKNOWN_FILES}") from None
        if not checksum_fits(data):
            raise ShardsFormatError(f"{url}: {EDITED}")
        return manifest

    def _remove_replaced(self) -> None:
        """Remove the shards that this run, or one that was killed while it removed them, replaces."""
        replaced = self._read_manifest(REPLACED_FILE)
        if replaced is None:
            return
        for name in sorted(files_of(replaced)):
            self._folder.discard(name)
        self._folder.discard(REPLACED_FILE)

    def _checked(self, manifest: Manifest) -> Manifest:
        """Return the manifest in the folder if it matches the request and its shards exist; otherwise raise."""
        found = differences(request_of_manifest(manifest), self.request.to_json(), self._explain_tokenizer)
        if found:
            raise ShardsMismatchError(
                errno.EEXIST,
                f"The folder holds finished shards made with other options or inputs: {'; '.join(found)}. Pass another "
                f"folder, or overwrite=True to replace the shards",
                self.location,
            )
        shards = (shard for split in manifest.splits.values() for shard in split.shards)
        sizes = [size for shard in shards for size in sizes_of(shard, LAYOUTS[manifest.layout])]
        there = in_parallel(self._folder.size, [name for name, _ in sizes])
        for (name, size), size_there in zip(sizes, there, strict=True):
            if size != size_there:
                raise ShardsFormatError(f"{self.location}/{name}: {LOST_SHARD}")
        if self._folder.size(manifest.tokenizer_file) is None:
            raise ShardsFormatError(f"{self.location}/{manifest.tokenizer_file}: {LOST_TOKENIZER}")
        return manifest

    def _explain_tokenizer(self, fingerprint: str) -> str:
        """Describe how the tokenizer of the shards differs from the one passed."""
        try:
            with self._folder.as_local_file(TOKENIZER_FILE) as local:
                return explain_tokenizer(local.path, fingerprint, now=self._tokenizer)
        except FileNotFoundError:
            return explain_tokenizer(None, fingerprint, now=self._tokenizer)

    def _refuse_other_files(self) -> None:
        others = sorted(set(self._folder.names()) - {PARTS_FOLDER})
        if others:
            some = ", ".join(others[:3]) + ", …" * (len(others) > 3)
            message = f"The folder holds other files ({some}), which are never replaced. Pass a new or empty folder"
            raise FileExistsError(errno.EEXIST, message, self.location)

    def _is_own(self, name: str) -> bool:
        return any(name in OwnNames(layout, self.name) for layout in LAYOUTS.values())


AnyFolder: TypeAlias = Folder | RemoteFolder
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def check_place(out: str | os.PathLike[str]) -> str | os.PathLike[str]:
    """Return the path or URL; the path for a file:// URL.

    >>> check_place("file:///data/shards"), check_place("s3://bucket/shards")
    ('/data/shards', 's3://bucket/shards')
    """
    if not isinstance(out, str):
        return out
    path = out.removeprefix("file://").removeprefix("local://")
    if _SCHEME.match(path) and not is_url(path):
        raise OptionError(
            f"out={out!r} is not a valid URL: it ends after '://' or contains a space. Pass a folder, or a URL "
            f"such as 's3://bucket/shards'."
        )
    return path


def is_remote(out: str | os.PathLike[str]) -> bool:
    """Whether `out` is a URL."""
    return isinstance(out, str) and is_url(out)


def open_folder(out: str | os.PathLike[str], request: Request, *, overwrite: bool, tokenizer: Tokenizer) -> AnyFolder:
    """Return the folder of shards at a path or URL."""
    kind = RemoteFolder if is_remote(out) else Folder
    return kind(os.fspath(out), request, overwrite=overwrite, tokenizer=tokenizer)


def shown_place(out: str | os.PathLike[str]) -> str:
    """Return the path or URL of a folder of shards for the result of a run."""
    return os.fspath(out) if is_remote(out) else str(Path(out))
