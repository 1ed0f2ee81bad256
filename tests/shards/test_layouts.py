"""Every layout, read back without this package: by numpy, pyarrow, and readers written out here."""

import hashlib
import io
import pickle
import pickletools
import struct
import sys
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gristmill as gm
from gristmill.shards import verify_shards
from gristmill.shards.layouts import LAYOUTS, Part, check_layout, layout, megatron, parquet
from gristmill.shards.layouts.layout import INT32, UINT16, UINT32
from shards.builder import cut_into_shards, published, train, write_shard

DOCUMENTS = [[1, 2, 3], [4, 5]]


def sha(data):
    return hashlib.sha256(data).hexdigest()[:16]


def write(folder, documents, name, *, vocab_size=300, split="train", number=0):
    """Return the paths of a shard with the documents, and its entry."""
    tokens = [id for document in documents for id in document]
    ends = np.cumsum([len(document) for document in documents]).tolist()
    found = LAYOUTS[name]
    entry = write_shard(folder, split, number, tokens, ends, found, found.dtype(vocab_size))
    return folder / entry.file, None if entry.index is None else folder / entry.index, entry


def marked(name, documents=DOCUMENTS):
    after = LAYOUTS[name].end_of_text == "after"
    return [[*document, 0] if after else [0, *document] for document in documents]


# The output of the format's own tools


def test_nanogpt_is_what_the_script_of_nanogpt_writes(tmp_path):
    path, index, _ = write(tmp_path, marked("nanogpt"), "nanogpt")
    assert (path.name, index) == ("train.bin", None)
    assert sha(path.read_bytes()) == "35a26f0e28105807"
    assert np.memmap(path, np.uint16, "r").tolist() == [1, 2, 3, 0, 4, 5, 0]


def test_llmc_is_what_the_script_of_llmc_writes(tmp_path):
    path, index, _ = write(tmp_path, marked("llmc"), "llmc")
    assert (path.name, index) == (f"{tmp_path.name}_train_000001.bin", None)
    assert sha(path.read_bytes()) == "2f1c6d4b5ec5049b"


def test_megatron_index_is_what_megatron_writes(tmp_path):
    path, index, _ = write(tmp_path, marked("megatron"), "megatron")
    assert (path.name, index.name) == ("train.bin", "train.idx")
    assert sha(index.read_bytes()) == "e676e573315d5180"
    assert sha(path.read_bytes()) == "35a26f0e28105807"


# Readers of other projects, written from their layouts


def read_gristmill(path, index, dtype):
    tokens, ends = np.fromfile(path, dtype), np.fromfile(index, "<i8")
    return [tokens[begin:end].tolist() for begin, end in pairwise([0, *ends])]


def read_llmc(path, index, dtype):
    header = np.fromfile(path, "<i4", 256)
    tokens = np.fromfile(path, "<u2" if header[0] == 20240520 else "<u4", offset=1024)
    assert (header[0], header[1]) in ((20240520, 1), (20240801, 7))
    assert header[2] == len(tokens)
    assert not header[3:].any()
    assert path.stat().st_size == 1024 + tokens.nbytes
    return tokens.tolist()


def read_megatron(path, index, dtype):
    with index.open("rb") as file:
        assert file.read(9) == b"MMIDIDX\x00\x00"
        version, code, sequences, documents = struct.unpack("<QBQQ", file.read(25))
        assert version == 1
        lengths = np.frombuffer(file.read(4 * sequences), "<i4")
        pointers = np.frombuffer(file.read(8 * sequences), "<i8")
        indices = np.frombuffer(file.read(8 * documents), "<i8")
        assert file.read() == b""
    assert index.stat().st_size == 34 + 12 * sequences + 8 * documents
    assert indices.tolist() == list(range(sequences + 1))
    kind = {4: np.dtype("<i4"), 8: np.dtype("<u2")}[code]
    data = path.read_bytes()
    return [
        np.frombuffer(data, kind, length, pointer).tolist() for length, pointer in zip(lengths, pointers, strict=True)
    ]


