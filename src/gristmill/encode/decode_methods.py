"""decode: ids -> text."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gristmill.encode.columns import as_rows, check_no_table
from gristmill.encode.has_encoder import HasEncoder
from gristmill.encode.ids import as_id_array, check_errors, unknown_id
from gristmill.encode.ragged import Ragged
from gristmill.encode.stream_decoder import StreamDecoder

Ids = Iterable[int] | NDArray[np.integer[Any]]


class DecodeMethods(HasEncoder):
    """The methods of `Tokenizer` that take ids."""

    def decode(self, ids: Ids, *, errors: str = "replace", skip_special: bool = False) -> str:
        r"""Return the text of `ids`.

        Tokens are bytes, and a token may be part of a character. If `ids` do not form valid UTF-8, `errors` decides
        what happens; `decode_bytes` returns the exact bytes.

        Args:
            ids: Ids as an iterable or an integer array.
            errors: What to do with invalid UTF-8, as in `bytes.decode`: "replace", "strict", "ignore", …
            skip_special: Omit special tokens from the text.

        Raises:
            UnknownTokenError: No token has this id.
            OptionError: `errors` is unknown.
            UnicodeDecodeError: The bytes are not valid UTF-8 and `errors` is "strict".
            TypeError: `ids` are not integers.

        Examples:
            >>> from gristmill import Tokenizer
            >>> tok = Tokenizer([])
            >>> tok.decode(tok.encode("é")), tok.decode(tok.encode("é")[:1])
            ('é', '\ufffd')
        """
        if errors != "replace":
            check_errors(errors)
        if skip_special:
            ids = self._without_specials(ids)
        return self.decode_bytes(ids).decode("utf-8", errors)

    def decode_bytes(self, ids: Ids) -> bytes:
        """Return the bytes of `ids`.

        Args:
            ids: Ids as an iterable or an integer array.

        Raises:
            UnknownTokenError: No token has this id. It is also a `KeyError`.
            TypeError: `ids` are not integers.

        Examples:
            >>> from gristmill import Tokenizer
            >>> Tokenizer([(b"a", b"a")]).decode_bytes([256, 98])
            b'aab'
        """
        return self._decode(ids, "ids")

    def decode_batch(
        self, batch: Ragged | Iterable[Ids], *, errors: str = "replace", skip_special: bool = False
    ) -> list[str]:
        """Return the text of each row of ids.

        Args:
            batch: A `Ragged`, or an iterable of rows of ids.
            errors: What to do with invalid UTF-8, as in `decode`.
            skip_special: Omit special tokens from the texts.

        Raises:
            UnknownTokenError: No token has this id.
            OptionError: `errors` is unknown.
            UnicodeDecodeError: The bytes of a row are not valid UTF-8 and `errors` is "strict".
            TypeError: `batch` is not made of rows of integers.

        Examples:
            >>> from gristmill import Tokenizer
            >>> tok = Tokenizer([(b"a", b"a")])
            >>> tok.decode_batch(tok.encode_batch(["aa", "", "aab"]))
            ['aa', '', 'aab']
        """
        check_errors(errors)
        check_no_table(batch, "batch")
        if isinstance(batch, str | bytes) or not isinstance(batch, Iterable):
            raise TypeError(f"batch is of type {type(batch).__name__}. Pass a Ragged, or a list of lists of ids.")
        texts = []
        for i, ids in enumerate(as_rows(batch, "batch", of="lists of ids")):
            if skip_special:
                ids = self._without_specials(ids, f"batch[{i}]")
            texts.append(self._decode(ids, f"batch[{i}]").decode("utf-8", errors))
        return texts

    def stream_decoder(self, *, errors: str = "replace") -> StreamDecoder:
        """Return a decoder for ids that arrive one at a time. It returns each character as soon as it is complete.

        Args:
            errors: What to do with invalid UTF-8, as in `decode`.

        Raises:
            OptionError: `errors` is unknown.

        Examples:
            >>> from gristmill import Tokenizer
            >>> tok = Tokenizer([])
            >>> decoder = tok.stream_decoder()
            >>> [decoder.push(id) for id in tok.encode("né")], decoder.finish()
            (['n', '', 'é'], '')
        """
        return StreamDecoder(self.decode_bytes, check_errors(errors))

    def token_bytes(self, id: int) -> bytes:
        """Return the bytes of one token, special or not.

        Args:
            id: The id of the token.

        Raises:
            UnknownTokenError: No token has this id.
            TypeError: `id` is not an integer.

        Examples:
            >>> from gristmill import Tokenizer
            >>> tok = Tokenizer([(b"l", b"o")])
            >>> tok.token_bytes(256)
            b'lo'
        """
        return self.decode_bytes([id])

    def _decode(self, ids: Ids, name: str) -> bytes:
        if type(ids) is list:  # the fast path; the code below finds the reason if it fails
            try:
                return self._encoder.decode_list(ids)
            except (KeyError, TypeError, ValueError, OverflowError):
                pass
        array = as_id_array(ids, self.vocab_size, name)
        try:
            return self._encoder.decode_bytes(array)
        except KeyError:
            i = int((self._token_lengths[array] == 0).argmax())
            raise unknown_id(int(array[i]), self.vocab_size, f"{name}[{i}]") from None

    def _without_specials(self, ids: Ids, name: str = "ids") -> NDArray[np.uint32]:
        array = as_id_array(ids, self.vocab_size, name)
        return array[~np.isin(array, list(self._vocabulary.special_tokens.values()))]
