r"""The classes of minbpe: `BasicTokenizer`, `RegexTokenizer`, `GPT4Tokenizer`, and `OptimizedRegexTokenizer`.

>>> tokenizer = BasicTokenizer()
>>> tokenizer.train("aaabdaaabac", 256 + 3)
>>> tokenizer.encode("aaabdaaabac")
[258, 100, 258, 97, 99]
>>> tokenizer.merges
{(97, 97): 256, (256, 97): 257, (257, 98): 258}

Merges, ids and `.model` files are identical to minbpe's. Differences:

* `train` stops early with an `EarlyStopWarning` where minbpe fails because no pair is left;
* errors are Gristmill's, most of them `ValueError`, where minbpe asserts; an unknown id in `decode` is a `KeyError` in
  every class;
* `vocab` has bytes and merges, never the special tokens, which minbpe adds in `load` but not in `train`; in
  `GPT4Tokenizer` it has the true bytes, where minbpe has them in the order of tiktoken's ids;
* of special tokens that overlap, the longest wins; minbpe takes the one registered first;
* text that the pattern does not match becomes a piece; minbpe drops it.
"""

from __future__ import annotations

import dataclasses
import importlib.resources
import os
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gristmill.arguments import as_utf8, check_min_frequency, check_num_threads, check_vocab_size
from gristmill.compat.specials import with_special_tokens
from gristmill.count.words import Words
from gristmill.encode.tokenizer import Tokenizer
from gristmill.errors import OptionError, SpecialTokenError
from gristmill.pretokenize.patterns import WHOLE_TEXT, Pattern, resolve_pattern
from gristmill.publish import publish
from gristmill.tokenizer.formats import TokenizerParts, read_tokenizer, write_tokenizer
from gristmill.tokenizer.formats.content import read_content
from gristmill.tokenizer.formats.minbpe import dump_vocab
from gristmill.tokenizer.formats.tiktoken import PUBLISHED, parse_ranks
from gristmill.tokenizer.vocabulary import Vocabulary
from gristmill.train import train_tokenizer

__all__ = [
    "GPT2_SPLIT_PATTERN",
    "GPT4_SPECIAL_TOKENS",
    "GPT4_SPLIT_PATTERN",
    "BasicTokenizer",
    "GPT4Tokenizer",
    "OptimizedRegexTokenizer",
    "RegexTokenizer",
]

GPT2_SPLIT_PATTERN = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
GPT4_SPLIT_PATTERN = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
)
GPT4_SPECIAL_TOKENS = dict(PUBLISHED["cl100k_base"][1])


