"""What a corpus argument means, and which objects are not a corpus."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from corpus_files import documents_in

import gristmill as gm
from gristmill.corpus import DocumentStream, FoundFiles, open_corpus
from gristmill.corpus.documents import TextStream


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Change into a folder with two text files and a folder with two more."""
    (tmp_path / "b.txt").write_bytes(b"bb")
    (tmp_path / "a.txt").write_bytes(b"a")
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "deep" / "c.txt").write_bytes(b"ccc")
    (tmp_path / "deep" / "er" / "d.txt").write_bytes(b"dddd")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def documents(corpus) -> list[bytes]:
    opened = open_corpus(corpus)
    assert isinstance(opened, DocumentStream)
    return documents_in(opened.read_batches())


def paths(corpus) -> tuple[str, ...]:
    opened = open_corpus(corpus)
    assert isinstance(opened, FoundFiles)
    return opened.paths


def test_a_str_is_a_path_and_so_is_a_path(folder):
    assert paths("a.txt") == ("a.txt",)
    assert paths(Path("a.txt")) == ("a.txt",)


def test_a_bare_text_is_taken_for_a_path_and_not_found(folder):
    with pytest.raises(FileNotFoundError):
        open_corpus("Once upon a time")


def test_a_glob_gives_its_files_sorted_and_without_folders(folder):
    assert paths("*.txt") == ("a.txt", "b.txt")
    assert paths("**/*") == ("a.txt", "b.txt", "deep/c.txt", "deep/er/d.txt")
    assert paths(Path("deep/*.txt")) == ("deep/c.txt",)


def test_a_file_whose_name_looks_like_a_glob_is_that_file(folder):
    (folder / "a[1].txt").write_bytes(b"x")
    assert paths("a[1].txt") == ("a[1].txt",)


def test_a_glob_that_matches_nothing_is_file_not_found(folder):
    with pytest.raises(FileNotFoundError, match=r"No file matches the glob.*\*\.json"):
        open_corpus("*.json")


def test_several_paths_keep_their_order_and_globs_are_expanded_in_place(folder):
    assert paths(["b.txt", "deep/*.txt", "a.txt"]) == ("b.txt", "deep/c.txt", "a.txt")
    assert paths((Path("b.txt"), "a.txt")) == ("b.txt", "a.txt")
    assert paths(Path(name) for name in ("b.txt", "a.txt")) == ("b.txt", "a.txt")
    assert open_corpus(["b.txt", "a.txt"]).num_bytes == 3


def test_a_file_named_twice_is_counted_twice(folder):
    assert gm.count_words(["a.txt", "a.txt"], special_tokens=()).count("a") == 2


def test_a_list_of_texts_is_documents(folder):
    assert documents(["Once upon a time.", "The end."]) == [b"Once upon a time.", b"The end."]
    assert documents([b"bytes", "str"]) == [b"bytes", b"str"]
    assert documents([]) == []


def test_texts_that_only_look_odd_are_not_looked_up(folder):
    for text in ("", "?", "\0", "a\nb.txt", "x" * 10_000, "[", "~", "é", "one two three"):
        assert documents([text]) == [text.encode()]


@pytest.mark.parametrize("name", [".", "./", "*", "**", "../*/*.txt"])
def test_a_list_of_one_name_without_letters_is_what_the_bare_name_is(folder, name):
    assert paths([name]) == paths(name)
    assert paths([name, "b.txt"]) == (*paths(name), "b.txt")


def test_punctuation_among_words_is_text_although_it_names_a_folder(folder):
    words = ["Once", "upon", "*", "time", ".", "..", "/"]
    assert documents(words) == [word.encode() for word in words]


@pytest.fixture
def listed(monkeypatch):
    """Record the folders that are listed, in order."""
    folders = []

    def scandir(path, real=os.scandir):
        folders.append(os.fspath(path))
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    return folders


