"""`.tiktoken`: one `base64(token) rank` per line, by rank. The rank is both the id and the merge priority.

The file does not store the pattern and special tokens: pass `pattern=` and `special_tokens=`, except for the files that
OpenAI publishes, which are recognized by name (`cl100k_base.tiktoken`, …). Gzipped files are read as well.
"""

from __future__ import annotations

import base64
import binascii
import gzip
import io
import re
import zlib
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from gristmill.errors import FormatWarning, TokenizerFormatError, warn_user
from gristmill.packages import load_package
from gristmill.pretokenize.patterns import Pattern, resolve_pattern
from gristmill.pretokenize.stages import stages
from gristmill.tokenizer.formats.content import MAX_FILE_BYTES, check_content, read_content, split_lines
from gristmill.tokenizer.formats.given import Given
from gristmill.tokenizer.parts import ASSUMED_TIE_BREAK, TokenizerParts
from gristmill.tokenizer.vocabulary import Vocabulary

OPTIONS: frozenset[str] = frozenset()

_CL100K_SPECIALS = {
    "<|endoftext|>": 100257,
    "<|fim_prefix|>": 100258,
    "<|fim_middle|>": 100259,
    "<|fim_suffix|>": 100260,
    "<|endofprompt|>": 100276,
}
# Pattern and special tokens of the files that OpenAI publishes, by name.
PUBLISHED: dict[str, tuple[str, dict[str, int]]] = {
    "r50k_base": ("gpt2", {"<|endoftext|>": 50256}),
    "p50k_base": ("gpt2", {"<|endoftext|>": 50256}),
    "cl100k_base": ("cl100k", _CL100K_SPECIALS),
    "o200k_base": ("o200k", {"<|endoftext|>": 199999, "<|endofprompt|>": 200018}),
}
_GZIP = b"\x1f\x8b"
_GZIP_MEMBER = b"\x1f\x8b\x08"  # the bytes also occur by chance in compressed data, once per 16 MiB
MAX_GZIP_MEMBERS = 10_000
_LINE = re.compile(rb"[A-Za-z0-9+/]+={0,2} \d+\r?(?:\n|\Z)")


def recognizes(path: Path, head: bytes) -> bool:
    """Whether the file looks like this format."""
    return head.startswith(_GZIP) or path.name.endswith(".tiktoken") or _LINE.match(head) is not None


def read(path: Path, given: Given) -> TokenizerParts:
    """Return the tokenizer in the file at `path`."""
    published = PUBLISHED.get(path.name.partition(".")[0])
    pattern = given.pattern
    if pattern is None:
        if published is None:
            raise TokenizerFormatError(
                "a .tiktoken file does not store the pattern, and the name of this file is not one of the published "
                f"names ({', '.join(PUBLISHED)}). Pass pattern=, and special_tokens= if there are any."
            )
        pattern = resolve_pattern(published[0])
    ranks = parse_ranks(read_content(path))
    if given.special_tokens is None:
        specials = {} if published is None else published[1]
    else:
        specials = given.numbered(max(ranks.values(), default=-1) + 1, {} if published is None else published[1])
    return TokenizerParts(Vocabulary.from_ranks(ranks, specials), pattern, ASSUMED_TIE_BREAK, states_tie_break=False)


def parse_ranks(data: bytes) -> dict[bytes, int]:
    """Return the rank of each token of a file."""
    if data.startswith(_GZIP):
        data = _decompressed(data)
    ranks: dict[bytes, int] = {}
    for number, line in enumerate(split_lines(data), 1):
        if not line.strip():
            continue
        text, _, rank = line.removesuffix(b"\r").partition(b" ")
        try:
            token = base64.b64decode(text, validate=True)
            if not rank.isdigit() or not token:
                raise ValueError
            value = int(rank)
        except (binascii.Error, ValueError):
            raise TokenizerFormatError(
                f"line {number} is {line[:80]!r} instead of base64, a space and a rank."
            ) from None
        if token in ranks:
            raise TokenizerFormatError(f"line {number} has the token {token[:80]!r}, as an earlier line has.")
        ranks[token] = value
    return ranks


