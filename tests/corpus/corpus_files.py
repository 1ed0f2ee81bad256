"""The same documents as files of every format and compression, and the documents that readers return."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet

from gristmill.corpus import Reading, find_files
from gristmill.corpus.formats import read_batches
from gristmill.corpus.packages import load_zstd

SEPARATOR = b"<|endoftext|>"
COMPRESSIONS = ["", ".gz", ".zst"]
PACKED = (".gz", ".zst", ".zstd")
# File name -> the options that it needs. All files have the same documents.
KINDS = {
    **{f"a.txt{suffix}": {} for suffix in COMPRESSIONS},
    **{f"a.jsonl{suffix}": {} for suffix in COMPRESSIONS},
    "a.text": {},
    "a.ndjson": {},
    "a.jsonl.zstd": {},
    "a.parquet": {},
    "a.arrow": {},
    "a.feather": {},
    "stream.arrow": {},
    "stream.arrows": {},
    "crlf.jsonl": {},
}


def compress(data: bytes, suffix: str) -> bytes:
    """Return two members or frames: all readers must continue after the first."""
    if not suffix:
        return data
    half = len(data) // 2
    pack = gzip.compress if suffix == ".gz" else load_zstd().compress
    return pack(data[:half]) + pack(data[half:])


def jsonl(documents: list[bytes]) -> bytes:
    records = [{"id": i, "text": text.decode(), "é": [i]} for i, text in enumerate(documents)]
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


def table(documents: list[bytes | None], type=None) -> pa.Table:
    texts = pa.array([None if text is None else text.decode() for text in documents], type or pa.string())
    return pa.table({"id": pa.array(range(len(documents))), "text": texts})


def write_documents(path: Path, documents: list[bytes]) -> Path:
    """Write documents in the format given by the suffix of `path`."""
    suffix = path.suffix if path.suffix in PACKED else ""
    format = path.with_suffix("").suffix if suffix else path.suffix
    if format in (".txt", ".text"):
        path.write_bytes(compress(b"".join(text + SEPARATOR for text in documents), suffix))
    elif format in (".jsonl", ".ndjson"):
        lines = jsonl(documents)
        path.write_bytes(compress(lines.replace(b"\n", b"\r\n") if path.name.startswith("crlf") else lines, suffix))
    elif format == ".parquet":
        pa.parquet.write_table(table(documents), path, row_group_size=50, write_page_checksum=True)
    else:
        new = pa.ipc.new_stream if path.name.startswith("stream") else pa.ipc.new_file
        with new(str(path), table(documents).schema) as writer:
            writer.write_table(table(documents), max_chunksize=20)
    return path


def find(path, **options):
    """Return the one input at `path`, and how to read it."""
    reading = Reading.checked(options)
    (input,) = find_files([path], reading).inputs
    return input, reading


def batches_of(path, *, cut=None, mark=None, **options):
    input, reading = find(path, **options)
    return list(read_batches(input, reading, cut=cut, **({} if mark is None else {"mark": mark})))


def documents_in(batches) -> list[bytes]:
    """Return the documents of batches, with the parts of cut documents joined."""
    documents: list[bytes] = []
    for batch in batches:
        spans = batch.spans()
        text = bytes(spans.text)
        stretches = [text[begin:end] for begin, end in zip(spans.begins, spans.ends, strict=True)]
        if spans.continued:
            documents[-1] += stretches.pop(0)
        documents += stretches
    return documents


def documents_of(path, **options) -> list[bytes]:
    return documents_in(batches_of(path, **options))


def cut_at_spaces(text) -> int:
    """A minimal cut: before the last space."""
    return max(0, bytes(text).rfind(b" "))
