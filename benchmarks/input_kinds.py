"""The documents of one text in every kind of input file, and the library that reads each kind."""

import gzip
import importlib
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, cast

import orjson
import pyarrow
import pyarrow.parquet
from isal import igzip

from gristmill.bench.encoders.vocabularies import SPECIAL
from gristmill.bench.pipelines import documents

zstd: Any = importlib.import_module("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd")
ROWS_A_GROUP = 1000
DISTRIBUTIONS = ("orjson", "pyarrow", "isal", "backports.zstd")


@dataclass(frozen=True)
class Kind:
    """One kind of file: its name, its writer, and the iteration of its library over the documents on one thread."""

    file_name: str
    write: Callable[[Path, Sequence[str]], None]
    reader: str
    count: Callable[[Path], int]  # reads every text; returns their number


def make_files(text: Path, folder: Path, names: Sequence[str]) -> dict[str, Path]:
    """Write the documents of the text as each kind of file; return the paths."""
    texts = documents(text)
    made = {}
    for name in names:
        made[name] = folder / KINDS[name].file_name
        KINDS[name].write(made[name], texts)
    return made


def _write_text(path: Path, texts: Sequence[str]) -> None:
    path.write_bytes("".join(text + SPECIAL for text in texts).encode())


def _open_plain(path: Path, mode: str) -> BinaryIO:
    return cast(BinaryIO, path.open(mode))


def _open_gzip(path: Path, mode: str) -> BinaryIO:
    """Write with the default level of `gzip`, which igzip cannot write; igzip reads, because it is faster."""
    return cast(BinaryIO, igzip.open(path, mode) if mode == "rb" else gzip.open(path, mode, compresslevel=6))


def _open_zstd(path: Path, mode: str) -> BinaryIO:
    return cast(BinaryIO, zstd.open(path, mode))


Open = Callable[[Path, str], BinaryIO]


def _write_jsonl(open_file: Open, path: Path, texts: Sequence[str]) -> None:
    with open_file(path, "wb") as file:
        for text in texts:
            file.write(orjson.dumps({"text": text}) + b"\n")


def _batches(texts: Sequence[str]) -> Iterator[Any]:
    for begin in range(0, len(texts), ROWS_A_GROUP):
        yield pyarrow.record_batch({"text": pyarrow.array(texts[begin : begin + ROWS_A_GROUP], pyarrow.string())})


SCHEMA = pyarrow.schema([("text", pyarrow.string())])


def _write_parquet(compression: str, path: Path, texts: Sequence[str]) -> None:
    with pyarrow.parquet.ParquetWriter(path, SCHEMA, compression=compression) as writer:
        for batch in _batches(texts):
            writer.write_batch(batch)


def _write_arrow(path: Path, texts: Sequence[str]) -> None:
    with pyarrow.OSFile(str(path), "wb") as file, pyarrow.ipc.new_file(file, SCHEMA) as writer:
        for batch in _batches(texts):
            writer.write_batch(batch)


def _count_text(path: Path) -> int:
    *closed, rest = path.read_bytes().split(SPECIAL.encode())
    return len(closed) + bool(rest)


def _count_jsonl(open_file: Open, path: Path) -> int:
    num_texts = 0
    with open_file(path, "rb") as file:
        for line in file:
            num_texts += isinstance(orjson.loads(line)["text"], str)
    return num_texts


def _count_parquet(path: Path) -> int:
    file = pyarrow.parquet.ParquetFile(path)
    return sum(batch.num_rows for batch in file.iter_batches(columns=["text"], use_threads=False))


def _count_arrow(path: Path) -> int:
    """Read the file; a memory map would not touch the texts."""
    with pyarrow.OSFile(str(path), "rb") as file:
        reader = pyarrow.ipc.open_file(file)
        return sum(reader.get_batch(i).num_rows for i in range(reader.num_record_batches))


def _jsonl(file_name: str, open_file: Open, reader: str) -> Kind:
    return Kind(file_name, partial(_write_jsonl, open_file), reader, partial(_count_jsonl, open_file))


def _parquet(compression: str) -> Kind:
    file_name = f"documents.{compression}.parquet"
    return Kind(file_name, partial(_write_parquet, compression), "ParquetFile.iter_batches", _count_parquet)


KINDS = {
    "txt": Kind("documents.txt", _write_text, "bytes.split", _count_text),
    "jsonl": _jsonl("documents.jsonl", _open_plain, "orjson.loads"),
    "jsonl.zst": _jsonl("documents.jsonl.zst", _open_zstd, "zstd + orjson.loads"),
    "jsonl.gz": _jsonl("documents.jsonl.gz", _open_gzip, "igzip + orjson.loads"),
    "parquet, snappy": _parquet("snappy"),
    "parquet, zstd": _parquet("zstd"),
    "arrow": Kind("documents.arrow", _write_arrow, "pyarrow.ipc.open_file", _count_arrow),
}
