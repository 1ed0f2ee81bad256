"""Stretches of inputs, and parts made of stretches. A task of a job reads one part."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from gristmill.corpus.batches import Batch, Cut, Cutting, Mark
from gristmill.corpus.cuts import Search, searches
from gristmill.corpus.inputs import FoundFiles, Input
from gristmill.corpus.options import Reading
from gristmill.corpus.threads import PATIENCE_SECONDS, OnSkip, map_in_order, read_places
from gristmill.errors import OptionError, RemoteInputError

# Threads that search for places to cut inputs. They mostly wait for a disk or a network.
NUM_SEARCHERS = 16
# Threads that read ahead the remote inputs of a part. Each has a few batches in memory.
NUM_REMOTE_READERS = 4
# Opening an input takes about as long as reading this many bytes, so a smaller input counts as this many.
OPENING_BYTES = 16 << 10
# Limits of a job, whose plan is read as a whole. Each part takes a few milliseconds, whatever its size, so parts of
# less than SMALL_PART_BYTES are for trials on small corpora.
MAX_PARTS = 1_000_000
MAX_SMALL_PARTS = 10_000
SMALL_PART_BYTES = 1_000_000


class Stretch(NamedTuple):
    """A contiguous part of one input, between two places where it may be cut."""

    input: int  # index in the corpus
    begin: int = 0  # bytes of the stream, or rows, as in `Mark.offset`
    end: int | None = None  # None: the end of the input
    begins_inside: bool = False  # its first document began before it
    ends_inside: bool = False  # its last document continues after it

    @property
    def begin_mark(self) -> Mark:
        """Where a reader starts. Its line number is unknown."""
        return Mark(self.begin, 0, self.begins_inside)

    @property
    def end_mark(self) -> Mark | None:
        """Where the stretch ends; None for the end of the input."""
        return None if self.end is None else Mark(self.end, 0, self.ends_inside)


# The stretches of a part follow each other in the corpus.
Part: TypeAlias = tuple[Stretch, ...]


def part_to_json(part: Part) -> list[list[Any]]:
    """Return the fields of each stretch, for `part_from_json`. A whole input is only its index."""
    return [[stretch.input] if stretch == Stretch(stretch.input) else list(stretch) for stretch in part]


def part_from_json(value: Any) -> Part:
    """Return the part from the value of `part_to_json`."""
    return tuple(Stretch(*stretch) for stretch in value)


def read_part(
    files: FoundFiles, part: Part, reading: Reading, *, cut: Cut, on_skip: OnSkip | None = None
) -> Generator[tuple[int, Batch], None, None]:
    """Yield (index of the input, batch) for all batches of a part, in order, as `read_files` does for a corpus.

    One thread reads ahead; several if inputs are remote, because many small ones would each cost a round trip. The
    batches of all parts together have the same documents as those of `read_files`, but end at other places. With
    on_error="skip", `on_skip` receives the index and the error of a skipped input.
    """
    places = ((stretch.input, stretch.begin_mark, stretch.end_mark) for stretch in part)
    is_local = all(files.inputs[stretch.input].is_local for stretch in part)
    num_readers = 1 if is_local else NUM_REMOTE_READERS
    return read_places(files, places, reading, cut=cut, num_readers=num_readers, on_skip=on_skip)


def cut_into_parts(files: FoundFiles, reading: Reading, *, part_bytes: int, cutting: Cutting | None) -> list[Part]:
    """Return the parts of a corpus, in order, of about `part_bytes` on disk each. Every document is in one part.

    cutting: where a document that is much longer than a part may be cut. None: nowhere.

    Small inputs are combined, and large ones cut where `cuts.py` finds a place. An input that cannot be cut is one
    part. Raises OptionError if the parts are so small that there would be too many of them.
    """
    check_part_bytes(part_bytes, files.num_bytes)
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
    """Yield the stretches of all inputs, in order, with their approximate size on disk."""
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
    """Return the places where large inputs are cut, by index of the input. Threads search for them."""

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


def check_part_bytes(part_bytes: int, num_bytes: int) -> None:
    """Raise OptionError if a corpus of `num_bytes` has too many parts of `part_bytes`.

    >>> check_part_bytes(1, 10_000)
    >>> check_part_bytes(1_000_000, 10**12)
    >>> check_part_bytes(1, 5_000_000)
    Traceback (most recent call last):
    gristmill.errors.OptionError: part_bytes=1 cuts 5,000,000 bytes into too many parts: each part takes a few \
milliseconds to begin and end. Pass part_bytes >= 500, or leave it out to choose it by the size of the corpus.
    """
    least = max(min(SMALL_PART_BYTES, -(-num_bytes // MAX_SMALL_PARTS)), -(-num_bytes // MAX_PARTS))
    if part_bytes < least:
        raise OptionError(
            f"part_bytes={part_bytes} cuts {num_bytes:,} bytes into too many parts: each part takes a few milliseconds "
            f"to begin and end. Pass part_bytes >= {least}, or leave it out to choose it by the size of the corpus."
        )


def default_part_bytes(num_bytes: int) -> int:
    """Return the default size of parts. It depends only on the size of the corpus, so all executors cut the same parts.

    The number of parts is a multiple of eight, so that two, four or eight workers end at the same time.

    >>> [default_part_bytes(size) for size in (10**8, 10**9, 10**10, 10**12)]
    [16000000, 125000000, 156250000, 268240344]
    """
    most = min(max(num_bytes // 64, 128 << 20), 256 << 20)
    number = -(-num_bytes // (8 * most)) * 8
    return max(-(-num_bytes // max(number, 1)), 16_000_000)


def inputs_to_json(files: FoundFiles) -> Sequence[dict[str, Any]]:
    """Return the inputs as stored in a job, for `inputs_from_json`."""
    return [_input_to_json(input) for input in files.inputs]


def inputs_from_json(entries: Iterable[Mapping[str, Any]]) -> FoundFiles:
    """Return the inputs from the value of `inputs_to_json`. Opening one that has changed raises InputChangedError."""
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
