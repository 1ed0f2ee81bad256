"""Stretches of inputs, and parts made of them: what one task of a job reads."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from gristmill.corpus.batches import Batch, Cut, Cutting, Mark
from gristmill.corpus.cuts import Search, searches
from gristmill.corpus.inputs import FoundFiles, Input
from gristmill.corpus.options import Reading
from gristmill.corpus.threads import PATIENCE_SECONDS, OnSkip, map_in_order, read_places
from gristmill.errors import RemoteInputError

# That look for places to cut inputs at: they wait for a disk or a network.
NUM_SEARCHERS = 16
# That read the inputs of a part ahead; each has a few batches in memory.
NUM_REMOTE_READERS = 4
# Bytes that take about as long to read as an input takes to open: a smaller input counts as this many.
OPENING_BYTES = 16 << 10


class Stretch(NamedTuple):
    """A stretch of one input, from one place where it may be cut to another."""

    input: int  # its index in the corpus
    begin: int = 0  # bytes of the stream, or rows: as `Mark.offset`
    end: int | None = None  # None: to the end of the input
    begins_inside: bool = False  # the document at the beginning began before it
    ends_inside: bool = False  # the document at the end continues after it

    @property
    def begin_mark(self) -> Mark:
        """Where a reader starts. The number of its line is not known."""
        return Mark(self.begin, 0, self.begins_inside)

    @property
    def end_mark(self) -> Mark | None:
        """Where it ends, None for the end of the input."""
        return None if self.end is None else Mark(self.end, 0, self.ends_inside)


# The stretches of a part follow each other in the corpus.
Part: TypeAlias = tuple[Stretch, ...]


def part_to_json(part: Part) -> list[list[Any]]:
    """What `part_from_json` reads: the fields of each stretch, without those at the end that have their defaults."""
    return [[stretch.input] if stretch == Stretch(stretch.input) else list(stretch) for stretch in part]


def part_from_json(value: Any) -> Part:
    """The part that `part_to_json` gave."""
    return tuple(Stretch(*stretch) for stretch in value)


def read_part(
    files: FoundFiles, part: Part, reading: Reading, *, cut: Cut, on_skip: OnSkip | None = None
) -> Generator[tuple[int, Batch], None, None]:
    """(index of the input, batch) of all batches of a part, in order, as `read_files` gives those of a corpus.

    A thread reads ahead; several do where inputs are remote, of which many small ones would be waited for one by one.
    The batches of all parts have the documents that those of `read_files` have; where batches end differs. With
    on_error="skip", `on_skip` gets the index and the error of an input that is left out.
    """
    places = ((stretch.input, stretch.begin_mark, stretch.end_mark) for stretch in part)
    is_local = all(files.inputs[stretch.input].is_local for stretch in part)
    num_readers = 1 if is_local else NUM_REMOTE_READERS
    return read_places(files, places, reading, cut=cut, num_readers=num_readers, on_skip=on_skip)


def cut_into_parts(files: FoundFiles, reading: Reading, *, part_bytes: int, cutting: Cutting | None) -> list[Part]:
    """The parts of a corpus, in order, of about `part_bytes` on the disk each: every document once.

    cutting: where a document may be cut that is much longer than a part; None: nowhere.

    Smaller inputs are gathered, larger ones cut where `cuts.py` finds a place. Those that cannot be cut are parts as
    large as they are.
    """
    parts: list[Part] = []
    gathered: list[Stretch] = []
    num_bytes = 0
    least = min(OPENING_BYTES, part_bytes // 1000)
    for stretch, size in _stretches(files, reading, part_bytes, cutting):
        size = max(size, least)
        if gathered and num_bytes + size > part_bytes:
            parts.append(tuple(gathered))
            gathered, num_bytes = [], 0
        gathered.append(stretch)
        num_bytes += size
    if gathered:
        parts.append(tuple(gathered))
    return parts


def _stretches(
    files: FoundFiles, reading: Reading, part_bytes: int, cutting: Cutting | None
) -> Iterator[tuple[Stretch, int]]:
    """The stretches of all inputs, in order, and about how many bytes each has on the disk."""
    places = _places(files, reading, part_bytes, cutting)
    for index, input in enumerate(files.inputs):
        begins = [Mark(), *places.get(index, ())]
        ends = [*begins[1:], None]
        for begin, end in zip(begins, ends, strict=True):
            stretch = Stretch(index, begin.offset, None, begin.in_document)
            if end is not None:
                stretch = stretch._replace(end=end.offset, ends_inside=end.in_document)
            yield stretch, input.num_bytes // len(begins)


def _places(files: FoundFiles, reading: Reading, part_bytes: int, cutting: Cutting | None) -> dict[int, list[Mark]]:
    """The places where the larger inputs are cut, by the index of the input; looked for on threads."""

    def asked() -> Iterator[tuple[int, Search]]:
        for index, input in enumerate(files.inputs):
            if input.num_bytes > part_bytes:
                num_parts = -(-input.num_bytes // part_bytes)
                yield from ((index, search) for search in searches(input, reading, cutting, num_parts))

    def run(item: tuple[int, Search]) -> tuple[int, list[Mark]]:
        index, search = item
        return index, search()

    places: dict[int, list[Mark]] = {}
    with contextlib.closing(
        map_in_order(run, asked(), num_threads=NUM_SEARCHERS, patience=PATIENCE_SECONDS)
    ) as results:
        for index, found in results:
            places.setdefault(index, []).extend(found)
    return places


def default_part_bytes(num_bytes: int) -> int:
    """How large parts are when nobody says: by the size of the corpus alone, so that every executor cuts the same.

    A multiple of eight of them, so that two, four or eight workers end at the same time.

    >>> [default_part_bytes(size) for size in (10**8, 10**9, 10**10, 10**12)]
    [16000000, 125000000, 156250000, 268240344]
    """
    most = min(max(num_bytes // 64, 128 << 20), 256 << 20)
    number = -(-num_bytes // (8 * most)) * 8
    return max(-(-num_bytes // max(number, 1)), 16_000_000)


def inputs_to_json(files: FoundFiles) -> Sequence[dict[str, Any]]:
    """The inputs as a job has them; `inputs_from_json` reads them."""
    return [_input_to_json(input) for input in files.inputs]


def inputs_from_json(entries: Iterable[Mapping[str, Any]]) -> FoundFiles:
    """The inputs that `inputs_to_json` gave. Opening one raises InputChangedError if it is no longer the same."""
    return FoundFiles(tuple(map(_input_from_json, entries)))


def _input_to_json(input: Input) -> dict[str, Any]:
    entry = {name: getattr(input, name) for name in _INPUT_FIELDS}
    if input.etag is not None:
        entry["etag"] = input.etag
    if input.failure is not None:
        entry["failure"] = str(input.failure)
    return entry


def _input_from_json(entry: Mapping[str, Any]) -> Input:
    failure = RemoteInputError(entry["failure"]) if "failure" in entry else None
    return Input(**{name: entry[name] for name in _INPUT_FIELDS}, etag=entry.get("etag"), failure=failure)


_INPUT_FIELDS = ("name", "format", "compression", "num_bytes", "modified_ns")
