"""Columns of pandas, polars, pyarrow, NumPy and Hugging Face as batches of texts; tables are an error."""

from __future__ import annotations

import numpy as np
import pytest

import gristmill as gm

TEXTS = ["low", "", "lower né"]
TOK = gm.Tokenizer([(b"l", b"o"), (b"lo", b"w")])
ROWS = [TOK.encode(text) for text in TEXTS]


def pandas_series(values):
    return pytest.importorskip("pandas").Series(values, index=range(10, 10 + len(values)))


def pandas_strings(values):
    return pytest.importorskip("pandas").Series(values, dtype="string")


def polars_series(values):
    return pytest.importorskip("polars").Series("text", values)


def pyarrow_array(values):
    return pytest.importorskip("pyarrow").array(values)


def pyarrow_chunks(values):
    pyarrow = pytest.importorskip("pyarrow")
    return pyarrow.chunked_array([values[:1], values[1:]])


def pyarrow_dictionary(values):
    return pyarrow_array(values).dictionary_encode()


def huggingface_column(values):
    return pytest.importorskip("datasets").Dataset.from_dict({"text": values})["text"]


def numpy_objects(values):
    return np.array(values, dtype=object)


COLUMNS = [
    *(pandas_series, pandas_strings, polars_series, pyarrow_array, pyarrow_chunks, pyarrow_dictionary),
    *(huggingface_column, numpy_objects),
]


@pytest.mark.parametrize("column", [*COLUMNS, np.array, iter, tuple], ids=lambda column: column.__name__)
def test_a_column_of_texts_is_a_batch(column):
    assert TOK.encode_batch(column(TEXTS)).tolist() == ROWS


@pytest.mark.parametrize("column", [*COLUMNS, list], ids=lambda column: column.__name__)
def test_a_missing_text_of_a_column_is_named_by_its_index(column):
    for dropout in (0.0, 0.5):
        with pytest.raises(TypeError, match=r"texts\[2\] is a missing value: .*drop missing values first"):
            TOK.encode_batch(column(["a", "b", None]), dropout=dropout)


def test_nan_is_a_missing_text():
    with pytest.raises(TypeError, match=r"texts\[1\] is a missing value: nan"):
        TOK.encode_batch(pandas_series(["a", float("nan")]))


def pandas_table():
    return pytest.importorskip("pandas").DataFrame({"id": [1, 2], "text": ["a", "b"]})


def polars_table():
    return pytest.importorskip("polars").DataFrame({"id": [1, 2], "text": ["a", "b"]})


def pyarrow_table():
    return pytest.importorskip("pyarrow").table({"id": [1, 2], "text": ["a", "b"]})


def pyarrow_batch():
    return pyarrow_table().to_batches()[0]


def huggingface_table():
    return pytest.importorskip("datasets").Dataset.from_dict({"id": [1, 2], "text": ["a", "b"]})


def mapping():
    return {"id": [1, 2], "text": ["a", "b"]}


def numpy_records():
    return np.array([(1, "a"), (2, "b")], dtype=[("id", int), ("text", "U1")])


TABLES = [pandas_table, polars_table, pyarrow_table, pyarrow_batch, huggingface_table, mapping, numpy_records]


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.__name__)
def test_a_table_or_a_mapping_is_refused_instead_of_encoding_the_names_of_its_columns(table):
    message = r"texts is a \w+ with the (columns|keys) 'id', 'text'\. Pass one of them: texts\['text'\]"
    with pytest.raises(TypeError, match=message):
        TOK.encode_batch(table())
    with pytest.raises(TypeError, match=message.replace("texts", "chunks")):
        TOK.encode_iterable(table())


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.__name__)
def test_the_column_that_the_message_names_works(table):
    assert TOK.encode_batch(table()["text"]).tolist() == [[97], [98]]


@pytest.mark.parametrize(
    "table", [pandas_table, polars_table, pyarrow_table, mapping], ids=lambda table: table.__name__
)
def test_rows_to_decode_are_no_table_either(table):
    with pytest.raises(TypeError, match=r"batch is a \w+ with the (columns|keys)"):
        TOK.decode_batch(table())


@pytest.mark.parametrize("column", [pandas_series, polars_series, pyarrow_array, numpy_objects, list])
def test_a_column_of_ids_is_decoded(column):
    assert TOK.decode_batch(column(ROWS)) == TEXTS


@pytest.mark.parametrize("column", [pandas_series, polars_series, pyarrow_array, np.array, list])
def test_ids_in_a_column_are_the_ids_of_a_text(column):
    assert TOK.decode(column([256, 257, 10])) == "lolow\n"
