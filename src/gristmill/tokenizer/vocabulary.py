"""`Vocabulary`: tokens with their ids, and the merges that create them.

Gristmill assigns ids in one order (bytes, merges, special tokens). Other tools differ: GPT-2 numbers the bytes in
another order, o200k has gaps, Llama 3 has several merges for one token. A `Vocabulary` stores any of these layouts with
unchanged ids.

>>> vocabulary = Vocabulary.from_ranks({bytes([byte]): byte for byte in range(256)} | {b"ab": 300}, {"<s>": 400})
>>> vocabulary.merges.tolist(), vocabulary.tokens[300], vocabulary.size
([[97, 98, 300]], b'ab', 401)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gristmill import _core
from gristmill.arguments import NUM_BYTE_TOKENS, check_special_tokens
from gristmill.errors import OptionError, SpecialTokenError, TokenizerFormatError
from gristmill.merge.merges import MAX_VOCAB_BYTES, MergeIds, build_tokens, too_many_bytes

# Tables are indexed by id: a mistyped id in a file must not make them take gigabytes.
MAX_ID = (1 << 24) - 1


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """Tokens and their ids, and the merges that create them, in order of rank.

    Build one with `from_merges`, `from_ranks` or `from_pairs`. The last two check their arguments.
    """

    merges: NDArray[np.uint32]  # (n, 3): left id, right id, created id; two rows may create the same id
    byte_ids: NDArray[np.uint32]  # (256,): the id of each byte
    special_tokens: dict[str, int]  # in order of id
    other_tokens: dict[int, bytes]  # tokens that merges do not reach: used only for a whole piece
    whole_pieces: bool  # a piece that is a token becomes that token, whatever the merges would give

    @classmethod
    def from_merges(cls, merges: MergeIds, special_tokens: Sequence[str] = ()) -> Vocabulary:
        """Return a vocabulary in Gristmill's layout: bytes are ids 0-255, merge i creates id 256 + i, then specials."""
        # No Python loop over the merges is allowed here: training 32,000 of them takes no more than 0.2 s in all.
        first = NUM_BYTE_TOKENS + len(merges)
        rows = np.empty((len(merges), 3), np.uint32)
        rows[:, :2] = merges
        rows[:, 2] = np.arange(NUM_BYTE_TOKENS, first, dtype=np.uint32)
        return cls(
            merges=read_only(rows),
            byte_ids=read_only(np.arange(NUM_BYTE_TOKENS, dtype=np.uint32)),
            special_tokens={special: first + i for i, special in enumerate(special_tokens)},
            other_tokens={},
            whole_pieces=False,
        )

    @classmethod
    def from_ranks(cls, ranks: Mapping[bytes, int], special_tokens: Mapping[str, int]) -> Vocabulary:
        """Return the vocabulary of a table of ranks, as in tiktoken.

        The id of a token is its rank. Of all adjacent tokens whose joined bytes are a token, those whose result has the
        lowest rank merge first. Exactly one merge creates each token: the last merge when its own bytes are encoded.
        Adjacent tokens with just these bytes come from the same merges, so no other pair creates the token. A token
        that its own bytes do not encode to is used only for a whole piece.
        """
        id_of = _checked_ids(ranks)
        rows = _core.recover_merges(list(id_of), np.fromiter(id_of.values(), np.uint32, len(id_of)))
        others = _others(id_of, rows)
        return cls(
            merges=read_only(rows),
            byte_ids=_byte_ids(id_of),
            special_tokens=check_special_ids(special_tokens, id_of.values()),
            other_tokens=others,
            whole_pieces=bool(others),  # all other tokens are what their own bytes encode to
        )

    @classmethod
    def from_pairs(
        cls,
        id_of: Mapping[bytes, int],
        pairs: Iterable[tuple[bytes, bytes]],
        special_tokens: Mapping[str, int],
        *,
        whole_pieces: bool = False,
    ) -> Vocabulary:
        """Return the vocabulary of a table of ids and a ranked list of pairs, as in Hugging Face and GPT-2.

        whole_pieces: same as `ignore_merges` of Hugging Face.
        """
        id_of = _checked_ids(id_of)
        rows: list[tuple[int, int, int]] = []
        seen: set[tuple[int, int]] = set()
        for i, (left, right) in enumerate(pairs):
            try:
                row = id_of[left], id_of[right], id_of[left + right]
            except KeyError:
                unknown = next(token for token in (left, right, left + right) if token not in id_of)
                raise TokenizerFormatError(
                    f"merge {i} joins {left[:80]!r} and {right[:80]!r}, but {unknown[:80]!r} is not in the vocabulary."
                ) from None
            if row[:2] in seen:
                raise TokenizerFormatError(
                    f"merge {i} joins {left[:80]!r} and {right[:80]!r}, as an earlier merge does."
                )
            seen.add(row[:2])
            rows.append(row)
        merges = np.array(rows, np.uint32).reshape(-1, 3)
        byte_ids = _byte_ids(id_of)
        others = _others(id_of, merges)
        if whole_pieces:
            # subtle: this includes a token that a merge creates, if other merges apply first to its own bytes, as in
            # Llama 3.
            encoder = _core.Encoder(
                byte_ids=byte_ids,
                merges=merges,
                other_tokens=list(others.values()),
                other_ids=list(others),
                pattern=None,
            )
            others = {id: token for token, id in id_of.items() if encoder.encode_piece(token) != [id]}
        return cls(
            merges=read_only(merges),
            byte_ids=byte_ids,
            special_tokens=check_special_ids(special_tokens, id_of.values()),
            other_tokens=dict(sorted(others.items())),
            whole_pieces=whole_pieces and bool(others),
        )

    @cached_property
    def tokens(self) -> dict[int, bytes]:
        """The bytes of every id, without special tokens, in order of id."""
        if self.is_plain:
            return dict(enumerate(build_tokens(np.ascontiguousarray(self.merges[:, :2]))))
        tokens = {id: bytes([byte]) for byte, id in enumerate(self.byte_ids.tolist())}
        tokens |= self.other_tokens
        add_made(tokens, self.merges.tolist())
        return dict(sorted(tokens.items()))

    @cached_property
    def size(self) -> int:
        """Largest id plus one: the number of rows of an embedding. More than the number of tokens if ids have gaps."""
        largest = [int(self.byte_ids.max()), *self.other_tokens, *self.special_tokens.values()]
        if len(self.merges):
            largest.append(int(self.merges[:, 2].max()))
        return max(largest) + 1

    @cached_property
    def is_plain(self) -> bool:
        """Whether this is Gristmill's layout, which the merges and the order of the special tokens fully define."""
        first = NUM_BYTE_TOKENS + len(self.merges)
        return (
            not self.other_tokens
            and not self.whole_pieces
            and np.array_equal(self.byte_ids, np.arange(NUM_BYTE_TOKENS))
            and np.array_equal(self.merges[:, 2], np.arange(NUM_BYTE_TOKENS, first))
            and bool((self.merges[:, :2] < self.merges[:, 2:]).all())
            and list(self.special_tokens.values()) == list(range(first, first + len(self.special_tokens)))
        )

    def pack(self) -> tuple[bytes, bytes, tuple[tuple[str, int], ...], tuple[tuple[int, bytes], ...], bool]:
        """Return the fields as plain values, for pickles and worker processes. `unpack(*values)` restores them."""
        return (
            self.merges.astype("<u4", copy=False).tobytes(),
            self.byte_ids.astype("<u4", copy=False).tobytes(),
            tuple(self.special_tokens.items()),
            tuple(self.other_tokens.items()),
            self.whole_pieces,
        )

    @classmethod
    def unpack(
        cls,
        merges: bytes,
        byte_ids: bytes,
        special_tokens: Iterable[tuple[str, int]],
        other_tokens: Iterable[tuple[int, bytes]],
        whole_pieces: bool,
    ) -> Vocabulary:
        """Return the vocabulary from the values of `pack`, without checks."""
        return cls(
            merges=read_only(np.frombuffer(merges, "<u4").reshape(-1, 3)),
            byte_ids=read_only(np.frombuffer(byte_ids, "<u4")),
            special_tokens=dict(special_tokens),
            other_tokens=dict(other_tokens),
            whole_pieces=whole_pieces,
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Vocabulary):
            return NotImplemented
        return self is other or self.pack() == other.pack()

    def __hash__(self) -> int:
        return hash(self.pack())

    def __reduce__(self) -> tuple[Any, ...]:
        # Without the cached properties, which may be ten times as large.
        return type(self).unpack, self.pack()


