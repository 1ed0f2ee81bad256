"""Encode a text that arrives in chunks: the ids of the whole text in bounded memory, wherever the chunks end.

Chunks are collected into blocks. A block is encoded up to its last *cut*, a position where the text may be cut whatever
follows. The rest of the block waits for the next chunks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from gristmill import _core
from gristmill.arguments import as_utf8
from gristmill.encode.encoder import Encoder

BLOCK_BYTES = 16 << 10

Ids = TypeVar("Ids")


def as_blocks(chunks: Iterable[str | bytes]) -> Iterator[bytes]:
    """Yield the chunks as blocks of bytes. Joins small chunks, divides large ones; a `str` or `bytes` is one chunk."""
    if isinstance(chunks, str | bytes):
        chunks = [chunks]
    elif not isinstance(chunks, Iterable):
        raise TypeError(f"chunks is of type {type(chunks).__name__}. Pass an iterable of str or bytes.")
    block: list[bytes] = []
    size = 0
    for i, chunk in enumerate(chunks):
        for data in _parts(chunk, i):
            block.append(data)
            size += len(data)
            if size >= BLOCK_BYTES:
                yield b"".join(block)
                block, size = [], 0
    yield b"".join(block)


def _parts(chunk: str | bytes, i: int) -> Iterable[bytes]:
    if not isinstance(chunk, str | bytes) or len(chunk) <= BLOCK_BYTES:
        return (as_utf8(chunk, f"chunk {i}"),)
    if isinstance(chunk, str):
        as_utf8(chunk, f"chunk {i}")
    return (as_utf8(chunk[begin : begin + BLOCK_BYTES], "") for begin in range(0, len(chunk), BLOCK_BYTES))


def encode_chunks(
    blocks: Iterable[bytes],
    encoder: Encoder[Any],
    rule: Any,
    *,
    encode: Callable[[bytes, Any], Ids],
    block_bytes: int = BLOCK_BYTES,
) -> Iterator[Ids]:
    """Yield the ids of the joined blocks. The position in a `ForgedSpecial` is that in the whole text.

    encode: function from a text and the rule to ids. All texts but the last have at least `block_bytes` bytes.
    """
    position = 0  # of `text` in the whole text
    text = b""  # not yet encoded
    searched = 0  # `text` has no cut before this position
    arrived: list[bytes] = []  # blocks that follow `text`
    num_arrived = 0
    for block in blocks:
        arrived.append(block)
        num_arrived += len(block)
        # A text without a cut is joined and searched again only when it has doubled, so the total cost stays linear.
        if num_arrived < max(len(text), block_bytes):
            continue
        text = b"".join([text, *arrived])
        arrived, num_arrived = [], 0
        with _placed_at(position):
            cut = encoder.last_cut(text, searched, rule)
        if cut:
            with _placed_at(position):
                ids = encode(text[:cut], rule)
            yield ids
            text, position, searched = text[cut:], position + cut, 0
        else:
            searched = len(text)
    with _placed_at(position):
        ids = encode(b"".join([text, *arrived]), rule)
    yield ids


@contextmanager
def _placed_at(position: int) -> Iterator[None]:
    """Add `position`, the start of the block, to the position in a `ForgedSpecial`."""
    try:
        yield
    except _core.ForgedSpecial as error:
        _, place, id = error.args
        raise _core.ForgedSpecial(0, position + place, id) from None
