"""`DocumentEncoder`: the documents of a corpus -> ids, on many threads at once; what `encode_corpus` uses."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gristmill import _core
from gristmill.corpus.batches import Cut, Cutting, Spans
from gristmill.encode.encoder import Encoder


class DocumentEncoder:
    """Encodes stretches of a buffer, each with an end-of-text id after or before it.

    Any number of threads may call `encode` at once. Use it in a `with` block: its end ends worker processes.
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
        # Where readers may cut a document that is too long to be held whole; None: nowhere.
        self.cut: Cut = (lambda text: encoder.last_cut(text, 0, rule)) if encoder.may_cut else None
        # The same for those who plan; `special_tokens` are all that the rule may know.
        self.cutting: Cutting | None = None
        if encoder.may_cut:
            self.cutting = Cutting.of(lambda text, start: encoder.last_cut(text, start, rule), special_tokens)

    def __enter__(self) -> DocumentEncoder:
        return self

    def __exit__(self, *_: object) -> None:
        self._encoder.close()

    def encode(self, spans: Spans) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """The ids of all documents end to end, and where each one's ids end."""
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
        """End what other threads are encoding: they raise InterruptedError or WorkerError, soon."""
        self._cancellation.cancel()
        self._encoder.stop()