def plain_merges(vocabulary: Vocabulary) -> MergeIds:
    """Return the merges in Gristmill's layout, shape (n, 2), for training to continue from.

    Training creates each token by one merge, after the merges of its parts. Raises OptionError for a vocabulary in
    which this is not so.
    """
    rows = vocabulary.merges
    if vocabulary.is_plain:
        return np.ascontiguousarray(rows[:, :2])
    if vocabulary.other_tokens:
        id, token = next(iter(vocabulary.other_tokens.items()))
        raise OptionError(
            f"this vocabulary cannot be extended: no merge creates {len(vocabulary.other_tokens):,} of its tokens; the "
            f"first is {token[:80]!r} with id {id}."
        )
    made, num_made = np.unique(rows[:, 2], return_counts=True)
    if (num_made > 1).any():
        raise OptionError(
            f"this vocabulary cannot be extended: {int(num_made.max())} merges create the token with id "
            f"{int(made[num_made.argmax()])}, but training creates each token by one merge."
        )
    new_ids = np.full(vocabulary.size, vocabulary.size, np.uint32)
    new_ids[vocabulary.byte_ids] = np.arange(NUM_BYTE_TOKENS)
    new_ids[rows[:, 2]] = np.arange(NUM_BYTE_TOKENS, NUM_BYTE_TOKENS + len(rows))
    merges = np.ascontiguousarray(new_ids[rows[:, :2]])
    i = _core.find_wrong_merge(merges)
    if i < len(merges):
        raise OptionError(
            f"this vocabulary cannot be extended: merge {i} joins ids {rows[i, 0]} and {rows[i, 1]}, one of which a "
            f"later merge creates."
        )
    return merges


