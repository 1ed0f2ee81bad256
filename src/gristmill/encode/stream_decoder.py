"""StreamDecoder: text of ids that come one by one, such as from a model that is generating."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterable
from typing import Any

from numpy.typing import NDArray

__all__ = ["StreamDecoder"]


class StreamDecoder:
    """Text as soon as its characters are complete. Made by `Tokenizer.stream_decoder`.

    All that `push` and `finish` return, joined, is `decode` of all ids; no character ever comes in halves.
    """

    def __init__(self, decode_bytes: Callable[[Any], bytes], errors: str) -> None:
        self._decode_bytes = decode_bytes
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors)

    def push(self, ids: int | Iterable[int] | NDArray[Any]) -> str:
        """The characters that are complete with this id, or these. What raises an error leaves everything as it was."""
        return self._decoder.decode(self._decode_bytes([ids] if _is_one(ids) else ids))

    def finish(self) -> str:
        """What is left: a part of a character, as `errors` has it. Then all begins anew."""
        rest = self._decoder.decode(b"", final=True)
        self._decoder.reset()
        return rest


def _is_one(ids: object) -> bool:
    """Whether this is one id: an int, or what NumPy and torch have for one."""
    return isinstance(ids, int) or (hasattr(ids, "__index__") and getattr(ids, "ndim", 0) == 0)
