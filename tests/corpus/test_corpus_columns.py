"""Parquet and Arrow: every kind of text column, nulls, and truncated or damaged files."""

from __future__ import annotations

import random
import sys

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet
import pytest
from corpus_files import batches_of, documents_of, find, table, write_documents

import gristmill as gm
from gristmill.corpus.formats import read_batches
from scripts import run_script

DOCUMENTS = [f"document {i} é ".encode() * (i % 5) for i in range(100)]
NAMES = ["a.parquet", "a.arrow", "stream.arrow"]


def write_table(path, data):
    if path.suffix == ".parquet":
        pa.parquet.write_table(data, path)
        return path
    new = pa.ipc.new_stream if path.name.startswith("stream") else pa.ipc.new_file
    with new(str(path), data.schema) as writer:
        writer.write_table(data)
    return path


TYPES = {
    "string": pa.string(),
    "large_string": pa.large_string(),
    "string_view": pa.string_view(),
    "binary": pa.binary(),
    "large_binary": pa.large_binary(),
    "dictionary": pa.dictionary(pa.int32(), pa.string()),
}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("type", list(TYPES))
def test_every_type_of_text_column_is_read_and_nulls_are_counted(tmp_path, name, type, small_batches):
    documents = [*DOCUMENTS, None, b"", None, "東京".encode()]
    path = write_table(tmp_path / name, table(documents, TYPES[type]))
    batches = batches_of(path)
    assert documents_of(path) == [text for text in documents if text is not None]
    assert sum(batch.spans().num_nulls for batch in batches) == 2


@pytest.mark.parametrize("name", NAMES)
def test_a_missing_column_lists_the_existing_ones(tmp_path, name):
    path = write_table(tmp_path / name, pa.table({"id": [1], "body": ["a"], "n": [2.0]}))
    with pytest.raises(gm.CorpusError) as caught:
        documents_of(path)
    assert str(caught.value) == f"{path}: no column 'text' (columns: 'id', 'body', 'n'). Pass text_field=\"body\"."
    assert documents_of(path, text_field="body") == [b"a"]


@pytest.mark.parametrize("name", NAMES)
def test_a_column_that_is_no_text_is_named_with_its_type(tmp_path, name):
    path = write_table(tmp_path / name, pa.table({"text": [[1, 2]]}))
    with pytest.raises(gm.CorpusError, match=r"column 'text' is of type list.*only strings and bytes are text"):
        documents_of(path)


@pytest.mark.parametrize("name", NAMES)
def test_no_rows_are_no_documents(tmp_path, name):
    assert documents_of(write_table(tmp_path / name, table([]))) == []
    assert documents_of(write_table(tmp_path / name, table([None, None]))) == []


def test_columns_with_dots_and_inside_others_are_not_mixed_up(tmp_path):
    data = pa.table({"meta": [{"text": "inside"}], "text": ["outside"], "text.x": ["dotted"]})
    path = write_table(tmp_path / "a.parquet", data)
    assert documents_of(path) == [b"outside"]
    assert documents_of(path, text_field="text.x") == [b"dotted"]


def test_bytes_that_are_no_utf8_come_back_as_they_are(tmp_path):
    raw = [bytes(range(256)), b"\xff", b"\xc0\xaf"]
    for name in NAMES:
        assert documents_of(write_table(tmp_path / name, pa.table({"text": pa.array(raw, pa.binary())}))) == raw


@pytest.mark.parametrize("name", NAMES)
def test_every_byte_at_which_a_file_may_be_cut_is_found(tmp_path, name):
    path = write_documents(tmp_path / name, DOCUMENTS[:12])
    data = path.read_bytes()
    for size in range(len(data)):
        path.write_bytes(data[:size])
        with pytest.raises((gm.TruncatedInputError, gm.CorruptInputError), match=rf"{name}: ") as caught:
            documents_of(path)
        if size > 8:
            assert isinstance(caught.value, gm.TruncatedInputError)
            assert caught.value.offset == size