def read_datatrove(path, index, dtype):
    ends = np.fromfile(index, "<u8").astype(int).tolist()
    tokens = np.fromfile(path, dtype)
    return [tokens[begin:end].tolist() for begin, end in pairwise([0, *ends])]


def read_npy(path, index, dtype):
    return np.load(path, mmap_mode="r", allow_pickle=False).tolist()


def read_parquet(path, index, dtype):
    return pq.read_table(path, page_checksum_verification=True)["tokens"].to_pylist()


READERS = {
    "gristmill": read_gristmill,
    "nanogpt": lambda path, index, dtype: np.fromfile(path, "<u2").tolist(),
    "llmc": read_llmc,
    "megatron": read_megatron,
    "npy": read_npy,
    "parquet": read_parquet,
    "datatrove": read_datatrove,
}

CORPORA = {
    "two": DOCUMENTS,
    "none": [],
    "one": [[7]],
    "empty documents": [[], [1], [], []],
    "only empty": [[], []],
}


def test_every_layout_has_a_reader_here():
    assert list(READERS) == list(LAYOUTS)
    assert all(found.name == name for name, found in LAYOUTS.items())


@pytest.mark.parametrize("documents", CORPORA.values(), ids=CORPORA)
@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("vocab_size", [300, 65_499, 65_536, 65_537])
def test_a_foreign_reader_finds_the_documents(name, documents, vocab_size, tmp_path):
    if name == "nanogpt" and vocab_size > 65_536:
        pytest.skip("refused")
    largest = vocab_size - 1
    documents = [*documents, [largest]] if documents else documents
    path, index, _ = write(tmp_path, documents, name, vocab_size=vocab_size)
    found = READERS[name](path, index, LAYOUTS[name].dtype(vocab_size))
    flat = [id for document in documents for id in document]
    assert found in (documents, flat)


@pytest.mark.parametrize("name", LAYOUTS)
def test_the_tokens_are_found_by_the_map_of_the_layout(name, tmp_path):
    path, _, entry = write(tmp_path, DOCUMENTS, name)
    tokens = LAYOUTS[name].open_tokens(path, entry.tokens, LAYOUTS[name].dtype(300))
    if LAYOUTS[name].converts:
        assert tokens is None
        return
    assert tokens.tolist() == [1, 2, 3, 4, 5]
    assert not tokens.flags.writeable


@pytest.mark.parametrize("name", LAYOUTS)
def test_the_line_that_says_how_to_read_a_shard_works(name, tmp_path):
    path, _, _ = write(tmp_path, DOCUMENTS, name)
    names = {"np": np, "pyarrow": pa}
    found = eval(LAYOUTS[name].how_to_read(str(path), LAYOUTS[name].dtype(300)), names)
    flat = found.combine_chunks().flatten().tolist() if name == "parquet" else found.tolist()
    assert flat == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("name", [name for name in LAYOUTS if LAYOUTS[name].index_file("x", "train", 0)])
def test_the_document_ends_come_back_from_the_index(name, tmp_path, monkeypatch):
    monkeypatch.setattr(layout, "CHUNK_ITEMS", 2)
    monkeypatch.setattr(megatron, "CHUNK_ITEMS", 2)
    _, index, entry = write(tmp_path, [[1, 2], [3], [4, 5, 6], [], [7]], name)
    chunks = list(LAYOUTS[name].read_ends(index, entry.documents, LAYOUTS[name].dtype(300)))
    assert len(chunks) == 3
    assert np.concatenate(chunks).tolist() == [2, 3, 6, 6, 7]


@pytest.mark.parametrize("name", [name for name in LAYOUTS if LAYOUTS[name].index_file("x", "train", 0)])
def test_an_index_in_chunks_is_the_index_in_one(name, tmp_path, monkeypatch):
    documents = [[1, 2], [3], [4, 5, 6], [], [7]]
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    _, whole, _ = write(tmp_path / "a", documents, name)
    monkeypatch.setattr(layout, "CHUNK_ITEMS", 2)
    monkeypatch.setattr(megatron, "CHUNK_ITEMS", 2)
    _, chunked, _ = write(tmp_path / "b", documents, name)
    assert whole.read_bytes() == chunked.read_bytes()


