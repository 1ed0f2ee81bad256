"""Row 5: Parquet files that are cut, empty, damaged, or without the expected column."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

import gristmill as gm
from faults.rows.entry_points import ENTRY_POINTS, TOKENIZER, count, encode
from faults.rows.fault import Fault
from gristmill.cli import main
from scripts import run_script

FAULT = Fault(
    row=5,
    injected="A Parquet file that is cut at every byte, empty, without the column, with nulls, or with a flipped bit "
    "in every byte of its pages and of its footer",
    promise="`TruncatedInputError` or `CorruptInputError` with the name of the file, and the column of a damaged page; "
    "nulls are skipped and counted in the manifest",
    undetectable="Flips in pages without checksums, and some flips in the headers of pages and in the footer, which "
    "have no checksum in the format",
    see_also=("tests/corpus/test_corpus_columns.py",),
)

TEXTS = ["one text", "two 三", None, "it's text", "", "one text"] * 4
NAMES = ["count_words", "train_tokenizer", "encode_corpus"]


def write(path: Path, texts=TEXTS, **options) -> bytes:
    table = pa.table({"id": pa.array(range(len(texts))), "text": pa.array(texts, pa.string())})
    pa.parquet.write_table(table, path, **{"write_page_checksum": True, **options})
    return path.read_bytes()


@pytest.mark.parametrize("name", NAMES)
def test_row_05_every_cut_is_an_error_with_path_and_offset(tmp_path, name):
    path = tmp_path / "a.parquet"
    data = write(path)
    for size in range(0, len(data), 5 if name == "count_words" else 41):
        path.write_bytes(data[:size])
        with pytest.raises((gm.TruncatedInputError, gm.CorruptInputError)) as caught:
            ENTRY_POINTS[name](path, tmp_path)
        assert caught.value.path == str(path)
        assert str(caught.value).startswith(f"{path}: ")
        if size == 0 or size > 8:
            assert isinstance(caught.value, gm.TruncatedInputError)
            assert caught.value.offset == size


@pytest.mark.parametrize("name", NAMES)
def test_row_05_a_missing_column_is_named_with_the_file_and_the_existing_columns(tmp_path, name):
    path = tmp_path / "a.parquet"
    pa.parquet.write_table(pa.table({"id": [1], "body": ["a text"]}), path)
    with pytest.raises(gm.CorpusError) as caught:
        ENTRY_POINTS[name](path, tmp_path)
    assert str(caught.value) == f"{path}: no column 'text' (columns: 'id', 'body'). Pass text_field=\"body\"."
    with pytest.raises(gm.CorpusError, match=r"a\.parquet: column 'id' is of type int64, but only strings and bytes"):
        ENTRY_POINTS[name](path, tmp_path, text_field="id")


def test_row_05_commands_name_the_file_and_the_column(tmp_path, capsys):
    path = tmp_path / "a.parquet"
    pa.parquet.write_table(pa.table({"body": ["a text"]}), path)
    TOKENIZER.save(tmp_path / "tok.json")
    for command in (
        ["train-tokenizer", path, "--vocab-size", "300", "-o", tmp_path / "new.json"],
        ["encode", path, "-t", tmp_path / "tok.json", "-o", tmp_path / "out"],
    ):
        assert main([*map(str, command)]) == 1
        errors = capsys.readouterr().err
        assert f"{path}: no column 'text' (columns: 'body')." in errors
        assert "--text-field" in errors and errors.count("\n") == 1


def test_row_05_nulls_are_skipped_and_counted(tmp_path):
    path = tmp_path / "a.parquet"
    write(path)
    run = gm.encode_corpus(path, TOKENIZER, out=tmp_path / "out", progress=None)
    assert (run.num_documents, run.manifest.num_nulls) == (20, 4)
    texts = [text for text in TEXTS if text is not None]
    assert [run.shards().decode(i) for i in range(len(run.shards()))] == texts
    assert dict(count(path, tmp_path).items()) == dict(gm.count_words(texts, progress=None).items())
    write(path, [None, None])
    with pytest.raises(gm.EmptyCorpusError, match="2 texts are null"):
        encode(path, tmp_path)
    write(path, [])
    with pytest.raises(gm.EmptyCorpusError):
        encode(path, tmp_path)


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at


def read_struct(data: bytes, at: int) -> tuple[dict[int, int], int]:
    """Return the integers of a struct in Thrift's compact protocol by field, and where the struct ends."""
    fields: dict[int, int] = {}
    field = 0
    while data[at]:
        kind, step = data[at] & 15, data[at] >> 4
        at += 1
        if step:
            field += step
        else:
            number, at = read_varint(data, at)
            field = (number >> 1) ^ -(number & 1)
        if kind in (4, 5, 6):  # a number, in zigzag form
            number, at = read_varint(data, at)
            fields[field] = (number >> 1) ^ -(number & 1)
        elif kind == 8:  # bytes
            size, at = read_varint(data, at)
            at += size
        elif kind == 12:
            _, at = read_struct(data, at)
        else:
            assert kind in (1, 2), kind  # true and false have no value
    return fields, at + 1


