r"""Byte-level BPE in plain Python: a short, readable version of the algorithm, and the oracle of the tests.

The fast core must return exactly the results of these functions. Read them in this order:

1. `pretokenize` cuts a text into *pieces*; no merge crosses the boundary of a piece.
2. `count_words` counts equal pieces: a distinct piece with its count is a *word*.
3. `learn_merges` is the naive training loop: count all adjacent pairs, merge the most frequent one, repeat.
4. `learn_merges_incrementally` returns the same merges, but updates the counts instead of recounting.
5. `encode` applies the merges to new text; `decode` looks up the bytes of each id.

A worked example. The words of "low low low lower lowest", with their counts, are

    low 1   ␠low 2   ␠lower 1   ␠lowest 1

(the space belongs to the word after it). The pairs (l,o) and (o,w) both occur 5 times, more often than any other, so
the tie-break decides. `greatest-bytes` picks (o,w), because "o" > "l". Now (l,ow) occurs 5 times and wins, then (␠,low)
with 4, then (␠low,e) with 2:

>>> words = count_words(["low low low lower lowest"])
>>> words
{b'low': 1, b' low': 2, b' lower': 1, b' lowest': 1}
>>> merges = learn_merges(words, 4)
>>> merges
[(b'o', b'w'), (b'l', b'ow'), (b' ', b'low'), (b' low', b'e')]

Each merge creates one token: ids 0-255 are the bytes, 256 is "ow", 257 "low", 258 " low", 259 " lowe". To encode new
text, cut it into pieces and apply the same merges to each piece, the earliest merge first:

>>> encode("low lowers", merges)
[257, 259, 114, 115]
>>> decode([257, 259, 114, 115], merges)
b'low lowers'

Special tokens are hard boundaries: they separate documents, and no merge touches them. Their ids come after those of
the merges.

>>> encode("low<|end|>low", merges, special_tokens=["<|end|>"])
[257, 260, 257]
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

import regex

from gristmill.pretokenize.patterns import resolve_pattern
from gristmill.pretokenize.stages import stages

__all__ = [
    "count_words",
    "decode",
    "encode",
    "learn_merges",
    "learn_merges_incrementally",
    "pretokenize",
    "split_at_specials",
    "train",
]

Pair = tuple[bytes, bytes]
Word = list[bytes]  # the tokens that a word currently consists of


def split_at_specials(text: bytes, special_tokens: Sequence[str]) -> list[bytes]:
    """Return `text` split at its special tokens: documents at even indices, special tokens at odd indices.

    Where special tokens overlap, the leftmost wins, then the longest.

    Args:
        text: The text to split.
        special_tokens: Special tokens to split at.

    Raises:
        UnicodeEncodeError: A special token holds a lone surrogate.

    Examples:
        >>> split_at_specials(b"a<s>b<s><s2>", ["<s>", "<s2>"])
        [b'a', b'<s>', b'b', b'<s>', b'', b'<s2>', b'']
    """
    if not special_tokens:
        return [text]
    longest_first = sorted((special.encode() for special in special_tokens), key=len, reverse=True)
    return re.split(b"(" + b"|".join(map(re.escape, longest_first)) + b")", text)


def pretokenize(document: bytes, pattern: str = "gpt2") -> Iterator[bytes]:
    r"""Yield the pieces of one document: the matches of `pattern`, and the text between them.

    Each byte that is not valid UTF-8 becomes one lone surrogate (`surrogateescape`), which the pattern sees as neither
    letter, number nor white space. It is turned back into the same byte in the piece.

    Args:
        document: The text, as bytes.
        pattern: A pattern name or a regular expression.

    Raises:
        PatternError: The name is unknown, or the regular expression does not compile.

    Examples:
        >>> list(pretokenize("Héllo, it's  7\xff".encode("latin-1")))
        [b'H', b'\xe9', b'llo', b',', b' it', b"'s", b' ', b' 7', b'\xff']
    """
    pieces = [document.decode("utf-8", "surrogateescape")]
    for expression in stages(resolve_pattern(pattern).regex):  # one expression, except for patterns with several stages
        pieces = [part for piece in pieces for part in _cut(piece, expression)]
    for piece in pieces:
        yield piece.encode("utf-8", "surrogateescape")


def _cut(text: str, expression: str) -> Iterator[str]:
    end_of_last = 0
    for match in regex.finditer(expression, text):
        if match.group():  # an empty match cuts nothing
            yield from filter(None, (text[end_of_last : match.start()], match.group()))
            end_of_last = match.end()
    if end_of_last < len(text):
        yield text[end_of_last:]


def count_words(
    texts: Iterable[str | bytes], *, pattern: str = "gpt2", special_tokens: Sequence[str] = ()
) -> dict[bytes, int]:
    """Return how often each distinct piece occurs in `texts`, in order of first occurrence.

    Args:
        texts: The documents.
        pattern: A pattern name or a regular expression.
        special_tokens: Boundaries that no piece crosses. They are not counted.

    Raises:
        PatternError: The name is unknown, or the regular expression does not compile.

    Examples:
        >>> count_words(["low low low lower lowest"])
        {b'low': 1, b' low': 2, b' lower': 1, b' lowest': 1}
    """
    words: dict[bytes, int] = {}
    for text in texts:
        text = text.encode() if isinstance(text, str) else text
        for document in split_at_specials(text, special_tokens)[::2]:
            for piece in pretokenize(document, pattern):
                words[piece] = words.get(piece, 0) + 1
    return words


def learn_merges(
    words: Mapping[bytes, int],
    num_merges: int,
    *,
    tie_break: str = "greatest-bytes",
    max_token_bytes: int | None = None,
) -> list[Pair]:
    """Return the first `num_merges` merges of `words` by the naive algorithm; fewer if no pair is left.

    A pair that overlaps itself, such as (a,a) in "aaa", counts at every adjacent position and merges left to right.

    Args:
        words: Words with their counts, in order of first occurrence.
        num_merges: Maximum number of merges.
        tie_break: "greatest-bytes", "smallest-ids", "huggingface" or "first-seen"; see `gristmill.train_tokenizer`.
        max_token_bytes: Maximum length of a token. None: no limit.

    Raises:
        ValueError: `tie_break` is unknown.

    Examples:
        >>> learn_merges({b"aaab": 1, b"xy": 1}, 2)
        [(b'a', b'a'), (b'x', b'y')]
    """
    tokens_of = [[bytes([byte]) for byte in word] for word in words]
    merges: list[Pair] = []
    for _ in range(num_merges):
        counts: dict[Pair, int] = {}
        for tokens, count in zip(tokens_of, words.values(), strict=True):
            for pair in pairwise(tokens):
                if max_token_bytes is None or len(pair[0] + pair[1]) <= max_token_bytes:
                    counts[pair] = counts.get(pair, 0) + count
        if not counts:
            break
        most = max(counts.values())
        # subtle: the dict is filled in text order, so the first tied pair is the one that occurs first in the text
        best = _choose([pair for pair in counts if counts[pair] == most], tie_break, merges)
        merges.append(best)
        tokens_of = [merge_pair(tokens, best) for tokens in tokens_of]
    return merges


def merge_pair(tokens: Word, pair: Pair) -> Word:
    """Return `tokens` with every occurrence of `pair` replaced by one token, left to right.

    >>> merge_pair([b"a", b"a", b"a", b"b"], (b"a", b"a"))
    [b'aa', b'a', b'b']
    """
    merged: Word = []
    i = 0
    while i < len(tokens):
        if i + 1 < len(tokens) and (tokens[i], tokens[i + 1]) == pair:
            merged.append(pair[0] + pair[1])
            i += 2
        else:
            merged.append(tokens[i])
            i += 1
    return merged


def _choose(tied: Sequence[Pair], tie_break: str, merges: Sequence[Pair]) -> Pair:
    """Return the winner among pairs with equal counts. `tied` is in order of first occurrence in the text."""
    if tie_break == "first-seen":
        return tied[0]
    if tie_break == "greatest-bytes":
        return max(tied)
    id_of = {bytes([byte]): byte for byte in range(256)}
    if tie_break == "huggingface":
        id_of = {bytes([byte]): rank for rank, byte in enumerate(HUGGINGFACE_BYTE_ORDER)}
    elif tie_break != "smallest-ids":
        raise ValueError(
            f"tie_break={tie_break!r} is not valid. Pass greatest-bytes, smallest-ids, huggingface or first-seen."
        )
    # subtle: no two merges create the same bytes. The parts of a future token merge only with each other, so equal
    # spans of text go through the same merges and become one token in the same round.
    id_of |= {left + right: 256 + i for i, (left, right) in enumerate(merges)}
    return min(tied, key=lambda pair: (id_of[pair[0]], id_of[pair[1]]))


# Hugging Face shows bytes as printable characters and assigns ids in the order of these characters: first the 188 bytes
# that are printable in Latin-1 and map to themselves, then the other 68, which map to U+0100 and up.
_PRINTABLE = [*range(33, 127), *range(161, 173), *range(174, 256)]
HUGGINGFACE_BYTE_ORDER = _PRINTABLE + [byte for byte in range(256) if byte not in _PRINTABLE]


def learn_merges_incrementally(
    words: Mapping[bytes, int],
    num_merges: int,
    *,
    tie_break: str = "greatest-bytes",
    max_token_bytes: int | None = None,
) -> list[Pair]:
    """Return the same merges as `learn_merges`, but recount only the words that contain the merged pair.

    Args:
        words: As in `learn_merges`.
        num_merges: As in `learn_merges`.
        tie_break: As in `learn_merges`.
        max_token_bytes: As in `learn_merges`.

    Raises:
        ValueError: `tie_break` is unknown.

    Examples:
        >>> words = count_words(["it was the best of times, it was the worst of times"])
        >>> learn_merges_incrementally(words, 20) == learn_merges(words, 20)
        True
    """
    tokens_of = [[bytes([byte]) for byte in word] for word in words]
    counts: dict[Pair, int] = {}
    words_with: dict[Pair, set[int]] = {}  # may include words that no longer contain the pair
    weights = list(words.values())

    def add_pairs_of(i: int, sign: int) -> None:
        for pair in pairwise(tokens_of[i]):
            if max_token_bytes is None or len(pair[0] + pair[1]) <= max_token_bytes:
                counts[pair] = counts.get(pair, 0) + sign * weights[i]
                words_with.setdefault(pair, set()).add(i)
                if counts[pair] == 0:
                    del counts[pair], words_with[pair]

    def first_place(pair: Pair) -> tuple[int, int]:
        """Return (word, position in it) of the first occurrence of `pair`."""
        for i in sorted(words_with[pair]):
            for place, found in enumerate(pairwise(tokens_of[i])):
                if found == pair:
                    return i, place
        raise AssertionError(f"{pair} has a count but no occurrence")

    for i in range(len(weights)):
        add_pairs_of(i, +1)
    merges: list[Pair] = []
    while len(merges) < num_merges and counts:
        most = max(counts.values())
        tied = [pair for pair in counts if counts[pair] == most]
        if tie_break == "first-seen":
            tied.sort(key=first_place)
        best = _choose(tied, tie_break, merges)
        merges.append(best)
        for i in sorted(words_with[best]):
            add_pairs_of(i, -1)
            tokens_of[i] = merge_pair(tokens_of[i], best)
            add_pairs_of(i, +1)
    return merges


def train(
    texts: Iterable[str | bytes],
    vocab_size: int,
    *,
    special_tokens: Sequence[str] = (),
    pattern: str = "gpt2",
    tie_break: str = "greatest-bytes",
    max_token_bytes: int | None = None,
    learn: Callable[..., list[Pair]] = learn_merges,
) -> list[Pair]:
    """Return the merges of a vocabulary with `vocab_size` tokens: 256 bytes, the merges and the special tokens.

    Args:
        texts: The documents.
        vocab_size: Number of tokens.
        special_tokens: Boundaries that no piece crosses.
        pattern: A pattern name or a regular expression.
        tie_break: As in `learn_merges`.
        max_token_bytes: As in `learn_merges`.
        learn: `learn_merges` or `learn_merges_incrementally`.

    Raises:
        PatternError: The name is unknown, or the regular expression does not compile.
        ValueError: `tie_break` is unknown.

    Examples:
        >>> train(["aab aab"], 258)
        [(b'a', b'b'), (b'a', b'ab')]
    """
    words = count_words(texts, pattern=pattern, special_tokens=special_tokens)
    num_merges = vocab_size - 256 - len(special_tokens)
    return learn(words, num_merges, tie_break=tie_break, max_token_bytes=max_token_bytes)


def encode(
    text: str | bytes, merges: Sequence[Pair], *, pattern: str = "gpt2", special_tokens: Sequence[str] = ()
) -> list[int]:
    """Return the ids of `text`. In each piece, the pair that training merged earliest is merged first.

    Args:
        text: The text to encode.
        merges: Merges from `learn_merges`.
        pattern: The pattern that the merges were learned with.
        special_tokens: Special tokens; each occurrence in `text` becomes its id.

    Raises:
        PatternError: The name is unknown, or the regular expression does not compile.

    Examples:
        >>> encode("low<|end|>", [(b"o", b"w"), (b"l", b"ow")], special_tokens=["<|end|>"])
        [257, 258]
    """
    rank_of = {pair: rank for rank, pair in enumerate(merges)}
    id_of = {bytes([byte]): byte for byte in range(256)}
    id_of |= {left + right: 256 + rank for (left, right), rank in rank_of.items()}
    ids: list[int] = []
    text = text.encode() if isinstance(text, str) else text
    for i, part in enumerate(split_at_specials(text, special_tokens)):
        if i % 2:
            ids.append(256 + len(merges) + list(special_tokens).index(part.decode()))
            continue
        for piece in pretokenize(part, pattern):
            tokens = [bytes([byte]) for byte in piece]
            while mergeable := set(pairwise(tokens)) & rank_of.keys():
                tokens = merge_pair(tokens, min(mergeable, key=rank_of.__getitem__))
            ids += [id_of[token] for token in tokens]
    return ids


def decode(ids: Iterable[int], merges: Sequence[Pair], *, special_tokens: Sequence[str] = ()) -> bytes:
    """Return the bytes of `ids`.

    Args:
        ids: Ids from `encode`.
        merges: The merges that `encode` used.
        special_tokens: The special tokens that `encode` used.

    Raises:
        IndexError: An id is not in the vocabulary.

    Examples:
        >>> decode([257, 258], [(b"o", b"w"), (b"l", b"ow")], special_tokens=["<|end|>"])
        b'low<|end|>'
    """
    vocab = [bytes([byte]) for byte in range(256)]
    vocab += [left + right for left, right in merges]
    vocab += [special.encode() for special in special_tokens]
    return b"".join(vocab[id] for id in ids)
