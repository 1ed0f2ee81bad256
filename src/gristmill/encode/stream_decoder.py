"""`StreamDecoder`: the text of ids that arrive one at a time, such as during generation."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterable
from typing import Any

from numpy.typing import NDArray

__all__ = ["StreamDecoder"]


class StreamDecoder:
    """Decodes ids one at a time and returns each character as soon as it is complete.

    Create one with `Tokenizer.stream_decoder`. The joined results of `push` and `finish` equal `decode` of all ids.

    Args:
        decode_bytes: Function from ids to bytes, such as `Tokenizer.decode_bytes`.
        errors: What to do with invalid UTF-8, as in `bytes.decode`.

    Examples:
        >>> from gristmill import Tokenizer
        >>> tok = Tokenizer([])
        >>> decoder = tok.stream_decoder()
        >>> [decoder.push(id) for id in tok.encode("né")], decoder.finish()
        (['n', '', 'é'], '')
    """

    def __init__(self, decode_bytes: Callable[[Any], bytes], errors: str) -> None:
        self._decode_bytes = decode_bytes
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors)

    def push(self, ids: int | Iterable[int] | NDArray[Any]) -> str:
        """Return the characters that these ids complete. After an error, the decoder is unchanged.

        Args:
            ids: One id, or several.

        Raises:
            UnknownTokenError: No token has this id.
            UnicodeDecodeError: The bytes are not valid UTF-8 and `errors` is "strict".
            TypeError: `ids` are not integers.
        """
        return self._decoder.decode(self._decode_bytes([ids] if _is_one(ids) else ids))

    def finish(self) -> str:
        """Return the rest of the text, and reset the decoder.

        The rest is empty unless the ids end inside a character, which is then handled according to `errors`.
        """
        rest = self._decoder.decode(b"", final=True)
        self._decoder.reset()
        return rest


def _is_one(ids: object) -> bool:
    """Whether this is a single id: an int, or a scalar of NumPy or torch."""
    return isinstance(ids, int) or (hasattr(ids, "__index__") and getattr(ids, "ndim", 0) == 0)
