"""Shards: the documents and tokens of a folder that `encode_corpus` made."""

from __future__ import annotations

import operator
import os
from bisect import bisect_right
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import NDArray

from gristmill.errors import GristmillError, OptionError, ShardsFormatError
from gristmill.shards.edition import Edition
from gristmill.shards.layouts import LAYOUTS
from gristmill.shards.layouts.layout import INT64
from gristmill.shards.manifest import EndOfText, Manifest, Split
from gristmill.shards.maps import map_opener
from gristmill.shards.tokens import Tokens

if TYPE_CHECKING:
    from gristmill.encode.tokenizer import Tokenizer

__all__ = ["Shards"]


class Shards:
    """The documents of a folder of shards, and its tokens as one array.

    Opening reads the manifest and nothing else: a file is mapped when something in it is asked for, so a folder of
    ten thousand shards opens at once. Pickles as its path, and works in forked and spawned workers. When other shards
    take the place of those that were opened, reading is an `InputChangedError`, never a mixture of the two.

        shards = gm.Shards("shards/")
        shards[0], shards.decode(0)               the ids and the text of the first document
        shards.tokens[1_000_000:1_002_048]        any stretch of tokens: a view of the memory map
    """

    def __init__(self, folder: str | os.PathLike[str], *, split: str = "train") -> None:
        """Open the split of a finished folder; `ShardsFormatError` for one that is unfinished or damaged."""
        self._name = os.fspath(folder)
        self._folder = Path(folder).absolute()  # maps are opened later, and a program may go elsewhere meanwhile
        self._split_name = split
        self._edition = Edition.of(self._folder)
        self._manifest = Manifest.read(folder)
        self._edition.check()
        self._split = _find_split(self._manifest, split, self._name)
        _check_layout(self._manifest, self._split, self._name)
        entries = self._split.shards
        self._tokens = Tokens(
            self._folder,
            [entry.file for entry in entries],
            [entry.tokens for entry in entries],
            self._manifest.token_dtype,
            self._edition,
        )
        # The number of the first document of each shard, and at the end that of all.
        self._firsts: list[int] = [0, *np.cumsum([entry.documents for entry in entries], dtype=np.int64).tolist()]
        self._ends = map_opener(
            self._folder,
            [entry.index or "" for entry in entries],
            [entry.documents for entry in entries],
            INT64,
            check=self._edition.check,
        )

    # What it holds

    @property
    def manifest(self) -> Manifest:
        """What manifest.json says."""
        return self._manifest

    @property
    def split(self) -> str:
        """Which split this is: "train" or "val"."""
        return self._split_name

    @property
    def num_tokens(self) -> int:
        """The tokens of all documents, end-of-text ids among them."""
        return len(self._tokens)

    @property
    def source_bytes(self) -> int:
        """The bytes of the texts before they were encoded: the denominator of bits per byte."""
        return self._split.source_bytes

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the tokens."""
        return self._tokens.dtype

    @property
    def end_of_text(self) -> EndOfText | None:
        """The id that stands after (or before) each document, if there is one."""
        return self._manifest.end_of_text

    @property
    def paths(self) -> list[Path]:
        """The token files, in order."""
        return [self._folder / entry.file for entry in self._split.shards]

    def other_split(self, split: str) -> Shards:
        """Another split of the same shards; `InputChangedError` if others have taken their place since."""
        return _open(str(self._folder), split, self._edition.checksum)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer that made the shards, from the copy in the folder."""
        try:
            return load_tokenizer(self._manifest, self._folder)
        finally:
            self._edition.check()

    # Tokens and documents

    @property
    def tokens(self) -> Tokens:
        """All tokens as one array over the files: `shards.tokens[a:b]`."""
        return self._tokens

    @cached_property
    def document_ends(self) -> NDArray[np.int64]:
        """Where each document ends, in tokens of the split: document i begins where i - 1 ends. Eight bytes each."""
        # The sizes of the files are checked first: a forged manifest cannot make this allocate more than they hold.
        ends = np.empty(sum(len(self._ends(shard)) for shard in range(len(self._split.shards))), np.int64)
        for shard, begin in enumerate(self._firsts[:-1]):
            np.add(self._ends(shard), self._tokens.begins[shard], out=ends[begin : self._firsts[shard + 1]])
        ends.flags.writeable = False
        return ends

    def __len__(self) -> int:
        """The number of documents."""
        return self._firsts[-1]

    @overload
    def __getitem__(self, index: int) -> NDArray[Any]: ...
    @overload
    def __getitem__(self, index: slice) -> list[NDArray[Any]]: ...
    def __getitem__(self, index: int | slice) -> NDArray[Any] | list[NDArray[Any]]:
        """The ids of document `index`, its end-of-text id among them, as an array of its own; for a slice, a list."""
        if isinstance(index, slice):
            return [self._document(i) for i in range(*index.indices(len(self)))]
        return self._document(self._checked(index))

    def decode(self, index: int, *, errors: str = "replace") -> str:
        """The text of document `index`, without its end-of-text id; `errors` as in `Tokenizer.decode`."""
        return self.tokenizer.decode(without_end(self[index], self.end_of_text), errors=errors)

    def __iter__(self) -> Iterator[NDArray[Any]]:
        """The documents in order, each as `shards[i]` gives it."""
        begin = 0
        for shard in range(len(self._split.shards)):
            base = self._tokens.begins[shard]
            for local_end in self._ends(shard).tolist():
                yield self._stretch(begin, base + local_end)
                begin = base + local_end

    def _checked(self, index: Any) -> int:
        try:
            i = operator.index(index)
        except TypeError:
            raise TypeError(f"documents are found by an int or a slice, not by {type(index).__name__}.") from None
        if not -len(self) <= i < len(self):
            allowed = f"they go from 0 to {len(self) - 1:,}" if len(self) else "it is empty"
            raise IndexError(f"there is no document {i}: {self._split_name!r} has {len(self):,} documents, {allowed}.")
        return i % len(self)

    def _document(self, i: int) -> NDArray[Any]:
        return self._stretch(self._end(i - 1) if i else 0, self._end(i))

    def _stretch(self, begin: int, end: int) -> NDArray[Any]:
        if not begin <= end <= self.num_tokens:
            raise ShardsFormatError(
                f"{self._name}: a document lies from token {begin:,} to {end:,} of {self.num_tokens:,}: an index is "
                f"damaged. `gristmill verify` finds which."
            )
        # A copy: a list of documents would otherwise keep a map, which may be an open file, for each of its shards.
        return self._tokens.stretch(begin, end).copy()

    def _end(self, i: int) -> int:
        shard = bisect_right(self._firsts, i) - 1
        return self._tokens.begins[shard] + int(self._ends(shard)[i - self._firsts[shard]])

    # How Python sees it

    def __reduce__(self) -> tuple[Any, ...]:
        return _open, (str(self._folder), self._split_name, self._edition.checksum)

    def __repr__(self) -> str:
        return (
            f"<Shards: {self._name!r}, split {self._split_name!r}, {len(self):,} documents, "
            f"{self.num_tokens:,} tokens of {self.dtype.name} in {len(self._split.shards):,} "
            f"shard{'s' * (len(self._split.shards) != 1)}>"
        )


