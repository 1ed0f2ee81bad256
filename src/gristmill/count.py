"""count: corpus -> words, on all threads. The native core does it; patterns it does not know go to worker processes."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from gristmill._core import Counter, WordTable
from gristmill.arguments import (
    check_kernel,
    check_memory_limit,
    check_min_frequency,
    check_num_threads,
    check_special_tokens,
)
from gristmill.corpus import Corpus, Documents, Files, open_corpus
from gristmill.corpus.documents import BATCH_BYTES
from gristmill.errors import EmptyCorpusError, PatternError, SpecialTokenError
from gristmill.patterns import DEFAULT_PATTERN, Pattern, resolve_pattern, tell_that_it_is_slow
from gristmill.profile import Stage
from gristmill.progress import OnProgress, ProgressOption, open_progress
from gristmill.words import Words

__all__ = ["count_words"]


@dataclass(frozen=True, slots=True)
class CountOptions:
    """How to count, every field checked."""

    pattern: Pattern
    special_tokens: tuple[str, ...]
    min_frequency: int
    memory_limit: int | None
    num_threads: int

    @classmethod
    def checked(
        cls,
        corpus: Any,
        *,
        pattern: str | None,
        special_tokens: Iterable[str] | None,
        min_frequency: int,
        memory_limit: int | None,
        num_threads: int | None,
    ) -> CountOptions:
        """The options; counted words bring their pattern and specials along, and only the same ones may be given."""
        check_kernel()
        given_pattern = None if pattern is None else resolve_pattern(pattern)
        given_specials = None if special_tokens is None else check_special_tokens(special_tokens)
        if isinstance(corpus, Words):
            if given_pattern is not None and str(given_pattern) != corpus.pattern:
                raise PatternError(
                    f"pattern={pattern!r}, but the words were counted with pattern={corpus.pattern!r}. "
                    f"Leave pattern out, or count again."
                )
            if given_specials is not None and given_specials != corpus.special_tokens:
                raise SpecialTokenError(
                    f"special_tokens={list(given_specials)}, but the words were counted with "
                    f"special_tokens={list(corpus.special_tokens)}. Leave special_tokens out, or count again."
                )
            given_pattern, given_specials = resolve_pattern(corpus.pattern), corpus.special_tokens
        return cls(
            pattern=given_pattern or resolve_pattern(DEFAULT_PATTERN),
            special_tokens=given_specials or (),
            min_frequency=check_min_frequency(min_frequency),
            memory_limit=check_memory_limit(memory_limit),
            num_threads=check_num_threads(num_threads),
        )


def count_words(
    corpus: Corpus,
    *,
    pattern: str | None = None,
    special_tokens: Iterable[str] | None = None,
    min_frequency: int = 1,
    memory_limit: int | None = None,
    num_threads: int | None = None,
    progress: ProgressOption = "auto",
) -> Words:
    """Return the distinct pieces of `corpus` with their counts.

    The table is the same for every number of threads. `corpus`, `pattern` and `special_tokens` may be all that
    `train_tokenizer` takes; words that occur fewer than `min_frequency` times are left out; with a `memory_limit`
    (bytes), counting moves sorted parts of the table to the temporary folder ($TMPDIR) and joins them at the end, with
    the same result.

    >>> words = count_words(["low low lower"])
    >>> words.most_common()
    [(b'low', 1), (b' low', 1), (b' lower', 1)]
    >>> words.count(" low"), words.total
    (1, 3)
    """
    options = CountOptions.checked(
        corpus,
        pattern=pattern,
        special_tokens=special_tokens,
        min_frequency=min_frequency,
        memory_limit=memory_limit,
        num_threads=num_threads,
    )
    with open_progress(progress) as on_progress:
        words, _ = count(corpus, options, on_progress)
    return words


def count(corpus: Corpus, options: CountOptions, on_progress: OnProgress | None) -> tuple[Words, list[Stage]]:
    """The words of `corpus`, at least one, and the figures of counting them."""
    if isinstance(corpus, Words):
        words, stages = corpus, list[Stage]()
        if options.min_frequency > 1:
            words = corpus.at_least(options.min_frequency)
        num_before, source_bytes = len(corpus), corpus.source_bytes
    else:
        table, stages = _count_source(open_corpus(corpus), options, on_progress)
        words = Words(table, pattern=options.pattern, special_tokens=options.special_tokens)
        num_before, source_bytes = stages[0].num_words or 0, stages[0].num_bytes or 0
    if len(words) == 0:
        raise EmptyCorpusError(_why_empty(source_bytes, num_before, options))
    return words, stages


def _count_source(
    source: Files | Documents, options: CountOptions, on_progress: OnProgress | None
) -> tuple[WordTable, list[Stage]]:
    if options.pattern.name is not None:
        table, figures = _count_natively(source, options, on_progress)
    else:
        table, figures = _count_by_regex(source, options, on_progress)
    stages = [
        Stage(
            stage="count",
            seconds=figures["count_seconds"],
            num_bytes=figures["source_bytes"],
            num_words=figures["num_words"],
            num_pieces=figures["num_pieces"],
            num_spilled_runs=figures["num_spilled_runs"],
        ),
        Stage(stage="join", seconds=figures["join_seconds"], num_words=len(table)),
    ]
    return table, stages


def _count_natively(
    source: Files | Documents, options: CountOptions, on_progress: OnProgress | None
) -> tuple[WordTable, dict[str, Any]]:
    meter = _BatchMeter(on_progress) if isinstance(source, Documents) and on_progress is not None else None
    with _spill_folder(options.memory_limit) as folder:
        counter = Counter(
            pattern=str(options.pattern),
            special_tokens=[special.encode() for special in options.special_tokens],
            num_threads=options.num_threads,
            memory_limit=options.memory_limit or 0,
            spill_folder=folder,
            min_frequency=options.min_frequency,
            on_progress=meter or on_progress,
        )
        if isinstance(source, Files):
            counter.add_files(list(source.paths))
        else:
            batch_bytes = min(BATCH_BYTES, (options.memory_limit or BATCH_BYTES * 8) // 8)
            for batch in source.batches(batch_bytes):
                counter.add_texts(batch)
                if meter is not None:
                    meter.counted += sum(map(len, batch))
        return counter.finish()


class _BatchMeter:
    """Progress over documents: the core counts each batch from 0, and nobody knows how many are still to come."""

    def __init__(self, on_progress: OnProgress) -> None:
        self.counted = 0
        self._on_progress = on_progress

    def __call__(self, stage: str, done: int, total: int) -> None:
        if stage == "count":
            done, total = self.counted + done, 0
        self._on_progress(stage, done, total)


@contextlib.contextmanager
def _spill_folder(memory_limit: int | None) -> Iterator[str]:
    """A folder for what does not fit, removed in every case; "" where there is no limit."""
    if memory_limit is None:
        yield ""
    else:
        with tempfile.TemporaryDirectory(prefix="gristmill-") as folder:
            yield folder


def _count_by_regex(
    source: Files | Documents, options: CountOptions, on_progress: OnProgress | None
) -> tuple[WordTable, dict[str, Any]]:
    from gristmill.regex_pool import count_by_regex  # not at the top: native patterns never need it

    tell_that_it_is_slow(options.pattern)
    start = time.perf_counter()
    table = count_by_regex(
        source,
        regex=options.pattern.regex,
        special_tokens=options.special_tokens,
        num_threads=options.num_threads,
        memory_limit=options.memory_limit,
        on_progress=on_progress,
    )
    figures = {
        "count_seconds": time.perf_counter() - start,
        "join_seconds": 0.0,
        "source_bytes": table.source_bytes,
        "num_words": len(table),
        "num_pieces": table.total,
        "num_spilled_runs": 0,
    }
    if options.min_frequency > 1:
        table = table.at_least(options.min_frequency)
    return table, figures


def _why_empty(source_bytes: int, num_words: int, options: CountOptions) -> str:
    if num_words:
        return (
            f"min_frequency={options.min_frequency} leaves none of the {num_words:,} words of the corpus. "
            f"Pass a smaller min_frequency."
        )
    if source_bytes:
        return f"the corpus holds special tokens only ({source_bytes:,} bytes), and no text to learn from."
    return "the corpus is empty: 0 bytes of text. Pass files or documents that hold some."
