"""Shards: the documents and tokens of a folder of token files, made by `encode_corpus` or by another program."""

from __future__ import annotations

import operator
import os
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import NDArray

from gristmill.corpus.inputs import shown
from gristmill.errors import GristmillError, OptionError, ShardsFormatError
from gristmill.notebook import html_table
from gristmill.shards.document_ends import DocumentEnds, IndexedEnds, MarkedEnds
from gristmill.shards.edition import Edition, ForeignEdition
from gristmill.shards.end_of_text import AUTO, KNOWN, find_end_of_text
from gristmill.shards.explain import check_path
from gristmill.shards.foreign import checksum_of, read_foreign
from gristmill.shards.layouts import Layout, layout_of
from gristmill.shards.manifest import (
    EndOfText,
    Manifest,
    Split,
    has_files_of_runs,
    read_manifest,
)
from gristmill.shards.tokens import Tokens

if TYPE_CHECKING:
    from gristmill.encode.tokenizer import Tokenizer

__all__ = ["Shards"]


class Shards:
    """The documents of a folder of token files, and its tokens as one array.

    The folder is one that `encode_corpus` made, in any format but Parquet, or one of nanoGPT, llm.c, Megatron-LM or
    datatrove that these programs made themselves. Such a folder has no manifest: what only a manifest states is an
    error when it is asked for, and `tokenizer=` adds what the tokenizer knows.

    Opening reads the manifest and nothing else: a file is mapped when something in it is asked for, so a folder of
    ten thousand shards opens at once. Pickles as its path, and works in forked and spawned workers. When other shards
    take the place of those that were opened, reading is an `InputChangedError`, never a mixture of the two.

        shards = gm.Shards("shards/")
        shards[0], shards.decode(0)               the ids and the text of the first document
        shards.tokens[1_000_000:1_002_048]        any stretch of tokens: a view of the memory map
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        split: str = "train",
        tokenizer: Tokenizer | str | os.PathLike[str] | None = None,
    ) -> None:
        """Open the split of a finished folder; `ShardsFormatError` for one that is unfinished or damaged.

        tokenizer: the one that made the tokens, or its path, for a folder without a manifest. Its end-of-text token
            is taken to mark documents where files have no index.
        """
        self._name = shown(check_path(folder))
        self._folder = Path(folder).absolute()  # maps are opened later, and a program may go elsewhere meanwhile
        self._split_name = split
        self._manifest, self._edition = _read(self._folder, folder)
        self._given = _given_tokenizer(tokenizer, self._manifest, self._name)
        self._split = _find_split(self._manifest, split, self._name)
        self._layout = _check_layout(self._manifest, self._split, self._name)
        entries = self._split.shards
        self._tokens = Tokens(
            self._folder,
            [entry.file for entry in entries],
            [entry.tokens for entry in entries],
            self._manifest.token_dtype,
            self._edition,
            self._layout.header_bytes,
        )
        self._ends = self._document_ends()

    def _document_ends(self) -> DocumentEnds:
        entries = self._split.shards
        if self._has_index:
            return IndexedEnds(self._folder, entries, self._layout, self._tokens.begins, self._edition.check)
        number = self._split.documents if self.has_manifest else None
        return MarkedEnds(self._tokens, self.end_of_text, number, self._name)

    @property
    def _has_index(self) -> bool:
        return all(entry.index is not None for entry in self._split.shards)

    # What it holds

    @property
    def has_manifest(self) -> bool:
        """Whether Gristmill made the folder; False for one of another program."""
        return not isinstance(self._edition, ForeignEdition)

    @property
    def manifest(self) -> Manifest:
        """What manifest.json says; `ShardsFormatError` for a folder that another program made."""
        if not self.has_manifest:
            raise self._unknown("a manifest")
        return self._manifest

    def _unknown(self, what: str, remedy: str = "") -> ShardsFormatError:
        return ShardsFormatError(
            f"{self._name}: another program made these {self._manifest.layout} files, and they come without {what}."
            f"{remedy}"
        )

    @property
    def layout(self) -> str:
        """The format of the token files, one of `gristmill.shards.LAYOUTS`."""
        return self._manifest.layout

    @property
    def splits(self) -> list[str]:
        """The splits of the folder."""
        return list(self._manifest.splits)

    @property
    def vocab_size(self) -> int | None:
        """The ids are below it; None for a folder without a manifest that was opened without a tokenizer."""
        if self._given is not None:
            return self._given.vocab_size
        return self._manifest.vocab_size if self.has_manifest else None

    @property
    def tokenizer_fingerprint(self) -> str | None:
        """The fingerprint of the tokenizer that made the tokens; None where it is not known."""
        if self._given is not None:
            return self._given.fingerprint
        return self._manifest.tokenizer_fingerprint or None

    def checksums(self) -> dict[str, list[str]]:
        """A checksum of each token file, by split; without a manifest, of 16 stretches of each file."""
        return {name: [entry.xxh64 for entry in split.shards] for name, split in self._manifest.splits.items()}

    @property
    def split(self) -> str:
        """Which split this is: "train" or "val"; "test" only in folders of other programs."""
        return self._split_name

    @property
    def num_tokens(self) -> int:
        """The tokens of all documents, end-of-text ids among them."""
        return len(self._tokens)

    @property
    def source_bytes(self) -> int:
        """The bytes of the texts before they were encoded: the denominator of bits per byte."""
        if not self.has_manifest:
            raise self._unknown("the number of bytes of their texts", " `encode_corpus` records it.")
        return self._split.source_bytes

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the tokens."""
        return self._tokens.dtype

    @property
    def end_of_text(self) -> EndOfText | None:
        """The id that stands after (or before) each document, if there is one.

        Without a manifest it is that of the tokenizer the folder was opened with.
        """
        if self.has_manifest or self._given is None or not any(map(self._given.special_tokens.__contains__, KNOWN)):
            return self._manifest.end_of_text
        return find_end_of_text(self._given, AUTO, None, self._layout)

    @property
    def paths(self) -> list[Path]:
        """The token files, in order."""
        return [self._folder / entry.file for entry in self._split.shards]

    def other_split(self, split: str) -> Shards:
        """Another split of the same shards; `InputChangedError` if others have taken their place since."""
        return _open(str(self._folder), split, self._edition.checksum, self._given)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer that made the shards, from the copy in the folder or as it was given."""
        if self._given is not None:
            return self._given
        if not self.has_manifest:
            raise self._unknown("a tokenizer", " Pass tokenizer= with the one that made them.")
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
        ends = self._ends.all()
        ends.flags.writeable = False
        return ends

    def __len__(self) -> int:
        """The number of documents."""
        return len(self._ends)

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
        for ends in self._ends.chunks():
            for end in ends.tolist():
                yield self._stretch(begin, end)
                begin = end

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
        return self._stretch(self._ends.end(i - 1) if i else 0, self._ends.end(i))

    def _stretch(self, begin: int, end: int) -> NDArray[Any]:
        if not begin <= end <= self.num_tokens:
            raise ShardsFormatError(
                f"{self._name}: a document lies from token {begin:,} to {end:,} of {self.num_tokens:,}: an index is "
                f"damaged. {'verify_shards() finds which.' if self.has_manifest else 'Copy the files again.'}"
            )
        # A copy: a list of documents would otherwise keep a map, which may be an open file, for each of its shards.
        return self._tokens.stretch(begin, end).copy()

    # How Python sees it

    def __reduce__(self) -> tuple[Any, ...]:
        return _open, (str(self._folder), self._split_name, self._edition.checksum, self._given)

    def __repr__(self) -> str:
        shards = len(self._split.shards)
        documents = f"{len(self):,} documents, " if self._counts_documents else ""
        layout = f", layout {self.layout!r}" * (self.layout != "gristmill")
        return (
            f"<Shards: '{self._name}', split {self._split_name!r}, {documents}{self.num_tokens:,} tokens of "
            f"{self.dtype.name} in {shards:,} shard{'s' * (shards != 1)}{layout}>"
        )

    def _repr_html_(self) -> str:
        rows = [("folder", self._name), ("layout", self.layout), ("split", f"{self._split_name} of {self.splits}")]
        if self._counts_documents:
            rows.append(("documents", f"{len(self):,}"))
        rows.append(("tokens", f"{self.num_tokens:,} of {self.dtype.name}"))
        if self.has_manifest and self.num_tokens:
            rows.append(("bytes per token", f"{self.source_bytes / self.num_tokens:.3f}"))
        if self.vocab_size is not None:
            rows.append(("vocabulary", f"{self.vocab_size:,}"))
        rows.append(("end of text", "none" if self.end_of_text is None else repr(self.end_of_text.token)))
        rows.append(("shards", f"{len(self._split.shards):,}"))
        return html_table("Shards", rows)

    @property
    def _counts_documents(self) -> bool:
        """Whether it is known how many documents there are, without reading the tokens."""
        return self.has_manifest or self._has_index


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


def _read(folder: Path, given: str | os.PathLike[str]) -> tuple[Manifest, Edition]:
    """What the folder holds, and how a reader notices that it was replaced; errors name the folder as it was given."""
    if not has_files_of_runs(folder) and folder.is_dir():
        foreign = read_foreign(folder)
        if foreign is not None:
            return foreign, ForeignEdition(folder, checksum_of(foreign))
        read_manifest(given)  # explains what the folder is instead
    edition = Edition.from_folder(folder, given)
    manifest = Manifest.read(given)
    edition.check()
    return manifest, edition


def _given_tokenizer(
    tokenizer: Tokenizer | str | os.PathLike[str] | None, manifest: Manifest, name: str
) -> Tokenizer | None:
    """The tokenizer that was passed; an error where it is not the one of the manifest."""
    from gristmill.encode.tokenizer import as_tokenizer

    if tokenizer is None:
        return None
    given = as_tokenizer(tokenizer)
    if manifest.tokenizer_fingerprint not in ("", given.fingerprint):
        raise OptionError(
            f"tokenizer= is not the one that made {name}: its fingerprint is {given.fingerprint[:12]}…, and the "
            f"manifest has {manifest.tokenizer_fingerprint[:12]}…. Leave it out: the folder has its own."
        )
    return given


def _find_split(manifest: Manifest, split: str, name: str) -> Split:
    if not isinstance(split, str):
        raise TypeError(f"split={split!r} is a {type(split).__name__}. Pass a str such as 'train'.")
    if split not in manifest.splits:
        there = ", ".join(map(repr, manifest.splits)) or "none"
        hint = " Encode with val_fraction to have one." if split == "val" and manifest.tokenizer_fingerprint else ""
        raise OptionError(f"split={split!r}: {name} has no such split (there is: {there}).{hint}")
    return manifest.splits[split]


def _check_layout(manifest: Manifest, split: Split, name: str) -> Layout:
    layout = layout_of(manifest.layout, manifest.options)
    if not layout.converts:
        needs_index = layout.index_file("tokens", "train", 0) is not None and manifest.tokenizer_fingerprint
        if needs_index and any(entry.index is None for entry in split.shards):
            raise ShardsFormatError(f"{name}: a shard has no index, without which there are no documents.")
        return layout
    path = Path(name) / (split.shards[0].file if split.shards else layout.token_file("tokens", "train", 0))
    raise ShardsFormatError(
        f"{name}: its layout is {manifest.layout!r}, whose tokens are compressed and cannot be mapped. Read it with "
        f"{layout.how_to_read(str(path), manifest.token_dtype)}, or encode with format='gristmill'."
    )


def _open(folder: str, split: str, checksum: str, tokenizer: Tokenizer | None = None) -> Shards:
    """The shards that were pickled; an error if others are there now."""
    shards = Shards(folder, split=split, tokenizer=tokenizer)
    if shards._edition.checksum != checksum:
        raise shards._edition.changed()
    return shards