@pytest.mark.parametrize("size", [1 << 30, 1 << 36, (1 << 62) + 1])
def test_an_impossible_length_in_a_small_arrow_file_is_damage_and_no_lack_of_memory(tmp_path, size, monkeypatch):
    path = write_documents(tmp_path / "stream.arrow", [b"low"])
    error = pa.ArrowMemoryError(f"malloc of size {size} failed")
    with pytest.raises(gm.CorruptInputError, match="malloc of size"):
        raise_from_reader(path, error, monkeypatch)
    with pytest.raises(MemoryError, match="malloc of size 1000 failed"):  # the machine has no memory
        raise_from_reader(path, pa.ArrowMemoryError("malloc of size 1000 failed"), monkeypatch)


@pytest.mark.parametrize("type", ["string", "binary", "large_string", "large_binary"])
@pytest.mark.parametrize("num_rows", [10_000, 450_000_000, 2**40])
def test_more_rows_than_an_arrow_file_has_offsets_are_damage_and_no_crash(tmp_path, type, num_rows):
    """Both numbers of rows are wrong: that of the batch and that of the column."""
    path = write_table(tmp_path / "stream.arrow", table([b"abc"] * 4_242, TYPES[type]))
    data = path.read_bytes()
    assert data.count((4_242).to_bytes(8, "little")) >= 2
    path.write_bytes(data.replace((4_242).to_bytes(8, "little"), num_rows.to_bytes(8, "little")))
    done = run_script("import sys, gristmill as gm; gm.count_words(sys.argv[1], progress=None)", path)
    assert "CorruptInputError" in done.stderr and "stream.arrow: damaged" in done.stderr, done


@pytest.mark.parametrize("which", ["first", "second"])
def test_a_message_longer_than_its_arrow_stream_is_damage_where_memory_is_limited(tmp_path, which):
    """pyarrow allocates the length of a message before it reads it: of 2 GB in a file of 64 kB, for example."""
    path = write_documents(tmp_path / "stream.arrow", [bytes(65_536)])
    data = bytearray(path.read_bytes())
    place = 4 if which == "first" else 12 + int.from_bytes(data[4:8], "little")  # after the marker of the message
    data[place : place + 4] = (2**31 - 200).to_bytes(4, "little")
    path.write_bytes(data)
    done = run_script(
        """
        import resource, sys
        import pyarrow.ipc
        import gristmill as gm
        used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 30),) * 2)
        try:
            gm.count_words(sys.argv[1], progress=None)
        except gm.CorpusError as error:
            print(error)
        """,
        path,
    )
    what = {"first": "truncated", "second": "damaged"}[which]
    assert f"stream.arrow: {what}" in done.stdout and "malloc of size" in done.stdout, done.stderr


def raise_from_reader(path, error, monkeypatch):
    def refuse(*_, **__):
        raise error

    monkeypatch.setattr("gristmill.corpus.formats.columns.as_binary", refuse)
    documents_of(path)


@pytest.mark.parametrize("name", NAMES)
def test_an_empty_file_is_truncated(tmp_path, name):
    (tmp_path / name).touch()
    with pytest.raises(gm.TruncatedInputError, match=rf"{name}: truncated at byte 0: the file is empty"):
        documents_of(tmp_path / name)


@pytest.mark.parametrize("name", NAMES)
def test_a_file_of_another_format_is_damaged(tmp_path, name):
    (tmp_path / name).write_bytes(b"plain text under a wrong name, and some more of it")
    with pytest.raises(gm.CorruptInputError, match=r"not a valid (Parquet|Arrow) file"):
        documents_of(tmp_path / name)


