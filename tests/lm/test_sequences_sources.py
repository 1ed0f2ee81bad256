"""Sources: documents of shards, and every type of Parquet column, as sequences."""

import pickle

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import gristmill as gm
from gristmill.lm.data.identity import shards_identity
from gristmill.lm.data.sequences import ShardSequences, open_sequences
from lm.sequence_sources import dataset, same
from lm.tiny_runs import build_shards, texts, tokenizer
from shards.builder import build_folder

torch.set_num_threads(1)

TEXTS = ["low lower", "", "newest widest newer", "x", "the lowest low low low lower", "é wide", "wider", "low"] * 3
LONG = 1000


def sequences(source):
    return [source.read(i).tolist() for i in range(source.num_sequences)]


def write(path, **columns):
    pq.write_table(pa.table(columns), path, row_group_size=7)
    return path


@pytest.fixture
def opened(tmp_path):
    """open_sequences with a cache for this test, and all sequences in train."""

    def call(data, **options):
        return open_sequences(data, **{"cache_dir": tmp_path / "cache", "val_fraction": 0.0, **options})

    return call


# Shards


@pytest.mark.parametrize("position", ["after", "before"])
@pytest.mark.parametrize("max_length", [LONG, 6, 3, 1])
def test_a_document_of_shards_ends_with_end_of_text_unless_it_was_cut(tmp_path, position, max_length):
    tok = tokenizer()
    build_folder(tmp_path / "s", TEXTS, tokenizer=tok, shard_tokens=11, position=position)
    shards = gm.Shards(tmp_path / "s")
    end = shards.end_of_text.id
    whole = [[*tok.encode(text), end] for text in TEXTS if text]
    source = ShardSequences(shards, max_sequence_length=max_length)
    assert sequences(source) == [ids[:max_length] for ids in whole]
    assert source.lengths_N.tolist() == [min(len(ids), max_length) for ids in whole]
    assert source.num_tokens == source.lengths_N.sum() and source.num_sequences == 21


def test_shards_without_end_of_text_have_none_added_and_one_token_is_a_sequence(tmp_path):
    tok = tokenizer()
    build_folder(tmp_path / "s", TEXTS, tokenizer=tok, end_of_text=False)
    source = ShardSequences(gm.Shards(tmp_path / "s"), max_sequence_length=LONG)
    assert sequences(source) == [tok.encode(text) for text in TEXTS if text]


def test_bytes_of_the_text_are_known_only_while_nothing_is_cut(tiny_shards):
    shards = gm.Shards(tiny_shards)
    assert ShardSequences(shards, max_sequence_length=LONG).source_bytes == shards.source_bytes
    assert ShardSequences(shards, max_sequence_length=20).source_bytes is None


def test_a_folder_of_shards_or_shards_are_opened_with_their_own_split(tiny_shards):
    for data in (tiny_shards, str(tiny_shards), gm.Shards(tiny_shards)):
        found = open_sequences(data)
        assert (found.train.num_sequences, found.val.num_sequences) == (120, 20)
        assert found.vocab_size == found.tokenizer.vocab_size == 300
        assert found.embedding_dim is None and not found.from_parquet and found.messages == []
        assert found.identity == shards_identity(gm.Shards(tiny_shards))


def test_shards_without_a_validation_split_have_none(tmp_path):
    assert open_sequences(build_shards(tmp_path / "s", val=False)).val is None


def test_an_index_that_runs_backwards_is_reported(tmp_path):
    folder = build_shards(tmp_path / "s")
    path = folder / gm.Shards(folder).manifest.splits["train"].shards[0].index
    ends = np.fromfile(path, "<i8")
    ends[3] = ends[2] - 1
    ends.tofile(path)
    with pytest.raises(gm.ShardsFormatError, match="an index is damaged"):
        open_sequences(folder)


def test_sources_travel_to_other_processes_as_their_place(tiny_shards, tmp_path, opened):
    path = write(tmp_path / "a.parquet", tokens=[[1, 2, 3]] * 100_000)
    for source in (ShardSequences(gm.Shards(tiny_shards), max_sequence_length=20), opened(path).train):
        source.read(0)
        data = pickle.dumps(source)
        assert len(data) < 2_000
        assert np.array_equal(pickle.loads(data).lengths_N, source.lengths_N)
        assert np.array_equal(pickle.loads(data).read(5), source.read(5))


# Text


