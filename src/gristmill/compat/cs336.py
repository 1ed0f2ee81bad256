r"""The interface of assignment 1 of Stanford's CS336: `train_bpe` and `Tokenizer`.

>>> vocab = {0: b" ", 1: b"a", 2: b"c", 3: b"e", 4: b"h", 5: b"t", 6: b"th", 7: b" c", 8: b" a", 9: b"the", 10: b" at"}
>>> merges = [(b"t", b"h"), (b" ", b"c"), (b" ", b"a"), (b"th", b"e"), (b" a", b"t")]
>>> Tokenizer(vocab, merges).encode("the cat ate")
[9, 7, 1, 5, 10, 3]

The merges are those of the course's reference: GPT-2's pattern, and of equally frequent pairs the greater one.
Differences from most solutions:

* `encode_iterable` returns the ids of the whole text, wherever its parts are cut; encoding them one by one does not;
* `from_files` reads no pickle, unless `allow_pickle=True` allows it;
* errors are Gristmill's: a missing token is a `KeyError`, most others are `ValueError`.
"""

from __future__ import annotations

import io
import os
import pickle
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from gristmill.arguments import NUM_BYTE_TOKENS, check_special_tokens
from gristmill.encode import tokenizer as core
from gristmill.errors import TokenizerFormatError, UnknownTokenError
from gristmill.pretokenize.patterns import resolve_pattern
from gristmill.tokenizer.formats import TokenizerParts
from gristmill.tokenizer.formats.byte_alphabet import CHARACTER_OF, unspell
from gristmill.tokenizer.formats.content import parse_json, read_content
from gristmill.tokenizer.formats.gpt2 import read_merges
from gristmill.tokenizer.vocabulary import Vocabulary
from gristmill.train import train_tokenizer

__all__ = ["Tokenizer", "train_bpe"]

# GPT-2 numbers the bytes in the order of the characters that represent them.
BYTE_ORDER = sorted(range(NUM_BYTE_TOKENS), key=CHARACTER_OF.__getitem__)

# A list of pairs of tokens. A merges.txt begins like this only if its first merge is of brackets.
_JSON_PAIRS = re.compile(rb'\s*\[\s*\[\s*["\[]')

# Usual names of the number of workers in the `kwargs` of train_bpe.
_NUM_WORKERS = ("num_threads", "num_processes", "num_workers", "max_workers", "n_jobs")


def train_bpe(
    input_path: str | os.PathLike[str], vocab_size: int, special_tokens: Sequence[str] | None = None, **kwargs: Any
) -> tuple[dict[int, bytes], list[tuple[bytes, bytes]]]:
    """Return (vocabulary, merges) of the file at `input_path`, with `vocab_size` tokens in total.

    Ids are assigned as in the course's reference: first the special tokens, then the 256 bytes in GPT-2's order, then
    the merges. Of `kwargs`, a number of workers (`num_processes`, `num_workers`, …) becomes the number of threads, and
    everything else is ignored.
    """
    num_threads = next((kwargs[name] for name in _NUM_WORKERS if kwargs.get(name) is not None), None)
    trained = train_tokenizer(
        Path(input_path),
        vocab_size=vocab_size,
        special_tokens=special_tokens or (),
        num_threads=num_threads,
        progress=None,
        input_format="text",  # for any suffix: the course reads every file as text
    )
    tokens = [special.encode() for special in trained.special_tokens]
    tokens += [bytes([byte]) for byte in BYTE_ORDER]
    tokens += [left + right for left, right in trained.merges]
    return dict(enumerate(tokens)), trained.merges


