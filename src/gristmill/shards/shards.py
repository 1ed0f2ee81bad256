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

    The folder was made by `encode_corpus` in any format except Parquet, or by nanoGPT, llm.c, Megatron-LM or datatrove.
    A folder of another program has no manifest: properties that only a manifest can state raise `ShardsFormatError`,
    and `tokenizer=` supplies what the tokenizer knows.

    Opening reads only the manifest. A file is mapped on first access, so a folder with ten thousand shards opens at
    once. A `Shards` object is pickled as its path and works in forked and spawned workers. If the shards are replaced
    after they were opened, reading raises `InputChangedError`; it never mixes old and new shards.

    Args:
        folder: The folder of token files.
        split: "train" or "val".
        tokenizer: The tokenizer that made the tokens, or its path, for a folder without a manifest. If the files have
            no index, its end-of-text token separates the documents.

    Raises:
        ShardsFormatError: The folder is unfinished, damaged or not a folder of shards.
        OptionError: The folder has no such split, or `tokenizer` did not make the shards.

    Examples:
        ```python
        shards = gm.Shards("shards/")
        shards[0], shards.decode(0)  # the ids and the text of the first document
        shards.tokens[1_000_000:1_002_048]  # a slice of all tokens: a view of the memory map
        gm.Shards("shards/", split="val")
        shards.other_split("val")  # the same, of exactly these shards
        shards.checksums()  # {"train": ["5a3…"], "val": […]}
        ```
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        split: str = "train",
        tokenizer: Tokenizer | str | os.PathLike[str] | None = None,
    ) -> None:
        """Open one split of a finished folder."""
        self._name = shown(check_path(folder))
        self._folder = Path(folder).absolute()  # files are opened later, and the working directory may change
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

    # Contents

    @property
    def has_manifest(self) -> bool:
        """Whether the folder has a manifest. False for folders that another program made."""
        return not isinstance(self._edition, ForeignEdition)

    @property
    def manifest(self) -> Manifest:
        """The contents of manifest.json. Raises `ShardsFormatError` for a folder that another program made."""
        if not self.has_manifest:
            raise self._unknown("a manifest")
        return self._manifest

    def _unknown(self, what: str, remedy: str = "") -> ShardsFormatError:
        return ShardsFormatError(
            f"{self._name}: these {self._manifest.layout} files were written by another program and do not include "
            f"{what}.{remedy}"
        )

    @property
    def layout(self) -> str:
        """The format of the token files, a key of `gristmill.shards.LAYOUTS`."""
        return self._manifest.layout

    @property
    def splits(self) -> list[str]:
        """Names of the splits in the folder."""
        return list(self._manifest.splits)

    @property
    def vocab_size(self) -> int | None:
        """All ids are below this number. None for a folder without a manifest that was opened without a tokenizer."""
        if self._given is not None:
            return self._given.vocab_size
        return self._manifest.vocab_size if self.has_manifest else None

    @property
    def tokenizer_fingerprint(self) -> str | None:
        """Fingerprint of the tokenizer that made the tokens; None if unknown."""
        if self._given is not None:
            return self._given.fingerprint
        return self._manifest.tokenizer_fingerprint or None

    def checksums(self) -> dict[str, list[str]]:
        """Return the checksum of each token file, by split. Without a manifest, it covers 16 samples of each file."""
        return {name: [entry.xxh64 for entry in split.shards] for name, split in self._manifest.splits.items()}

    @property
    def split(self) -> str:
        """Name of the split: "train" or "val"; "test" only in folders of other programs."""
        return self._split_name

    @property
    def num_tokens(self) -> int:
        """Number of tokens in all documents, including end-of-text ids."""
        return len(self._tokens)

    @property
    def source_bytes(self) -> int:
        """Size of the texts before encoding, in bytes: the denominator of bits per byte."""
        if not self.has_manifest:
            raise self._unknown("the number of bytes of their texts", " `encode_corpus` records it.")
        return self._split.source_bytes

    @property
    def dtype(self) -> np.dtype[Any]:
        """NumPy type of the tokens."""
        return self._tokens.dtype

    @property
    def end_of_text(self) -> EndOfText | None:
        """The end-of-text id after (or before) each document; None if there is no such id.

        Without a manifest, it comes from the tokenizer that was passed.
        """
        if self.has_manifest or self._given is None or not any(map(self._given.special_tokens.__contains__, KNOWN)):
            return self._manifest.end_of_text
        return find_end_of_text(self._given, AUTO, None, self._layout)

    @property
    def paths(self) -> list[Path]:
        """Paths of the token files, in order."""
        return [self._folder / entry.file for entry in self._split.shards]

    def other_split(self, split: str) -> Shards:
        """Return another split of the same shards.

        Args:
            split: The name of the other split.

        Raises:
            OptionError: The folder has no such split.
            InputChangedError: The shards have been replaced since they were opened.
        """
        return _open(str(self._folder), split, self._edition.checksum, self._given)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer that made the shards: the copy in the folder, or the one that was passed."""
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
        """All tokens of all files as one array: `shards.tokens[a:b]`."""
        return self._tokens

    @cached_property
    def document_ends(self) -> NDArray[np.int64]:
        """End of each document, in tokens of the split. Document i starts where i - 1 ends. Takes 8 bytes each."""
        ends = self._ends.all()
        ends.flags.writeable = False
        return ends

    def __len__(self) -> int:
        """Return the number of documents."""
        return len(self._ends)

    @overload
    def __getitem__(self, index: int) -> NDArray[Any]: ...
    @overload
    def __getitem__(self, index: slice) -> list[NDArray[Any]]: ...
    def __getitem__(self, index: int | slice) -> NDArray[Any] | list[NDArray[Any]]:
        """Return the ids of document `index` with its end-of-text id, as a copy; a list of documents for a slice."""
        if isinstance(index, slice):
            return [self._document(i) for i in range(*index.indices(len(self)))]
        return self._document(self._checked(index))

    def span(self, index: int) -> tuple[int, int]:
        """Return where document `index` begins and ends, in tokens of the split.

        `shards.tokens[begin:end]` are its ids. A part of a long document can so be read without the rest.

        Args:
            index: The number of the document; negative numbers count from the end.

        Raises:
            IndexError: There is no such document.
            ShardsFormatError: The index file is damaged.
            InputChangedError: The shards have been replaced since they were opened.

        Examples:
            ```python
            begin, end = shards.span(0)
            shards.tokens[begin : min(end, begin + 100)]  # at most 100 ids of the first document
            ```
        """
        i = self._checked(index)
        return self._checked_span(self._ends.end(i - 1) if i else 0, self._ends.end(i))

    def document_at(self, position: int) -> int:
        """Return the number of the document that contains token `position` of the split.

        Args:
            position: The position of a token in `shards.tokens`; negative positions count from the end.

        Raises:
            IndexError: There is no such token.
            ShardsFormatError: The index file is damaged.
            InputChangedError: The shards have been replaced since they were opened.

        Examples:
            ```python
            shards.document_at(1_000_000)
            ```
        """
        i = operator.index(position)
        if not -self.num_tokens <= i < self.num_tokens:
            raise IndexError(f"token {i} does not exist: {self._split_name!r} has {self.num_tokens:,} tokens.")
        number = self._ends.document_at(i % self.num_tokens)
        if number >= len(self):
            raise ShardsFormatError(
                f"{self._name}: token {i % self.num_tokens:,} is after the end of the last document: an index file is "
                f"damaged. {'verify_shards() names it.' if self.has_manifest else 'Copy the files again.'}"
            )
        return number

    def decode(self, index: int, *, errors: str = "replace") -> str:
        """Return the text of document `index`, without its end-of-text id.

        Args:
            index: The number of the document; negative numbers count from the end.
            errors: How to treat invalid UTF-8; see `Tokenizer.decode`.

        Raises:
            IndexError: There is no such document.
            ShardsFormatError: The index file is damaged, or the tokenizer is missing.
            InputChangedError: The shards have been replaced since they were opened.
        """
        return self.tokenizer.decode(without_end(self[index], self.end_of_text), errors=errors)

    def __iter__(self) -> Iterator[NDArray[Any]]:
        """Yield the documents in order, each as `shards[i]` returns it."""
        begin = 0
        for ends in self._ends.chunks():
            for end in ends.tolist():
                yield self._stretch(begin, end)
                begin = end

    def _checked(self, index: Any) -> int:
        try:
            i = operator.index(index)
        except TypeError:
            raise TypeError(f"documents are indexed by an int or a slice, not {type(index).__name__}.") from None
        if not -len(self) <= i < len(self):
            allowed = f"Pass 0 to {len(self) - 1:,}" if len(self) else "The split is empty"
            raise IndexError(
                f"document {i} does not exist: {self._split_name!r} has {len(self):,} documents. {allowed}."
            )
        return i % len(self)

    def _document(self, i: int) -> NDArray[Any]:
        return self._stretch(self._ends.end(i - 1) if i else 0, self._ends.end(i))

    def _stretch(self, begin: int, end: int) -> NDArray[Any]:
        begin, end = self._checked_span(begin, end)
        # Copied: a list of documents would otherwise keep a memory map (an open file) of each of its shards.
        return self._tokens.stretch(begin, end).copy()

    def _checked_span(self, begin: int, end: int) -> tuple[int, int]:
        if not begin <= end <= self.num_tokens:
            is_past_end = end > self.num_tokens
            why = f"but there are only {self.num_tokens:,}" if is_past_end else "so it ends before it begins"
            raise ShardsFormatError(
                f"{self._name}: a document spans tokens {begin:,} to {end:,}, {why}: an index file is damaged. "
                f"{'verify_shards() names it.' if self.has_manifest else 'Copy the files again.'}"
            )
        return begin, end

    # Special methods

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
        """Whether the number of documents is known without reading the tokens."""
        return self.has_manifest or self._has_index


def load_tokenizer(manifest: Manifest, folder: Path) -> Tokenizer:
    """Return the tokenizer in the folder; raise `ShardsFormatError` if it is not the one that made the shards."""
    from gristmill.encode.tokenizer import Tokenizer

    path = folder / manifest.tokenizer_file
    try:
        tokenizer = Tokenizer.load(path)
    except (OSError, GristmillError) as error:
        raise ShardsFormatError(f"the tokenizer of the shards cannot be read: {error}") from error
    if tokenizer.fingerprint != manifest.tokenizer_fingerprint:
        raise ShardsFormatError(
            f"{path}: not the tokenizer that made the shards: its fingerprint is {tokenizer.fingerprint}, but "
            f"the manifest records {manifest.tokenizer_fingerprint}. Restore the right file."
        )
    return tokenizer


def without_end(ids: NDArray[Any], end_of_text: EndOfText | None) -> NDArray[Any]:
    """Return the ids of a document without its end-of-text id."""
    if end_of_text is None or not len(ids):
        return ids
    if end_of_text.position == "after":
        return ids[:-1] if ids[-1] == end_of_text.id else ids
    return ids[1:] if ids[0] == end_of_text.id else ids


def _read(folder: Path, given: str | os.PathLike[str]) -> tuple[Manifest, Edition]:
    """Return the manifest and the edition of the folder; errors name the folder as the caller spelled it."""
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
    """Return the tokenizer that was passed; raise OptionError if it is not the one in the manifest."""
    from gristmill.encode.tokenizer import as_tokenizer

    if tokenizer is None:
        return None
    given = as_tokenizer(tokenizer)
    if manifest.tokenizer_fingerprint not in ("", given.fingerprint):
        raise OptionError(
            f"tokenizer= is not the tokenizer that made {name}: its fingerprint is {given.fingerprint[:12]}…, but the "
            f"manifest records {manifest.tokenizer_fingerprint[:12]}…. Leave it out: the folder contains a tokenizer."
        )
    return given


def _find_split(manifest: Manifest, split: str, name: str) -> Split:
    if not isinstance(split, str):
        raise TypeError(f"split={split!r} is of type {type(split).__name__}. Pass a str such as 'train'.")
    if split not in manifest.splits:
        there = ", ".join(map(repr, manifest.splits)) or "none"
        hint = " Encode with val_fraction to create one." if split == "val" and manifest.tokenizer_fingerprint else ""
        raise OptionError(f"split={split!r} does not exist in {name} (splits: {there}).{hint}")
    return manifest.splits[split]


def _check_layout(manifest: Manifest, split: Split, name: str) -> Layout:
    layout = layout_of(manifest.layout, manifest.options)
    if not layout.converts:
        needs_index = layout.index_file("tokens", "train", 0) is not None and manifest.tokenizer_fingerprint
        if needs_index and any(entry.index is None for entry in split.shards):
            raise ShardsFormatError(f"{name}: a shard has no index file, which documents need. Encode again.")
        return layout
    path = Path(name) / (split.shards[0].file if split.shards else layout.token_file("tokens", "train", 0))
    raise ShardsFormatError(
        f"{name}: Shards cannot read the layout {manifest.layout!r}, whose tokens are compressed. Read it with "
        f"{layout.how_to_read(str(path), manifest.token_dtype)}, or encode with format='gristmill'."
    )


def _open(folder: str, split: str, checksum: str, tokenizer: Tokenizer | None = None) -> Shards:
    """Reopen pickled shards; raise an error if they have been replaced."""
    shards = Shards(folder, split=split, tokenizer=tokenizer)
    if shards._edition.checksum != checksum:
        raise shards._edition.changed()
    return shards