# Sizes that do not fit (row 20 of the faults)


def test_id_65536_is_refused_where_only_uint16_can_stand():
    assert LAYOUTS["nanogpt"].dtype(65_536) == np.uint16
    with pytest.raises(gm.OptionError, match=r"ids up to 65535 .* the vocabulary has 65,537.*format='gristmill'"):
        LAYOUTS["nanogpt"].dtype(65_537)


@pytest.mark.parametrize("name", [name for name in LAYOUTS if name not in ("nanogpt", "megatron")])
def test_id_65536_takes_uint32(name):
    assert (LAYOUTS[name].dtype(65_536), LAYOUTS[name].dtype(65_537)) == (UINT16, UINT32)


def test_megatron_has_no_uint32_and_goes_over_to_int32_at_65500():
    dtypes = [LAYOUTS["megatron"].dtype(size) for size in (65_499, 65_500, 200_000)]
    assert dtypes == [UINT16, INT32, INT32]


def test_llmc_holds_fewer_than_two_to_the_31_tokens():
    found = LAYOUTS["llmc"]
    assert found.max_tokens == 2**31 - 1
    assert np.frombuffer(found.header(2**31 - 1, UINT16), "<i4")[2] == 2**31 - 1
    with pytest.raises(gm.OptionError, match=r"at most 2,147,483,647 tokens, not 2,147,483,648\. Pass a smaller"):
        found.header(2**31, UINT16)


def test_llmc_of_a_large_vocabulary_has_its_own_magic_and_uint32(tmp_path):
    path, _, _ = write(tmp_path, [[100_000]], "llmc", vocab_size=100_001)
    assert np.fromfile(path, "<i4", 3).tolist() == [20240801, 7, 1]
    assert np.fromfile(path, "<u4", offset=1024).tolist() == [100_000]


@pytest.mark.parametrize("name", ["megatron", "parquet"])
def test_a_document_of_two_to_the_31_tokens_is_refused_where_lengths_are_int32(name, tmp_path, monkeypatch):
    ends = tmp_path / "ends"
    ends.write_bytes(np.array([2**31], "<i8").tobytes())
    tokens = tmp_path / "tokens"
    tokens.touch()
    part = Part(tokens=tokens, ends=ends, num_tokens=2**31, num_documents=1, dtype=UINT16)
    monkeypatch.setattr(parquet, "map_array", lambda *_: np.empty(0, np.uint16))
    found = LAYOUTS[name]
    with pytest.raises(gm.CorpusError, match=r"2,147,483,648 tokens.*2,147,483,647"):
        published(found.write_tokens if found.converts else found.write_index, part)


@pytest.mark.parametrize("num_tokens", [0, 1, 10**8, 2**40])
@pytest.mark.parametrize("dtype", [UINT16, UINT32])
def test_a_numpy_header_has_always_the_same_size(num_tokens, dtype):
    header = LAYOUTS["npy"].header(num_tokens, dtype)
    assert len(header) == 128
    file = io.BytesIO(header)
    assert np.lib.format.read_magic(file) == (1, 0)
    assert np.lib.format.read_array_header_1_0(file) == ((num_tokens,), False, dtype)


@pytest.mark.parametrize(("dtype", "descr"), [(UINT16, "<u2"), (UINT32, "<u4")])
@pytest.mark.parametrize("num_tokens", [0, 7, 10**8, 2**63 - 1])
def test_a_numpy_header_is_the_same_bytes_with_every_version_of_numpy(num_tokens, dtype, descr):
    text = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': ({num_tokens},), }}"
    expected = b"\x93NUMPY\x01\x00" + b"\x76\x00" + text.encode().ljust(117) + b"\n"
    assert LAYOUTS["npy"].header(num_tokens, dtype) == expected


# Names


