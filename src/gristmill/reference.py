r"""Byte-level BPE in plain Python: the algorithm, readable in one sitting, and the oracle of the tests.

The fast core must give exactly what these functions give. Read them in this order:

1. `pretokenize` cuts a text into *pieces*; no merge ever crosses the edge of a piece.
2. `count_words` counts equal pieces: a distinct piece with its count is a *word*.
3. `learn_merges` is the naive training loop: count all adjacent pairs, merge the most frequent one, repeat.
4. `learn_merges_incrementally` gives the same merges, but updates the counts instead of recounting.
5. `encode` replays the merges on new text; `decode` looks the bytes up again.

A worked example. The words of "low low low lower lowest", with their counts, are

    low 1   ␠low 2   ␠lower 1   ␠lowest 1

(the space belongs to the word behind it). The pairs (l,o) and (o,w) both occur 5 times, more often than any other, so
the tie-break decides. Under `greatest-bytes` that is (o,w), because "o" > "l". Now (l,ow) occurs 5 times and wins; then
(␠,low) with 4; then (␠low,e) with 2:

>>> words = count_words(["low low low lower lowest"])
>>> words
{b'low': 1, b' low': 2, b' lower': 1, b' lowest': 1}
>>> merges = learn_merges(words, 4)
>>> merges
[(b'o', b'w'), (b'l', b'ow'), (b' ', b'low'), (b' low', b'e')]

Each merge made one new token: ids 0-255 are the bytes, 256 is "ow", 257 "low", 258 " low", 259 " lowe". New text is cut
into pieces and the same merges are applied to each, the earliest first:

>>> encode("low lowers", merges)
[257, 259, 114, 115]
>>> decode([257, 259, 114, 115], merges)
b'low lowers'

Special tokens are hard boundaries: the text on either side of one is a document of its own, and no merge touches them.
Their ids come last, behind those of the merges.

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
Word = list[bytes]  # the tokens a word consists of, so far


def split_at_specials(text: bytes, special_tokens: Sequence[str]) -> list[bytes]:
    """`text` cut at its special tokens: documents at even indices, the specials between them at odd ones.

    Where one special begins inside or is the beginning of another, the leftmost wins, then the longest.

    >>> split_at_specials(b"a<s>b<s><s2>", ["<s>", "<s2>"])
    [b'a', b'<s>', b'b', b'<s>', b'', b'<s2>', b'']
    """
    if not special_tokens:
        return [text]
    longest_first = sorted((special.encode() for special in special_tokens), key=len, reverse=True)
    return re.split(b"(" + b"|".join(map(re.escape, longest_first)) + b")", text)


def pretokenize(document: bytes, pattern: str = "gpt2") -> Iterator[bytes]:
    r"""The pieces of one document: the matches of `pattern`, and whatever text is left between them.

    Bytes that are not valid UTF-8 become one lone surrogate each (`surrogateescape`), which is neither letter, number
    nor white space to the pattern, and become the same bytes again.

    >>> list(pretokenize("Héllo, it's  7\xff".encode("latin-1")))
    [b'H', b'\xe9', b'llo', b',', b' it', b"'s", b' ', b' 7', b'\xff']
    """
    pieces = [document.decode("utf-8", "surrogateescape")]
    for expression in stages(resolve_pattern(pattern).regex):  # nearly always one
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
    """How often each distinct piece occurs in `texts`, in the order in which they first occur."""
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
    """The first `num_merges` merges of `words`, by the naive loop; fewer when no pair is left.

    A pair that overlaps itself counts at every adjacent position and merges from left to right:

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
        # subtle: the dict is filled in text order, so the first of these is the pair that occurs first in the text
        best = _choose([pair for pair in counts if counts[pair] == most], tie_break, merges)
        merges.append(best)
        tokens_of = [merge_pair(tokens, best) for tokens in tokens_of]
    return merges


def merge_pair(tokens: Word, pair: Pair) -> Word:
    """`tokens` with every occurrence of `pair` replaced by one token, from left to right.

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
    """The winner among pairs of equal count, given in the order in which they first occur in the text."""
    if tie_break == "first-seen":
        return tied[0]
    if tie_break == "greatest-bytes":
        return max(tied)
    id_of = {bytes([byte]): byte for byte in range(256)}
    if tie_break == "huggingface":
        id_of = {bytes([byte]): rank for rank, byte in enumerate(HUGGINGFACE_BYTE_ORDER)}
    elif tie_break != "smallest-ids":
        raise ValueError(f"tie_break={tie_break!r} is not known")
    # subtle: no two merges ever make the same bytes. Inside two equal stretches of text, each cut off from what is
    # around it, the same merges happen; so both have become one token by the time that either has.
    id_of |= {left + right: 256 + i for i, (left, right) in enumerate(merges)}
    return min(tied, key=lambda pair: (id_of[pair[0]], id_of[pair[1]]))


# Hugging Face shows bytes as printable characters and numbers them in the order of these: first the 188 bytes that are
# printable in Latin-1 and stand for themselves, then the other 68, which are shown as U+0100 and following.
_PRINTABLE = [*range(33, 127), *range(161, 173), *range(174, 256)]
HUGGINGFACE_BYTE_ORDER = _PRINTABLE + [byte for byte in range(256) if byte not in _PRINTABLE]


def learn_merges_incrementally(
    words: Mapping[bytes, int],
    num_merges: int,
    *,
    tie_break: str = "greatest-bytes",
    max_token_bytes: int | None = None,
) -> list[Pair]:
    """The same merges as `learn_merges`, recounting only the words that hold the merged pair.

    >>> words = count_words(["it was the best of times, it was the worst of times"])
    >>> learn_merges_incrementally(words, 20) == learn_merges(words, 20)
    True
    """
    tokens_of = [[bytes([byte]) for byte in word] for word in words]
    counts: dict[Pair, int] = {}
    words_with: dict[Pair, set[int]] = {}  # may name words that have lost the pair since
    weights = list(words.values())

    def add_pairs_of(i: int, sign: int) -> None:
        for pair in pairwise(tokens_of[i]):
            if max_token_bytes is None or len(pair[0] + pair[1]) <= max_token_bytes:
                counts[pair] = counts.get(pair, 0) + sign * weights[i]
                words_with.setdefault(pair, set()).add(i)
                if counts[pair] == 0:
                    del counts[pair], words_with[pair]

    def first_place(pair: Pair) -> tuple[int, int]:
        """(word, position in it) of the first occurrence of `pair`."""
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
    """The merges of a vocabulary of `vocab_size`: 256 bytes, the merges, and the special tokens.

    >>> train(["aab aab"], 258)
    [(b'a', b'b'), (b'a', b'ab')]
    """
    words = count_words(texts, pattern=pattern, special_tokens=special_tokens)
    num_merges = vocab_size - 256 - len(special_tokens)
    return learn(words, num_merges, tie_break=tie_break, max_token_bytes=max_token_bytes)


def encode(
    text: str | bytes, merges: Sequence[Pair], *, pattern: str = "gpt2", special_tokens: Sequence[str] = ()
) -> list[int]:
    """The ids of `text`: in each piece, the pair that was merged earliest in training is merged first."""
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
    """The bytes of `ids`."""
    vocab = [bytes([byte]) for byte in range(256)]
    vocab += [left + right for left, right in merges]
    vocab += [special.encode() for special in special_tokens]
    return b"".join(vocab[id] for id in ids)