class _MinbpeTokenizer:
    """Base class of the tokenizers; a `gristmill.Tokenizer` does the work."""

    def __init__(self, pattern: str) -> None:
        self._begin_with(pattern, Tokenizer((), pattern=pattern or WHOLE_TEXT, tie_break="first-seen"))

    def _begin_with(self, pattern: str, tokenizer: Tokenizer) -> None:
        self._pattern = pattern
        self._tokenizer = tokenizer

    @property
    def tokenizer(self) -> Tokenizer:
        """The underlying tokenizer, for everything that minbpe does not have."""
        return self._tokenizer

    @property
    def pattern(self) -> str:
        """The regular expression that cuts text into pieces, as given; empty for `BasicTokenizer`."""
        return self._pattern

    @property
    def merges(self) -> dict[tuple[int, int], int]:
        """The merges in the order in which they were learned: (left id, right id) -> new id."""
        rows = self._tokenizer.parts.vocabulary.merges.tolist()
        return {(left, right): made for left, right, made in rows}

    @property
    def vocab(self) -> dict[int, bytes]:
        """The bytes of every id, without special tokens."""
        return dict(sorted(self._tokenizer.parts.vocabulary.tokens.items()))

    @property
    def special_tokens(self) -> dict[str, int]:
        """The special tokens with their ids."""
        return self._tokenizer.special_tokens

    @property
    def inverse_special_tokens(self) -> dict[int, str]:
        """The special tokens by their ids."""
        return {id: special for special, id in self._tokenizer.special_tokens.items()}

    def register_special_tokens(self, special_tokens: Mapping[str, int]) -> None:
        """Replace the special tokens by these, at these ids.

        >>> tokenizer = RegexTokenizer()
        >>> tokenizer.register_special_tokens({"<|endoftext|>": 100257})
        >>> tokenizer.encode("a<|endoftext|>", allowed_special="all")
        [97, 100257]
        """
        self._tokenizer = with_special_tokens(self._tokenizer, special_tokens)

    def train(self, text: str | bytes, vocab_size: int, verbose: bool = False) -> None:
        """Learn `vocab_size` - 256 merges from `text`; special tokens do not count.

        `verbose` prints the merges, without the counts of the pairs.
        """
        trained = self._learn(text, check_vocab_size(vocab_size, 0))
        self._tokenizer = with_special_tokens(trained, self.special_tokens)
        if verbose:
            vocab = self.vocab
            for i, (pair, id) in enumerate(self.merges.items()):
                print(f"merge {i + 1}/{vocab_size - 256}: {pair} -> {id} ({vocab[id]!r})")

    def _learn(self, text: str | bytes, vocab_size: int) -> Tokenizer:
        data = as_utf8(text, "the text")
        options = {"tie_break": "first-seen", "progress": None, **self._training_options()}
        if self._pattern:
            return train_tokenizer(
                iter([data]), vocab_size=vocab_size, pattern=self._pattern, special_tokens=(), **options
            )
        # The whole text is one word, so no worker processes are needed, unlike for other custom patterns.
        words = Words.from_counts({data: 1} if data else {}, pattern=WHOLE_TEXT, special_tokens=())
        return train_tokenizer(words, vocab_size=vocab_size, **options)

    def _training_options(self) -> dict[str, Any]:
        return {}

    def encode(self, text: str | bytes, allowed_special: str | Collection[str] = "none_raise") -> list[int]:
        """Return the ids of `text`.

        allowed_special: "all" (special tokens become their ids), "none" (they are plain text), "none_raise" (they raise
        an error), or a set of special tokens that become their ids, while the others are plain text.
        """
        if allowed_special == "none_raise":
            return self._encode_without_specials(text)
        if allowed_special == "none":
            return self._tokenizer.encode_ordinary(text)
        if allowed_special == "all":
            return self._tokenizer.encode(text, allowed_special="all")
        if isinstance(allowed_special, str) or not isinstance(allowed_special, Collection):
            raise OptionError(
                f"allowed_special must be 'all', 'none', 'none_raise' or a set of special tokens, got "
                f"{allowed_special!r}."
            )
        known = self._tokenizer.special_tokens
        allowed = [special for special in allowed_special if special in known]
        return self._tokenizer.encode(text, allowed_special=allowed, disallowed_special=())

    def _encode_without_specials(self, text: str | bytes) -> list[int]:
        try:
            return self._tokenizer.encode(text, disallowed_special="all")
        except SpecialTokenError:
            data = as_utf8(text, "the text")
            special = next(special for special in self.special_tokens if special.encode() in data)
            raise SpecialTokenError(
                f"the text spells out the special token {special!r}, which is not allowed. Pass "
                f"allowed_special={{{special!r}}} to encode it as its id, or allowed_special='none' to encode it as "
                f"plain text."
            ) from None

    def encode_ordinary(self, text: str | bytes) -> list[int]:
        """Return the ids of `text`; special tokens are plain text."""
        return self._tokenizer.encode_ordinary(text)

    def decode(self, ids: Iterable[int] | NDArray[np.integer[Any]]) -> str:
        """Return the text of `ids`; invalid UTF-8 becomes U+FFFD."""
        return self._tokenizer.decode(ids)

    def save(self, file_prefix: str | os.PathLike[str]) -> None:
        """Write `file_prefix`.model, which `load` reads, and `file_prefix`.vocab, for people."""
        parts = self._tokenizer.parts
        if self._pattern:  # as given, not under Gristmill's name for it
            parts = dataclasses.replace(parts, pattern=Pattern(self._pattern, parts.pattern.name))
        write_tokenizer(parts, f"{os.fspath(file_prefix)}.model", format="minbpe")

    def load(self, model_file: str | os.PathLike[str]) -> None:
        """Load the tokenizer that `save`, or minbpe, wrote to `model_file`."""
        parts = read_tokenizer(model_file, "minbpe")
        pattern = read_content(Path(model_file)).decode().split("\n", 2)[1].strip()
        self._begin_with(pattern, Tokenizer.from_parts(parts.with_tie_break("first-seen")))