def test_names_of_the_files():
    names = {
        name: [found.token_file("tales", split, number) for split, number in (("train", 0), ("val", 0))]
        for name, found in LAYOUTS.items()
    }
    assert names == {
        "gristmill": ["shard-00000.bin", "val-00000.bin"],
        "nanogpt": ["train.bin", "val.bin"],
        "llmc": ["tales_train_000001.bin", "tales_val_000000.bin"],
        "megatron": ["train.bin", "val.bin"],
        "npy": ["train-00000.npy", "val-00000.npy"],
        "parquet": ["train-00000.parquet", "val-00000.parquet"],
        "datatrove": ["train-00000.ds", "val-00000.ds-val"],
    }


@pytest.mark.parametrize("name", [".hidden", "a/b", "..", "", "a b\n", "x" * 300, "рассказы" * 30])
def test_no_name_of_a_folder_makes_a_bad_file_name(name):
    file = LAYOUTS["llmc"].token_file(name, "train", 0)
    assert file.endswith("_train_000001.bin")
    assert not file.startswith(".")
    assert len(file.encode()) < 256
    assert not set(file) & set("/\\\n ")


def test_an_unknown_layout_names_the_known_ones():
    with pytest.raises(gm.OptionError, match=r"format='nemo' is not known\. Pass one of 'gristmill', 'nanogpt'"):
        check_layout("nemo")


# Parquet


def test_parquet_row_groups_are_bounded_and_no_document_is_cut(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet, "GROUP_TOKENS", 10)
    monkeypatch.setattr(parquet, "GROUP_DOCUMENTS", 3)
    documents = [[1] * 4, [2] * 4, [3] * 4, [4] * 25, [], [], [], [], [5]]
    path, _, _ = write(tmp_path, documents, "parquet")
    file = pq.ParquetFile(path)
    groups = [file.read_row_group(i)["tokens"].to_pylist() for i in range(file.num_row_groups)]
    assert [row for group in groups for row in group] == documents
    assert all(len(group) == 1 or (sum(map(len, group)) <= 10 and len(group) <= 3) for group in groups)
    assert [len(group) for group in groups] == [2, 1, 1, 3, 2]


def test_parquet_has_a_list_of_the_exact_type_page_checksums_and_compression(tmp_path):
    for vocab_size, kind in ((300, pa.uint16()), (70_000, pa.uint32())):
        path, _, _ = write(
            tmp_path, [np.random.default_rng(0).integers(300, size=5000).tolist()], "parquet", vocab_size=vocab_size
        )
        assert pq.read_schema(path).field("tokens").type.value_type == kind
        assert pq.ParquetFile(path).metadata.row_group(0).column(0).compression == "ZSTD"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(OSError, match="CRC"):
        pq.read_table(path, page_checksum_verification=True)


def test_parquet_leaves_the_file_open_for_its_caller(tmp_path):
    ends, tokens = tmp_path / "ends", tmp_path / "tokens"
    ends.write_bytes(np.array([2], "<i8").tobytes())
    tokens.write_bytes(np.array([1, 2], "<u2").tobytes())
    with (tmp_path / "out").open("wb") as file:
        LAYOUTS["parquet"].write_tokens(file, Part(tokens, ends, 2, 1, UINT16))
        file.flush()
        assert not file.closed


def test_parquet_without_pyarrow_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(gm.MissingPackageError, match=r"pip install 'gristmill\[data\]'"):
        LAYOUTS["parquet"].dtype(300)


@given(
    documents=st.lists(st.lists(st.integers(0, 299), max_size=12), max_size=12),
    name=st.sampled_from(list(LAYOUTS)),
    shard_tokens=st.integers(1, 20),
)
def test_shards_of_any_size_have_all_documents_in_order(documents, name, shard_tokens, tmp_path_factory):
    found = LAYOUTS[name]
    if found.shard_tokens is None:
        shard_tokens = None
    folder = tmp_path_factory.mktemp("shards")
    cuts = cut_into_shards(documents, shard_tokens, found.splits_documents)
    flat, ends, base = [], [], 0
    for number, (tokens, local_ends) in enumerate(cuts):
        entry = write_shard(folder, "train", number, tokens, local_ends, found, UINT16)
        index = None if entry.index is None else folder / entry.index
        read = READERS[name](folder / entry.file, index, UINT16)
        nested = bool(read) and isinstance(read[0], list)
        if found.splits_documents or not nested:
            flat += tokens
        else:
            flat += [id for document in read for id in document]
        ends += [base + end for end in local_ends]
        base += len(tokens)
    assert flat == [id for document in documents for id in document]
    assert ends == np.cumsum([len(document) for document in documents]).tolist()


