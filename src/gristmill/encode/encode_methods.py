"""encode: text -> ids."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, cast, overload

import numpy as np
from numpy.typing import DTypeLike, NDArray

from gristmill import _core
from gristmill.arguments import as_utf8, check_num_threads, usable_cores
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

# Less text is encoded before a second thread has started.
PARALLEL_BYTES = 1 << 18


class EncodeMethods(DecodeMethods):
    """The methods of `Tokenizer` that take text. Its docstring says what their common arguments are."""

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

        With `dropout`, each merge is skipped with this probability, the same ones for the same `seed`.

        >>> from gristmill import Tokenizer
        >>> tok = Tokenizer([(b"a", b"a")], special_tokens=["<|end|>"])
        >>> tok.encode("aab")
        [256, 98]
        >>> tok.encode("aab<|end|>", allowed_special={"<|end|>"})
        [256, 98, 257]
        >>> len(tok.encode("<|end|>"))
        7
        """
        # A short text takes half a microsecond in the core: what is done here is what a chat program waits for.
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
        """Return the ids of `text`, all of it plain text: `encode` without options, as tiktoken names it."""
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
        """Return the ids of `text` as an array: what `encode` gives, faster for long texts and on several threads.

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

        texts: any iterable, a column of a table among them: a Series of pandas or polars, an array of pyarrow or NumPy.
        max_tokens: at most so many ids a text; `truncate` says at which side the others are cut off.
        dropout, seed: as in `encode`; the ids of a text depend on its place in the batch, not on its neighbours.

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
        """Return the ids of all chunks joined, one by one, while the chunks are being read; no thread is started.

        They are those of the whole text wherever the chunks end, be it inside a character or a special. Some 16 KB are
        held in memory, and the stretch since the last place where the text may be cut, which is as a rule the last
        space; with a pattern that has no native matcher, the document since the last allowed special.

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
        """Return the ids of `text` and where each token stands in it, in bytes and in characters.

        A token may be a part of a character, or end in the middle of one: its span of characters holds all of it. A
        byte that is not valid UTF-8 is one character.

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
        num_threads: int | None = None,
        progress: ProgressOption = None,
    ) -> NDArray[Any]:
        """Return the ids of the file at `path`: those of its text, as `encode_array` gives them.

        A file whose name ends in .gz or .zst is unpacked while it is read, as in training; progress is then in bytes of
        the compressed file. Any other is taken as it is, JSON Lines too; for tables such as Parquet there is
        `encode_corpus`.
        """
        if not isinstance(path, str | os.PathLike):
            raise TypeError(f"path is of type {type(path).__name__}. Pass a str or a Path.")
        kind = check_dtype(dtype, self.vocab_size)
        rule = self._rules.rule(allowed_special, disallowed_special)
        threads = check_num_threads(num_threads)
        _refuse_device(path)
        compression = find_compression(os.fsdecode(path)) if os.path.isfile(path) else ""  # noqa: PTH113
        try:
            with open_progress(progress) as on_progress:
                if compression:
                    name = os.fsdecode(path)
                    ids = encode_compressed(name, compression, self._encoder, rule, threads, on_progress)
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
        """Return what encodes the documents of a corpus, for so many threads at once, each with an end-of-text id.

        `DocumentEncoder.encode` takes `gristmill.corpus.Spans`: stretches of one buffer. Special tokens that are not
        allowed are plain text. `encode_corpus` is made of this; use it in a `with` block.
        """
        if end_of_text is not None:
            self.token_bytes(end_of_text)  # UnknownTokenError for one that there is not
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
        """Return how many ids `text` has, without keeping them."""
        rule = self._rules.rule(allowed_special, disallowed_special)
        try:
            return self._encoder.count_tokens(text, rule, _threads_for(num_threads, [text]))
        except (TypeError, ValueError) as error:
            raise self._explained(error, [text]) from None

    def _explained(self, error: Exception, texts: Sequence[Text], name: str = "the text") -> Exception:
        """What to raise instead of `error`, which the core raised on one of `texts`."""
        if isinstance(error, _core.ForgedSpecial):
            index, position, id = error.args
            special = next(special for special, i in self._vocabulary.special_tokens.items() if i == id)
            return forged_special(special, position, name.format(index))
        for i, text in enumerate(texts):
            if is_missing(text) and len(texts) > 1:
                return TypeError(
                    f"{name.format(i)} is missing: {text!r}. Pass str or bytes; leave such entries out first."
                )
            try:
                as_utf8(text, name.format(i))
            except (TypeError, ValueError) as better:
                return better
        return error


def _refuse_device(path: str | os.PathLike[str]) -> None:
    """Raise for what is neither a file nor a folder, whose error is that of the system."""
    if os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path):  # noqa: PTH110, PTH112, PTH113
        raise CorpusError(
            f"{shown(os.fsdecode(path))}: not a regular file but a pipe or device. Write its text to a file first, or "
            f"pass the text itself to encode_array()."
        )


def _threads_for(num_threads: int | None, texts: list[Text]) -> int:
    if num_threads is not None:
        return check_num_threads(num_threads)
    size = sum(len(text) for text in texts if isinstance(text, str | bytes))
    return usable_cores() if size >= PARALLEL_BYTES else 1
