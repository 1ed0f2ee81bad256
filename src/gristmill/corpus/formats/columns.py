"""Parquet and Arrow files, read by pyarrow: one column is the text.

A batch is some rows of the column; marks count rows. Nulls are skipped and counted. Bytes are used as stored.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gristmill.corpus import batches
from gristmill.corpus.batches import Cut, Mark, Spans
from gristmill.corpus.documents import explain_missing
from gristmill.corpus.inputs import SKIP_ADVICE, Input
from gristmill.corpus.packages import load_pyarrow
from gristmill.corpus.sources import Source, open_source
from gristmill.errors import CorpusError, CorruptInputError, GristmillError, TruncatedInputError

if TYPE_CHECKING:
    from gristmill.corpus.options import Reading

# Buffer for a column that is read page by page.
BUFFER_BYTES = 1 << 20
# Rows requested from pyarrow at once. Their length is unknown before they are read: the stored size of a dictionary
# column does not show it.
MAX_ROWS = 1024
# Rows of the first request of a row group. Later requests adapt to the length of the rows before.
FIRST_ROWS = 16
# A batch is read in about this many requests of average rows: a corpus may begin with books and continue with tweets,
# and pyarrow needs six times the memory of the rows it returns.
PARTS = 8
PARQUET_MAGIC = b"PAR1"
ARROW_MAGIC = b"ARROW1"
# A file of n bytes cannot hold more than this number of bytes per byte: zstd stores a gigabyte of zeros in 32 kB.
MAX_COMPRESSION = 100_000
MIN_IMPOSSIBLE_BYTES = 1 << 28  # smaller requests are not worth a judgement: the machine is out of memory
CONTINUATION = b"\xff\xff\xff\xff"  # the first bytes of every message of a stream


@dataclass(slots=True)
class ColumnBatch:
    """Some rows of a column."""

    mark: Mark
    next_mark: Mark
    position: int
    num_bytes: int
    array: Any  # a pyarrow array of large_binary

    @classmethod
    def from_array(cls, array: Any, first: int, position: int) -> ColumnBatch:
        """Return a batch with the rows of `array`, which begin at row `first` of the file."""
        begins, ends = offsets(array)
        num_bytes = max(int(ends[-1] - begins[0]), array.nbytes)  # even nulls take memory
        return cls(Mark(first), Mark(first + len(array)), position, num_bytes, array)

    def spans(self) -> Spans:
        """Return the values that are not null, as spans of pyarrow's buffer."""
        begins, ends = offsets(self.array)
        if self.array.null_count:
            valid = self.array.is_valid().to_numpy(zero_copy_only=False)
            begins, ends = begins[valid], ends[valid]
        data = self.array.buffers()[2]
        text = np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
        return Spans(text, begins, ends, num_nulls=self.array.null_count)