def files(parts: TokenizerParts, path: Path) -> dict[Path, bytes]:
    """Return the content of the file to write, by path."""
    ranks = ranks_of(parts.vocabulary)
    specials = parts.vocabulary.special_tokens
    if PUBLISHED.get(path.name.partition(".")[0]) != (parts.pattern.name, specials):
        holds = f"special_tokens={specials!r}" if len(specials) <= 4 else "special_tokens= with their ids"
        warn_user(
            f"a .tiktoken file stores neither the pattern nor special tokens. Load it with "
            f"pattern={str(parts.pattern)!r}{', ' + holds if specials else ''}.",
            FormatWarning,
        )
    _warn_of_prefixes(specials)
    data = b"".join(b"%s %d\n" % (base64.b64encode(token), rank) for token, rank in ranks.items())
    check_content(data)
    return {path: data}


def ranks_of(vocabulary: Vocabulary) -> dict[bytes, int]:
    """Return the tokens with their ids as ranks. Raises TokenizerFormatError if tiktoken would give other ids."""
    ranks = {token: id for id, token in sorted(vocabulary.tokens.items())}
    by_rank = Vocabulary.from_ranks(ranks, {})
    if not np.array_equal(by_rank.merges, vocabulary.merges):
        raise TokenizerFormatError(
            "tiktoken merges in order of the created ids, with one pair per token, but this vocabulary does not: ids "
            "would differ. Export as 'huggingface' or 'gristmill'."
        )
    if vocabulary.other_tokens and not vocabulary.whole_pieces:
        raise TokenizerFormatError(
            f"the vocabulary has {len(vocabulary.other_tokens):,} tokens that it never uses, but tiktoken would use "
            f"them: ids would differ. Export as 'huggingface' or 'gristmill'."
        )
    return ranks


def from_encoding(encoding: Any) -> TokenizerParts:
    """Return the parts of a `tiktoken.Encoding`. tiktoken looks up a name in its cache or downloads it."""
    if isinstance(encoding, str):
        encoding = load_package("tiktoken", needed_by="from_tiktoken()").get_encoding(encoding)
    try:
        ranks, regex, specials = encoding._mergeable_ranks, encoding._pat_str, encoding._special_tokens
    except AttributeError:
        raise TypeError(
            f"{type(encoding).__name__} is not a tiktoken.Encoding. Pass an encoding or its name."
        ) from None
    return TokenizerParts(
        Vocabulary.from_ranks(ranks, specials), resolve_pattern(regex), ASSUMED_TIE_BREAK, states_tie_break=False
    )


def to_encoding(parts: TokenizerParts, name: str = "gristmill") -> Any:
    """Return a `tiktoken.Encoding` that gives the same ids."""
    tiktoken = load_package("tiktoken", needed_by="to_tiktoken()")
    _warn_of_prefixes(parts.vocabulary.special_tokens)
    return tiktoken.Encoding(
        name,
        pat_str=_checked_pattern(parts.pattern).regex,
        mergeable_ranks=ranks_of(parts.vocabulary),
        special_tokens=dict(parts.vocabulary.special_tokens),
    )


def _checked_pattern(pattern: Pattern) -> Pattern:
    if len(stages(pattern.regex)) > 1:
        raise TokenizerFormatError(
            "the pattern has several expressions that cut one after the other, but tiktoken supports only one. "
            "Use to_huggingface()."
        )
    if pattern.name is None:
        warn_user(
            f"the pattern {pattern.regex!r} is passed on unchanged, but tiktoken uses another regex engine and drops "
            f"text that the pattern does not match. Compare ids before you rely on them.",
            FormatWarning,
        )
    return pattern


def _warn_of_prefixes(specials: Iterable[str]) -> None:
    # In sorted order, strings that start with another string come directly after it.
    for short, long in pairwise(sorted(specials)):
        if long.startswith(short):
            warn_user(
                f"the special token {short!r} is a prefix of {long!r}: where both match, Gristmill takes the longer "
                f"one, and tiktoken the first one in its table. If both are allowed, ids may differ.",
                FormatWarning,
            )
            return


def _decompressed(data: bytes) -> bytes:
    if data.count(_GZIP_MEMBER) > MAX_GZIP_MEMBERS:  # four million empty ones take minutes, and give no bytes
        raise TokenizerFormatError(f"has more than {MAX_GZIP_MEMBERS:,} gzip members.")
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except (EOFError, OSError, zlib.error) as error:
        raise TokenizerFormatError(f"is damaged gzip data: {error}") from None
    if len(content) > MAX_FILE_BYTES:
        raise TokenizerFormatError(f"decompresses to more than {MAX_FILE_BYTES:,} bytes, the limit for a tokenizer.")
    return content
