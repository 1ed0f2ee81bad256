"""Parquet: `train-00000.parquet`, one row per document, a column of lists of uint16 or uint32.

The column is called `tokens` unless `tokens_column` names it. Hugging Face's trainers expect `input_ids`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from gristmill.errors import CorpusError, ShardsFormatError
from gristmill.packages import packages_for
from gristmill.shards.layouts.layout import Layout, Part, read_chunks
from gristmill.shards.maps import map_array
from gristmill.small_files import open_regular

COLUMN = "tokens"
# Readers and the writer hold a row group in memory. A document is never cut: a longer one gets its own group.
GROUP_TOKENS = 1 << 20
GROUP_DOCUMENTS = 1 << 16
MAX_LENGTH = 2**31 - 1  # offsets of an Arrow list are int32


class ParquetLayout(Layout):
    """One row per document, zstd, page checksums."""

    name = "parquet"
    any_width = True
    splits_documents = False
    converts = True

    def __init__(self, column: str = COLUMN) -> None:
        """A layout whose column of ids is called `column`."""
        self._column = column

    def with_tokens_column(self, column: str) -> ParquetLayout:
        """Return the same layout with another column name."""
        return ParquetLayout(column)

    def dtype(self, vocab_size: int) -> np.dtype[Any]:
        """Return uint16 or uint32; raise if pyarrow is not installed."""
        _pyarrow()
        return super().dtype(vocab_size)

    def token_file(self, name: str, split: str, number: int) -> str:
        """`train-00000.parquet`."""
        return f"{split}-{number:05}.parquet"

    def write_tokens(self, file: BinaryIO, part: Part) -> None:
        """Write the rows of `part`, a row group at a time, straight from a memory map of the tokens."""
        pa, pq = _pyarrow()
        tokens = map_array(part.tokens, part.dtype, part.num_tokens)
        schema = pa.schema([(self._column, pa.list_(pa.from_numpy_dtype(part.dtype)))])
        # Ids have no order that makes a dictionary or statistics useful: without them the file is a third smaller, and
        # even old readers can read it.
        with pq.ParquetWriter(
            file, schema, compression="zstd", use_dictionary=False, write_statistics=False, write_page_checksum=True
        ) as writer:
            for offsets in _row_groups(part.ends):
                values = pa.array(tokens[offsets[0] : offsets[-1]])
                rows = pa.ListArray.from_arrays(pa.array((offsets - offsets[0]).astype(np.int32)), values)
                writer.write_batch(pa.record_batch([rows], schema=schema))

    def open_tokens(self, path: Path, num_tokens: int, dtype: np.dtype[Any]) -> None:
        """Return None: the tokens are compressed."""
        return None

    def read_rows(self, path: Path) -> Iterator[tuple[NDArray[Any], NDArray[np.int64]]]:
        """Yield the tokens and document lengths, one row group at a time; raise `ShardsFormatError` for damage."""
        pa, pq = _pyarrow()
        open_regular(path, error=ShardsFormatError).close()  # pyarrow would wait for the writer of a pipe
        try:
            with pq.ParquetFile(path, page_checksum_verification=True) as file:
                self._check_schema(path, file.schema_arrow)
                for group in range(file.num_row_groups):
                    rows_of_group = file.read_row_group(group, columns=[self._column], use_threads=False)
                    rows_of_group.validate(full=True)
                    for rows in rows_of_group.column(self._column).chunks:
                        offsets = rows.offsets.to_numpy().astype(np.int64)
                        yield rows.values.to_numpy()[offsets[0] : offsets[-1]], np.diff(offsets)
        except (pa.ArrowException, OSError, UnicodeError) as error:
            if getattr(error, "errno", None):  # of the disk; pyarrow's own have none
                raise
            reason = " ".join(str(error).split()).rstrip(".")
            raise ShardsFormatError(f"{path}: damaged Parquet file ({reason:.300}). Encode again.") from error

    def _check_schema(self, path: Path, schema: Any) -> None:
        """Raise `ShardsFormatError` unless the column is there once, and has lists of ids."""
        pa, _ = _pyarrow()
        found = [field.type for field in schema if field.name == self._column]
        if len(found) != 1 or not (pa.types.is_list(found[0]) and pa.types.is_integer(found[0].value_type)):
            raise ShardsFormatError(f"{path}: the column {self._column!r} is not one of lists of ids. Encode again.")

    def how_to_read(self, path: str, dtype: np.dtype[Any]) -> str:
        """Return a call of `pyarrow.parquet`."""
        return f'pyarrow.parquet.read_table({path!r})["{self._column}"]'


def _row_groups(ends: Path) -> Iterator[NDArray[np.int64]]:
    """Yield the offsets of each row group: document i ranges from offset i to i + 1, in tokens of the part."""
    begin = 0
    for chunk in read_chunks(ends):
        first = 0
        while first < len(chunk):
            last = max(int(np.searchsorted(chunk, begin + GROUP_TOKENS, "right")), first + 1)
            last = min(last, first + GROUP_DOCUMENTS)
            offsets = np.concatenate([[begin], chunk[first:last]])
            if offsets[-1] - begin > MAX_LENGTH:
                raise CorpusError(
                    f"a document has {offsets[-1] - begin:,} tokens, but format='parquet' allows at most "
                    f"{MAX_LENGTH:,} tokens per document. Split the document, or pass format='gristmill'."
                )
            yield offsets
            first, begin = last, int(offsets[-1])


def _pyarrow() -> tuple[Any, Any]:
    with packages_for("format='parquet'"):
        import pyarrow
        import pyarrow.parquet
    return pyarrow, pyarrow.parquet