# meta.pkl of nanoGPT


def test_nanogpt_gets_a_meta_that_its_scripts_can_train_and_sample_with(tmp_path):
    tok = train(text="low lower lowest é newer newest wider widest " * 50)
    gm.encode_corpus(["low é"], tok, out=tmp_path / "n", format="nanogpt", progress=None)
    meta = pickle.loads((tmp_path / "n" / "meta.pkl").read_bytes())
    assert meta["vocab_size"] == 275  # train.py
    encode, decode = [meta["stoi"][c] for c in "\nlow"], "".join([meta["itos"][i] for i in tok.encode("low é")])
    assert tok.decode(encode) == "\nlow"  # sample.py encodes by character
    assert decode == "low é"
    assert meta["itos"][274] == "<|endoftext|>"


def test_the_meta_of_nanogpt_holds_plain_values_in_the_same_bytes_every_time():
    vocab = {0: b"a", 1: b"\xff", 2: b"a", 3: "é".encode(), 4: b"ab"}
    data = LAYOUTS["nanogpt"].extra_file("meta.pkl", vocab, 5)
    assert data == LAYOUTS["nanogpt"].extra_file("meta.pkl", dict(vocab), 5)
    itos = {0: "a", 1: "\ufffd", 2: "a", 3: "é", 4: "ab"}
    assert pickle.loads(data) == {"vocab_size": 5, "itos": itos, "stoi": {"a": 0, "é": 3}}
    names = {opcode.name for opcode, _, _ in pickletools.genops(data)}
    assert names == {"PROTO", "EMPTY_DICT", "MARK", "BINUNICODE", "BININT", "SETITEMS", "STOP"}


def test_the_meta_of_nanogpt_is_verified_and_replaced_with_the_shards(tmp_path):
    tok = train()
    out, meta = tmp_path / "n", tmp_path / "n" / "meta.pkl"
    corpus = tmp_path / "c.txt"
    corpus.write_text("low lower")
    gm.encode_corpus(corpus, tok, out=out, format="nanogpt", progress=None)
    assert verify_shards(out).is_sound
    good = meta.read_bytes()
    meta.write_bytes(good[:-1])
    assert [problem.where for problem in verify_shards(out).problems] == ["meta.pkl"]
    gm.encode_corpus(corpus, tok.truncated(265), out=out, format="nanogpt", overwrite=True, progress=None)
    assert pickle.loads(meta.read_bytes())["vocab_size"] == 265
    gm.encode_corpus(corpus, tok, out=out, format="gristmill", overwrite=True, progress=None)
    assert not meta.exists()
    assert verify_shards(out).is_sound


# datatrove


def test_datatrove_finds_training_files_by_its_ending_and_validation_files_by_theirs(tmp_path):
    tok = train()
    texts = [f"low {i}" for i in range(60)]
    gm.encode_corpus(
        texts, tok, out=tmp_path / "d", format="datatrove", val_fraction=0.3, shard_tokens=50, progress=None
    )
    # DatatroveFolderDataset(folder) lists "*.ds" at any depth.
    for pattern, split in (("**/*.ds", "train"), ("**/*.ds-val", "val")):
        files = sorted((tmp_path / "d").glob(pattern))
        ids = np.concatenate([np.fromfile(path, "<u2") for path in files]).tolist()
        assert len(files) >= 2
        assert ids == gm.Shards(tmp_path / "d", split=split).tokens[:].tolist()
        assert all(path.with_name(f"{path.name}.index").exists() for path in files)
    assert verify_shards(tmp_path / "d").is_sound
    (tmp_path / "d" / "val-00099.ds-val").touch()
    assert [problem.where for problem in verify_shards(tmp_path / "d").problems] == ["val-00099.ds-val"]
