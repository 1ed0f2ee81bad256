"""Counts on a GPU and on the CPU, for the tests of counting."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from gristmill import _core
from gristmill.gpu.counting import DeviceTable, GpuCounter
from gristmill.gpu.driver import Driver, all_active

# A chunk has a few slots, and a text has many chunks.
SMALL = {"chunk_bytes": 1000, "slot_bytes": 300, "ring_bytes": 1300}
COUNTS = ("source_bytes", "num_pieces", "num_words")


class Spans(NamedTuple):
    """Texts as the readers pass them on: one after the other in a buffer, with bytes between them that are no text."""

    text: bytes
    begins: np.ndarray
    ends: np.ndarray

    @classmethod
    def of(cls, texts: Sequence[bytes | str]) -> Spans:
        parts = [text.encode() if isinstance(text, str) else text for text in texts]
        ends = np.cumsum([len(part) + 3 for part in parts], dtype=np.int64) - 1
        begins = ends - np.array([len(part) for part in parts], np.int64)
        return cls(b"".join(b"'s" + part + b"t" for part in parts), begins, ends)


Add = Callable[[Any], None]  # adds texts to either counter


def add_texts(texts: Sequence[bytes | str]) -> Add:
    return lambda counter: counter.add_spans(*Spans.of(texts))


def make_counter(drivers: Sequence[Driver], *, pattern="gpt2", specials: Sequence[bytes] = (), **options) -> GpuCounter:
    return GpuCounter(drivers, pattern=pattern, special_tokens=list(specials), **{"num_threads": 2, **SMALL, **options})


def count_on_gpu(drivers: Sequence[Driver], add: Add, **options) -> tuple[DeviceTable, dict[str, Any]]:
    """Return what `GpuCounter` finds, with the table on the host."""
    with all_active(drivers):
        counter = make_counter(drivers, **options)
        add(counter)
        table, figures = counter.finish()
        table.to_host()
        return table, figures


def count_on_cpu(add: Add, *, pattern="gpt2", specials: Sequence[bytes] = (), min_frequency=1):
    counter = _core.Counter(pattern=pattern, special_tokens=specials, num_threads=1, min_frequency=min_frequency)
    add(counter)
    return counter.finish()


def assert_same(drivers: Sequence[Driver], texts: Sequence[bytes | str] | Add, **options) -> DeviceTable:
    """Count texts on both, compare, and return what the GPU found."""
    add = texts if callable(texts) else add_texts(texts)
    for_both = {name: options[name] for name in ("pattern", "specials", "min_frequency") if name in options}
    expected, expected_figures = count_on_cpu(add, **for_both)
    found, figures = count_on_gpu(drivers, add, **options)
    assert_same_tables(found.to_host(), expected)
    assert {name: figures[name] for name in COUNTS} == {name: expected_figures[name] for name in COUNTS}
    assert set(figures) == set(expected_figures)
    assert len(found) == len(expected)
    return found


def assert_same_tables(found: _core.WordTable, expected: _core.WordTable) -> None:
    assert words_of(found) == words_of(expected)
    for name in ("data", "offsets", "counts", "firsts"):
        values, others = getattr(found, name), getattr(expected, name)
        assert values.dtype == others.dtype and np.array_equal(values, others), name
    assert found.source_bytes == expected.source_bytes


def words_of(table: _core.WordTable) -> dict[bytes, tuple[int, int]]:
    """Return the count and the first position of each word."""
    data, offsets = table.data.tobytes(), table.offsets.tolist()
    words = [data[begin:end] for begin, end in pairwise(offsets)]
    return dict(zip(words, zip(table.counts.tolist(), table.firsts.tolist(), strict=True), strict=True))