def test_the_same_text_through_shards_and_through_parquet_gives_the_same_batches(tmp_path, opened):
    tok, documents = tokenizer(), [*texts(60), None, "", *texts(60, seed=5)]
    path = write(tmp_path / "a.parquet", text=documents)
    gm.encode_corpus(
        [text for text in documents if text is not None],
        tok,
        out=tmp_path / "s",
        val_fraction=0.2,
        seed=3,
        progress=None,
    )
    one = open_sequences(tmp_path / "s")
    two = opened(path, tokenizer=tok, val_fraction=0.2, seed=3)
    assert two.from_parquet and any("skipped null rows: 1." in message for message in two.messages)
    assert one.identity == two.identity and one.vocab_size == two.vocab_size
    assert one.train.source_bytes == two.train.source_bytes
    for a, b in ((one.train, two.train), (one.val, two.val)):
        assert sequences(a) == sequences(b)
        with dataset(a, max_sequence_length=LONG) as x, dataset(b, max_sequence_length=LONG) as y:
            assert all(same(x.batch(step), y.batch(step)) for step in range(20))


def test_text_may_come_from_several_files_and_another_column_and_a_saved_tokenizer(tmp_path, opened):
    tok = tokenizer()
    tok.save(tmp_path / "tok.json")
    (tmp_path / "data").mkdir()
    paths = [write(tmp_path / "data" / f"{i}.parquet", body=texts(10, seed=i), n=list(range(10))) for i in range(3)]
    expected = [[*tok.encode(text), 299] for i in range(3) for text in texts(10, seed=i)]
    for data in (tmp_path / "data", str(tmp_path / "data" / "*.parquet"), paths):
        found = opened(data, text_column="body", tokenizer=tmp_path / "tok.json")
        assert sequences(found.train) == expected
        assert found.val is None


def test_a_tokenizer_without_end_of_text_is_reported(tmp_path, opened):
    path = write(tmp_path / "a.parquet", text=texts(10))
    tok = gm.train_tokenizer([" ".join(texts(10))], vocab_size=280, progress=None, special_tokens=())
    found = opened(path, tokenizer=tok)
    assert sequences(found.train) == [tok.encode(text) for text in texts(10)]
    assert any("no end-of-text token" in message for message in found.messages)


def test_text_without_a_tokenizer_names_the_ways_out(tmp_path, opened):
    with pytest.raises(gm.OptionError, match=r"column 'text' is text.*Pass tokenizer=.*or tokens_column"):
        opened(write(tmp_path / "a.parquet", text=["a"], tokens=[[1]]))


# Ids

IDS = [[5, 0, 7], [1], [9, 9, 9, 9], [2, 65_000]] * 5
INTEGERS = ["uint16", "int32", "uint32", "int64", "uint64"]


@pytest.mark.parametrize("integer", INTEGERS)
@pytest.mark.parametrize("kind", ["list", "large_list"])
def test_every_type_of_token_column_is_read(tmp_path, opened, integer, kind):
    type = {"list": pa.list_, "large_list": pa.large_list}[kind](getattr(pa, integer)())
    found = opened(write(tmp_path / "a.parquet", tokens=pa.array(IDS, type)))
    assert sequences(found.train) == IDS
    assert (found.vocab_size, found.tokenizer, found.embedding_dim) == (65_001, None, None)
    assert found.train.kind == "tokens" and found.train.source_bytes is None
    assert found.identity["num_tokens"] == 50 and found.identity["tokenizer_fingerprint"] is None


@pytest.mark.parametrize("integer", ["int8", "uint8"])
def test_lists_of_one_size_and_small_ids_are_read(tmp_path, opened, integer):
    rows = [[i % 3, i, 100] for i in range(100)]
    type = pa.list_(getattr(pa, integer)(), 3)
    assert sequences(opened(write(tmp_path / "a.parquet", tokens=pa.array(rows, type))).train) == rows


def test_null_and_empty_rows_are_left_out_and_counted_and_ids_are_cut(tmp_path, opened):
    path = write(tmp_path / "a.parquet", tokens=pa.array([None, [1, 2, 3], [], None, [4]], pa.list_(pa.int64())))
    found = opened(path, max_sequence_length=2)
    assert sequences(found.train) == [[1, 2], [4]]
    assert found.messages[1:] == [
        "skipped null rows: 2.",
        "skipped empty rows: 1.",
    ]
    assert sequences(opened(path).train) == [[1, 2, 3], [4]]  # the cache has them untruncated


