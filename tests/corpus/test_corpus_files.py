"""Files: the inputs of paths, folders, globs and URLs, and their formats."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import fsspec
import pytest
from corpus_files import COMPRESSIONS, KINDS, documents_in, documents_of, find, write_documents

import gristmill as gm
from gristmill.corpus import Reading, find_files, open_corpus
from gristmill.corpus.formats import read_batches

READING = Reading()
DOCUMENTS = [b"one", b"two two", "drei ß".encode()]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Change into a folder with files of every kind."""
    names = ["b.txt", "a.jsonl.gz", "deep/c.parquet", "deep/er/d.txt.zst", "deep/B.TXT", "é.ndjson"]
    others = ["README.md", "data.json", "noext", "_SUCCESS", ".hidden.txt", ".git/e.txt", "deep/.cache/f.txt", "x.bin"]
    for name in (*names, *others):
        (tmp_path / "data" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "data" / name).write_bytes(b"text")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def memory():
    """An empty memory:// file system."""
    system = fsspec.filesystem("memory")
    system.store.clear()
    yield system
    system.store.clear()


def names(*corpus, **options):
    return list(find_files(corpus, Reading.checked(options)).paths)


def test_a_folder_is_its_files_with_known_suffixes_sorted_by_bytes_and_hidden_ones_left_out(folder):
    expected = ["data/a.jsonl.gz", "data/b.txt", "data/deep/B.TXT", "data/deep/c.parquet", "data/deep/er/d.txt.zst"]
    assert names("data") == [*expected, "data/é.ndjson"]
    assert names("data/deep", "data/b.txt") == [*expected[2:], "data/b.txt"]


def test_a_folder_with_a_format_is_its_files_of_that_format(folder):
    assert names("data", input_format="text") == ["data/b.txt", "data/deep/B.TXT", "data/deep/er/d.txt.zst"]
    assert names("data", input_format="jsonl") == ["data/a.jsonl.gz", "data/data.json", "data/é.ndjson"]


def test_a_folder_without_such_files_is_an_error_that_lists_the_suffixes(folder):
    (folder / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match=r"No file with a known suffix.*\.jsonl.*\.parquet.*'empty'"):
        names("empty")
    with pytest.raises(FileNotFoundError):
        names("data/deep", input_format="jsonl")


@pytest.mark.parametrize(
    ("name", "format", "compression"),
    [
        ("a.txt", "text", ""),
        ("a.TXT.GZ", "text", "gz"),
        ("a.gz", "text", "gz"),
        ("a.md", "text", ""),
        ("a", "text", ""),
        ("a.jsonl", "jsonl", ""),
        ("a.jsonl.zst", "jsonl", "zst"),
        ("a.ndjson.zstd", "jsonl", "zst"),
        ("a.parquet", "parquet", ""),
        ("a.arrow", "arrow", ""),
        ("a.feather", "arrow", ""),
    ],
)
def test_the_suffix_says_the_format_and_the_compression(tmp_path, name, format, compression):
    (tmp_path / name).write_bytes(b"x")
    input, _ = find(tmp_path / name)
    assert (input.format, input.compression, input.num_bytes) == (format, compression, 1)
    assert input.modified_ns == (tmp_path / name).stat().st_mtime_ns


def test_the_option_is_stronger_than_the_suffix(tmp_path):
    (tmp_path / "a.txt").write_bytes(b'{"text": "a"}')
    assert documents_of(tmp_path / "a.txt", input_format="jsonl") == [b"a"]
    (tmp_path / "a.jsonl").write_bytes(b'{"text": "a"}')
    assert documents_of(tmp_path / "a.jsonl", input_format="text") == [b'{"text": "a"}']
    (tmp_path / "a.log.gz").write_bytes(gzip.compress(b'{"text": "a"}'))
    assert documents_of(tmp_path / "a.log.gz", input_format="jsonl") == [b"a"]


@pytest.mark.parametrize("kind", list(KINDS))
def test_memory_urls_give_the_same_documents_as_files(tmp_path, memory, kind):
    path = write_documents(tmp_path / kind, DOCUMENTS)
    memory.pipe(f"/data/{kind}", path.read_bytes())
    assert documents_of(f"memory://data/{kind}") == DOCUMENTS
    separated = {"documents": "separator"} if ".t" in kind else {}
    assert gm.count_words(f"memory://data/{kind}", **separated, special_tokens=()) == gm.count_words(
        iter(DOCUMENTS), special_tokens=()
    )


