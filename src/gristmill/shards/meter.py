"""Progress of a run."""

from __future__ import annotations

import time
from itertools import accumulate

from gristmill.corpus import FoundFiles
from gristmill.progress import OnProgress
from gristmill.shards.output import Output
from gristmill.shards.plan import Plan

REPORT_SECONDS = 0.1


class Meter:
    """Reports progress in bytes of all inputs, including those of an earlier run."""

    def __init__(self, plan: Plan, output: Output, on_progress: OnProgress | None) -> None:
        inputs = plan.source.inputs if isinstance(plan.source, FoundFiles) else ()
        self._begins = list(accumulate((input.num_bytes for input in inputs), initial=0))
        self._initial = self._begins[output.position.index] if inputs else 0
        self._output = output
        self._on_progress = on_progress
        self._reported = time.perf_counter()

    def report_if_due(self) -> None:
        """Report if the last report was at least `REPORT_SECONDS` ago."""
        if self._on_progress is not None and time.perf_counter() - self._reported >= REPORT_SECONDS:
            self._report(self._on_progress, is_done=False)
            self._reported = time.perf_counter()

    def report_end(self) -> None:
        """Report the end of the run."""
        if self._on_progress is not None:
            self._report(self._on_progress, is_done=True)

    def _report(self, on_progress: OnProgress, *, is_done: bool) -> None:
        tokens, num_files = self._output.num_new_tokens, len(self._begins) - 1
        if num_files == 0:  # an iterable of documents, whose size is unknown
            on_progress("encode", self._output.source_bytes, 0, tokens=tokens)
            return
        index = self._output.position.index
        on_progress(
            "encode",
            self._begins[-1] if is_done else self._begins[index] + self._output.input_bytes,
            self._begins[-1],
            initial=self._initial,
            tokens=tokens,
            files=num_files if is_done else index,
            num_files=num_files,
        )
