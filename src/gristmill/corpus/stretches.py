"""Stretches of inputs, and parts made of them: what one task of a job reads."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from gristmill.corpus.batches import Batch, Cut, Cutting, Mark
from gristmill.corpus.formats import read_batches
from gristmill.corpus.inputs import FoundFiles, Input
from gristmill.corpus.options import Reading
from gristmill.errors import RemoteInputError


class Stretch(NamedTuple):
    """A stretch of one input, from one place where it may be cut to another."""

    input: int  # its index in the corpus
    begin: int = 0  # bytes of the stream, or rows: as `Mark.offset`
    end: int | None = None  # None: to the end of the input
    begins_inside: bool = False  # a document goes on here that began before
    ends_inside: bool = False  # and one that goes on behind the end


# The stretches of a part follow each other in the corpus.
Part: TypeAlias = tuple[Stretch, ...]


def part_to_json(part: Part) -> list[list[Any]]:
    """What `part_from_json` reads."""
    return [list(stretch) for stretch in part]


def part_from_json(value: Any) -> Part:
    """The part that `part_to_json` gave."""
    return tuple(Stretch(*stretch) for stretch in value)


def read_part(files: FoundFiles, part: Part, reading: Reading, *, cut: Cut) -> Generator[tuple[int, Batch], None, None]:
    """(index of the input, batch) of all batches of a part, in order."""
    for stretch in part:
        assert stretch.end is None, "not yet"
        input = files.inputs[stretch.input]
        mark = Mark(stretch.begin, 0, stretch.begins_inside)
        for batch in read_batches(input, reading, cut=cut, mark=mark):
            yield stretch.input, batch


def cut_into_parts(files: FoundFiles, reading: Reading, *, part_bytes: int, cutting: Cutting | None) -> list[Part]:
    """The parts of a corpus, in order, of about `part_bytes` on the disk each: every document once.

    cutting: where a document may be cut that is much longer than a part; None: nowhere.
    """
    parts: list[Part] = []
    gathered: list[Stretch] = []
    num_bytes = 0
    for index, input in enumerate(files.inputs):
        if gathered and num_bytes + input.num_bytes > part_bytes:
            parts.append(tuple(gathered))
            gathered, num_bytes = [], 0
        gathered.append(Stretch(index))
        num_bytes += input.num_bytes
    if gathered:
        parts.append(tuple(gathered))
    return parts


def default_part_bytes(num_bytes: int) -> int:
    """How large parts are when nobody says: by the size of the corpus alone, so that every executor cuts the same.

    >>> default_part_bytes(10**9), default_part_bytes(10**12)
    (64000000, 256000000)
    """
    return min(max(num_bytes // 64, 64_000_000), 256_000_000)


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