@pytest.mark.parametrize("kind", list(KINDS))
def test_file_urls_are_local_files(tmp_path, kind):
    (tmp_path / "with space").mkdir()
    path = write_documents(tmp_path / "with space" / kind, DOCUMENTS)
    assert documents_of(path.as_uri()) == DOCUMENTS  # %20
    assert documents_of(f"file://{path}") == DOCUMENTS
    assert names(f"file://{tmp_path}/*/*") == [str(path)]
    assert names(f"file://{tmp_path}") == [str(path)]
    assert find(path.as_uri())[0].is_local


def test_globs_and_folders_of_urls(memory):
    for name in ("b.txt", "a.txt", "deep/c.jsonl", "deep/.hidden.txt", "x.bin"):
        memory.pipe(f"/data/{name}", b"")
    assert names("memory://data/*.txt") == ["memory:///data/a.txt", "memory:///data/b.txt"]
    assert names("memory://data") == ["memory:///data/a.txt", "memory:///data/b.txt", "memory:///data/deep/c.jsonl"]
    with pytest.raises(FileNotFoundError, match="No file matches the glob"):
        names("memory://data/*.parquet")
    with pytest.raises(FileNotFoundError):
        names("memory://data/missing.txt")


def test_a_url_named_twice_is_read_twice_even_at_once(memory):
    memory.pipe("/a.txt", b"word " * 1000)
    words = gm.count_words(["memory://a.txt"] * 4, num_threads=4, special_tokens=())
    assert words.count(" word") == 4 * 999


def test_a_list_of_urls_is_no_list_of_texts(memory):
    memory.pipe("/a.txt", b"one")
    assert open_corpus(["memory://a.txt"], READING).paths == ("memory://a.txt",)
    texts = open_corpus(["see s3://bucket for more", "two"], READING)
    assert documents_in(texts.read_batches()) == [b"see s3://bucket for more", b"two"]


def test_a_url_without_a_file_system_says_so():
    with pytest.raises(gm.CorpusError, match=r"nosuch://a\.txt: no file system for this URL"):
        names("nosuch://a.txt")


@pytest.mark.parametrize("suffix", COMPRESSIONS)
def test_a_url_that_changes_while_it_is_read_is_an_error(memory, small_batches, suffix):
    from corpus_files import compress, cut_at_spaces

    memory.pipe(f"/a.txt{suffix}", compress(b"some words " * 100, suffix))
    input, reading = find(f"memory://a.txt{suffix}")
    batches = read_batches(input, reading, cut=cut_at_spaces)
    next(batches)
    memory.pipe(f"/a.txt{suffix}", compress(b"some words " * 100, suffix))
    with pytest.raises(gm.InputChangedError):
        list(batches)
    with pytest.raises(gm.InputChangedError):
        next(read_batches(input, reading, cut=cut_at_spaces))


def test_plain_text_is_distinguished_from_files_that_need_a_reader(folder):
    assert find_files(["data/b.txt", "data/README.md"], READING).is_plain_text
    for other in ("data/a.jsonl.gz", "data/deep/er/d.txt.zst", "data/deep/c.parquet"):
        assert not find_files(["data/b.txt", other], READING).is_plain_text


@pytest.mark.skipif(os.name == "nt", reason="file names are text there")
def test_names_that_are_not_utf8_are_sorted_and_read(tmp_path):
    for name in (b"\xff.txt.gz", b"a.txt.gz"):
        Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name)).write_bytes(gzip.compress(b"strange"))
    assert gm.count_words(tmp_path, num_threads=1, special_tokens=()).count(b"strange") == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"input_format": "csv"}, "input_format='csv' is not known. Pass one of 'auto', 'text'"),
        ({"documents": "page"}, "documents='page' is not known"),
        ({"on_error": "ignore"}, "on_error='ignore' is not known. Pass one of 'raise', 'skip'"),
        ({"separator": ""}, "separator='' is empty"),
        ({"separator": "\ud800"}, "separator='\\\\ud800' contains a lone surrogate"),
        ({"text_field": 7}, "text_field=7 is a int. Pass a str"),
        ({"max_document_bytes": 10**30}, "is too large. Pass at most 9223372036854775807"),
        ({"max_document_bytes": 100}, "max_document_bytes=100 is too small. Pass at least 2097152"),
        ({"max_document_bytes": "1"}, "max_document_bytes='1' is a str. Pass an int"),
    ],
)
def test_an_option_out_of_range_says_what_is_allowed(options, message):
    with pytest.raises(gm.OptionError, match=message):
        gm.count_words(["a"], **options, special_tokens=())


def test_an_unknown_option_is_a_type_error_that_lists_the_known_ones():
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'text_column'\. The read options are"):
        gm.train_tokenizer(["a"], vocab_size=300, text_column="body", special_tokens=())
