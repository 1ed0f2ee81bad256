"""encode: text -> ids."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, cast, overload

import numpy as np
from numpy.typing import DTypeLike, NDArray

from gristmill import _core
from gristmill.arguments import as_utf8, check_num_threads, check_whole_number, usable_cores
from gristmill.corpus.documents import is_missing
from gristmill.corpus.inputs import shown
from gristmill.encode.chunks import as_blocks, encode_chunks
from gristmill.encode.columns import as_rows, check_no_table
from gristmill.encode.compressed import encode_compressed, find_compression
from gristmill.encode.decode_methods import DecodeMethods
from gristmill.encode.document_encoder import DocumentEncoder
from gristmill.encode.dropout import check_dropout, check_seed, seed_of_text
from gristmill.encode.ids import check_dtype
from gristmill.encode.offsets import Offsets, find_offsets
from gristmill.encode.ragged import Ragged, Side, check_max_tokens, check_side
from gristmill.encode.special_rules import NONE, Specials, forged_special
from gristmill.errors import CorpusError
from gristmill.progress import ProgressOption, open_progress

Text = str | bytes

# A shorter text is encoded before a second thread has started.
PARALLEL_BYTES = 1 << 18


class EncodeMethods(DecodeMethods):
    """The methods of `Tokenizer` that take text."""

    def encode(
        self,
        text: Text,
        *,
        allowed_special: Specials = NONE,
        disallowed_special: Specials = NONE,
        dropout: float = 0.0,
        seed: int | None = None,
    ) -> list[int]:
        """Return the ids of `text`.

        A special token in `text` is plain text unless `allowed_special` names it.

        Args:
            text: The text to encode.
            allowed_special: Special tokens that become their ids, or "all".
            disallowed_special: Special tokens that raise an error if they occur in `text`, or "all" for all that are
                not allowed.
            dropout: Probability of skipping each merge (BPE-dropout), from 0 to 1.
            seed: Seed of the dropout: the same seed gives the same ids. Default: a fresh random seed.

        Raises:
            SpecialTokenError: A disallowed special token occurs in `text`, or an argument names an unknown one.
            OptionError: `dropout` or `seed` is out of range.
            TextError: `text` is a `str` with lone surrogates.
            TypeError: `text` is neither `str` nor `bytes`.

        Examples:
            >>> from gristmill import Tokenizer
            >>> tok = Tokenizer([(b"a", b"a")], special_tokens=["<|end|>"])
            >>> tok.encode("aab")
            [256, 98]
            >>> tok.encode("aab<|end|>", allowed_special={"<|end|>"})
            [256, 98, 257]
            >>> len(tok.encode("<|end|>"))
            7
        """
        # The core encodes a short text in half a microsecond, so the code here decides the latency of a chat program.
        if allowed_special is NONE and disallowed_special is NONE:
            rule = self._default_rule
        else:
            rule = self._rules.rule(allowed_special, disallowed_special)
        try:
            if dropout:
                ids = self._encoder.encode_dropout(text, rule, check_dropout(dropout), check_seed(seed))
                return cast(list[int], ids.tolist())
            return self._encoder.encode(text, rule)
        except (TypeError, ValueError) as error:
            raise self._explained(error, [text]) from None

    def encode_ordinary(self, text: Text) -> list[int]:
        """Return the ids of `text` as plain text, special tokens included. Same as `encode(text)`; tiktoken's name.

        Args:
            text: The text to encode.

        Raises:
            TextError: `text` is a `str` with lone surrogates.
            TypeError: `text` is neither `str` nor `bytes`.

        Examples:
            >>> from gristmill import Tokenizer
            >>> Tokenizer([(b"a", b"a")]).encode_ordinary("aab")
            [256, 98]
        """
        try:
            return self._encoder.encode(text, self._default_rule)
        except (TypeError, ValueError) as error:
            raise self._explained(error, [text]) from None

    def encode_array(
        self,
        text: Text,
        *,
        allowed_special: Specials = NONE,
        disallowed_special: Specials = NONE,
        dtype: DTypeLike | None = None,
        num_threads: int | None = None,
    ) -> NDArray[Any]:
        """Return the ids of `text` as an array.

        The ids are those of `encode`. For long texts this is faster, and it uses several threads.

        Args:
            text: The text to encode.
            allowed_special: Special tokens that become their ids, or "all".
            disallowed_special: Special tokens that raise an error if they occur in `text`, or "all" for all that are
                not allowed.
            dtype: Integer type of the array. Default: uint16 if it can represent all ids, otherwise uint32.
            num_threads: Number of threads. Default: all available cores for long texts, one thread for short texts.

        Raises:
            SpecialTokenError: A disallowed special token occurs in `text`, or an argument names an unknown one.
            OptionError: `dtype` cannot represent all ids, or `num_threads` is out of range.
            TextError: `text` is a `str` with lone surrogates.
            TypeError: `text` is neither `str` nor `bytes`.

        Examples:
            >>> from gristmill import Tokenizer
            >>> Tokenizer([(b"a", b"a")]).encode_array("aab")
            array([256,  98], dtype=uint16)
        """
        kind = check_dtype(dtype, self.vocab_size)
        rule = self._rules.rule(allowed_special, disallowed_special)
        try:
            ids = self._encoder.encode_array(text, rule, _threads_for(num_threads, [text]))
        except (TypeError, ValueError) as error:
            raise self._explained(error, [text]) from None
        return ids.astype(kind, copy=False)

    @overload
    def encode_batch(
        self,
        texts: Iterable[Text],
        *,
        allowed_special: Specials = ...,
        disallowed_special: Specials = ...,
        dtype: DTypeLike | None = ...,
        num_threads: int | None = ...,
        max_tokens: int | None = ...,
        truncate: Side = ...,
        as_lists: Literal[False] = ...,
        dropout: float = ...,
        seed: int | None = ...,
    ) -> Ragged: ...
    @overload
    def encode_batch(
        self,
        texts: Iterable[Text],
        *,
        allowed_special: Specials = ...,
        disallowed_special: Specials = ...,
        dtype: DTypeLike | None = ...,
        num_threads: int | None = ...,
        max_tokens: int | None = ...,
        truncate: Side = ...,
        as_lists: Literal[True],
        dropout: float = ...,
        seed: int | None = ...,
    ) -> list[list[int]]: ...
    def encode_batch(
        self,
        texts: Iterable[Text],
        *,
        allowed_special: Specials = NONE,
        disallowed_special: Specials = NONE,
        dtype: DTypeLike | None = None,
        num_threads: int | None = None,
        max_tokens: int | None = None,
        truncate: Side = "right",
        as_lists: bool = False,
        dropout: float = 0.0,
        seed: int | None = None,
    ) -> Ragged | list[list[int]]:
        """Return the ids of many texts as two flat arrays (`Ragged`), or as lists.

        Args:
            texts: Any iterable of texts, such as a list, a pandas or polars Series, or a pyarrow or NumPy array.
            allowed_special: Special tokens that become their ids, or "all".
            disallowed_special: Special tokens that raise an error if they occur in a text, or "all" for all that are
                not allowed.
            dtype: Integer type of the ids. Default: uint16 if it can represent all ids, otherwise uint32.
            num_threads: Number of threads. Default: all available cores for large batches, one thread for small ones.
            max_tokens: Maximum number of ids per text. Default: no limit.
            truncate: Side at which a text with more than `max_tokens` ids is cut: "right" or "left".
            as_lists: Return a list of lists instead of a `Ragged`.
            dropout: Probability of skipping each merge, as in `encode`. Runs on one thread.
            seed: Seed of the dropout. The ids of a text depend on the seed and on its index in the batch, not on the
                other texts.

        Raises:
            SpecialTokenError: A disallowed special token occurs in a text, or an argument names an unknown one.
            OptionError: An argument is out of range.
            TextError: A text is a `str` with lone surrogates.
            TypeError: `texts` is a table or a single text, or one of its entries is missing or not a text.

        Examples:
            >>> from gristmill import Tokenizer
            >>> rows = Tokenizer([(b"a", b"a")]).encode_batch(["aa", "", "aab"])
            >>> rows.ids, rows.offsets.tolist()
            (array([256, 256,  98], dtype=uint16), [0, 1, 1, 3])
            >>> rows.padded(0)[0].tolist()
            [[256, 0], [0, 0], [256, 98]]
        """
        kind = check_dtype(dtype, self.vocab_size)
        rule = self._rules.rule(allowed_special, disallowed_special)
        limit = None if max_tokens is None else check_max_tokens(max_tokens)
        check_side("truncate", truncate)
        batch = as_rows(texts, "texts", of="str or bytes")
        try:
            if dropout:
                ids, offsets = self._drop_out_of_batch(batch, rule, check_dropout(dropout), check_seed(seed))
            else:
                ids, offsets = self._encoder.encode_batch(batch, rule, _threads_for(num_threads, batch))
        except (TypeError, ValueError) as error:
            raise self._explained(error, batch, "texts[{}]") from None
        rows = Ragged(ids.astype(kind, copy=False), offsets)
        if limit is not None:
            rows = rows.truncated(limit, side=truncate)
        return rows.tolist() if as_lists else rows

    def _drop_out_of_batch(
        self, batch: list[Text], rule: Any, dropout: float, seed: int
    ) -> tuple[NDArray[Any], NDArray[np.int64]]:
        rows = [np.empty(0, np.uint32)]
        for i, text in enumerate(batch):
            try:
                rows.append(self._encoder.encode_dropout(text, rule, dropout, seed_of_text(seed, i)))
            except _core.ForgedSpecial as error:
                raise _core.ForgedSpecial(i, *error.args[1:]) from None
        return np.concatenate(rows), np.cumsum([len(row) for row in rows])

    def encode_iterable(
        self, chunks: Iterable[Text], *, allowed_special: Specials = NONE, disallowed_special: Specials = NONE
    ) -> Iterator[int]:
        """Return an iterator over the ids of the joined chunks that reads the chunks as needed. Starts no thread.

        The ids are those of the whole text, even if a chunk ends inside a character or a special token. Memory use is
        about 16 KB plus the text since the last position where it may be cut, usually the last space. With a pattern
        that has no native matcher, it is the document since the last allowed special token.

        Args:
            chunks: Consecutive parts of one text.
            allowed_special: Special tokens that become their ids, or "all".
            disallowed_special: Special tokens that raise an error if they occur in the text, or "all" for all that are
                not allowed.

        Raises:
            SpecialTokenError: A disallowed special token occurs in the text, or an argument names an unknown one.
            TextError: A chunk is a `str` with lone surrogates.
            TypeError: `chunks` is a table or a single text, or a chunk is neither `str` nor `bytes`.

        Examples:
            >>> from gristmill import Tokenizer
            >>> list(Tokenizer([(b"a", b"a")]).encode_iterable(["a", "ab"]))
            [256, 98]
        """
        rule = self._rules.rule(allowed_special, disallowed_special)
        check_no_table(chunks, "chunks")
        return self._encode_chunks(as_blocks(chunks), rule)

    def _encode_chunks(self, blocks: Iterable[bytes], rule: Any) -> Iterator[int]:
        try:
            for ids in encode_chunks(blocks, self._encoder, rule, encode=self._encoder.encode):
                yield from ids
        except _core.ForgedSpecial as error:
            raise self._explained(error, ()) from None

    def encode_with_offsets(
        self, text: Text, *, allowed_special: Specials = NONE, disallowed_special: Specials = NONE
    ) -> Offsets:
        """Return the ids of `text` and the position of each token in it, in bytes and in characters.

        A token may begin or end inside a character. Its character span then includes the whole character. A byte that
        is not valid UTF-8 counts as one character.

        Args:
            text: The text to encode.
            allowed_special: Special tokens that become their ids, or "all".
            disallowed_special: Special tokens that raise an error if they occur in `text`, or "all" for all that are
                not allowed.

        Raises:
            SpecialTokenError: A disallowed special token occurs in `text`, or an argument names an unknown one.
            TextError: `text` is a `str` with lone surrogates.
            TypeError: `text` is neither `str` nor `bytes`.

        Examples:
            >>> from gristmill import Tokenizer
            >>> Tokenizer([(b"a", b"a")]).encode_with_offsets("aaé").char_spans.tolist()
            [[0, 2], [2, 3], [2, 3]]
        """
        ids = self.encode_array(text, allowed_special=allowed_special, disallowed_special=disallowed_special)
        return find_offsets(text, ids, self._token_lengths)

    def encode_file(
        self,
        path: str | os.PathLike[str],
        *,
        allowed_special: Specials = NONE,
        disallowed_special: Specials = NONE,
        dtype: DTypeLike | None = None,
        max_decompressed_bytes: int | None = None,
        num_threads: int | None = None,
        progress: ProgressOption = None,
    ) -> NDArray[Any]:
        """Return the ids of the text in the file at `path`, as an array.

        A file whose name ends in .gz or .zst is decompressed while it is read; progress is then in compressed bytes.
        Any other file is encoded as plain text, including JSON Lines. For Parquet and other tables, use
        `encode_corpus`.

        Args:
            path: Path of a local file.
            allowed_special: Special tokens that become their ids, or "all".
            disallowed_special: Special tokens that raise an error if they occur in the file, or "all" for all that are
                not allowed.
            dtype: Integer type of the array. Default: uint16 if it can represent all ids, otherwise uint32.
            max_decompressed_bytes: Maximum size of the text in a compressed file. Default: no limit. A file of 1 MB
                may contain 1 GB of text, and the ids of all of it are in memory.
            num_threads: Number of threads. Default: all cores available to this process.
            progress: As in `train_tokenizer`; silent by default.

        Raises:
            OSError: The file cannot be read, or changed while it was read.
            CorpusError: The compressed data are damaged or larger than `max_decompressed_bytes`, or `path` is a pipe or
                device.
            SpecialTokenError: A disallowed special token occurs in the file, or an argument names an unknown one.
            OptionError: `dtype` cannot represent all ids, or `num_threads` is out of range.

        Examples:
            ```python
            ids = tok.encode_file("corpus.txt.zst", allowed_special="all")
            ```
        """
        if not isinstance(path, str | os.PathLike):
            raise TypeError(f"path is of type {type(path).__name__}. Pass a str or a Path.")
        kind = check_dtype(dtype, self.vocab_size)
        rule = self._rules.rule(allowed_special, disallowed_special)
        threads = check_num_threads(num_threads)
        if max_decompressed_bytes is not None:
            check_whole_number("max_decompressed_bytes", max_decompressed_bytes)
        _refuse_device(path)
        compression = find_compression(os.fsdecode(path)) if os.path.isfile(path) else ""  # noqa: PTH113
        try:
            with open_progress(progress) as on_progress:
                if compression:
                    name = os.fsdecode(path)
                    ids = encode_compressed(
                        name, compression, self._encoder, rule, threads, on_progress, max_bytes=max_decompressed_bytes
                    )
                else:
                    ids = self._encoder.encode_file(path, rule, threads, on_progress)
        except _core.ForgedSpecial as error:
            raise self._explained(error, (), os.fspath(path).replace("{", "{{").replace("}", "}}")) from None
        return ids.astype(kind, copy=False)

    def document_encoder(
        self,
        *,
        allowed_special: Specials = NONE,
        end_of_text: int | None = None,
        before: bool = False,
        num_threads: int | None = None,
    ) -> DocumentEncoder:
        """Return an encoder for batches of documents that adds an end-of-text id to each. `encode_corpus` uses it.

        `DocumentEncoder.encode` takes `gristmill.corpus.Spans`, which are spans of one buffer, and may be called from
        several threads. Use the encoder in a `with` block.

        Args:
            allowed_special: Special tokens that become their ids, or "all". All others are plain text.
            end_of_text: Id to add to each document. None: no id.
            before: Add the id before each document instead of after it.
            num_threads: Number of threads that will call `encode`. Default: all cores available to this process.

        Raises:
            UnknownTokenError: No token has the id `end_of_text`.
            SpecialTokenError: `allowed_special` names an unknown special token.
            OptionError: `num_threads` is out of range.

        Examples:
            >>> import numpy as np
            >>> from gristmill import Tokenizer
            >>> from gristmill.corpus import Spans
            >>> tok = Tokenizer([(b"a", b"a")], special_tokens=["<|end|>"])
            >>> with tok.document_encoder(end_of_text=257, num_threads=1) as encoder:
            ...     ids, ends = encoder.encode(Spans(b"aaaab", np.array([0, 2]), np.array([2, 5])))
            >>> ids.tolist(), ends.tolist()
            ([256, 257, 256, 98, 257], [2, 5])
        """
        if end_of_text is not None:
            self.token_bytes(end_of_text)  # raises UnknownTokenError for an unknown id
        rule = self._rules.rule(allowed_special, NONE)
        threads = check_num_threads(num_threads)
        return DocumentEncoder(
            self._encoder,
            rule,
            special_tokens=self._vocabulary.special_tokens,
            end_of_text=end_of_text,
            before=before,
            num_threads=threads,
        )

    def count_tokens(
        self,
        text: Text,
        *,
        allowed_special: Specials = NONE,
        disallowed_special: Specials = NONE,
        num_threads: int | None = None,
    ) -> int:
        """Return the number of ids of `text`, without storing them.

        Args:
            text: The text to encode.
            allowed_special: Special tokens that become their ids, or "all".
            disallowed_special: Special tokens that raise an error if they occur in `text`, or "all" for all that are
                not allowed.
            num_threads: Number of threads. Default: all available cores for long texts, one thread for short texts.

        Raises:
            SpecialTokenError: A disallowed special token occurs in `text`, or an argument names an unknown one.
            OptionError: `num_threads` is out of range.
            TextError: `text` is a `str` with lone surrogates.
            TypeError: `text` is neither `str` nor `bytes`.

        Examples:
            >>> from gristmill import Tokenizer
            >>> Tokenizer([(b"a", b"a")]).count_tokens("aab")
            2
        """
        rule = self._rules.rule(allowed_special, disallowed_special)
        try:
            return self._encoder.count_tokens(text, rule, _threads_for(num_threads, [text]))
        except (TypeError, ValueError) as error:
            raise self._explained(error, [text]) from None

    def _explained(self, error: Exception, texts: Sequence[Text], name: str = "the text") -> Exception:
        """Return the error to raise instead of `error`, which the core raised for one of `texts`."""
        if isinstance(error, _core.ForgedSpecial):
            index, position, id = error.args
            special = next(special for special, i in self._vocabulary.special_tokens.items() if i == id)
            return forged_special(special, position, name.format(index))
        for i, text in enumerate(texts):
            if is_missing(text) and len(texts) > 1:
                return TypeError(
                    f"{name.format(i)} is a missing value: {text!r}. Pass str or bytes, and drop missing values first."
                )
            try:
                as_utf8(text, name.format(i))
            except (TypeError, ValueError) as better:
                return better
        return error


def _refuse_device(path: str | os.PathLike[str]) -> None:
    """Raise if `path` is a pipe or a device. For a missing file or a folder, the system raises its own error."""
    if os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path):  # noqa: PTH110, PTH112, PTH113
        raise CorpusError(
            f"{shown(os.fsdecode(path))}: not a regular file but a pipe or device. Write its text to a file first, or "
            f"pass the text to encode_array()."
        )


def _threads_for(num_threads: int | None, texts: list[Text]) -> int:
    if num_threads is not None:
        return check_num_threads(num_threads)
    size = sum(len(text) for text in texts if isinstance(text, str | bytes))
    return usable_cores() if size >= PARALLEL_BYTES else 1
