"""The methods of `Tokenizer` that need no text: its vocabulary, its files, smaller and larger tokenizers."""

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
    """The part of `Tokenizer` that is a vocabulary with a pattern. Immutable."""

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
        """Build a tokenizer from merges.

        Args:
            merges: Pairs of bytes in the order in which they were learned, or an (n, 2) array of ids, where row i
                creates id 256 + i.
            pattern: Pattern that cuts text into pieces: a name or a regular expression.
            special_tokens: Special tokens. They get the last ids.
            tie_break: Rule that the merges were learned with. `extended` learns more merges with the same rule.
            profile: Profile of the training run.

        Raises:
            TokenizerFormatError: The merges cannot come from BPE training.
            OptionError: Another argument is out of range.
        """
        # No Python loop over the merges is allowed here: training 32,000 of them takes no more than 0.2 s in all.
        merge_ids = check_merges(merges if isinstance(merges, np.ndarray) else find_ids(merges))
        specials = check_special_tokens(special_tokens)
        check_vocab_size(NUM_BYTE_TOKENS + len(merge_ids) + len(specials), len(specials))
        vocabulary = Vocabulary.from_merges(merge_ids, specials)
        self._parts = TokenizerParts(vocabulary, resolve_pattern(pattern), check_tie_break(tie_break))
        self._profile = profile

    @classmethod
    def from_parts(cls, parts: TokenizerParts, *, profile: Profile | None = None) -> Self:
        """Return the tokenizer with these parts. File readers use it to build any vocabulary.

        Args:
            parts: Vocabulary, pattern and tie-break, such as `parts` of another tokenizer.
            profile: Profile of the training run.

        Raises:
            OptionError: The `tie_break` of the parts is unknown.

        Examples:
            >>> from gristmill import Tokenizer
            >>> tok = Tokenizer([(b"l", b"o")])
            >>> Tokenizer.from_parts(tok.parts) == tok
            True
        """
        check_tie_break(parts.tie_break)
        tokenizer = cls.__new__(cls)
        tokenizer._parts = parts
        tokenizer._profile = profile
        return tokenizer

    @classmethod
    def of_parts(cls, parts: TokenizerParts, *, profile: Profile | None = None) -> Self:
        """Deprecated name of `from_parts`.

        Args:
            parts: As in `from_parts`.
            profile: As in `from_parts`.

        Returns:
            The tokenizer.

        Raises:
            OptionError: The `tie_break` of the parts is unknown.

        Examples:
            ```python
            tok = Tokenizer.from_parts(parts)  # instead of Tokenizer.of_parts(parts)
            ```
        """
        warn_user("Tokenizer.of_parts() is deprecated. Use Tokenizer.from_parts().", DeprecationWarning)
        return cls.from_parts(parts, profile=profile)

    # Vocabulary

    @property
    def vocab_size(self) -> int:
        """Largest id plus one: the number of rows of an embedding. Larger than `len(tok)` if the ids have gaps."""
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
        """Pattern that cuts text into pieces: its name, or the regular expression of a pattern without a name."""
        return str(self._parts.pattern)

    @property
    def tie_break(self) -> str:
        """Rule for pairs with equal counts that the merges were learned with, and the default of `extended`.

        Files of other tools do not record it. A tokenizer loaded from one has the rule passed as `tie_break=`, or
        "greatest-bytes" if none was passed; `extended` then warns that the rule is assumed. `save` and `load` preserve
        whether the rule is recorded or assumed.
        """
        return self._parts.tie_break

    @property
    def profile(self) -> Profile | None:
        """Time and memory of the training run; None if the tokenizer was not trained here. Not saved, not compared."""
        return self._profile

    @cached_property
    def merge_ids(self) -> MergeIds:
        """The merges as ids, in order. Shape (n, 2); row i creates id `merged_ids[i]`. Read-only."""
        return read_only(self._vocabulary.merges[:, :2])

    @cached_property
    def merged_ids(self) -> NDArray[np.uint32]:
        """The ids that the merges create, in order: 256, 257, … unless it was loaded from another tool. Read-only."""
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
        """The bytes of every id, including special tokens, in order of id."""
        specials = {id: special.encode() for special, id in self._vocabulary.special_tokens.items()}
        vocab = self._vocabulary.tokens | specials
        return vocab if self._vocabulary.is_plain else dict(sorted(vocab.items()))

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of everything that affects ids, in hexadecimal. Identical on every machine and in every version."""
        return self._parts.fingerprint()

    def id_of(self, token: str | bytes) -> int:
        """Return the id of the token with these bytes.

        If a plain token and a special token have the same bytes, this is the id of the plain token.

        Args:
            token: The token as `str` or `bytes`.

        Raises:
            UnknownTokenError: No token has these bytes. It is also a `KeyError`.
            TextError: `token` is a `str` with lone surrogates.
            TypeError: `token` is neither `str` nor `bytes`.

        Examples:
            >>> from gristmill import Tokenizer
            >>> Tokenizer([(b"l", b"o")], special_tokens=["<s>"]).id_of("<s>")
            257
        """
        data = as_utf8(token, "the token")
        id = self._id_of_token.get(data)
        if id is None:
            id = self._vocabulary.special_tokens.get(data.decode("utf-8", "replace"))
        if id is None:
            raise UnknownTokenError(
                f"{token!r} is not a token of this tokenizer. Use encode() for the ids of any text."
            )
        return id

    @cached_property
    def _id_of_token(self) -> dict[bytes, int]:
        return {token: id for id, token in self._vocabulary.tokens.items()}

    # Smaller and larger tokenizers, files, conversions

    def truncated(self, vocab_size: int) -> Self:
        """Return a smaller tokenizer, identical to one trained with this `vocab_size`.

        Special tokens stay last, so **their ids decrease**; all other ids stay the same.

        Args:
            vocab_size: Number of tokens of the new tokenizer.

        Raises:
            VocabSizeError: `vocab_size` is larger than the tokenizer, or too small for the bytes and special tokens.
            OptionError: The tokenizer has the ids of another tool and cannot be truncated.

        Examples:
            >>> from gristmill import Tokenizer
            >>> Tokenizer([(b"l", b"o"), (b"lo", b"w")], special_tokens=["<s>"]).truncated(258).special_tokens
            {'<s>': 257}
        """
        specials = list(self._vocabulary.special_tokens)
        if not self._vocabulary.is_plain:
            raise OptionError(
                "this tokenizer has the ids of the tool it comes from, which truncating would change. "
                "Only tokenizers with ids in Gristmill's order (bytes, merges, special tokens) can be truncated."
            )
        size = check_vocab_size(vocab_size, len(specials))
        if size > self.vocab_size:
            raise VocabSizeError(
                f"vocab_size={size} is larger than the vocab_size of this tokenizer, {self.vocab_size}. "
                f"Pass a smaller vocab_size, or learn more merges with extended()."
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
        device: str = "auto",
        progress: ProgressOption = "auto",
        **reading: Unpack[ReadOptions],
    ) -> Self:
        """Return a larger tokenizer: the merges of this one, followed by merges learned from `corpus`.

        On the corpus that this tokenizer was trained on, the result is identical to training with this `vocab_size`.
        Special tokens stay last, so **their ids increase**; all other ids stay the same. A tokenizer with the ids of
        another tool keeps all of its ids, and new tokens get the ids from its `vocab_size` on.

        Args:
            corpus: As in `train_tokenizer`.
            vocab_size: Number of tokens of the new tokenizer.
            tie_break: Which pair wins among pairs with equal counts; see `train_tokenizer`. Default: the rule of this
                tokenizer, with a `FormatWarning` if it was loaded from a file that does not record one.
            min_frequency: Ignore words (distinct pieces) that occur fewer times than this.
            max_token_bytes: Maximum length of a token. Default and upper limit: 1 MiB.
            memory_limit: Memory in bytes that counting may use.
            num_threads: Number of threads. Default: all cores available to this process.
            device: Device that counts and merges; see `train_tokenizer`.
            progress: As in `train_tokenizer`.
            **reading: How files are read; see `gristmill.corpus.ReadOptions`.

        Raises:
            OptionError: An argument is out of range, or `vocab_size` is smaller than this tokenizer.
            CorpusError: The corpus is empty, damaged or not a corpus.
            OSError: A file or URL cannot be read, or changed while it was read.
            DeviceError: `device` asks for a GPU that cannot be used, or that failed.

        Examples:
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
            device=device,
            reading=reading,
        )
        return type(self).from_parts(parts, profile=profile)

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = True) -> None:
        """Write the tokenizer to `path` as Gristmill JSON.

        The write is atomic: an existing file is replaced completely or not at all. A symbolic link is replaced, not
        followed.

        Args:
            path: Path of the file to write.
            overwrite: Replace an existing file.

        Raises:
            FileExistsError: The file exists and `overwrite` is False.
            OSError: The file cannot be written.

        Examples:
            ```python
            tok.save("tokenizer.json")
            tok = gm.Tokenizer.load("tokenizer.json")
            ```
        """
        self.export(path, format="gristmill", overwrite=overwrite)

    def export(
        self, path: str | os.PathLike[str], *, format: str, overwrite: bool = True, **options: Any
    ) -> list[Path]:
        """Write the tokenizer to `path` in the format of another tool.

        If the format cannot store part of the tokenizer, a `FormatWarning` is issued. If the ids would differ, an error
        is raised. docs/formats.md lists the limits of each format.

        Args:
            path: Path of the file to write, or of the folder for a format of several files.
            format: "gristmill", "huggingface", "gpt2", "tiktoken", "minbpe" or "gguf".
            overwrite: Replace existing files.
            **options: Options of the format: `bos_token` and `eos_token` for "huggingface" and "gguf"; `pad_token`,
                `model_max_length` and `legacy_merges` for "huggingface"; `pre` for "gguf".

        Returns:
            Paths of the files written, the main file first.

        Raises:
            TokenizerFormatError: The format cannot represent the tokenizer with the same ids.
            OptionError: The format or an option is unknown.
            FileExistsError: A file exists and `overwrite` is False.

        Examples:
            ```python
            tok.export("my-tokenizer", format="huggingface", eos_token="<|endoftext|>")
            ```
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
        """Return the tokenizer in the file or folder at `path`.

        `pattern`, `special_tokens` and `tie_break` are for formats that do not store them. Only Gristmill's own format
        stores `tie_break`. No code from the file is executed.

        Args:
            path: A tokenizer file, or a folder with one.
            format: "auto" to detect it, "gristmill", "huggingface", "gpt2", "tiktoken" or "minbpe".
            pattern: Pattern of a file that does not store it.
            special_tokens: Special tokens of a file that does not store them, with their ids, or as a list that gets
                the ids in the file or the ids after the last one.
            tie_break: Rule that the merges were learned with, for `extended`.

        Raises:
            TokenizerFormatError: The file is not a valid tokenizer, or contradicts `pattern` or `special_tokens`.
            OptionError: An argument is out of range, or the file records another `tie_break`.
            OSError: The file cannot be read.

        Examples:
            ```python
            tok = gm.Tokenizer.load("tokenizer.json")
            gpt4 = gm.Tokenizer.load("cl100k_base.tiktoken")
            ```
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
        """Return the tokenizer in a folder, or of a model on the Hugging Face Hub (needs `huggingface_hub`).

        An existing path is read. Any other name is looked up on the Hub, which downloads only the tokenizer files. No
        code from them is executed.

        Args:
            name: Path of a folder or file, or a name on the Hub such as "openai-community/gpt2".
            revision: Branch, tag or commit on the Hub.
            pattern: As in `load`.
            special_tokens: As in `load`.
            tie_break: As in `load`.

        Raises:
            FileNotFoundError: `name` is neither a path nor a name on the Hub, or the download failed.
            MissingPackageError: `huggingface_hub` is not installed.
            TokenizerFormatError: The files are not a valid tokenizer.
            OptionError: An argument is out of range or does not apply.

        Examples:
            ```python
            gpt2 = gm.Tokenizer.from_pretrained("openai-community/gpt2")
            ```
        """
        return cls.from_parts(
            read_pretrained(
                name, revision=revision, pattern=pattern, special_tokens=special_tokens, tie_break=tie_break
            )
        )

    @classmethod
    def from_tiktoken(cls, encoding: Any, *, tie_break: str | None = None) -> Self:
        """Return the tokenizer of a `tiktoken.Encoding`, with the same ids for every text.

        Args:
            encoding: A `tiktoken.Encoding`, or its name, which tiktoken looks up in its cache or downloads.
            tie_break: Rule that the merges were learned with, for `extended`.

        Raises:
            TypeError: `encoding` is neither an encoding nor a name.
            MissingPackageError: A name was passed and tiktoken is not installed.
            TokenizerFormatError: The vocabulary is not byte-level BPE.
            OptionError: `tie_break` is unknown.

        Examples:
            ```python
            gpt4 = gm.Tokenizer.from_tiktoken("cl100k_base")
            ```
        """
        from gristmill.tokenizer.formats.tiktoken import from_encoding

        return cls.from_parts(from_encoding(encoding).with_tie_break(tie_break))

    @classmethod
    def from_huggingface(cls, tokenizer: Any, *, tie_break: str | None = None) -> Self:
        """Return the tokenizer of a Hugging Face tokenizer, with the same ids for every text.

        Args:
            tokenizer: A `tokenizers.Tokenizer`, a fast tokenizer of transformers, or the path of a `tokenizer.json` or
                its folder.
            tie_break: Rule that the merges were learned with, for `extended`. Pass "huggingface" if the library
                tokenizers trained it.

        Raises:
            TypeError: `tokenizer` is none of these.
            TokenizerFormatError: The tokenizer is not byte-level BPE, or changes text in a way Gristmill does not.
            OptionError: `tie_break` is unknown.

        Examples:
            ```python
            tok = gm.Tokenizer.from_huggingface("my-model/tokenizer.json")
            ```
        """
        if isinstance(tokenizer, str | os.PathLike):
            return cls.load(tokenizer, format="huggingface", tie_break=tie_break)
        from gristmill.tokenizer.formats.huggingface import from_object

        return cls.from_parts(from_object(tokenizer).with_tie_break(tie_break))

    def to_tiktoken(self, name: str = "gristmill") -> Any:
        """Return a `tiktoken.Encoding` that gives the same ids.

        Args:
            name: Name of the encoding.

        Raises:
            MissingPackageError: tiktoken is not installed.
            TokenizerFormatError: tiktoken would give other ids.

        Examples:
            ```python
            encoding = tok.to_tiktoken("my-tokenizer")
            ```
        """
        from gristmill.tokenizer.formats.tiktoken import to_encoding

        return to_encoding(self._parts, name)

    def to_huggingface(self) -> Any:
        """Return a `tokenizers.Tokenizer` that gives the same ids.

        Raises:
            MissingPackageError: tokenizers is not installed.
            TokenizerFormatError: tokenizers would give other ids.

        Examples:
            ```python
            tokenizer = tok.to_huggingface()
            ```
        """
        from gristmill.tokenizer.formats.huggingface import to_object

        return to_object(self._parts)

    # Special methods

    def __eq__(self, other: object) -> bool:
        """Whether both have the same tokens, ids, pattern and `tie_break`, recorded or assumed."""
        return self._parts == other._parts if isinstance(other, VocabularyMethods) else NotImplemented

    def __hash__(self) -> int:
        return hash((self.fingerprint, self.tie_break))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).from_parts, (self._parts,)

    def __len__(self) -> int:
        """Return the number of tokens, including special tokens. `vocab_size` is larger if the ids have gaps.

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
        """Return the HTML that notebooks show."""
        rows = [
            ("vocab_size", f"{self.vocab_size:,}"),
            ("tokens", f"{len(self):,}"),
            ("merges", f"{len(self.merge_ids):,}"),
            ("special tokens", self._shown_specials() or "none"),
            ("pattern", shortened(self.pattern)),
            ("tie_break", self.tie_break + " (assumed: not in its file)" * (not self._parts.states_tie_break)),
            ("fingerprint", self.fingerprint[:12] + "…"),
        ]
        return html_table("Tokenizer", rows)

    def _shown_specials(self) -> str:
        specials = list(self._vocabulary.special_tokens)
        return ", ".join(repr(shortened(special)) for special in specials[:3]) + ", …" * (len(specials) > 3)