def extended(vocabulary: Vocabulary, given: MergeIds, learned: MergeIds) -> Vocabulary:
    """Return `vocabulary` with the merges that training learned after `given`, its plain merges.

    In Gristmill's layout, the ids of special tokens increase so that they stay last. In any other, all ids stay.
    """
    if vocabulary.is_plain:
        return Vocabulary.from_merges(np.concatenate([given, learned]), list(vocabulary.special_tokens))
    new_ids = np.arange(vocabulary.size, vocabulary.size + len(learned), dtype=np.uint32)
    ids = np.concatenate([vocabulary.byte_ids, vocabulary.merges[:, 2], new_ids])
    rows = np.column_stack([ids[learned], new_ids])
    return Vocabulary(
        merges=read_only(np.concatenate([vocabulary.merges, rows])),
        byte_ids=vocabulary.byte_ids,
        special_tokens=vocabulary.special_tokens,
        other_tokens=vocabulary.other_tokens,
        whole_pieces=vocabulary.whole_pieces,
    )


def check_special_ids(special_tokens: Mapping[str, int], taken: Iterable[int]) -> dict[str, int]:
    """Return `special_tokens` in order of id. Raises SpecialTokenError for an id that is not valid or already used.

    >>> check_special_ids({"<t>": 258, "<s>": 257}, range(257))
    {'<s>': 257, '<t>': 258}
    """
    others = set(taken)
    special_of: dict[int, str] = {}
    for special in check_special_tokens(list(special_tokens)):
        id = special_tokens[special]
        if type(id) is not int or not 0 <= id <= MAX_ID:
            raise SpecialTokenError(f"the special token {special!r} has id {id!r}; ids must be from 0 to {MAX_ID:,}.")
        if id in others:
            raise SpecialTokenError(
                f"the special token {special!r} has id {id}, which another token has. Ids from {max(others) + 1} on "
                f"are free."
            )
        if id in special_of:
            raise SpecialTokenError(f"the special tokens {special_of[id]!r} and {special!r} both have id {id}.")
        special_of[id] = special
    return {special: id for id, special in sorted(special_of.items())}