def offsets(array: Any) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the starts and ends of the values of a large_binary array."""
    if len(array) == 0:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    edges = np.frombuffer(array.buffers()[1], np.int64)[array.offset : array.offset + len(array) + 1]
    return edges[:-1], edges[1:]


def read_parquet(
    input: Input, reading: Reading, *, cut: Cut, mark: Mark, end: Mark | None = None
) -> Generator[ColumnBatch, None, None]:
    """Yield the batches of a Parquet file from row `mark.offset` to `end.offset`. A value is never cut."""
    load_pyarrow()
    with opened_file(input) as (source, file):
        yield from _split(input, reading, source, _parquet_rows(input, reading, file, mark, end), mark, end)


def read_arrow(
    input: Input, reading: Reading, *, cut: Cut, mark: Mark, end: Mark | None = None
) -> Generator[ColumnBatch, None, None]:
    """Yield the batches of an Arrow file or stream from row `mark.offset` to `end.offset`."""
    load_pyarrow()
    with opened_file(input) as (source, file):
        is_file = file.read(len(ARROW_MAGIC)) == ARROW_MAGIC
        file.seek(0)
        arrays = _file_arrays(input, reading, file) if is_file else _stream_arrays(input, reading, file)
        yield from _split(input, reading, source, _arrow_rows(input, file, arrays), mark, end)


@contextlib.contextmanager
def opened_file(input: Input) -> Iterator[tuple[Source, Any]]:
    """Yield the source of the input, which checks for changes, and a pyarrow file, which reads without the GIL."""
    import pyarrow

    source = open_source(input)
    try:
        if input.is_local:
            with pyarrow.OSFile(input.name, "rb") as file:
                source.check_unchanged()  # both must have opened the same file
                yield source, file
        else:
            with pyarrow.PythonFile(source.file, "r") as file:
                yield source, file
    finally:
        source.close()


class _Rows(NamedTuple):
    """Rows as returned by pyarrow."""

    first: int  # number of the first row in the file
    array: Any  # of large_binary
    position: int  # approximate position in the file after these rows


def _split(
    input: Input, reading: Reading, source: Source, all_rows: Iterator[_Rows], mark: Mark, end: Mark | None
) -> Iterator[ColumnBatch]:
    """Yield batches of about BATCH_BYTES, from row `mark.offset` to `end.offset`.

    The ends of batches depend on the rows that pyarrow returns at once, not on the mark. The last batch is held back
    until the file is known to be complete and unchanged.
    """
    last: ColumnBatch | None = None
    try:
        for first, array, position in all_rows:
            if end is not None and first >= end.offset:
                break
            for start, stop in cut_rows(array, batches.BATCH_BYTES):
                start = max(start, mark.offset - first)
                stop = stop if end is None else min(stop, end.offset - first)
                if start >= stop:
                    continue
                if last is not None:
                    yield last
                last = ColumnBatch.from_array(array.slice(start, stop - start), first + start, position)
                _check_lengths(last, input, reading)
    except (TruncatedInputError, CorruptInputError):
        source.check_unchanged()
        raise
    source.check_unchanged()
    if last is not None:
        last.position = input.num_bytes if end is None else last.position
        yield last


def _check_lengths(batch: ColumnBatch, input: Input, reading: Reading) -> None:
    if batch.num_bytes <= reading.max_document_bytes:
        return
    begins, ends = offsets(batch.array)
    lengths = ends - begins
    longest = int(lengths.argmax())
    if lengths[longest] > reading.max_document_bytes:
        raise CorpusError(
            f"{input.shown}: row {batch.mark.offset + longest:,} has a text of {lengths[longest]:,} bytes, "
            f"more than max_document_bytes={reading.max_document_bytes}. Pass a larger max_document_bytes."
        )


def cut_rows(array: Any, batch_bytes: int) -> Iterator[tuple[int, int]]:
    """Yield (begin, end) of ranges of rows, each as long as possible within `batch_bytes` and at least one row."""
    begins, ends = offsets(array)
    yield from _cut(ends - begins[:1], batch_bytes)


def _cut(ends: NDArray[np.int64], batch_bytes: int) -> Iterator[tuple[int, int]]:
    """Same as `cut_rows` for rows that end at these positions; the first one begins at 0."""
    begin = begin_bytes = 0
    while begin < len(ends):
        end = max(begin + 1, int(np.searchsorted(ends, begin_bytes + batch_bytes, side="right")))
        yield begin, end
        begin, begin_bytes = end, int(ends[end - 1])


def _parquet_rows(input: Input, reading: Reading, file: Any, mark: Mark, end: Mark | None) -> Iterator[_Rows]:
    """Yield the rows of the row groups that overlap rows `mark.offset` to `end.offset`."""
    opened, name, sizes = _open_parquet(input, reading, file)
    first = 0
    for group, num_rows in enumerate(sizes):
        if first + num_rows > mark.offset and (end is None or first < end.offset):
            yield from _group_rows(input, opened, group, name, first)
        first += num_rows


def row_groups(input: Input, reading: Reading) -> list[tuple[int, int]]:
    """Return the number of rows of each row group of a Parquet file and their uncompressed size, from the footer."""
    load_pyarrow()
    with opened_file(input) as (_, file):
        opened, _, sizes = _open_parquet(input, reading, file)
        return [
            (num_rows, max(0, opened.metadata.row_group(group).total_byte_size)) for group, num_rows in enumerate(sizes)
        ]


def _open_parquet(input: Input, reading: Reading, file: Any) -> tuple[Any, str, list[int]]:
    """Return the pyarrow file, the name of its text column, and the number of rows of each row group."""
    import pyarrow
    from pyarrow import parquet

    try:
        opened = parquet.ParquetFile(
            file, pre_buffer=False, buffer_size=BUFFER_BYTES, page_checksum_verification=True, memory_map=False
        )
        name = find_column(input.shown, reading.text_field, opened.schema_arrow).name
    except (pyarrow.ArrowException, OSError, UnicodeError) as error:
        raise refused(input, file, "Parquet file", PARQUET_MAGIC, error) from error
    sizes = [opened.metadata.row_group(group).num_rows for group in range(opened.num_row_groups)]
    if sum(sizes) != opened.metadata.num_rows or min(sizes, default=0) < 0:  # the footer has no checksum
        raise damaged(input, "damaged footer", input.num_bytes, "the row counts of the row groups do not add up")
    return opened, name, sizes


def _group_rows(input: Input, opened: Any, group: int, name: str, first: int) -> Iterator[_Rows]:
    """Yield the rows of one row group, about a batch at a time.

    The position of the column in the file is not used, because pyarrow aborts the process if that part of the footer is
    damaged. So positions are approximate, and the offset of an error is that of its row group.
    """
    import pyarrow

    about = opened.metadata.row_group(group)
    row_bytes = max(1, about.total_byte_size // max(1, about.num_rows))
    num_rows = max(1, min(MAX_ROWS, batches.BATCH_BYTES // PARTS // row_bytes))
    total_rows = max(1, opened.metadata.num_rows)
    begin = input.num_bytes * first // total_rows
    damage = f"damaged near byte {begin:,}, in column {name!r} of row group {group}"
    given = 0
    gathered: list[Any] = []
    try:
        wanted = min(num_rows, FIRST_ROWS)
        for record_batch in opened.iter_batches(wanted, row_groups=[group], columns=[name], use_threads=False):
            num_bytes = 0
            for binary in as_binary(record_batch.column(0)):
                num_bytes += binary.nbytes
                gathered.append(binary)
                seen = given + sum(map(len, gathered))
                if seen < about.num_rows and sum(array.nbytes for array in gathered) < batches.BATCH_BYTES:
                    continue
                array = pyarrow.concat_arrays(gathered) if len(gathered) > 1 else gathered[0]
                yield _Rows(first + given, array, input.num_bytes * (first + seen) // total_rows)
                given, gathered = seen, []
            likely = wanted * (batches.BATCH_BYTES // PARTS) // max(1, num_bytes)
            wanted = max(1, min(num_rows, 4 * wanted, likely))
            opened.reader.set_batch_size(wanted)  # of the next request
    except (pyarrow.ArrowException, OSError, UnicodeError) as error:
        raise_unless_damage(error, input.num_bytes)
        raise damaged(input, damage, begin, error) from error
    if given != about.num_rows:
        raise damaged(input, damage, begin, f"only {given:,} of {about.num_rows:,} rows could be read")


def _arrow_rows(input: Input, file: Any, arrays: Iterator[tuple[Any, int]]) -> Iterator[_Rows]:
    """Yield the rows of each record batch."""
    import pyarrow

    first = 0
    try:
        for array, position in arrays:
            for binary in as_binary(array):
                yield _Rows(first, binary, position)
                first += len(binary)
    except (pyarrow.ArrowException, OSError, UnicodeError) as error:
        _raise_unless_damaged_message(error, input, file)
        if file.tell() >= input.num_bytes:
            raise _truncated(input, str(error)) from error
        raise damaged(input, f"damaged near byte {file.tell():,}", file.tell(), error) from error


def _file_arrays(input: Input, reading: Reading, file: Any) -> Iterator[tuple[Any, int]]:
    """Yield the column of each record batch of an Arrow file, and its approximate end in the file."""
    import pyarrow
    from pyarrow import ipc

    try:
        opened = ipc.open_file(file)
        opened = ipc.open_file(
            file, options=_only(find_column(input.shown, reading.text_field, opened.schema), opened.schema)
        )
    except (pyarrow.ArrowException, OSError, UnicodeError) as error:
        raise refused(input, file, "Arrow file", ARROW_MAGIC, error) from error
    for index in range(opened.num_record_batches):
        yield opened.get_batch(index).column(0), input.num_bytes * (index + 1) // opened.num_record_batches


def _stream_arrays(input: Input, reading: Reading, file: Any) -> Iterator[tuple[Any, int]]:
    """Same as `_file_arrays` for an Arrow stream. A stream without an end marker is truncated."""
    import pyarrow
    from pyarrow import ipc

    try:
        schema = ipc.open_stream(file).schema
        column = find_column(input.shown, reading.text_field, schema)
        file.seek(0)
        opened = ipc.open_stream(file, options=_only(column, schema))
    except (pyarrow.ArrowException, OSError, UnicodeError) as error:
        raise refused(input, file, "Arrow file or stream", b"", error) from error
    end = file.tell()
    for record_batch in opened:
        end = file.tell()
        yield record_batch.column(0), end
    if file.tell() == end:
        raise _truncated(input, "the stream has no end marker")
    if file.tell() != input.num_bytes:
        raise damaged(input, f"the Arrow stream ends at byte {file.tell():,}", file.tell(), "more bytes follow")


def _only(column: Any, schema: Any) -> Any:
    """Return the options to read one column. The others are not read from disk."""
    from pyarrow import ipc

    return ipc.IpcReadOptions(included_fields=[schema.get_field_index(column.name)], use_threads=False)


def as_binary(array: Any) -> Iterator[Any]:
    """Yield the array as large_binary, as a whole or in slices. The text is copied only for views and dictionaries.

    Rows of views and dictionaries may share their text, so a file of a kilobyte may have rows of terabytes. Each of
    their slices has at most BATCH_BYTES of text, or one row.

    The array is validated, because Arrow files have no checksums, and wrong offsets would read outside the text.
    """
    import pyarrow

    types = pyarrow.types
    kinds = (types.is_binary, types.is_string, types.is_large_string)
    # Whether its buffers have the sizes for its rows; the cast reads them. Full validation would reject invalid UTF-8.
    array.validate(full=not any(is_kind(array.type) for is_kind in kinds))
    if types.is_dictionary(array.type):
        slices = _rows_of_dictionary(array)
    elif str(array.type) in ("string_view", "binary_view"):  # unknown to older versions of pyarrow
        slices = _rows_of_views(array)
    else:
        slices = iter([array])
    for part in slices:
        binary = part.cast(pyarrow.large_binary())
        binary.validate(full=True)
        yield binary


def _rows_of_dictionary(array: Any) -> Iterator[Any]:
    import pyarrow

    values = array.dictionary.cast(pyarrow.large_binary())
    begins, ends = offsets(values)
    lengths = np.append(ends - begins, 0)  # the last one is that of a null
    indices = array.indices.cast(pyarrow.int64()).fill_null(len(values)).to_numpy(zero_copy_only=False)
    for begin, end in _cut(np.cumsum(lengths[indices]), batches.BATCH_BYTES):
        yield values.take(array.indices.slice(begin, end - begin))


def _rows_of_views(array: Any) -> Iterator[Any]:
    lengths = np.frombuffer(array.buffers()[1], np.int32)[::4][array.offset : array.offset + len(array)].astype(
        np.int64
    )
    lengths[array.is_null().to_numpy(zero_copy_only=False)] = 0
    for begin, end in _cut(np.cumsum(lengths), batches.BATCH_BYTES):
        yield array.slice(begin, end - begin)


def find_column(place: str, name: str, schema: Any) -> Any:
    """Return the column of this name. Raises CorpusError, which begins with `place`, if it is missing or not text."""
    found = [column for column in schema if column.name == name]
    if not found:
        missing = explain_missing("column", name, {column.name: is_text(column.type) for column in schema})
        raise CorpusError(f"{place}: {missing}")
    if len(found) > 1:
        raise CorpusError(
            f"{place}: {len(found)} columns are named {name!r}, so the text column is ambiguous. Rename all but one."
        )
    if not may_be_text(found[0].type):
        raise CorpusError(
            f"{place}: column {name!r} is of type {found[0].type}, but only strings and bytes are text. "
            f"Pass text_field=… to read another column."
        )
    return found[0]


def is_text(type: Any) -> bool:
    import pyarrow

    if pyarrow.types.is_dictionary(type):
        type = type.value_type
    names = ("string", "large_string", "string_view", "binary", "large_binary", "binary_view")
    return any(getattr(pyarrow.types, f"is_{name}", lambda _: False)(type) for name in names)


def may_be_text(type: Any) -> bool:
    """Whether a column of this type contains text, or only nulls."""
    import pyarrow

    return is_text(type) or pyarrow.types.is_null(type)


def refused(input: Input, file: Any, what: str, magic: bytes, error: Exception) -> CorpusError:
    """Return the error for a file that cannot be opened: truncated, or of another format."""
    _raise_unless_damaged_message(error, input, file)
    file.seek(0)
    begin = file.read(max(len(magic), len(CONTINUATION)))
    file.seek(max(0, input.num_bytes - len(magic)))
    end = file.read(len(magic))
    if input.num_bytes == 0:
        return _truncated(input, "the file is empty")
    if magic and begin.startswith(magic) and (end != magic or input.num_bytes < 2 * len(magic)):
        return _truncated(input, f"the footer of the {what} is missing")
    if not magic and begin.startswith(CONTINUATION[: input.num_bytes]):
        return _truncated(input, str(error))
    return damaged(input, f"not a valid {what}", 0, error)


def raise_unless_damage(error: Exception, num_bytes: int) -> None:
    """Raise `error` if the machine caused it, not the file: no memory, or an unreadable disk.

    num_bytes: size of the file. Data that would be much larger in memory than in the file is damage.
    """
    if isinstance(error, GristmillError) or getattr(error, "errno", None):
        raise error
    asked = re.search(r"(?:m|re)alloc of size (\d+)", str(error))
    if isinstance(error, MemoryError) and (
        asked is None or int(asked[1]) < max(MIN_IMPOSSIBLE_BYTES, MAX_COMPRESSION * num_bytes)
    ):
        raise error


def _raise_unless_damaged_message(error: Exception, input: Input, file: Any) -> None:
    """Same as `raise_unless_damage` for an Arrow file, where pyarrow may have just read the length of a message.

    It allocates that many bytes before it reads them, so the allocation may fail for a length beyond the end of the
    file, which is damage.
    """
    if isinstance(error, MemoryError) and input.is_local and (position := file.tell()) >= 4:
        file.seek(position - 4)
        if int.from_bytes(file.read(4), "little", signed=True) > input.num_bytes - position:
            return
    raise_unless_damage(error, input.num_bytes)


def _truncated(input: Input, why: str) -> TruncatedInputError:
    return TruncatedInputError(
        f"{input.shown}: truncated at byte {input.num_bytes:,}: {why.rstrip('.')}. Get the file again{SKIP_ADVICE}.",
        path=input.name,
        offset=input.num_bytes,
    )


def damaged(input: Input, what: str, offset: int, why: object) -> CorruptInputError:
    reason = " ".join(str(why).split()).rstrip(".")
    return CorruptInputError(
        f"{input.shown}: {what} ({reason}). Get the file again{SKIP_ADVICE}.",
        path=input.name,
        offset=offset,
    )