def test_ids_are_checked_against_the_tokenizer_that_is_given(tmp_path, opened):
    path = write(tmp_path / "a.parquet", tokens=[[1, 2]] * 9 + [[3, 300]])
    assert opened(path).vocab_size == 301
    with pytest.raises(gm.CorpusError, match=r"a.parquet: column 'tokens', row 9: id 300 is not below vocab_size=300"):
        opened(path, tokenizer=tokenizer())
    write(path, tokens=[[1, 2]] * 9 + [[3, 299]])
    found = opened(path, tokenizer=tokenizer())
    assert found.vocab_size == 300 and found.tokenizer == tokenizer()
    assert found.identity["tokenizer_fingerprint"] == tokenizer().fingerprint


# Vectors


def vectors(number, dim=3, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.integers(-8, 8, (1 + i % 4, dim)).astype(float).tolist() for i in range(number)]


FLOATS = {"float16": pa.float16(), "float32": pa.float32(), "float64": pa.float64()}


@pytest.mark.parametrize("number", list(FLOATS))
@pytest.mark.parametrize("inner", ["list", "large_list", "fixed"])
@pytest.mark.parametrize("outer", ["list", "large_list"])
def test_every_type_of_sequence_of_vectors_is_read(tmp_path, opened, number, inner, outer):
    rows = vectors(40)
    vector = {"list": pa.list_, "large_list": pa.large_list, "fixed": lambda t: pa.list_(t, 3)}[inner](FLOATS[number])
    type = {"list": pa.list_, "large_list": pa.large_list}[outer](vector)
    typed = [[[np.float16(x) for x in v] for v in row] for row in rows] if number == "float16" else rows
    found = opened(write(tmp_path / "a.parquet", e=pa.array(typed, type)), embedding_columns="e")
    assert sequences(found.train) == rows
    assert found.train.read(0).dtype == np.float32
    assert (found.embedding_dim, found.vocab_size, found.tokenizer, found.train.kind) == (3, None, None, "vectors")
    assert found.identity["num_tokens"] == sum(map(len, rows)) == found.train.num_tokens


@pytest.mark.parametrize("fixed", [True, False])
def test_one_vector_per_row_is_a_sequence_of_one(tmp_path, opened, fixed):
    rows = [[float(i), -1.5] for i in range(20)]
    type = pa.list_(pa.float32(), 2) if fixed else pa.list_(pa.float32())
    found = opened(write(tmp_path / "a.parquet", e=pa.array(rows, type)), embedding_columns=["e"])
    assert sequences(found.train) == [[row] for row in rows]


def test_several_columns_are_joined_along_the_last_axis_and_a_null_in_one_leaves_the_row_out(tmp_path, opened):
    a, b = vectors(30), vectors(30, dim=2, seed=1)
    b[4] = None
    path = write(tmp_path / "a.parquet", a=a, b=pa.array(b, pa.list_(pa.list_(pa.float64()))))
    found = opened(path, embedding_columns="a, b")
    expected = [np.concatenate([x, y], axis=1).tolist() for x, y in zip(a, b, strict=True) if y is not None]
    assert found.embedding_dim == 5 and sequences(found.train) == expected
    other_way = opened(path, embedding_columns=["b", "a"])
    assert other_way.train.read(0).tolist() == np.concatenate([b[0], a[0]], axis=1).tolist()
    batch = next(dataset(found.train, max_sequence_length=LONG).validation_batches())
    assert batch.vectors_BTE.shape == (3, 1, 5) and batch.num_targets == 3


def test_vectors_are_cut_like_tokens(tmp_path, opened):
    found = opened(write(tmp_path / "a.parquet", a=vectors(10)), embedding_columns="a", max_sequence_length=2)
    assert sequences(found.train) == [row[:2] for row in vectors(10)]


# Validation


