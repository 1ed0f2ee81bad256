"""`DocumentEncoder`: documents of a corpus -> ids, on many threads. `encode_corpus` uses it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gristmill import _core
from gristmill.corpus.batches import Cut, Cutting, Spans
from gristmill.encode.encoder import Encoder


class DocumentEncoder:
    """Encodes spans of a buffer, each with an end-of-text id after or before it.

    Several threads may call `encode` at once. Use it in a `with` block, which stops the worker processes at its end.
    """

    def __init__(
        self,
        encoder: Encoder[Any],
        rule: Any,
        *,
        special_tokens: Iterable[str],
        end_of_text: int | None,
        before: bool,
        num_threads: int,
    ) -> None:
        """Users call `Tokenizer.document_encoder`."""
        self._rule, self._end_of_text, self._before = rule, end_of_text, before
        self._encoder = encoder.for_threads(num_threads)
        self._cancellation = _core.Cancellation()
        # Where readers may cut a document that is too long to keep in memory. None: nowhere.
        self.cut: Cut = (lambda text: encoder.last_cut(text, 0, rule)) if encoder.may_cut else None
        # The same, for planning the parts of a job. `special_tokens` are all special tokens of the tokenizer.
        self.cutting: Cutting | None = None
        if encoder.may_cut:
            self.cutting = Cutting.of(lambda text, start: encoder.last_cut(text, start, rule), special_tokens)

    def __enter__(self) -> DocumentEncoder:
        return self

    def __exit__(self, *_: object) -> None:
        self._encoder.close()

    def encode(self, spans: Spans) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """Return the ids of all documents, one after the other, and the end of each document in them."""
        return self._encoder.encode_documents(
            spans.text,
            spans.begins,
            spans.ends,
            self._rule,
            end_of_text=self._end_of_text,
            before=self._before,
            continued=spans.continued,
            unfinished=spans.unfinished,
            cancellation=self._cancellation,
        )

    def cancel(self) -> None:
        """Make the calls of other threads stop soon, with InterruptedError or WorkerError."""
        self._cancellation.cancel()
        self._encoder.stop()
