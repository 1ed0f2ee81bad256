"""Files and Documents: whether a list of strings contains paths or texts."""

from __future__ import annotations

from pathlib import Path

import pytest
from corpus_files import documents_in

import gristmill as gm
from gristmill.corpus import open_corpus


@pytest.fixture
def folder(tmp_path, monkeypatch):
    for name in ("a.txt", "b.txt", "Once upon a time"):
        (tmp_path / name).write_bytes(name.encode())
    monkeypatch.chdir(tmp_path)
    return tmp_path


def documents(corpus) -> list[bytes]:
    return documents_in(open_corpus(corpus).read_batches())


def test_strings_in_files_are_paths_and_globs_in_order(folder):
    for corpus in (gm.Files("b.txt", "a.*"), gm.Files(["b.txt", "a.*"]), gm.Files(["b.txt"], Path("a.txt"))):
        assert open_corpus(corpus).paths == ("b.txt", "a.txt")
    assert open_corpus(gm.Files(gm.Files("a.txt"))).paths == ("a.txt",)
    assert open_corpus(gm.Files("Once upon a time")).paths == ("Once upon a time",)


def test_strings_in_documents_are_texts_even_where_they_name_files(folder):
    assert documents(gm.Documents(["a.txt", "Once upon a time"])) == [b"a.txt", b"Once upon a time"]
    assert documents(gm.Documents(["missing.txt"])) == [b"missing.txt"]
    assert documents(gm.Documents(text for text in ("a.txt", b"b"))) == [b"a.txt", b"b"]
    assert documents(gm.Documents(gm.Documents(["a.txt"]))) == [b"a.txt"]


def test_a_missing_file_in_files_is_named_without_a_word_about_texts(folder):
    for name in ("missing.txt", "a text with several words", "two\nlines", "x" * 5000):
        with pytest.raises(FileNotFoundError) as caught:
            open_corpus(gm.Files("a.txt", name))
        assert "text]" not in str(caught.value)
        assert "Documents" not in str(caught.value)
        assert str(caught.value.filename)[:9] == name[:9]


def test_a_bare_text_is_answered_with_how_to_pass_one(folder):
    for text in ("It was a dark and stormy night", "two\nlines", "word " * 1000):
        with pytest.raises(FileNotFoundError, match=r"gm\.Documents\(\[text\]\)"):
            open_corpus(text)
    with pytest.raises(FileNotFoundError) as caught:
        open_corpus("missing.txt")
    assert "Documents" not in str(caught.value)


def test_paths_in_documents_and_texts_in_files_are_type_errors(folder):
    with pytest.raises(TypeError, match="document 0 of the corpus is of type PosixPath"):
        documents(gm.Documents([Path("a.txt")]))
    with pytest.raises(TypeError, match="names files"):
        gm.Documents(Path("a.txt"))
    with pytest.raises(TypeError, match=r"one str.*Documents\(\[text\]\)"):
        gm.Documents("Once upon a time")
    with pytest.raises(TypeError, match="name 1 of Files is of type bytes"):
        gm.Files("a.txt", b"b.txt")
    with pytest.raises(TypeError, match="name 0 of Files is of type int"):
        gm.Files(7)


@pytest.mark.parametrize("items", [None, 7, 1.5, open], ids=repr)
def test_documents_of_an_object_that_is_not_iterable_are_refused(items):
    with pytest.raises(TypeError, match=r"Documents takes texts, got a \w+\. Pass an iterable"):
        gm.Documents(items)


def test_a_table_is_no_list_of_files():
    for library in ("pandas", "polars"):
        frame = pytest.importorskip(library).DataFrame({"id": ["a.txt"]})
        with pytest.raises(TypeError, match="DataFrame, which is a table"):
            gm.Files(frame)
        assert gm.Files(frame["id"]) == gm.Files("a.txt")


def test_a_query_in_documents_is_answered_as_a_bare_one_is():
    query = pytest.importorskip("polars").LazyFrame({"text": ["a"]})
    with pytest.raises(TypeError, match=r"frame\.collect\(\)"):
        open_corpus(gm.Documents(query))


def test_no_files_at_all_is_an_empty_corpus(folder):
    for corpus in (gm.Files(), gm.Files([])):
        with pytest.raises(gm.EmptyCorpusError, match="list of files is empty"):
            gm.count_words(corpus, progress=None)


def test_reprs_show_names_and_sizes_but_no_texts():
    assert repr(gm.Files("a.txt", "b/*.txt")) == "Files('a.txt', 'b/*.txt')"
    assert eval(repr(gm.Files("a'b")), {"Files": gm.Files}) == gm.Files("a'b")
    assert repr(gm.Documents(["a", "b"])) == "Documents(<list of 2>)"
    assert repr(gm.Documents(text for text in "ab")) == "Documents(<generator>)"


def test_every_function_takes_both(folder, tmp_path):
    for corpus in (gm.Files("a.txt"), gm.Documents(["a.txt"])):
        assert gm.count_words(corpus, progress=None).source_bytes == 5
        tok = gm.train_tokenizer(corpus, vocab_size=258, progress=None)
        gm.extend_tokenizer(tok, corpus, vocab_size=259, progress=None)
        assert gm.encode_corpus(corpus, tok, out=tmp_path / "out", overwrite=True, progress=None).num_documents == 1


def test_control_characters_of_file_names_are_escaped_in_messages(folder):
    name = "forged\nerror: all is well\x1b[31m.jsonl"
    Path(name).write_bytes(b"not JSON\n")
    with pytest.raises(gm.CorruptInputError) as caught:
        gm.count_words(Path(name), progress=None)
    assert "forged\\nerror" in str(caught.value)
    assert str(caught.value).isprintable()
    assert caught.value.path == name


def test_a_file_that_is_not_text_is_refused_with_its_kind(folder):
    tok = gm.train_tokenizer(["low low lower"], vocab_size=260, progress=None)
    tok.save("tok.json")
    gm.encode_corpus(["low low"], tok, out="shards", progress=None)
    for corpus, what in {
        "tok.json": "^tok.json is a Gristmill tokenizer, not text",
        "shards": "contains token shards, not text",
        "shards/shard-00000.bin": "token ids, not text",
    }.items():
        with pytest.raises(gm.CorpusError, match=what):
            gm.count_words(corpus, progress=None)
    assert gm.count_words("shards/shard-00000.bin", input_format="text", progress=None).source_bytes > 0


@pytest.mark.parametrize(
    "names", [{"a.txt", "b.txt"}, frozenset({"a.txt"}), {"a.txt": 1}], ids=["set", "frozenset", "dict"]
)
def test_names_without_an_order_are_refused(names):
    with pytest.raises(TypeError, match=r"Files reads names in their order, got a \w+\. Pass a list"):
        gm.Files(names)