class Tokenizer:
    """Encodes and decodes with a vocabulary and merges from any source."""

    def __init__(
        self,
        vocab: Mapping[int, bytes],
        merges: Iterable[tuple[bytes, bytes]],
        special_tokens: Sequence[str] | None = None,
    ) -> None:
        """Build a tokenizer; special tokens that are not in `vocab` get the next ids.

        Special tokens are always recognised in text; of overlapping ones, the longest. A token of `vocab` that no merge
        makes, such as "<|endoftext|>" when it is not among `special_tokens`, is decoded but never produced by encoding.
        """
        id_of: dict[bytes, int] = {}
        for id, token in vocab.items():
            if id_of.setdefault(token, id) != id:
                raise TokenizerFormatError(
                    f"ids {id_of[token]} and {id} of the vocabulary have the same token: {token!r}."
                )
        next_id = max(vocab, default=-1) + 1
        self._special_tokens = check_special_tokens(special_tokens or ())
        specials: dict[str, int] = {}
        for special in self._special_tokens:
            specials[special] = id_of.pop(special.encode(), next_id)
            next_id += specials[special] == next_id
        # The vocabulary of an exercise may lack bytes. They get internal ids, and encoding text that contains them
        # raises an error.
        self._first_missing = next_id
        for byte in range(NUM_BYTE_TOKENS):
            if bytes([byte]) not in id_of:
                id_of[bytes([byte])] = next_id
                next_id += 1
        self._lacks_bytes = next_id > self._first_missing
        vocabulary = Vocabulary.from_pairs(id_of, merges, specials)
        self._tokenizer = core.Tokenizer.from_parts(
            TokenizerParts(vocabulary, resolve_pattern("gpt2"), tie_break="greatest-bytes")
        )
        # Allocate the encoder, its cache and its buffers now, so that `encode_iterable` needs no memory later.
        for _ in self._tokenizer.encode_iterable(_WARM_UP, allowed_special="all"):
            pass

    @classmethod
    def from_files(
        cls,
        vocab_filepath: str | os.PathLike[str],
        merges_filepath: str | os.PathLike[str],
        special_tokens: Sequence[str] | None = None,
        *,
        allow_pickle: bool = False,
    ) -> Tokenizer:
        """Return the tokenizer of two files.

        vocab_filepath: JSON: either {token: id}, as in GPT-2's vocab.json, or {id: token}. Tokens are written in
            GPT-2's alphabet or as lists of byte values.
        merges_filepath: GPT-2's merges.txt, with or without "#version" on its first line, or a JSON list of pairs.
        allow_pickle: whether either may be a pickle. Even then nothing in it is executed: only dicts, lists, tuples,
            bytes, str and int are read; anything else is an error.
        """
        return cls(
            _in_file(vocab_filepath, _read_vocab, allow_pickle),
            _in_file(merges_filepath, _read_merges, allow_pickle),
            special_tokens,
        )

    @property
    def tokenizer(self) -> core.Tokenizer:
        """The underlying tokenizer, for everything that the course does not require."""
        return self._tokenizer

    @property
    def vocab(self) -> dict[int, bytes]:
        """The bytes of every id, including special tokens."""
        return {id: token for id, token in self._tokenizer.vocab.items() if id < self._first_missing}

    @property
    def merges(self) -> list[tuple[bytes, bytes]]:
        """The merges in order."""
        return self._tokenizer.merges

    @property
    def special_tokens(self) -> list[str]:
        """The special tokens."""
        return list(self._special_tokens)

    def encode(self, text: str) -> list[int]:
        """Return the ids of `text`."""
        ids = self._tokenizer.encode(text, allowed_special="all")
        return list(self._checked(ids)) if self._lacks_bytes else ids

    def encode_iterable(self, iterable: Iterable[str]) -> Iterator[int]:
        """Yield the ids of the joined texts of `iterable`.

        Needs a megabyte of memory for text of any length, and starts no thread.
        """
        ids = self._tokenizer.encode_iterable(iterable, allowed_special="all")
        return self._checked(ids) if self._lacks_bytes else ids

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of `ids`; invalid UTF-8 becomes U+FFFD."""
        if self._lacks_bytes:
            ids = list(ids)
            unknown = [id for id in ids if id >= self._first_missing]
            if unknown:
                raise UnknownTokenError(f"no token has id {unknown[0]}. Ids are 0 to {self._first_missing - 1}.")
        return self._tokenizer.decode(ids)

    def _checked(self, ids: Iterable[int]) -> Iterator[int]:
        for id in ids:
            if id >= self._first_missing:
                raise UnknownTokenError(
                    f"the text contains the byte {self._tokenizer.token_bytes(id)!r}, which the vocabulary lacks. "
                    f"Pass a vocabulary with all 256 bytes."
                )
            yield id


# Pieces of every length and kind, twice, so that cache hits occur too, and parts that end inside a piece.
_WARM_UP = [" the 123 'll  \n\n\u4e2d" + "x" * 300 + " " * 300, "é" * 3000 + "\n", *[" a b c\n"] * 2000] * 2


class _PlainUnpickler(pickle.Unpickler):
    """Reads builtin containers, bytes, str and numbers; refuses a pickle that names any class or function."""

    def find_class(self, module: str, name: str) -> Any:
        raise TokenizerFormatError(
            f"the pickle needs {module}.{name}; only dict, list, tuple, bytes, str and int are allowed."
        )


def _in_file(path: str | os.PathLike[str], read: Callable[[Any], Any], allow_pickle: bool) -> Any:
    """Return what `read` makes of the content of a file; raise `TokenizerFormatError` with the file name if invalid."""
    try:
        data = read_content(Path(path))
        if not data.startswith(b"\x80"):
            return read(data)
        if not allow_pickle:
            raise TokenizerFormatError("the file is a pickle. Pass allow_pickle=True to read it, or save it as JSON.")
        return read(_PlainUnpickler(io.BytesIO(data)).load())
    except OSError:
        raise
    except Exception as error:  # a damaged pickle can raise any exception
        message = str(error).removeprefix(f"{os.fspath(path)}: ") or type(error).__name__
        raise TokenizerFormatError(f"{os.fspath(path)}: {message}") from error


def _read_vocab(content: Any) -> dict[int, bytes]:
    """Return the vocabulary in the bytes of a JSON file, or in the content of a pickle."""
    if isinstance(content, bytes):
        content = parse_json(content)
    if not isinstance(content, dict) or not content:
        raise TokenizerFormatError("the vocabulary is not a dict of tokens and ids.")
    vocab: dict[int, bytes] = {}
    for key, value in content.items():
        id, token = (value, key) if type(value) is int else (int(key), value)
        if id in vocab:
            raise TokenizerFormatError(f"id {id} occurs twice.")
        vocab[id] = _read_token(token)
    return vocab


def _read_merges(content: Any) -> list[tuple[bytes, bytes]]:
    """Return the merges in the bytes of a text or JSON file, or in the content of a pickle."""
    if isinstance(content, bytes):
        content = parse_json(content) if _JSON_PAIRS.match(content) else list(read_merges(content))
    if not isinstance(content, list | tuple):
        raise TokenizerFormatError("the merges are not a list of pairs.")
    merges: list[tuple[bytes, bytes]] = []
    for i, pair in enumerate(content):
        if not isinstance(pair, list | tuple) or len(pair) != 2:
            raise TokenizerFormatError(f"merge {i} is {pair!r:.80} instead of a pair of tokens.")
        merges.append((_read_token(pair[0]), _read_token(pair[1])))
    return merges


def _read_token(token: Any) -> bytes:
    if isinstance(token, bytes):
        return token
    if isinstance(token, list):
        return bytes(token)
    if not isinstance(token, str):
        raise TokenizerFormatError(f"a token must be text or bytes, got {token!r:.80}.")
    spelled = unspell(token)
    # A special token is written as it is, and may contain spaces and any other character.
    return token.encode() if spelled is None else spelled