@pytest.mark.parametrize("text", ["../**/zz1 y", "**/zz1 y", "/*/*/*/* zz1", "/**/int zz1;"])
def test_a_text_that_could_be_a_glob_does_not_search_a_large_tree(folder, listed, monkeypatch, text):
    monkeypatch.setattr("gristmill.corpus.files.MAX_ENTRIES_LOOKED_AT", 20)
    for i in range(60):
        (folder / f"folder {i}" / "inner").mkdir(parents=True)
    texts = [text, "foo bar", *(f"{text} {i}" for i in range(30))]
    assert documents(texts) == [text.encode() for text in texts]
    assert len(listed) < 80


def test_a_glob_is_taken_as_one_however_many_files_a_search_would_have_to_look_at(folder, monkeypatch):
    monkeypatch.setattr("gristmill.corpus.files.MAX_ENTRIES_LOOKED_AT", 1)
    assert paths(["**/er/*.txt"]) == paths("**/er/*.txt") == ("deep/er/d.txt",)
    (folder / "deep" / "e f g").write_bytes(b"e")
    assert paths("**/e f *") == ("deep/e f g",)


def test_a_text_that_could_be_a_glob_is_text_although_a_folder_cannot_be_listed(folder, monkeypatch):
    def scandir(path, real=os.scandir):
        if "deep" in os.fspath(path):
            raise PermissionError(13, "Permission denied", path)
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    for text in ("*/* c", "**/int x1;"):
        assert documents([text, "foo bar"]) == [text.encode(), b"foo bar"]


def test_the_advice_for_an_open_file_ends_at_the_end_of_the_file(folder):
    for mode, end in (("r", "''"), ("rb", "b''")):
        with Path("a.txt").open(mode) as file, pytest.raises(TypeError, match=rf"file\.read\(n\), {end}\)"):
            open_corpus(file)


def test_an_iterator_of_strings_is_never_looked_up(folder):
    assert documents(iter(["a.txt", "b.txt"])) == [b"a.txt", b"b.txt"]
    assert documents(text for text in ["a.txt"]) == [b"a.txt"]


def test_a_list_in_which_only_some_strings_name_files_is_refused_with_both_ways_out(folder):
    with pytest.raises(
        gm.CorpusError, match=r"'a.txt' names a file, 'Once upon' does not.*gm\.Files\(.*gm\.Documents\("
    ):
        open_corpus(["a.txt", "Once upon"])


def test_a_list_of_paths_to_missing_files_is_not_trained_as_text(folder):
    for corpus in (["missing.txt"], ["data/train", "data/valid"], ["corpus", "my corpus.jsonl"], ["x.txt.gz"]):
        with pytest.raises(FileNotFoundError, match=r"gm\.Files\(.*gm\.Documents\("):
            open_corpus(corpus)
    with pytest.raises(FileNotFoundError):
        open_corpus([Path("missing")])


def test_only_the_first_thousand_strings_of_a_list_are_looked_at(folder):
    texts = [f"text number {i}" for i in range(1000)] + ["a.txt"]
    assert documents(texts)[-1] == b"a.txt"


def test_a_folder_is_the_files_below_it(folder):
    for corpus in ("deep", Path("deep"), ["deep"], [Path("deep")]):
        assert paths(corpus) == ("deep/c.txt", "deep/er/d.txt")
    assert paths(["b.txt", "deep/er", "a.txt"]) == ("b.txt", "deep/er/d.txt", "a.txt")


def test_a_missing_file_is_named(folder):
    with pytest.raises(FileNotFoundError) as caught:
        open_corpus(["a.txt", Path("missing.txt")])
    assert caught.value.filename == "missing.txt" or str(caught.value.filename) == "missing.txt"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_an_unreadable_file_is_a_permission_error_before_anything_is_counted(folder):
    (folder / "a.txt").chmod(0)
    with pytest.raises(PermissionError, match=r"a\.txt"):
        open_corpus(["b.txt", "a.txt"])


def test_a_file_name_that_is_not_utf8_is_read_like_any_other(folder):
    Path(os.fsdecode(b"\xff.txt")).write_bytes(b"strange strange")
    assert gm.count_words(os.fsdecode(b"\xff.txt"), progress=None, special_tokens=()).count(b"strange") == 1
    with pytest.raises(FileNotFoundError, match=r"\\udcfe"):
        gm.count_words(os.fsdecode(b"\xfe.txt"), progress=None, special_tokens=())


