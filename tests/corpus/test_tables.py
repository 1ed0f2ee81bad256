"""Tables, columns and rows as documents: every kind of table gives the same documents."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.dataset
import pyarrow.feather
import pyarrow.parquet
import pytest
from corpus_files import documents_in

import gristmill as gm
from gristmill.corpus import Reading, open_corpus

TEXTS = ["low low lower", None, "", "Zoë 🎉 newest", "a\0b\r\n", "wide " * 50, None, *(f"text {i}" for i in range(40))]
PRESENT = [text for text in TEXTS if text is not None]
NUM_NULLS = len(TEXTS) - len(PRESENT)
IDS = list(range(len(TEXTS)))


def rows():
    return ({"id": i, "body": text} for i, text in enumerate(TEXTS))


def arrow_table(type=None):
    return pa.table({"id": IDS, "body": pa.array(TEXTS, type or pa.string())})


def parquet_folder(folder):
    pa.parquet.write_table(arrow_table(), folder / "a.parquet", row_group_size=7)
    return folder


def pandas_frame(make):
    pandas = pytest.importorskip("pandas")
    return pandas.DataFrame({"id": IDS, "body": make(pandas)})


def polars_frame(**options):
    polars = pytest.importorskip("polars")
    return polars.DataFrame({"id": IDS, "body": polars.Series(TEXTS, **{k: v(polars) for k, v in options.items()})})


def hugging_face():
    datasets = pytest.importorskip("datasets")
    return datasets.Dataset.from_dict({"id": IDS, "body": TEXTS})


# Each is called with an empty folder and returns a table with a column "body".
TABLES = {
    "rows": lambda folder: rows(),
    "list of rows": lambda folder: list(rows()),
    "pyarrow string": lambda folder: arrow_table(),
    "pyarrow large_string": lambda folder: arrow_table(pa.large_string()),
    "pyarrow string_view": lambda folder: arrow_table(pa.string_view()),
    "pyarrow binary": lambda folder: arrow_table(pa.binary()),
    "pyarrow dictionary": lambda folder: arrow_table(pa.dictionary(pa.int32(), pa.string())),
    "pyarrow chunks": lambda folder: pa.concat_tables([arrow_table().slice(0, 9), arrow_table().slice(9)]),
    "pyarrow RecordBatch": lambda folder: arrow_table().to_batches()[0],
    "pyarrow RecordBatchReader": lambda folder: arrow_table().to_reader(max_chunksize=9),
    "pyarrow Dataset": lambda folder: pa.dataset.dataset(parquet_folder(folder)),
    "pyarrow Scanner": lambda folder: pa.dataset.dataset(parquet_folder(folder)).scanner(),
    "pandas": lambda folder: pandas_frame(lambda pandas: pandas.Series(TEXTS)),
    "pandas object": lambda folder: pandas_frame(lambda pandas: pandas.Series(TEXTS, dtype=object)),
    "pandas NaN": lambda folder: pandas_frame(
        lambda pandas: pandas.Series([float("nan") if text is None else text for text in TEXTS], dtype=object)
    ),
    "pandas NaT": lambda folder: pandas_frame(
        lambda pandas: pandas.Series([pandas.NaT if text is None else text for text in TEXTS], dtype=object)
    ),
    "pandas NA": lambda folder: pandas_frame(
        lambda pandas: pandas.Series([pandas.NA if text is None else text for text in TEXTS], dtype=object)
    ),
    "pandas string": lambda folder: pandas_frame(lambda pandas: pandas.Series(TEXTS, dtype="string")),
    "pandas category": lambda folder: pandas_frame(lambda pandas: pandas.Series(TEXTS, dtype="category")),
    "pandas without its first row": lambda folder: pandas_frame(lambda pandas: pandas.Series(TEXTS)).iloc[0:],
    "polars": lambda folder: polars_frame(),
    "polars categorical": lambda folder: polars_frame(dtype=lambda polars: polars.Categorical),
    "polars object": lambda folder: polars_frame(dtype=lambda polars: polars.Object),
    "datasets": lambda folder: hugging_face(),
    "datasets, shuffled back": lambda folder: hugging_face().select(IDS[::-1]).select(IDS[::-1]),
    "datasets, formatted": lambda folder: hugging_face().with_format("numpy"),
    "datasets, iterable": lambda folder: hugging_face().to_iterable_dataset(),
    "Documents": lambda folder: gm.Documents(arrow_table()),
}
COLUMNS = {
    "pyarrow Array": lambda: arrow_table()["body"].chunk(0),
    "pyarrow ChunkedArray": lambda: arrow_table()["body"],
    "pyarrow Array, a part": lambda: pa.array(["before", *TEXTS, "after"]).slice(1, len(TEXTS)),
    "pandas Series": lambda: pandas_frame(lambda pandas: pandas.Series(TEXTS))["body"],
    "pandas Series, object": lambda: pandas_frame(lambda pandas: pandas.Series(TEXTS, dtype=object))["body"],
    "pandas Index": lambda: pytest.importorskip("pandas").Index(TEXTS),
    "polars Series": lambda: polars_frame()["body"],
    "datasets column": lambda: hugging_face()["body"],
    "NumPy objects": lambda: np.array(TEXTS, dtype=object),
}


def read(corpus, **options):
    """Return the documents of a corpus, and the number of null texts."""
    batches = list(open_corpus(corpus, Reading.checked(options)).read_batches())
    return documents_in(batches), sum(batch.spans().num_nulls for batch in batches)


@pytest.mark.parametrize("kind", TABLES)
def test_a_table_is_the_texts_of_its_column(tmp_path, kind):
    documents, num_nulls = read(TABLES[kind](tmp_path), text_field="body")
    assert documents == [text.encode() for text in PRESENT]
    assert num_nulls == NUM_NULLS


@pytest.mark.parametrize("kind", TABLES)
def test_a_table_in_small_batches_is_the_same(tmp_path, kind, small_batches):
    batches = list(open_corpus(TABLES[kind](tmp_path), Reading.checked({"text_field": "body"})).read_batches())
    assert len(batches) > 3
    assert documents_in(batches) == [text.encode() for text in PRESENT]
    assert [batch.mark for batch in batches[1:]] == [batch.next_mark for batch in batches[:-1]]
    assert batches[-1].next_mark.offset == len(TEXTS)


@pytest.mark.parametrize("kind", COLUMNS)
def test_a_column_is_its_values(kind):
    documents, num_nulls = read(COLUMNS[kind]())
    assert documents == [text.encode() for text in PRESENT]
    assert num_nulls == NUM_NULLS


@pytest.mark.parametrize("dtype", [None, "S", np.dtypes.StringDType()])
def test_an_array_of_strings_is_its_values(dtype):
    texts = ["low", "lower", ""]
    assert read(np.array(texts, dtype=dtype)) == ([b"low", b"lower", b""], 0)


@pytest.mark.parametrize("kind", ["rows", "pyarrow string", "pandas", "pandas object", "polars", "datasets"])
def test_every_function_takes_a_table(tmp_path, kind):
    def table():
        return TABLES[kind](tmp_path)

    expected = gm.count_words(PRESENT, progress=None)
    assert gm.count_words(table(), text_field="body", progress=None) == expected
    by_regex = {"pattern": r"\w+|\W", "num_threads": 1, "progress": None}
    assert gm.count_words(table(), text_field="body", **by_regex) == gm.count_words(PRESENT, **by_regex)
    tok = gm.train_tokenizer(table(), vocab_size=270, text_field="body", progress=None)
    assert tok == gm.train_tokenizer(PRESENT, vocab_size=270, progress=None)
    longer = gm.extend_tokenizer(tok, table(), vocab_size=280, text_field="body", progress=None)
    assert longer == gm.train_tokenizer(PRESENT, vocab_size=280, progress=None)
    run = gm.encode_corpus(table(), tok, out=tmp_path / "a", text_field="body", val_fraction=0.3, progress=None)
    plain = gm.encode_corpus(PRESENT, tok, out=tmp_path / "b", val_fraction=0.3, progress=None)
    assert run.manifest.num_nulls == NUM_NULLS
    assert run.manifest.splits == plain.manifest.splits
    assert (tmp_path / "a" / "shard-00000.bin").read_bytes() == (tmp_path / "b" / "shard-00000.bin").read_bytes()


def test_the_column_is_text_unless_another_is_named(tmp_path):
    texts = {"text": ["one", "two"]}
    for table in (pa.table(texts), [{"text": "one"}, {"text": "two"}]):
        assert read(table) == ([b"one", b"two"], 0)
    assert read(pytest.importorskip("pandas").DataFrame(texts)) == ([b"one", b"two"], 0)


@pytest.mark.parametrize("kind", TABLES)
def test_a_missing_column_is_an_error_that_lists_the_existing_ones(tmp_path, kind):
    with pytest.raises(gm.CorpusError, match=r"no (column|field) 'text' \(.*'id', 'body'\)\. Pass text_field=\"body\""):
        read(TABLES[kind](tmp_path))


@pytest.mark.parametrize("kind", ["pyarrow string", "pandas", "polars", "datasets"])
def test_a_column_of_numbers_is_refused(tmp_path, kind):
    with pytest.raises(gm.CorpusError, match=r"'id'.* of type [Ii]nt64, but only strings and bytes are text"):
        read(TABLES[kind](tmp_path), text_field="id")


def test_values_and_rows_of_another_type_are_named_with_their_number():
    with pytest.raises(TypeError, match="field 'text' of row 1 of the corpus is a int"):
        read([{"text": "a"}, {"text": 3}])
    with pytest.raises(TypeError, match="row 1 of the corpus is a str"):
        read([{"text": "a"}, "b"])
    with pytest.raises(TypeError, match="document 1 of the corpus is a dict"):
        read(["a", {"text": "b"}])


@pytest.mark.parametrize(
    ("array", "error", "message"),
    [
        (np.arange(3, dtype=np.uint16), TypeError, "an array of uint16 .*, which is not text"),
        (np.array([["a"], ["b"]]), TypeError, "2 dimensions"),
        (np.array("a"), TypeError, "0 dimensions"),
        (pa.array([1, 2]), gm.CorpusError, "int64, but only strings and bytes are text"),
        (pa.chunked_array([[1, 2]]), gm.CorpusError, "int64, but only strings and bytes are text"),
        ({"text": ["a", "b"]}, TypeError, r"dict is not a corpus.*data\['text'\].*from_counts"),
    ],
)
def test_what_holds_no_texts_is_refused(array, error, message):
    with pytest.raises(error, match=message):
        read(array)


@pytest.mark.parametrize(
    ("make", "type"),
    [
        (lambda pandas: pandas.Categorical([1, 2, None]), "int64"),
        (lambda pandas: pandas.Series(pandas.Categorical([1.5, 2.5])), "float64"),
        (lambda pandas: pandas.period_range("2020-01", periods=2, freq="M"), "period"),
        (lambda pandas: pandas.interval_range(0, 2), "interval"),
        (lambda pandas: pandas.Series([1.0, 2.0]), "float64"),
    ],
)
def test_a_column_of_pandas_that_holds_no_text_is_refused_with_its_type(make, type):
    pandas = pytest.importorskip("pandas")
    column = make(pandas)
    with pytest.raises(gm.CorpusError, match=rf"column 'text' of the table .*{type}.*, but only strings and bytes"):
        read(pandas.DataFrame({"text": column}))
    with pytest.raises(gm.CorpusError, match=rf"{type}.*, but only strings and bytes"):
        read(pandas.Series(column))


def test_categories_of_several_types_are_documents_until_one_is_no_text():
    pandas = pytest.importorskip("pandas")
    assert read(pandas.Series(pandas.Categorical([b"a", "b", None]))) == ([b"a", b"b"], 1)
    with pytest.raises(TypeError, match="document 1 of the corpus is a int"):
        read(pandas.Series(pandas.Categorical(["a", 2])))


def test_an_index_of_several_levels_is_refused_with_how_to_pass_one():
    pandas = pytest.importorskip("pandas")
    index = pandas.MultiIndex.from_tuples([("a", "b")])
    with pytest.raises(TypeError, match=r"2 levels.*get_level_values\(0\)"):
        read(index)
    assert read(index.get_level_values(0)) == ([b"a"], 0)


def test_nulls_of_any_library_are_nulls():
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    assert read(pandas.Series(["a", pandas.NaT], dtype=object)) == ([b"a"], 1)
    assert read([{"text": "a"}, {"text": pandas.NaT}]) == ([b"a"], 1)
    for column in (pa.nulls(3), pa.table({"text": pa.nulls(3)}), polars.DataFrame({"text": [None] * 3})):
        assert read(column) == ([], 3)
        with pytest.raises(gm.EmptyCorpusError):
            gm.count_words(column, progress=None)


@pytest.mark.parametrize("write", [pa.parquet.write_table, pa.feather.write_feather])
def test_a_file_whose_column_holds_only_nulls_is_empty(tmp_path, write):
    suffix = "parquet" if write is pa.parquet.write_table else "feather"
    write(pa.table({"text": pa.nulls(3)}), str(tmp_path / f"a.{suffix}"))
    with pytest.raises(gm.EmptyCorpusError):
        gm.count_words(tmp_path, progress=None)


def test_two_columns_of_one_name_are_refused():
    pandas = pytest.importorskip("pandas")
    with pytest.raises(gm.CorpusError, match="2 columns named 'text'"):
        read(pandas.DataFrame([["a", "b"]], columns=["text", "text"]))


def test_a_query_and_a_dict_of_splits_say_what_to_pass():
    polars, datasets = pytest.importorskip("polars"), pytest.importorskip("datasets")
    with pytest.raises(TypeError, match=r"LazyFrame is a query.*frame\.collect\(\)"):
        read(polars.LazyFrame({"text": ["a"]}))
    with pytest.raises(TypeError, match=r"splits \('train', 'test'\)\. Pass one, such as data\['train'\]"):
        read(datasets.DatasetDict(train=hugging_face(), test=hugging_face()))


def test_a_transform_of_a_dataset_makes_its_documents():
    hugging_face_data = hugging_face().with_transform(lambda batch: {"body": ["changed"] * len(batch["body"])})
    assert read(hugging_face_data, text_field="body") == ([b"changed"] * len(TEXTS), 0)


def test_anything_that_exports_arrow_data_is_a_table():
    class Exported:
        def __arrow_c_stream__(self, requested_schema=None):
            return arrow_table().__arrow_c_stream__(requested_schema)

    assert read(Exported(), text_field="body") == ([text.encode() for text in PRESENT], NUM_NULLS)


def test_a_table_of_an_unknown_library_is_not_taken_as_its_column_names():
    class Frame(dict):
        columns, dtypes = ["text"], [str]

    with pytest.raises(TypeError, match="table of an unsupported type"):
        read(Frame(text=["a"]))


@pytest.mark.parametrize("corpus", [[], iter(()), pa.table({"text": pa.array([], pa.string())}), [{"text": None}]])
def test_an_empty_corpus_is_reported_as_empty(corpus, tmp_path):
    with pytest.raises(gm.EmptyCorpusError):
        gm.count_words(corpus, progress=None)


def test_empty_data_frames_are_empty_corpora():
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    for corpus in (pandas.DataFrame({"text": []}), polars.DataFrame({"text": []})):
        with pytest.raises(gm.EmptyCorpusError):
            gm.count_words(corpus, progress=None)


def test_tables_are_read_a_part_at_a_time():
    taken = 0

    def source():
        nonlocal taken
        for _ in range(100):
            taken += 1
            yield pa.record_batch({"text": ["x" * 1000]})

    reader = pa.RecordBatchReader.from_batches(pa.schema({"text": pa.string()}), source())
    batches = open_corpus(reader).read_batches()
    next(batches)
    assert taken < 5


def test_importing_the_package_imports_no_library_of_tables():
    code = "import sys, gristmill; print({'pandas', 'polars', 'pyarrow', 'datasets'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"