class BasicTokenizer(_MinbpeTokenizer):
    """BPE without a pattern: the whole text is one piece, and merges may cross anything in it."""

    def __init__(self) -> None:
        super().__init__("")


class RegexTokenizer(_MinbpeTokenizer):
    """BPE of the pieces that a regular expression cuts; by default minbpe's version of GPT-4's pattern.

    Both patterns of minbpe, and all others that Gristmill knows, run natively.
    """

    def __init__(self, pattern: str | None = None) -> None:
        super().__init__(GPT4_SPLIT_PATTERN if pattern is None else pattern)


class GPT4Tokenizer(RegexTokenizer):
    """GPT-4's vocabulary, cl100k, with the ids and the special tokens of tiktoken.

    The vocabulary comes from the package bpe_openai if it is installed, otherwise from tiktoken, which may download it.
    """

    def __init__(self) -> None:
        super().__init__()
        vocabulary = Vocabulary.from_ranks(_ranks_of_cl100k(), GPT4_SPECIAL_TOKENS)
        parts = TokenizerParts(vocabulary, resolve_pattern("cl100k"), tie_break="first-seen")
        self._begin_with(parts.pattern.regex, Tokenizer.from_parts(parts))

    def train(self, text: str | bytes, vocab_size: int, verbose: bool = False) -> None:
        """Raise NotImplementedError: the vocabulary is fixed."""
        raise NotImplementedError("GPT4Tokenizer is already trained. Train a RegexTokenizer.")

    def save(self, file_prefix: str | os.PathLike[str]) -> None:
        """Raise NotImplementedError: a .model file cannot record the id of each byte."""
        raise NotImplementedError(
            "a minbpe .model file cannot record GPT-4's ids of bytes. Call .tokenizer.save(path) instead."
        )

    def save_vocab(self, vocab_file: str | os.PathLike[str]) -> None:
        """Write the tokens for people to read. The file cannot be loaded: unprintable bytes are escaped."""
        with publish(vocab_file) as file:
            file.write(dump_vocab(self._tokenizer.parts.vocabulary))

    def load(self, model_file: str | os.PathLike[str]) -> None:
        """Raise NotImplementedError: the vocabulary is fixed."""
        raise NotImplementedError("GPT4Tokenizer already has its vocabulary. Load the file into a RegexTokenizer.")


class OptimizedRegexTokenizer(RegexTokenizer):
    """`RegexTokenizer` with the options of implementations that count with worker processes; also a context manager.

    max_workers: number of training threads. Default: every core this process may use.
    min_freq_threshold: words (distinct pieces) that occur less often are left out of training. It does not apply to
        pairs: a pair of several frequent words is learned even if it is rare.
    batch_size, use_batching: accepted and stored, without effect: the core distributes its work itself.

    There is no pool of processes, so `with` has nothing to close and is optional.
    """

    def __init__(
        self,
        pattern: str | None = None,
        max_workers: int | None = None,
        batch_size: int = 1000,
        min_freq_threshold: int = 1,
        use_batching: bool = True,
    ) -> None:
        super().__init__(pattern)
        self.max_workers = check_num_threads(max_workers)
        self.batch_size = batch_size
        # people pass 0 for no threshold
        self.min_freq_threshold = check_min_frequency(min_freq_threshold or 1)
        self.use_batching = use_batching

    def __enter__(self) -> OptimizedRegexTokenizer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        return None

    def _training_options(self) -> dict[str, Any]:
        return {"min_frequency": self.min_freq_threshold, "num_threads": self.max_workers}


def _ranks_of_cl100k() -> dict[bytes, int]:
    """Return the ranks of GPT-4's tokens, preferably from the package that needs no network."""
    try:
        packed = importlib.resources.files("bpe_openai").joinpath("data", "cl100k_base.tiktoken.gz").read_bytes()
        return parse_ranks(packed)
    except (ImportError, OSError):
        pass
    try:
        import tiktoken

        return dict(tiktoken.get_encoding("cl100k_base")._mergeable_ranks)
    except Exception as error:  # network errors can be of any type
        raise FileNotFoundError(
            f"GPT-4's vocabulary was not found: bpe_openai is not installed, and tiktoken raised "
            f"{type(error).__name__}: {error}. Run `pip install bpe_openai`, or let tiktoken download it once."
        ) from error
