"""The methods of `Tokenizer` that need no text: what it is made of, its files, smaller vocabularies of it."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Self, Unpack

import numpy as np
from numpy.typing import NDArray

from gristmill import _core
from gristmill.arguments import (
    NUM_BYTE_TOKENS,
    as_utf8,
    check_special_tokens,
    check_tie_break,
    check_vocab_size,
    show_options,
)
from gristmill.corpus import Corpus, Reading, ReadOptions
from gristmill.count import Words
from gristmill.errors import OptionError, UnknownTokenError, VocabSizeError, warn_user
from gristmill.merge import MergeIds, check_merges, find_ids
from gristmill.notebook import html_table, shortened
from gristmill.pretokenize import resolve_pattern
from gristmill.profile import Profile
from gristmill.progress import ProgressOption
from gristmill.tokenizer.extending import extended_parts
from gristmill.tokenizer.formats import read_tokenizer, write_tokenizer
from gristmill.tokenizer.parts import TokenizerParts
from gristmill.tokenizer.pretrained import read_pretrained
from gristmill.tokenizer.vocabulary import Vocabulary, read_only


class VocabularyMethods:
    """A tokenizer as far as it is a vocabulary with a pattern. Immutable."""

    _parts: TokenizerParts

    def __init__(
        self,
        merges: NDArray[np.integer[Any]] | Sequence[tuple[bytes, bytes]],
        *,
        pattern: str = "gpt2",
        special_tokens: Iterable[str] = (),
        tie_break: str = "greatest-bytes",
        profile: Profile | None = None,
    ) -> None:
        """Build a tokenizer from merges: pairs of bytes, or an (n, 2) array of ids of which row i makes id 256 + i.

        `tie_break` is the rule the merges were learned under; `extended` learns more of them with it.
        """
        # Nothing here may loop over the merges in Python: training 32,000 of them takes no more than 0.2 s in all.
        merge_ids = check_merges(merges if isinstance(merges, np.ndarray) else find_ids(merges))
        specials = check_special_tokens(special_tokens)
        check_vocab_size(NUM_BYTE_TOKENS + len(merge_ids) + len(specials), len(specials))
        vocabulary = Vocabulary.from_merges(merge_ids, specials)
        self._parts = TokenizerParts(vocabulary, resolve_pattern(pattern), check_tie_break(tie_break))
        self._profile = profile

    @classmethod
    def from_parts(cls, parts: TokenizerParts, *, profile: Profile | None = None) -> Self:
        """The tokenizer of any vocabulary: what the readers of files build."""
        check_tie_break(parts.tie_break)
        tokenizer = cls.__new__(cls)
        tokenizer._parts = parts
        tokenizer._profile = profile
        return tokenizer

    @classmethod
    def of_parts(cls, parts: TokenizerParts, *, profile: Profile | None = None) -> Self:
        """Deprecated: the old name of `from_parts`."""
        warn_user("Tokenizer.of_parts() is now called Tokenizer.from_parts().", DeprecationWarning)
        return cls.from_parts(parts, profile=profile)

    # What it is made of

    @property
    def vocab_size(self) -> int:
        """The largest id plus one: the rows an embedding needs. Where ids leave gaps, there are fewer tokens."""
        return self._vocabulary.size

    @property
    def _vocabulary(self) -> Vocabulary:
        return self._parts.vocabulary

    @property
    def parts(self) -> TokenizerParts:
        """The vocabulary, the pattern and the tie-break."""
        return self._parts

    @property
    def pattern(self) -> str:
        """What cuts text into pieces: a name, or the regular expression of a pattern without a name."""
        return str(self._parts.pattern)

    @property
    def tie_break(self) -> str:
        """Which pair wins among equal counts: the rule the merges were learned under, and the default of `extended`.

        The files of other tools do not hold it. A tokenizer loaded from one has the rule passed as `tie_break=`, else
        "greatest-bytes", and `extended` warns that nobody has stated it; `save` and `load` keep it unstated.
        """
        return self._parts.tie_break

    @property
    def profile(self) -> Profile | None:
        """The figures of the training run this tokenizer comes from; not saved, not compared."""
        return self._profile

    @cached_property
    def merge_ids(self) -> MergeIds:
        """The merges as ids, in order: shape (n, 2), row i makes id `merged_ids[i]`. Read-only."""
        return read_only(self._vocabulary.merges[:, :2])

    @cached_property
    def merged_ids(self) -> NDArray[np.uint32]:
        """The ids that the merges make, in order: 256, 257, … unless the tokenizer comes from elsewhere. Read-only."""
        return read_only(self._vocabulary.merges[:, 2])

    @property
    def merges(self) -> list[tuple[bytes, bytes]]:
        """The merges as bytes, in order."""
        tokens = self._vocabulary.tokens
        if self._vocabulary.is_plain:
            return _core.build_pairs(self.merge_ids, list(tokens.values()))
        return [(tokens[left], tokens[right]) for left, right in self.merge_ids.tolist()]

    @property
    def special_tokens(self) -> dict[str, int]:
        """The special tokens with their ids."""
        return dict(self._vocabulary.special_tokens)

    @property
    def vocab(self) -> dict[int, bytes]:
        """The bytes of every id, special tokens among them, in the order of the ids."""
        specials = {id: special.encode() for special, id in self._vocabulary.special_tokens.items()}
        vocab = self._vocabulary.tokens | specials
        return vocab if self._vocabulary.is_plain else dict(sorted(vocab.items()))

    @cached_property
    def fingerprint(self) -> str:
        """The SHA-256 of all that affects ids: the same on every machine and in every version."""
        return self._parts.fingerprint()

    def id_of(self, token: str | bytes) -> int:
        """The id of the token with these bytes; where a special token has the bytes of a plain one, the plain one's.

        >>> from gristmill import Tokenizer
        >>> Tokenizer([(b"l", b"o")], special_tokens=["<s>"]).id_of("<s>")
        257
        """
        data = as_utf8(token, "the token")
        id = self._id_of_token.get(data)
        if id is None:
            id = self._vocabulary.special_tokens.get(data.decode("utf-8", "replace"))
        if id is None:
            raise UnknownTokenError(f"{token!r} is not a token of this tokenizer; encode() gives the ids of any text.")
        return id

    @cached_property
    def _id_of_token(self) -> dict[bytes, int]:
        return {token: id for id, token in self._vocabulary.tokens.items()}

    # What can be made of it

    def truncated(self, vocab_size: int) -> Self:
        """The tokenizer of a smaller vocabulary: what training with this `vocab_size` would have given.

        Special tokens stay last, so **their ids move down**; all other ids stay.

        >>> from gristmill import Tokenizer
        >>> Tokenizer([(b"l", b"o"), (b"lo", b"w")], special_tokens=["<s>"]).truncated(258).special_tokens
        {'<s>': 257}
        """
        specials = list(self._vocabulary.special_tokens)
        if not self._vocabulary.is_plain:
            raise OptionError(
                "this tokenizer keeps the ids of the tool it comes from, and a smaller one would need others. "
                "Only tokenizers with Gristmill's own ids (bytes, merges, specials) can be truncated."
            )
        size = check_vocab_size(vocab_size, len(specials))
        if size > self.vocab_size:
            raise VocabSizeError(
                f"vocab_size={size} is larger than that of the tokenizer, {self.vocab_size}. "
                f"Pass a smaller one, or learn more merges with extended()."
            )
        vocabulary = Vocabulary.from_merges(self.merge_ids[: size - NUM_BYTE_TOKENS - len(specials)], specials)
        return type(self).from_parts(dataclasses.replace(self._parts, vocabulary=vocabulary))

    @show_options(ReadOptions, Reading(documents="file").options())
    def extended(
        self,
        corpus: Corpus | Words,
        *,
        vocab_size: int,
        tie_break: str | None = None,
        min_frequency: int = 1,
        max_token_bytes: int | None = None,
        memory_limit: int | None = None,
        num_threads: int | None = None,
        progress: ProgressOption = "auto",
        **reading: Unpack[ReadOptions],
    ) -> Self:
        """The tokenizer of a larger vocabulary: the merges of this one, then those that `corpus` teaches after them.

        On the corpus that this tokenizer was trained on, this is what training with this `vocab_size` would have given.
        Special tokens stay last, so **their ids move up**; all other ids stay. A tokenizer that keeps the ids of
        another tool keeps all of them, and new tokens get the ids from its `vocab_size` on.

        tie_break: which pair wins among equal counts. Default: the rule of this tokenizer, with a `FormatWarning` where
            it was loaded from a file that does not state one.
        corpus, the other options: as in `train_tokenizer`.

        >>> from gristmill import Tokenizer
        >>> Tokenizer([(b"l", b"o")]).extended(["low low lower"], vocab_size=258, progress=None).merges
        [(b'l', b'o'), (b'lo', b'w')]
        """
        parts, profile = extended_parts(
            self._parts,
            corpus,
            vocab_size=vocab_size,
            tie_break=tie_break,
            max_token_bytes=max_token_bytes,
            progress=progress,
            min_frequency=min_frequency,
            memory_limit=memory_limit,
            num_threads=num_threads,
            reading=reading,
        )
        return type(self).from_parts(parts, profile=profile)

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = True) -> None:
        """Write the tokenizer to `path` as Gristmill JSON; an existing file is replaced whole or not at all.

        A symbolic link is replaced, not followed. With `overwrite=False` an existing file is FileExistsError.
        """
        self.export(path, format="gristmill", overwrite=overwrite)

    def export(
        self, path: str | os.PathLike[str], *, format: str, overwrite: bool = True, **options: Any
    ) -> list[Path]:
        """Write the tokenizer to `path` in the format of another tool, and return the files written.

        What a format cannot hold is an error or a warning, never silently left out; docs/formats.md has the table.
        """
        return write_tokenizer(self._parts, path, format=format, overwrite=overwrite, **options)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        format: str = "auto",
        pattern: str | None = None,
        special_tokens: Mapping[str, int] | Sequence[str] | None = None,
        tie_break: str | None = None,
    ) -> Self:
        """The tokenizer in the file or folder at `path`; `TokenizerFormatError` when it does not hold a sound one.

        `pattern`, `special_tokens` and `tie_break` are for formats that do not hold them; only Gristmill's own format
        holds `tie_break`. Nothing in the file is executed.
        """
        return cls.from_parts(
            read_tokenizer(path, format, pattern=pattern, special_tokens=special_tokens, tie_break=tie_break)
        )

    @classmethod
    def from_pretrained(
        cls,
        name: str | os.PathLike[str],
        *,
        revision: str | None = None,
        pattern: str | None = None,
        special_tokens: Mapping[str, int] | Sequence[str] | None = None,
        tie_break: str | None = None,
    ) -> Self:
        """The tokenizer in a folder, or of this name on the Hugging Face Hub (needs the package `huggingface_hub`).

        A path that is there is read; only a name that is no path is looked up on the Hub, and only the files of
        tokenizers are downloaded. Nothing in them is executed.

        revision: a branch, tag or commit on the Hub.
        pattern, special_tokens, tie_break: as in `load`.
        """
        return cls.from_parts(
            read_pretrained(
                name, revision=revision, pattern=pattern, special_tokens=special_tokens, tie_break=tie_break
            )
        )

    @classmethod
    def from_tiktoken(cls, encoding: Any, *, tie_break: str | None = None) -> Self:
        """The tokenizer of a `tiktoken.Encoding`, or of the name of one: the same ids for every text.

        tie_break: the rule its merges were learned under, for `extended`.
        """
        from gristmill.tokenizer.formats.tiktoken import from_encoding

        return cls.from_parts(from_encoding(encoding).with_tie_break(tie_break))

    @classmethod
    def from_huggingface(cls, tokenizer: Any, *, tie_break: str | None = None) -> Self:
        """The tokenizer of a `tokenizers.Tokenizer`, or of the path of a `tokenizer.json` or of its folder.

        tie_break: the rule its merges were learned under, for `extended`: "huggingface" for one that the library
            tokenizers trained.
        """
        if isinstance(tokenizer, str | os.PathLike):
            return cls.load(tokenizer, format="huggingface", tie_break=tie_break)
        from gristmill.tokenizer.formats.huggingface import from_object

        return cls.from_parts(from_object(tokenizer).with_tie_break(tie_break))

    def to_tiktoken(self, name: str = "gristmill") -> Any:
        """The `tiktoken.Encoding` that gives the same ids."""
        from gristmill.tokenizer.formats.tiktoken import to_encoding

        return to_encoding(self._parts, name)

    def to_huggingface(self) -> Any:
        """The `tokenizers.Tokenizer` that gives the same ids."""
        from gristmill.tokenizer.formats.huggingface import to_object

        return to_object(self._parts)

    # How Python sees it

    def __eq__(self, other: object) -> bool:
        """Whether both have the same tokens, ids, pattern and `tie_break`, stated or not."""
        return self._parts == other._parts if isinstance(other, VocabularyMethods) else NotImplemented

    def __hash__(self) -> int:
        return hash((self.fingerprint, self.tie_break))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).from_parts, (self._parts,)

    def __len__(self) -> int:
        """The number of tokens, special ones among them. `vocab_size` is larger where ids leave gaps.

        >>> from gristmill import Tokenizer
        >>> len(Tokenizer([(b"l", b"o")], special_tokens=["<s>"]))
        258
        """
        return len(self._vocabulary.tokens) + len(self._vocabulary.special_tokens)

    def __repr__(self) -> str:
        return (
            f"<Tokenizer: vocab_size {self.vocab_size:,}, pattern {shortened(self.pattern)!r}, "
            f"special_tokens [{self._shown_specials()}]>"
        )

    def _repr_html_(self) -> str:
        """What notebooks show."""
        rows = [
            ("vocab_size", f"{self.vocab_size:,}"),
            ("tokens", f"{len(self):,}"),
            ("merges", f"{len(self.merge_ids):,}"),
            ("special tokens", self._shown_specials() or "none"),
            ("pattern", shortened(self.pattern)),
            ("tie_break", self.tie_break + " (not stated by its file)" * (not self._parts.states_tie_break)),
            ("fingerprint", self.fingerprint[:12] + "…"),
        ]
        return html_table("Tokenizer", rows)

    def _shown_specials(self) -> str:
        specials = list(self._vocabulary.special_tokens)
        return ", ".join(repr(shortened(special)) for special in specials[:3]) + ", …" * (len(specials) > 3)