def test_a_flipped_byte_of_a_parquet_page_is_found_by_its_checksum(tmp_path):
    path = write_documents(tmp_path / "a.parquet", DOCUMENTS)
    data = path.read_bytes()
    column = pa.parquet.ParquetFile(path).metadata.row_group(1).column(1)
    damaged = bytearray(data)
    damaged[(column.dictionary_page_offset or column.data_page_offset) + column.total_compressed_size - 3] ^= 0x10
    path.write_bytes(damaged)
    with pytest.raises(gm.CorruptInputError, match=r"column 'text' of row group 1 \(.*checksum") as caught:
        documents_of(path)
    assert (caught.value.path, caught.value.offset) == (str(path), len(data) // 2)  # approximate: half of the rows


@pytest.mark.parametrize("name", NAMES)
def test_flipped_bytes_are_an_error_or_leave_the_process_alone(tmp_path, name):
    path = write_documents(tmp_path / name, DOCUMENTS)
    data = path.read_bytes()
    source = random.Random(1)
    for _ in range(300):
        damaged = bytearray(data)
        damaged[source.randrange(len(data))] ^= 1 << source.randrange(8)
        path.write_bytes(damaged)
        try:
            documents_of(path)
        except gm.CorpusError as error:
            assert str(path) in str(error)


def test_an_arrow_stream_without_its_end_marker_or_with_more_after_it_is_an_error(tmp_path):
    path = write_documents(tmp_path / "stream.arrow", DOCUMENTS)
    data = path.read_bytes()
    path.write_bytes(data[:-8])
    with pytest.raises(gm.TruncatedInputError, match="no end marker"):
        documents_of(path)
    path.write_bytes(data + data)
    with pytest.raises(gm.CorruptInputError, match="more bytes follow"):
        documents_of(path)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("change", ["append", "replace"])
def test_an_input_that_changes_while_it_is_read_is_an_error(tmp_path, name, change, small_batches):
    path = write_documents(tmp_path / name, DOCUMENTS)
    input, reading = find(path)
    batches = read_batches(input, reading, cut=None)
    next(batches)
    if change == "append":
        with path.open("ab") as file:
            file.write(b"more")
    else:
        write_documents(tmp_path / f"other{name}", DOCUMENTS).replace(path)
    with pytest.raises(gm.InputChangedError):
        list(batches)


def test_a_compressed_parquet_file_is_refused(tmp_path):
    (tmp_path / "a.parquet.gz").touch()
    with pytest.raises(gm.CorpusError, match="needs random access"):
        find(tmp_path / "a.parquet.gz")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_a_huge_row_group_is_read_in_little_memory(tmp_path):
    texts = [random.Random(i).randbytes(5000).hex() for i in range(1000)]
    path = tmp_path / "a.parquet"
    with pa.parquet.ParquetWriter(path, pa.schema({"text": pa.string()}), compression="zstd") as writer:
        writer.write_table(pa.table({"text": texts * 20}), row_group_size=1 << 30)
    assert pa.parquet.ParquetFile(path).num_row_groups == 1
    assert path.stat().st_size > 50_000_000
    script = """
        import re, sys
        import pyarrow.parquet
        import gristmill as gm
        from gristmill.corpus import Reading, find_files, read_files
        def resident():
            return int(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1]) * 1024
        reading = Reading()
        before = resident()
        total = 0
        for _, batch in read_files(find_files([sys.argv[1]], reading), reading, cut=None, num_readers=1):
            total += int((batch.spans().ends - batch.spans().begins).sum())
        print(total, resident() - before)
    """
    done = run_script(script, path)
    total, used = map(int, done.stdout.split())
    assert total == 200_000_000
    assert used < 130 << 20


@pytest.mark.parametrize("name", NAMES)
def test_two_columns_of_one_name_are_ambiguous(tmp_path, name):
    path = write_table(tmp_path / name, pa.table([pa.array(["a"]), pa.array(["b"])], names=["text", "text"]))
    with pytest.raises(gm.CorpusError, match=r"2 columns .* so the text column is ambiguous\. Rename all but one\."):
        documents_of(path)
