"""Describe how two tokenizers differ, for the error about shards that another tokenizer made."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gristmill.errors import GristmillError
from gristmill.pretokenize.patterns import resolve_pattern

if TYPE_CHECKING:
    from gristmill.encode.tokenizer import Tokenizer

MAX_SHOWN = 60  # characters of a pattern or token
NUM_SHOWN = 5  # special tokens


def explain_tokenizer(path: Path | None, fingerprint: str, now: Tokenizer) -> str:
    """Describe how the tokenizer of shards, at `path` with this fingerprint, differs from another one.

    path: None if the tokenizer is missing.
    """
    from gristmill.encode.tokenizer import Tokenizer

    try:
        before = None if path is None else Tokenizer.load(path)
    except (OSError, GristmillError):
        before = None
    if before is None or before.fingerprint != fingerprint:
        return (
            f"the tokenizer of the shards is missing or damaged; its fingerprint is {fingerprint[:12]}…, the one "
            f"passed has {now.fingerprint[:12]}…"
        )
    return ", ".join(tokenizer_changes(before, now))


def tokenizer_changes(before: Tokenizer, now: Tokenizer) -> list[str]:
    """Describe the differences between two tokenizers with different fingerprints.

    >>> from gristmill import Tokenizer
    >>> tokenizer_changes(Tokenizer([(b"a", b"b")]), Tokenizer([(b"a", b"b"), (b"ab", b"c")], special_tokens=["<s>"]))
    ['vocab_size was 257 and is now 259', "the special token '<s>' is new", "merge 1 is new: b'ab' + b'c'"]
    """
    found = []
    if before.vocab_size != now.vocab_size:
        found.append(f"vocab_size was {before.vocab_size:,} and is now {now.vocab_size:,}")
    if resolve_pattern(before.pattern).regex != resolve_pattern(now.pattern).regex:
        found.append(f"the pattern was {_shown(before.pattern)} and is now {_shown(now.pattern)}")
    found += _special_changes(before.special_tokens, now.special_tokens)
    found += _merge_changes(before.merges, now.merges)
    return found or _id_changes(before.vocab, now.vocab)


def _special_changes(before: dict[str, int], now: dict[str, int]) -> list[str]:
    gone, new = [token for token in before if token not in now], [token for token in now if token not in before]
    found = [_listed(tokens, state) for tokens, state in ((gone, "gone"), (new, "new")) if tokens]
    moved = [token for token in now if token in before and before[token] != now[token]]
    if moved and not found:
        token = moved[0]
        found.append(f"the special token {token!r} had the id {before[token]:,} and now has {now[token]:,}")
    return found


def _listed(tokens: Sequence[str], state: str) -> str:
    if len(tokens) == 1:
        return f"the special token {_shown(tokens[0])} is {state}"
    names = ", ".join(map(_shown, tokens[:NUM_SHOWN])) + ", …" * (len(tokens) > NUM_SHOWN)
    return f"the special tokens {names} are {state}"


def _merge_changes(before: Sequence[tuple[bytes, bytes]], now: Sequence[tuple[bytes, bytes]]) -> list[str]:
    """Describe the first merge that differs, compared by bytes, because other tools number ids differently."""
    common = min(len(before), len(now))
    first = next((i for i in range(common) if before[i] != now[i]), common)
    if first < common:
        return [f"merge {first:,} was {_merge(before[first])} and is now {_merge(now[first])}"]
    if len(before) == len(now):
        return []
    state, merges = ("gone", before) if len(before) > len(now) else ("new", now)
    more = f", and {len(merges) - first - 1:,} after it" * (len(merges) - first > 1)
    return [f"merge {first:,} is {state}: {_merge(merges[first])}{more}"]


def _id_changes(before: dict[int, bytes], now: dict[int, bytes]) -> list[str]:
    for id in sorted({*before, *now}):
        if before.get(id) != now.get(id):
            return [f"id {id:,} was {_token(before.get(id))} and is now {_token(now.get(id))}"]
    return ["only one of them looks up whole pieces in the vocabulary before merging"]


def _token(token: bytes | None) -> str:
    return "no token" if token is None else _shown(token)


def _merge(pair: tuple[bytes, bytes]) -> str:
    return f"{_shown(pair[0])} + {_shown(pair[1])}"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"