def load_tokenizer(manifest: Manifest, folder: Path) -> Tokenizer:
    """The tokenizer in the folder; `ShardsFormatError` if it is not the one that made the shards."""
    from gristmill.encode.tokenizer import Tokenizer

    path = folder / manifest.tokenizer_file
    try:
        tokenizer = Tokenizer.load(path)
    except (OSError, GristmillError) as error:
        raise ShardsFormatError(f"the tokenizer of the shards cannot be read: {error}") from error
    if tokenizer.fingerprint != manifest.tokenizer_fingerprint:
        raise ShardsFormatError(
            f"{path}: it is not the tokenizer that made the shards: its fingerprint is {tokenizer.fingerprint}, and "
            f"the manifest has {manifest.tokenizer_fingerprint}. Put the right file there."
        )
    return tokenizer


def without_end(ids: NDArray[Any], end_of_text: EndOfText | None) -> NDArray[Any]:
    """The ids of a document without its end-of-text id."""
    if end_of_text is None or not len(ids):
        return ids
    if end_of_text.position == "after":
        return ids[:-1] if ids[-1] == end_of_text.id else ids
    return ids[1:] if ids[0] == end_of_text.id else ids


def _find_split(manifest: Manifest, split: str, name: str) -> Split:
    if split not in manifest.splits:
        there = ", ".join(map(repr, manifest.splits)) or "none"
        hint = " Encode with val_fraction to have one." if split == "val" else ""
        raise OptionError(f"split={split!r}: {name} has no such split (there is: {there}).{hint}")
    return manifest.splits[split]


def _check_layout(manifest: Manifest, split: Split, name: str) -> None:
    if manifest.layout == "gristmill":
        if any(entry.index is None for entry in split.shards):
            raise ShardsFormatError(f"{name}: a shard has no index, without which there are no documents.")
        return
    layout = LAYOUTS[manifest.layout]
    path = Path(name) / (split.shards[0].file if split.shards else layout.token_file("tokens", "train", 0))
    raise ShardsFormatError(
        f"{name}: its layout is {manifest.layout!r}, and Shards reads 'gristmill'. Read it with "
        f"{layout.how_to_read(str(path), manifest.token_dtype)}, or encode with format='gristmill'."
    )


def _open(folder: str, split: str, checksum: str) -> Shards:
    """The shards that were pickled; an error if others are there now."""
    shards = Shards(folder, split=split)
    if shards._edition.checksum != checksum:
        raise shards._edition.changed()
    return shards