@pytest.mark.parametrize("kind", ["tokens", "vectors"])
def test_a_copy_is_validated_with_its_original_and_file_names_and_order_do_not_matter(tmp_path, opened, kind):
    rows = [[i, i + 1, i * i] for i in range(300)]
    data = [[[float(x), 1.0] for x in row] for row in rows] if kind == "vectors" else rows
    columns = {"embedding_columns": "x"} if kind == "vectors" else {"tokens_column": "x"}
    one = opened(write(tmp_path / "a.parquet", x=data), val_fraction=0.2, seed=1, **columns)
    doubled = opened(write(tmp_path / "b.parquet", x=data[::-1] + data), val_fraction=0.2, seed=1, **columns)
    assert sorted(sequences(one.train) + sequences(one.val)) == sorted(data)
    assert 35 <= one.val.num_sequences <= 85  # 60 expected, sigma 7
    assert sorted(sequences(doubled.val)) == sorted(sequences(one.val) * 2)
    other = opened(tmp_path / "a.parquet", val_fraction=0.2, seed=2, **columns)
    assert sequences(other.val) != sequences(one.val)


def test_nothing_chosen_for_validation_is_no_validation(tmp_path, opened):
    assert opened(write(tmp_path / "a.parquet", tokens=[[1, 2]] * 5), val_fraction=0.001).val is None


# Bad input


@pytest.mark.parametrize(
    ("column", "options", "message"),
    [
        (pa.array([[1], [2, -3]]), {}, r"row 1: id -3 is negative"),
        (pa.array([[1], [2, None]]), {}, r"row 1: a number is null"),
        (pa.array([[1]] * 9 + [[2**31]]), {}, r"row 9: id 2147483648 is not below"),
        (pa.array([[1.5]]), {}, r"has type list<.*double.*>. Pass a column of lists of integers"),
        (pa.array(["text"]), {}, r"has type string. Pass a column of lists"),
        (pa.array([[[1.0, 2.0]], [[1.0]]]), {"v": 1}, r"row 1: a vector has 1 numbers, but others have 2"),
        (pa.array([[[1.0]] * 5, [[1.0], [1.0, 2.0]]]), {"v": 1}, r"row 1: a vector has 2 numbers, but others have 1"),
        (pa.array([None, [[1.0], None]]), {"v": 1}, r"row 1: a vector is null"),
        (pa.array([[[1.0, None]]]), {"v": 1}, r"row 0: a number is null"),
        (pa.array([[[1.0]] * 3, [[0.0], [float("nan")]]]), {"v": 1}, r"row 1: nan is not finite"),
        (pa.array([[1.0], [float("inf")]]), {"v": 1}, r"row 1: inf is not finite"),
        (pa.array([[1.0], [1e300]]), {"v": 1}, r"row 1: 1e\+300 is not finite in float32"),
        (pa.array([[1.0], []]), {"v": 1}, r"row 1: a vector has 0 numbers, but others have 1"),
        (pa.array([[[]]], pa.list_(pa.list_(pa.float32()))), {"v": 1}, r"row 0: a vector is empty\."),
        (pa.array([[1]]), {"v": 1}, r"has type list<.*int64.*>. Pass a column of lists of floating-point numbers"),
    ],
)
def test_invalid_values_are_named_with_file_and_row(tmp_path, opened, column, options, message):
    path = write(tmp_path / "bad.parquet", x=column)
    named = {"embedding_columns": "x"} if options else {"tokens_column": "x"}
    with pytest.raises(gm.CorpusError, match=rf"bad\.parquet: column 'x'.*{message}"):
        opened(path, **named)
    assert not list((tmp_path / "cache").glob("*sequences-*[!k]"))  # only the lock is left


def test_row_numbers_count_nulls_and_earlier_row_groups(tmp_path, opened):
    path = write(tmp_path / "a.parquet", tokens=pa.array([[1], None, []] * 20 + [[1, -1]], pa.list_(pa.int32())))
    with pytest.raises(gm.CorpusError, match="row 60: id -1 is negative"):
        opened(path)


def test_columns_of_another_length_or_dimension_in_a_later_file_are_found(tmp_path, opened):
    path = write(tmp_path / "a.parquet", a=[[[1.0]], [[1.0], [2.0]]], b=[[[1.0]], [[1.0]]])
    with pytest.raises(gm.CorpusError, match="column 'b', row 1: there are 1 vectors, but 2 in 'a'"):
        opened(path, embedding_columns="a,b")
    other = write(tmp_path / "b.parquet", a=[[[1.0, 2.0]]])
    with pytest.raises(
        gm.CorpusError, match=r"b\.parquet: column 'a', row 0: a vector has 2 numbers, but others have 1"
    ):
        opened([path, other], embedding_columns="a")


