"""Shards: documents and tokens of a folder, across its files."""

import multiprocessing
import os
import pickle
import sys
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from itertools import chain

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gristmill as gm
from gristmill.shards import Shards
from gristmill.shards.layouts import LAYOUTS
from scripts import run_script
from shards.builder import build_folder, change_shard, rehash, train

TEXTS = ["low lower", "", "newest widest newer", "x", "the lowest low low low lower", "é\x00\r\n", "wider"]
TOKENIZER = train()


def rows(texts=TEXTS, *, position="after", end_of_text=True):
    id = [TOKENIZER.special_tokens["<|endoftext|>"]] if end_of_text else []
    ids = [TOKENIZER.encode(text) for text in texts]
    return [row + id if position == "after" else id + row for row in ids]


def joined(rows):
    return list(chain.from_iterable(rows))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "shards"
    build_folder(path, TEXTS, shard_tokens=5, tokenizer=TOKENIZER, val_texts=["low", "wide"])
    return path


def test_documents_span_shards_and_come_back_whole(folder):
    shards = Shards(folder)
    assert len(shards) == len(TEXTS)
    assert len(shards.paths) > 3
    assert [shards[i].tolist() for i in range(len(shards))] == rows()
    assert [shards.decode(i) for i in range(len(shards))] == TEXTS
    assert [document.tolist() for document in shards] == rows()