@pytest.mark.parametrize("path", ["", "\ud800.txt", "a\0b.txt", "\ud800*.txt"])
def test_a_path_that_no_file_can_have_is_file_not_found(folder, path):
    """The empty path is not the current folder, and a surrogate does not raise UnicodeEncodeError."""
    with pytest.raises(FileNotFoundError):
        open_corpus(path)


def test_a_pipe_is_refused(folder):
    os.mkfifo("pipe")
    with pytest.raises(gm.CorpusError, match="not a regular file"):
        open_corpus("pipe")


@pytest.mark.parametrize("suffix", [".bz2", ".xz", ".zip", ".tar", ".lz4"])
def test_a_file_that_cannot_be_unpacked_is_not_counted_as_text(folder, suffix):
    (folder / f"x.txt{suffix}").write_bytes(b"packed")
    with pytest.raises(gm.CorpusError, match=rf"a \{suffix} file is not plain text, and only \.gz and \.zst are"):
        open_corpus(f"x.txt{suffix}")


def test_files_that_were_found_before_are_a_corpus_too(folder):
    files = open_corpus("a.txt")
    assert open_corpus(files) is files
    assert gm.count_words(files, special_tokens=()).count("a") == 1


@pytest.mark.parametrize(
    ("corpus", "hint"),
    [
        (b"data", r"\[data\]"),
        (bytearray(b"data"), r"\[data\]"),
        ({"low": 5}, "from_counts"),
        ({"a", "b"}, "sorted"),
        (7, "Pass a path"),
        (None, "Pass a path"),
    ],
)
def test_an_object_that_is_not_a_corpus_is_a_type_error_that_says_what_to_pass(corpus, hint):
    with pytest.raises(TypeError, match=hint):
        open_corpus(corpus)


def test_an_open_file_is_refused_because_its_lines_are_not_its_text(folder):
    with Path("a.txt").open(encoding="utf-8") as file, pytest.raises(TypeError, match=r"Pass its path.*'a\.txt'"):
        open_corpus(file)


def test_an_item_of_a_wrong_type_is_named_with_its_index():
    with pytest.raises(TypeError, match="document 2 of the corpus is a int"):
        documents(["a", b"b", 3])
    with pytest.raises(TypeError, match="document 1 of the corpus is a NoneType"):
        gm.count_words(iter(["a", None]), special_tokens=())


def test_a_lone_surrogate_is_an_error_that_names_the_document():
    with pytest.raises(gm.TextError, match=r"document 1 .*'\\ud800' at character 2"):
        gm.count_words(["fine", "ab\ud800"], special_tokens=())


def test_documents_are_taken_from_the_iterator_a_batch_at_a_time():
    taken = 0

    def source():
        nonlocal taken
        for _ in range(100):
            taken += 1
            yield b"x" * 1000

    batches = TextStream(source()).read_batches(batch_bytes=10_000)
    first = next(batches)
    assert len(first.spans().begins) == 10
    assert taken == 11
    assert sum(len(batch.spans().begins) for batch in batches) == 90


def test_a_document_longer_than_a_batch_is_a_separate_batch():
    lengths = [5, 100, 5, 5]
    batches = list(TextStream([b"x" * length for length in lengths]).read_batches(batch_bytes=10))
    assert [[len(document) for document in documents_in([batch])] for batch in batches] == [[5], [100], [5, 5]]


def test_files_and_documents_of_the_same_bytes_have_the_same_words(folder):
    data = "a\r\nb\0c \xff\ufeff é<s>x  <s>".encode() + b"\xff\xfe"
    (folder / "raw.txt").write_bytes(data)
    from_file = gm.count_words("raw.txt", special_tokens=["<s>"])
    from_list = gm.count_words([data], special_tokens=["<s>"])
    assert from_file == from_list
    assert sum(len(word) * count for word, count in from_file.items()) == len(data) - 2 * len("<s>")
