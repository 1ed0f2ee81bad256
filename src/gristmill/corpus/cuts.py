"""Find places where an input may be cut, by reading only a few KB near each place.

Text is cut after a separator, JSON lines after a newline, Parquet between row groups. A document is cut only if there
is no separator nearby. A place depends only on the bytes near it, not on the other places. The parts between places,
read one after the other, give the documents of the whole input.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, pairwise
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from gristmill.corpus import batches
from gristmill.corpus.batches import Cutting, Mark
from gristmill.corpus.formats.columns import row_groups
from gristmill.corpus.inputs import Input
from gristmill.corpus.options import Reading
from gristmill.corpus.sources import Source, open_source
from gristmill.corpus.windows import overlaps_itself

Search: TypeAlias = Callable[[], list[Mark]]

# Bytes read first at each place. Documents are a few KB long.
FIRST_BYTES = 64 << 10
# Maximum bytes read at once if there is no cut nearby.
MAX_BYTES = 1 << 20
# How far to search for a separator before a document is cut.
NEAR_BYTES = 4 << 20
# Places that are searched together, with the input opened once.
NUM_TOGETHER = 64


def searches(input: Input, reading: Reading, cutting: Cutting | None, num_parts: int) -> list[Search]:
    """Return functions that find the places to cut an input into about `num_parts`, in order. They share no state.

    Empty for an input that is read as a whole: a compressed one, and any with on_error="skip". The line number of the
    places is unknown.
    """
    if input.compression or reading.on_error == "skip" or input.failure is not None:
        return []
    if input.format == "parquet":
        return [partial(_between_row_groups, input, reading, num_parts)]
    if input.format == "text":
        search = _Search(input, reading.end_of_document, cutting)
    elif input.format == "jsonl":
        search = _Search(input, b"\n", None)
    else:
        return []
    if search.separator is None and search.cutting is None:
        return []
    targets = [input.num_bytes * number // num_parts for number in range(1, num_parts + 1)]
    regions = [(begin, end) for begin, end in pairwise(targets) if begin < end]
    together = [regions[first : first + NUM_TOGETHER] for first in range(0, len(regions), NUM_TOGETHER)]
    return [partial(search.run, some) for some in together]


@dataclass(frozen=True, slots=True)
class _Search:
    """Searches for places in a text."""

    input: Input
    separator: bytes | None
    cutting: Cutting | None

    def run(self, regions: list[tuple[int, int]]) -> list[Mark]:
        """Return the first suitable place in each region that has one."""
        source = open_source(self.input, block_bytes=FIRST_BYTES)
        try:
            places = [self._find(source, begin, end) for begin, end in regions]
        finally:
            source.close()
        return [place for place in places if place is not None and place.offset < self.input.num_bytes]

    def _find(self, source: Source, begin: int, end: int) -> Mark | None:
        """Return the end of the first separator in [begin, end), or a cut in a document if no separator is near."""
        for at, to in _blocks(begin, end):
            is_near = to < end and to - begin < NEAR_BYTES
            window = self._read(source, at, to, may_cut=self.separator is None or not is_near)
            place = self._after_separator(window) or self._inside(window, begin)
            if place is not None:
                return place
        return None

    def _read(self, source: Source, at: int, to: int, *, may_cut: bool) -> _Window:
        """Read [at, to) with the bytes around it that are needed to see separators that cross its ends."""
        length = len(self.separator or b"x")
        before = length - 1
        if may_cut and self.cutting is not None:
            before += max(self.cutting.reach, batches.MIN_STRETCH_BYTES)
        begin = max(0, at - before)
        text = _read_all(source, begin, min(to + length - 1, self.input.num_bytes))
        return _Window(text, begin, at, to, may_cut=may_cut)

    def _after_separator(self, window: _Window) -> Mark | None:
        """Return the end of the first separator of a window that is a separator whatever precedes the window."""
        if self.separator is None:
            return None
        begin = _first_certain(window.text, self.separator, window.at - window.begin)
        if begin is None:
            return None
        return Mark(window.begin + begin + len(self.separator))

    def _inside(self, window: _Window, after: int) -> Mark | None:
        """Return a cut after byte `after` of the input, at least MIN_STRETCH_BYTES after the start of its document."""
        if not window.may_cut or self.cutting is None:
            return None
        text = window.text
        length = len(self.separator or b"x")
        least = max(self.cutting.reach + 1, length - 1 + batches.MIN_STRETCH_BYTES, after - window.begin + 1)
        if self.separator is not None:
            last = text.tobytes().rfind(self.separator)
            if last >= 0:
                least = max(least, last + length + batches.MIN_STRETCH_BYTES)
        # The last bytes may be the beginning of a separator: do not cut there.
        text = text[: max(0, len(text) - length + 1)]
        if least >= len(text):
            return None
        place = self.cutting.last(text, least - 1)
        return Mark(window.begin + place, 0, in_document=True) if place else None


@dataclass(frozen=True, slots=True)
class _Window:
    """Bytes of an input."""

    text: NDArray[np.uint8]
    begin: int  # their position in the input
    at: int  # only separators that begin in [at, to) count
    to: int
    may_cut: bool  # documents may be cut here, and there are enough bytes before `at` to find a cut


def _blocks(begin: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield [begin, end) in blocks of doubling size, up to MAX_BYTES."""
    size = FIRST_BYTES
    while begin < end:
        yield begin, min(begin + size, end)
        begin += size
        size = min(2 * size, MAX_BYTES)