def bodies_of_pages(path: Path, data: bytes) -> list[range]:
    """Return the bytes of each page of the column `text`, without its header."""
    column = pa.parquet.ParquetFile(path).metadata.row_group(0).column(1)
    at = column.dictionary_page_offset or column.data_page_offset
    end = at + column.total_compressed_size
    bodies = []
    while at < end:
        header, body = read_struct(data, at)
        at = body + header[3]  # compressed_page_size
        bodies.append(range(body, at))
    assert at == end
    return bodies


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("compression", ["none", "snappy", "zstd"])
@pytest.mark.parametrize("use_dictionary", [True, False])
def test_row_05_a_flipped_bit_in_a_page_with_a_checksum_names_file_and_column(
    tmp_path, version, compression, use_dictionary
):
    path = tmp_path / "a.parquet"
    data = write(path, compression=compression, use_dictionary=use_dictionary, data_page_version=version)
    count(path, tmp_path)
    bodies = bodies_of_pages(path, data)
    assert len(bodies) == 1 + use_dictionary
    for place in [place for body in bodies for place in (*body[:-1:4], body[-1])]:
        damaged = bytearray(data)
        damaged[place] ^= 1 << place % 8
        path.write_bytes(damaged)
        with pytest.raises(gm.CorruptInputError) as caught:
            count(path, tmp_path)
        assert caught.value.path == str(path)
        assert str(caught.value).startswith(f"{path}: damaged near byte")
        assert "in column 'text' of row group 0" in str(caught.value)


def test_row_05_damage_in_another_column_is_not_read(tmp_path):
    path = tmp_path / "a.parquet"
    data = bytearray(write(path, use_dictionary=False))
    column = pa.parquet.ParquetFile(path).metadata.row_group(0).column(0)
    data[column.data_page_offset + column.total_compressed_size - 1] ^= 1
    path.write_bytes(data)
    assert count(path, tmp_path).num_pieces == gm.count_words(filter(None, TEXTS), progress=None).num_pieces


def test_row_05_skipping_a_damaged_file_uses_nothing_of_it(tmp_path):
    path = tmp_path / "a.parquet"
    data = bytearray(write(path, ["row"] * 300 + ["last"], row_group_size=100, use_dictionary=False))
    column = pa.parquet.ParquetFile(path).metadata.row_group(3).column(1)
    data[column.data_page_offset + column.total_compressed_size - 1] ^= 1
    path.write_bytes(data)
    with pytest.raises(gm.CorruptInputError, match="in column 'text' of row group 3"):
        encode(path, tmp_path)
    (tmp_path / "good.txt").write_bytes(b"good")
    with pytest.warns(gm.SkippedInputWarning, match=r"a\.parquet: damaged near byte"):
        words = gm.count_words([path, tmp_path / "good.txt"], on_error="skip", progress=None)
    assert dict(words.items()) == {b"good": 1}


# In a child, because a crash of pyarrow would end this process.
FLIP_EVERY_BYTE = """
    import json, sys
    from pathlib import Path
    import gristmill as gm
    path = Path(sys.argv[1])
    data = path.read_bytes()
    read = lambda: gm.count_words(path, num_threads=1, progress=None)
    expected = list(read().items())
    outcomes = []
    for place in range(len(data)):
        damaged = bytearray(data)
        damaged[place] ^= 1 << (place * 5 + 3) % 8
        path.write_bytes(damaged)
        try:
            outcomes.append("same" if list(read().items()) == expected else "different")
        except gm.CorpusError as error:
            assert str(path) in str(error), error
            outcomes.append("error")
    print(json.dumps(outcomes))
"""


def test_row_05_no_flipped_byte_ends_the_process_and_only_headers_can_change_the_text(tmp_path):
    path = tmp_path / "a.parquet"
    data = write(path)
    bodies = bodies_of_pages(path, data)
    done = run_script(FLIP_EVERY_BYTE, path)
    assert done.returncode == 0, done.stderr
    outcomes = json.loads(done.stdout)
    assert {outcomes[place] for body in bodies for place in body} == {"error"}
    assert Counter(outcomes)["different"] < len(data) // 20