def test_ids_are_found_under_the_name_that_hugging_face_gives_them(tmp_path, opened):
    path = write(tmp_path / "a.parquet", input_ids=pa.array([[1, 2], [3]], pa.list_(pa.uint16())), attention=[1, 1])
    found = opened(path, val_fraction=0)
    assert sorted(found.train.read(i).tolist() for i in range(2)) == [[1, 2], [3]]


def test_a_missing_column_lists_the_existing_ones(tmp_path, opened):
    path = write(tmp_path / "a.parquet", body=["x"], ids=[[1]])
    with pytest.raises(
        gm.CorpusError, match=r"no column 'text', 'tokens' or 'input_ids' \(columns: 'body' \(string\), 'ids' \(list"
    ):
        opened(path)
    with pytest.raises(gm.CorpusError, match=r"no column 'emb' \(columns: 'body', 'ids'\)"):
        opened(path, embedding_columns="emb")
    with pytest.raises(gm.CorpusError, match=r"no column 'tekst' \(columns: 'body', 'ids'\)"):
        opened(path, text_column="tekst", tokenizer=tokenizer())


@pytest.mark.parametrize("column", ["text", "tokens"])
def test_every_byte_at_which_a_file_may_be_cut_is_found(tmp_path, opened, column):
    path = write(tmp_path / "cut.parquet", **{column: texts(4) if column == "text" else [[1, 2], [3]]})
    data, tok = path.read_bytes(), tokenizer()
    for size in [0, 3, 9, *range(20, len(data), 97), len(data) - 1]:
        path.write_bytes(data[:size])
        with pytest.raises((gm.TruncatedInputError, gm.CorruptInputError), match=r"cut\.parquet: ") as caught:
            opened(path, tokenizer=tok)
        assert caught.value.path == str(path) and "on_error" not in str(caught.value)


def test_a_flipped_byte_of_a_page_is_found_where_the_file_has_checksums(tmp_path, opened):
    path = tmp_path / "a.parquet"
    ids = [[1, i] for i in range(500)]
    pq.write_table(pa.table({"tokens": ids}), path, write_page_checksum=True, compression="none", use_dictionary=False)
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 0x10
    path.write_bytes(data)
    with pytest.raises(gm.CorruptInputError, match=r"a\.parquet: damaged near byte .* in row group 0 \(.*checksum"):
        opened(path)


@pytest.mark.parametrize(
    ("rows", "message"),
    [([], "column 'tokens' has no sequences"), ([None, []], "null rows: 1, empty rows: 1")],
)
def test_nothing_to_train_on_is_reported(tmp_path, opened, rows, message):
    with pytest.raises(gm.EmptyCorpusError, match=message):
        opened(write(tmp_path / "a.parquet", tokens=pa.array(rows, pa.list_(pa.int32()))))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"text_column": "a", "tokens_column": "b"}, "text_column='a' and tokens_column='b' cannot be combined"),
        ({"embedding_columns": "a,,b"}, "a column name is empty or repeated"),
        ({"embedding_columns": ["a", "a"]}, "a column name is empty or repeated"),
        ({"embedding_columns": []}, "a column name is empty"),
        ({"val_fraction": 1.0}, "val_fraction must be >= 0 and < 1, got 1.0"),
        ({"seed": None}, "seed=None is of type NoneType"),
    ],
)
def test_bad_options_are_named(tmp_path, opened, options, message):
    path = write(tmp_path / "a.parquet", tokens=[[1]])
    with pytest.raises(gm.OptionError, match=message):
        opened(path, **options)


def test_columns_and_another_tokenizer_are_refused_for_shards(tiny_shards):
    with pytest.raises(gm.OptionError, match="tokens_column='ids' applies to Parquet files, but the data are shards"):
        open_sequences(tiny_shards, tokens_column="ids")
    assert open_sequences(tiny_shards, tokenizer=tokenizer()).vocab_size == 300
    other = gm.train_tokenizer([" ".join(texts(9))], vocab_size=270, special_tokens=["<|endoftext|>"], progress=None)
    with pytest.raises(gm.OptionError, match="the shards were made with another tokenizer"):
        open_sequences(tiny_shards, tokenizer=other)


def test_what_is_not_there_is_named(tmp_path, opened):
    with pytest.raises(FileNotFoundError, match=r"nothing\.parquet"):
        opened(tmp_path / "nothing.parquet")
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match="No file with a known suffix"):
        opened(tmp_path / "empty")
    with pytest.raises(gm.EmptyCorpusError, match="the list of files is empty"):
        opened([])