def _read_all(source: Source, begin: int, end: int) -> NDArray[np.uint8]:
    """Return bytes [begin, end) of an input. Fewer if the input has become shorter, which the reader detects later."""
    source.seek(begin)
    text = np.empty(end - begin, np.uint8)
    size = 0
    while size < len(text):
        got = source.readinto(text.data[size:])
        if got == 0:
            break
        size += got
    return text[:size]


def _first_certain(text: NDArray[np.uint8], separator: bytes, at: int) -> int | None:
    """Return the start of the first separator at or after `at` that any search from the front would find.

    Separators are found from front to back and do not overlap, so a match is certain if no earlier one overlaps it.

    >>> text = np.frombuffer(b"a----b--", np.uint8)
    >>> [_first_certain(text, b"--", at) for at in (0, 2, 7)]
    [1, 6, None]
    """
    if not overlaps_itself(separator):
        found = text.tobytes().find(separator, at)
        return found if found >= 0 else None
    begins = _all_begins(text, separator)
    alone = np.diff(begins, prepend=-len(separator)) >= len(separator)
    certain = begins[alone & (begins >= at)]
    return int(certain[0]) if len(certain) else None


def _all_begins(text: NDArray[np.uint8], separator: bytes) -> NDArray[np.int64]:
    """Return the starts of all separators, including overlapping ones."""
    begins = np.flatnonzero(text[: max(0, len(text) - len(separator) + 1)] == separator[0])
    for offset, byte in enumerate(separator):
        begins = begins[text[begins + offset] == byte]
    return begins


def _between_row_groups(input: Input, reading: Reading, num_parts: int) -> list[Mark]:
    """Return the first rows of row groups at which the parts have about equal size in bytes."""
    groups = row_groups(input, reading)
    total = sum(num_bytes for _, num_bytes in groups)
    num_rows = sum(rows for rows, _ in groups)
    if total == 0:
        return []
    rows_before = list(accumulate(rows for rows, _ in groups))
    bytes_before = np.cumsum([num_bytes for _, num_bytes in groups])
    targets = [total * number // num_parts for number in range(1, num_parts)]
    chosen = np.searchsorted(bytes_before, targets).tolist()
    rows = sorted({rows_before[group] for group in chosen} - {0, num_rows})
    return [Mark(row) for row in rows]