@pytest.mark.parametrize("shard_tokens", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize("position", ["after", "before"])
def test_the_same_documents_for_every_size_of_shard(shard_tokens, position, tmp_path):
    build_folder(tmp_path / "s", TEXTS, shard_tokens=shard_tokens, tokenizer=TOKENIZER, position=position)
    shards = Shards(tmp_path / "s")
    assert [shards[i].tolist() for i in range(len(shards))] == rows(position=position)
    assert [shards.decode(i) for i in range(len(shards))] == TEXTS
    assert np.asarray(shards.tokens).tolist() == joined(rows(position=position))


@pytest.mark.parametrize("shard_tokens", [1, 3, 1000])
def test_a_position_leads_to_the_document_that_contains_it_even_if_it_ends_in_a_later_shard(shard_tokens, tmp_path):
    texts = ["", *TEXTS, "", ""]
    build_folder(tmp_path / "s", texts, shard_tokens=shard_tokens, tokenizer=TOKENIZER, end_of_text=False)
    shards = Shards(tmp_path / "s")
    spans = [shards.span(i) for i in range(len(shards))]
    assert [shards.tokens[begin:end].tolist() for begin, end in spans] == rows(texts, end_of_text=False)
    expected = [i for i, (begin, end) in enumerate(spans) for _ in range(begin, end)]
    assert [shards.document_at(position) for position in range(shards.num_tokens)] == expected
    assert shards.document_at(-1) == expected[-1] and shards.span(-1) == spans[-1]
    for outside in (shards.num_tokens, -shards.num_tokens - 1):
        with pytest.raises(IndexError, match="does not exist"):
            shards.document_at(outside)
    with pytest.raises(IndexError, match="does not exist"):
        shards.span(len(shards))


@pytest.mark.parametrize("shard_tokens", [1, 4, 1000])
def test_documents_without_an_end_of_text_may_be_empty(shard_tokens, tmp_path):
    texts = ["", *TEXTS, "", ""]
    build_folder(tmp_path / "s", texts, shard_tokens=shard_tokens, tokenizer=TOKENIZER, end_of_text=False)
    shards = Shards(tmp_path / "s")
    assert shards.end_of_text is None
    assert [document.tolist() for document in shards] == rows(texts, end_of_text=False)
    assert [shards.decode(i) for i in range(len(shards))] == texts


@settings(max_examples=30)
@given(
    texts=st.lists(st.text(alphabet="low erstné", max_size=9), max_size=9),
    shard_tokens=st.integers(1, 30),
    end_of_text=st.booleans(),
    data=st.data(),
)
def test_any_documents_any_slice(texts, shard_tokens, end_of_text, data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("any") / "s"
    build_folder(folder, texts, shard_tokens=shard_tokens, tokenizer=TOKENIZER, end_of_text=end_of_text)
    shards, expected = Shards(folder), rows(texts, end_of_text=end_of_text)
    flat = np.array(joined(expected), np.uint16)
    assert [document.tolist() for document in shards[:]] == expected
    assert [document.tolist() for document in shards] == expected
    assert shards.document_ends.tolist() == np.cumsum([len(row) for row in expected]).tolist()
    bound = st.none() | st.integers(-len(flat) - 2, len(flat) + 2)
    part = slice(data.draw(bound), data.draw(bound), data.draw(st.sampled_from([None, 1, 2, 3, -1, -2])))
    assert np.array_equal(shards.tokens[part], flat[part])


def test_what_a_folder_says_of_itself(folder):
    shards = Shards(folder)
    assert shards.num_tokens == sum(map(len, rows()))
    assert shards.source_bytes == sum(len(text.encode()) for text in TEXTS)
    assert shards.dtype == np.uint16
    assert shards.end_of_text.token == "<|endoftext|>"
    assert shards.manifest.layout == "gristmill"
    assert shards.tokenizer == TOKENIZER
    assert [path.name for path in shards.paths][:2] == ["shard-00000.bin", "shard-00001.bin"]
    assert f"{len(TEXTS)} documents" in repr(shards)
    assert not shards.document_ends.flags.writeable


def test_the_validation_split_is_separate(folder):
    shards = Shards(folder, split="val")
    assert [shards.decode(i) for i in range(len(shards))] == ["low", "wide"]
    assert shards.paths[0].name == "val-00000.bin"


# Tokens


def test_a_slice_in_one_shard_is_a_view_of_the_map_and_one_across_is_an_array(folder):
    tokens = Shards(folder).tokens
    flat = joined(rows())
    inside, across = tokens[1:4], tokens[3:13]
    assert (inside.tolist(), across.tolist()) == (flat[1:4], flat[3:13])
    assert not inside.flags.writeable
    assert across.flags.writeable
    assert np.shares_memory(inside, tokens[1:4])


def test_tokens_are_an_array_to_numpy(folder):
    tokens = Shards(folder).tokens
    flat = np.array(joined(rows()), np.uint16)
    assert (len(tokens), tokens.shape, tokens.size, tokens.ndim) == (len(flat), flat.shape, flat.size, 1)
    assert (tokens.dtype, tokens.nbytes) == (flat.dtype, flat.nbytes)
    assert (tokens[0], tokens[-1], tokens[len(flat) - 1]) == (flat[0], flat[-1], flat[-1])
    assert np.array_equal(np.asarray(tokens), flat)
    assert np.asarray(tokens, np.int64).dtype == np.int64
    assert np.bincount(tokens).sum() == len(flat)
    assert list(tokens) == flat.tolist()
    assert "shards" in repr(tokens)
    if np.lib.NumpyVersion(np.__version__) >= "2.0.0":
        with pytest.raises(ValueError, match="need a copy"):
            np.array(tokens, copy=False)


def test_all_tokens_of_one_shard_are_not_copied(tmp_path):
    build_folder(tmp_path / "s", TEXTS, tokenizer=TOKENIZER)
    tokens = Shards(tmp_path / "s").tokens
    assert np.shares_memory(np.asarray(tokens), tokens[:])
    assert "1 shard>" in repr(tokens)
    assert np.array(tokens).flags.writeable


@pytest.mark.parametrize("index", [10**6, -(10**6)])
def test_a_token_that_is_not_there(folder, index):
    with pytest.raises(IndexError, match=rf"token {index} does not exist: there are [\d,]+ tokens"):
        Shards(folder).tokens[index]
    with pytest.raises(TypeError, match="by an int or a slice, not list"):
        Shards(folder).tokens[[1, 2]]


# Documents by number


def test_documents_count_from_the_end_and_in_slices(folder):
    shards = Shards(folder)
    assert shards[-1].tolist() == rows()[-1]
    assert shards[np.int64(2)].tolist() == rows()[2]
    assert [document.tolist() for document in shards[1:4]] == rows()[1:4]
    assert [document.tolist() for document in shards[::-2]] == rows()[::-2]
    assert shards[5:2] == []


def test_a_document_belongs_to_the_caller(folder):
    document = Shards(folder)[0]
    document[0] = 7
    assert Shards(folder)[0].tolist() == rows()[0]


@pytest.mark.parametrize("index", [len(TEXTS), -len(TEXTS) - 1])
def test_a_document_that_is_not_there_names_the_range(folder, index):
    with pytest.raises(IndexError, match=rf"document {index} does not exist: 'train' has 7 documents. Pass 0 to 6"):
        Shards(folder)[index]
    with pytest.raises(TypeError, match="by an int or a slice, not str"):
        Shards(folder)["0"]


def test_a_folder_without_documents(tmp_path):
    build_folder(tmp_path / "s", [], tokenizer=TOKENIZER)
    shards = Shards(tmp_path / "s")
    assert (len(shards), shards.num_tokens, list(shards), shards[:]) == (0, 0, [], [])
    assert shards.tokens[:].tolist() == []
    assert shards.document_ends.tolist() == []
    with pytest.raises(IndexError, match="The split is empty"):
        shards[0]


# Folders that cannot be opened, or not with these arguments


def test_a_split_that_is_not_there(tmp_path):
    build_folder(tmp_path / "s", ["low"], tokenizer=TOKENIZER)
    with pytest.raises(gm.OptionError, match=r"split='val' does not exist .*splits: 'train'.*val_fraction"):
        Shards(tmp_path / "s", split="val")


def test_an_unfinished_folder(tmp_path):
    (tmp_path / "progress.json").write_text("{}")
    with pytest.raises(gm.ShardsFormatError, match="unfinished: run the same command again"):
        Shards(tmp_path)


def test_parquet_which_cannot_be_mapped_says_how_to_read_it(tmp_path):
    manifest = build_folder(tmp_path / "s", TEXTS, layout="parquet", tokenizer=TOKENIZER)
    file = manifest.splits["train"].shards[0].file
    with pytest.raises(gm.ShardsFormatError, match=rf"layout 'parquet'.*Read it with .*{file}"):
        Shards(tmp_path / "s")


MAPPED = [name for name in LAYOUTS if not LAYOUTS[name].converts]


@pytest.mark.parametrize("layout", MAPPED)
def test_every_layout_that_can_be_mapped_gives_the_documents_back(layout, tmp_path):
    size = None if LAYOUTS[layout].shard_tokens is None else 7
    build_folder(
        tmp_path / "s", TEXTS, layout=layout, tokenizer=TOKENIZER, shard_tokens=size, val_texts=["low", "wider"]
    )
    shards = Shards(tmp_path / "s")
    assert shards.layout == layout
    assert [shards.decode(i) for i in range(len(shards))] == TEXTS
    assert shards.tokens[:].tolist() == [id for document in shards for id in document.tolist()]
    assert pickle.loads(pickle.dumps(shards))[-1].tolist() == shards[-1].tolist()
    val = shards.other_split("val")
    assert [val.decode(i) for i in range(len(val))] == ["low", "wider"]


@pytest.mark.parametrize("layout", [name for name in MAPPED if not LAYOUTS[name].index_file("x", "train", 0)])
def test_documents_that_no_index_and_no_mark_delimits_are_an_error_but_their_tokens_are_not(layout, tmp_path):
    build_folder(tmp_path / "s", TEXTS, layout=layout, tokenizer=TOKENIZER, end_of_text=False)
    shards = Shards(tmp_path / "s")
    assert len(shards) == len(TEXTS)
    assert shards.tokenizer.decode(shards.tokens[:]) == "".join(TEXTS)
    with pytest.raises(gm.ShardsFormatError, match="do not record where documents end"):
        shards[0]


def test_more_marks_than_documents_are_an_error_and_not_other_documents(tmp_path):
    build_folder(tmp_path / "s", TEXTS, layout="nanogpt", tokenizer=TOKENIZER)
    ids = np.fromfile(tmp_path / "s" / "train.bin", "<u2")
    ids[0] = TOKENIZER.special_tokens["<|endoftext|>"]
    ids.tofile(tmp_path / "s" / "train.bin")
    with pytest.raises(gm.ShardsFormatError, match=r"gives .* documents where the manifest records"):
        Shards(tmp_path / "s")[0]


def test_a_tokenizer_that_did_not_make_the_shards_is_refused(tmp_path):
    build_folder(tmp_path / "s", TEXTS, tokenizer=TOKENIZER)
    assert Shards(tmp_path / "s", tokenizer=TOKENIZER).decode(0) == TEXTS[0]
    with pytest.raises(gm.OptionError, match="tokenizer= is not the tokenizer that made"):
        Shards(tmp_path / "s", tokenizer=train(270))


def test_a_tokenizer_that_was_exchanged_is_refused(tmp_path):
    build_folder(tmp_path / "s", TEXTS, tokenizer=TOKENIZER)
    train(270).save(tmp_path / "s" / "tokenizer.json")
    shards = Shards(tmp_path / "s")
    assert shards[0].tolist() == rows()[0]
    with pytest.raises(gm.ShardsFormatError, match="not the tokenizer that made the shards"):
        shards.decode(0)
    (tmp_path / "s" / "tokenizer.json").unlink()
    with pytest.raises(gm.ShardsFormatError, match="cannot be read"):
        Shards(tmp_path / "s").decode(0)


def test_a_shard_that_was_cut_short_is_an_error_and_not_a_bus_error(tmp_path):
    build_folder(tmp_path / "s", TEXTS, tokenizer=TOKENIZER)
    path = tmp_path / "s" / "shard-00000.bin"
    os.truncate(path, 10)
    with pytest.raises(gm.ShardsFormatError, match=r"shard-00000\.bin: its size is 10 bytes, expected"):
        Shards(tmp_path / "s")[0]
    path.unlink()
    with pytest.raises(FileNotFoundError):
        Shards(tmp_path / "s")[0]


def test_document_ends_beyond_the_tokens_are_an_error(tmp_path):
    build_folder(tmp_path / "s", TEXTS, tokenizer=TOKENIZER)
    path = tmp_path / "s" / "shard-00000.idx"
    path.write_bytes(np.array([5, 3, *[10**6] * 5], "<i8").tobytes())
    rehash(tmp_path / "s")
    shards = Shards(tmp_path / "s")
    for i, why in ((1, "to 3, so it ends before it begins"), (2, "to 1,000,000, but there are only")):
        with pytest.raises(gm.ShardsFormatError, match=rf"{why}.*: an index file is damaged\. verify_shards\(\)"):
            shards[i]
    change_shard(tmp_path / "s", index=None, index_xxh64=None)
    with pytest.raises(gm.ShardsFormatError, match="has no index"):
        Shards(tmp_path / "s")


# Many files, many processes


def test_opening_touches_no_shard_and_maps_stay_few(tmp_path):
    build_folder(tmp_path / "s", ["low"] * 700, shard_tokens=2, tokenizer=TOKENIZER)
    script = """
        import os, resource, sys
        from gristmill.shards import Shards
        resource.setrlimit(resource.RLIMIT_NOFILE, (400, 400))
        shards = Shards(sys.argv[1])
        before = len(os.listdir("/proc/self/fd"))
        assert len(shards.paths) > 600
        documents = list(shards) + [shards[i] for i in range(len(shards))] + shards[:]
        assert all((document == documents[0]).all() for document in documents)
        assert shards.document_ends[-1] == shards.num_tokens == len(shards.tokens[:])
        open_files = len(os.listdir("/proc/self/fd"))
        assert open_files < 300, open_files
        print("well")
    """
    done = run_script(script, tmp_path / "s")
    assert done.stdout == "well\n", done.stderr


def test_a_program_may_change_its_folder_after_opening(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    build_folder("s", TEXTS, tokenizer=TOKENIZER)
    shards = Shards("s")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert shards.decode(0) == TEXTS[0]
    assert "'s'" in repr(shards)


def test_shards_and_tokens_pickle_as_paths(folder):
    shards = Shards(folder, split="val")
    shards[0]
    data = pickle.dumps(shards)
    assert len(data) < 300
    copy = pickle.loads(data)
    assert (copy.split, copy.decode(0)) == ("val", "low")
    assert pickle.loads(pickle.dumps(shards.tokens))[:].tolist() == shards.tokens[:].tolist()


SHARED = None


def document_of(shards, i):
    return shards[i].tolist()


def shared_document(i):
    return SHARED[i].tolist()


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_a_spawned_worker_opens_them_by_path(method, folder, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
    shards = Shards(folder)
    shards[0]
    with ProcessPoolExecutor(1, multiprocessing.get_context(method)) as pool:
        assert list(pool.map(document_of, [shards] * 2, [2, 4])) == [rows()[2], rows()[4]]


def test_a_forked_worker_uses_the_maps_of_its_parent(folder):
    global SHARED
    SHARED = Shards(folder)
    SHARED.decode(0)
    with ProcessPoolExecutor(2, multiprocessing.get_context("fork")) as pool:
        assert list(pool.map(shared_document, range(len(TEXTS)))) == rows()


def test_threads_share_one(folder):
    shards = Shards(folder)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda i: shards[i % len(TEXTS)].tolist(), range(400)))
    assert found == [rows()[i % len(TEXTS)] for i in range(400)]
