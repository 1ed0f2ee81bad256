"""Row 4: a gigabyte of text in a file of a megabyte or a kilobyte."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest

from faults.rows.fault import Fault
from gristmill.corpus.packages import load_zstd
from scripts import run_script

FAULT = Fault(
    row=4,
    injected="1 GB of zeros in a .gz or .zst file of at most 1 MB, as text with and without spaces and as one JSON "
    "line; 1 GB of rows that share one text in a Parquet or Arrow file of 1 kB",
    promise="Counting, training and `encode_corpus` need less than 300 MB. A text without a place to cut, a line or a "
    "row above `max_document_bytes` (64 MiB) is an error that states the limit. `encode_file` returns all ids, so its "
    "memory grows with the text, up to `max_decompressed_bytes` if that is passed",
    undetectable="The size of a Parquet page or an Arrow record batch before it is decompressed, so pyarrow needs "
    "memory for all of it; long rows of a Parquet dictionary that follow short ones, because up to 1,024 rows are read "
    "at once",
    see_also=("tests/corpus/test_corpus_streams.py", "tests/corpus/test_corpus_columns.py"),
)

pytestmark = pytest.mark.skipif(
    not os.access("/proc/self/clear_refs", os.W_OK), reason="resets the peak of memory in /proc/self/clear_refs"
)

GIGABYTE = 1_000_000_000
TEN_MEGABYTES = 10_000_000
MIB = 1 << 20


def bomb(path: Path, *, begin: bytes = b"", unit: bytes = b"\0", end: bytes = b"") -> None:
    """Write 1 GB of `unit` in a compressed file, between `begin` and `end`."""
    pack = gzip.compress if path.suffix == ".gz" else load_zstd().compress
    member = pack(unit * (TEN_MEGABYTES // len(unit)))
    path.write_bytes(pack(begin) + member * (GIGABYTE // TEN_MEGABYTES) + pack(end))
    assert path.stat().st_size < 1_100_000


@pytest.fixture(scope="module")
def bombs(tmp_path_factory) -> Path:
    import pyarrow as pa
    import pyarrow.ipc
    import pyarrow.parquet

    folder = tmp_path_factory.mktemp("bombs")
    words = b"\0" * 9999 + b" "
    for suffix in (".gz", ".zst"):
        bomb(folder / f"zeros.txt{suffix}")
        bomb(folder / f"line.jsonl{suffix}", begin=b'{"text": "', unit=b"0", end=b'"}\n')
    bomb(folder / "words.txt.zst", unit=words)
    bomb(folder / "lines.jsonl.zst", unit=b'{"text": "' + b"0" * 9987 + b'"}\n')
    rows = pa.table({"text": pa.array([b"0" * 1_000_000]).dictionary_encode().take([0] * 1000)})
    # pyarrow reads the first file as a dictionary, and the second one as texts of a dictionary page.
    pa.parquet.write_table(rows, folder / "rows.parquet", compression="zstd")
    texts = pa.table({"text": pa.array([b"0" * 1_000_000] * 1000)})
    pa.parquet.write_table(texts, folder / "pages.parquet", compression="zstd", dictionary_pagesize_limit=1 << 30)
    row = pa.table({"text": [b"0" * 70_000_000]})
    pa.parquet.write_table(row, folder / "row.parquet", compression="zstd")
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    for name, table in (("rows.arrow", rows), ("row.arrow", row)):
        with pa.ipc.new_file(str(folder / name), table.schema, options=options) as writer:
            writer.write_table(table)
    names = ("rows.parquet", "pages.parquet", "rows.arrow")
    assert all((folder / name).stat().st_size < 2000 for name in names)
    (folder / "small.txt.gz").write_bytes(gzip.compress(b"small text"))
    pa.parquet.write_table(pa.table({"text": ["small"]}), folder / "small.parquet")
    (folder / "spaces.txt.zst").write_bytes(load_zstd().compress(words * (50_000_000 // len(words))))
    return folder


# Runs every call in one process and reports the peak of memory of each. Writing 5 to clear_refs resets the peak.
MEASURE = """
    import json, re, sys, tempfile
    from pathlib import Path
    import pyarrow.parquet
    import gristmill as gm

    folder = Path(sys.argv[1])
    tok = gm.Tokenizer([(b"0", b"0")], special_tokens=["<|endoftext|>"])

    def read(call, name):
        path = folder / name
        if call == "count":
            return gm.count_words(path, num_threads=2, progress=None).source_bytes
        if call == "train":
            return gm.train_tokenizer(path, vocab_size=258, num_threads=2, progress=None).vocab_size
        if call == "encode":
            run = gm.encode_corpus(path, tok, out=folder / f"{name}.shards", num_threads=2, progress=None)
            return run.num_documents
        limit = {"max_decompressed_bytes": 64 << 20} if name == "zeros.txt.gz" else {}
        return len(tok.encode_file(path, num_threads=2, **limit))

    def resident(what):
        return int(re.search(what + r":\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) * 1024

    read("count", "small.txt.gz")
    with tempfile.TemporaryDirectory() as warm:
        gm.encode_corpus(["small"], tok, out=warm + "/out", progress=None)
    read("count", "small.parquet")
    for call, name in json.loads(sys.argv[2]):
        Path("/proc/self/clear_refs").write_text("5")
        before = resident("VmRSS")
        try:
            result = read(call, name)
        except gm.CorpusError as error:
            result = str(error)
        print(json.dumps([result, resident("VmHWM") - before]), flush=True)
"""


GROWING = [
    ("count", "words.txt.zst"),
    ("count", "lines.jsonl.zst"),
    ("count", "rows.parquet"),
    ("count", "pages.parquet"),
    ("count", "rows.arrow"),
]
LIMITED = [
    ("count", "zeros.txt.gz"),
    ("train", "zeros.txt.zst"),
    ("encode", "zeros.txt.gz"),
    ("count", "line.jsonl.gz"),
    ("encode", "line.jsonl.zst"),
    ("count", "row.parquet"),
    ("encode", "row.arrow"),
    ("file", "zeros.txt.gz"),
]


def measure(bombs: Path, calls: list[tuple[str, str]]) -> dict[tuple[str, str], tuple]:
    """Return (result or message, bytes of memory) of each call, measured in one child."""
    done = run_script(MEASURE, bombs, json.dumps(calls))
    lines = done.stdout.splitlines()
    assert len(lines) == len(calls), done.stderr
    return {call: tuple(json.loads(line)) for call, line in zip(calls, lines, strict=True)}


@pytest.fixture(scope="module")
def growing(bombs):
    return measure(bombs, [*GROWING, ("file", "spaces.txt.zst")])


@pytest.fixture(scope="module")
def limited(bombs):
    return measure(bombs, LIMITED)


@pytest.mark.parametrize("call", GROWING, ids=" ".join)
def test_row_04_a_gigabyte_that_can_be_cut_is_read_in_bounded_memory(growing, call):
    result, memory = growing[call]
    if call[0] == "count":
        assert result >= 0.99 * GIGABYTE
    assert memory < 300 * MIB


@pytest.mark.parametrize("call", LIMITED, ids=" ".join)
def test_row_04_a_text_that_cannot_be_cut_meets_the_stated_limit(bombs, limited, call):
    message, memory = limited[call]
    assert str(bombs / call[1]) in message
    option = "max_decompressed_bytes" if call[0] == "file" else "max_document_bytes"
    assert f"{option}={64 * MIB}" in message.replace(",", "")
    assert memory < 300 * MIB
    assert not (bombs / f"{call[1]}.shards").exists()  # encode_corpus has removed all of it


def test_row_04_encode_file_needs_memory_in_proportion_to_the_ids_that_it_returns(growing):
    num_ids, memory = growing["file", "spaces.txt.zst"]
    assert memory < 3 * 2 * num_ids + 100 * MIB