def add_made(tokens: dict[int, bytes], merges: list[list[int]]) -> None:
    """Add to `tokens` the tokens that the merges create. Rows of `merges` are (left id, right id, created id).

    A merge may have a lower rank than the merge that creates its part, but the merges must not form a cycle. No token
    is built before it is certain that all tokens together have at most `MAX_VOCAB_BYTES`.
    """
    for i in _making_order({id: len(token) for id, token in tokens.items()}, merges):
        left, right, made = merges[i]
        token = tokens[left] + tokens[right]
        if tokens.setdefault(made, token) != token:
            raise TokenizerFormatError(
                f"merge {i} creates id {made} as {token[:80]!r}, but id {made} is {tokens[made][:80]!r}."
            )


def _making_order(lengths: dict[int, int], merges: list[list[int]]) -> list[int]:
    """Return the ranks of `merges` in an order in which every part exists before it is merged.

    lengths: length of each token that no merge creates. The lengths of created tokens are added.
    """
    total = sum(lengths.values())
    waiting: dict[int, list[int]] = {}  # the merges that wait for an id, by id
    ready = list(range(len(merges)))[::-1]
    order: list[int] = []
    while ready:
        i = ready.pop()
        left, right, made = merges[i]
        missing = next((id for id in (left, right) if id not in lengths), None)
        if missing is not None:
            waiting.setdefault(missing, []).append(i)
            continue
        order.append(i)
        length = lengths[left] + lengths[right]
        total += length
        if total > MAX_VOCAB_BYTES:
            raise TokenizerFormatError(too_many_bytes(i))
        lengths.setdefault(made, length)
        ready += waiting.pop(made, ())
    if len(order) < len(merges):
        id, stuck = next(iter(waiting.items()))
        left, right, _ = merges[stuck[0]]
        raise TokenizerFormatError(
            f"merge {stuck[0]} joins ids {left} and {right}, but id {id} is neither a byte nor another token, and no "
            f"merge can create it first."
        )
    return order


def read_only(array: NDArray[Any]) -> NDArray[np.uint32]:
    """Return ids as a read-only array of the type that the core takes."""
    array = np.ascontiguousarray(array, np.uint32)
    array.flags.writeable = False
    return array


def _byte_ids(id_of: Mapping[bytes, int]) -> NDArray[np.uint32]:
    return read_only(np.array([id_of[bytes([byte])] for byte in range(NUM_BYTE_TOKENS)], np.uint32))


def _others(id_of: Mapping[bytes, int], merges: NDArray[np.uint32]) -> dict[int, bytes]:
    made = set(merges[:, 2].tolist())
    return dict(sorted((id, token) for token, id in id_of.items() if len(token) > 1 and id not in made))


def _checked_ids(ids: Mapping[bytes, int]) -> dict[bytes, int]:
    """Return `ids` as a dict if every byte has a token and no two tokens share an id."""
    total = 0
    token_of: dict[int, bytes] = {}
    for token, id in ids.items():
        if not isinstance(token, bytes) or not token:
            raise TokenizerFormatError(f"id {id!r} is the token {token!r:.80}; a token has at least one byte.")
        if type(id) is not int or not 0 <= id <= MAX_ID:
            raise TokenizerFormatError(f"the token {token[:80]!r} has id {id!r}; ids must be from 0 to {MAX_ID:,}.")
        if token_of.setdefault(id, token) != token:
            raise TokenizerFormatError(f"the tokens {token_of[id][:80]!r} and {token[:80]!r} both have id {id}.")
        total += len(token)
    if total > MAX_VOCAB_BYTES:
        raise TokenizerFormatError(
            f"the tokens have {total:,} bytes together; at most {MAX_VOCAB_BYTES:,} are allowed. Real vocabularies "
            f"have a few million bytes: check where this one comes from."
        )
    missing = [byte for byte in range(NUM_BYTE_TOKENS) if bytes([byte]) not in ids]
    if missing:
        raise TokenizerFormatError(
            f"{len(missing)} of the 256 bytes have no token; the first is 0x{missing[0]:02x}. "
            f"Texts that contain them could not be encoded."
        )
    return dict(ids)
