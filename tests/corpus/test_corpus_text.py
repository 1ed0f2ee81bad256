"""Text files: what ends a document, and where a long one is cut."""

from __future__ import annotations

import pytest
from corpus_files import batches_of, cut_at_spaces, documents_in, documents_of

import gristmill as gm
from gristmill.corpus import batches as batch_sizes


@pytest.fixture
def write(tmp_path):
    def write(data):
        (tmp_path / "a.txt").write_bytes(data)
        return tmp_path / "a.txt"

    return write


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"", []),
        (b"A", [b"A"]),
        (b"A<s>", [b"A"]),
        (b"A<s>B", [b"A", b"B"]),
        (b"A<s>B<s>", [b"A", b"B"]),
        (b"A<s><s>B", [b"A", b"", b"B"]),
        (b"<s>", [b""]),
        (b"<s><s>", [b"", b""]),
        (b"<s>A", [b"", b"A"]),
        (b"A<s>\n", [b"A", b"\n"]),
        (b"A<s", [b"A<s"]),
    ],
)
def test_a_separator_ends_a_document_and_belongs_to_none(write, text, expected):
    assert documents_of(write(text), separator="<s>") == expected


def test_lines_keep_their_carriage_return_and_the_last_needs_no_newline(write):
    assert documents_of(write(b"a\r\n\nb\rc\n"), documents="line") == [b"a\r", b"", b"b\rc"]
    assert documents_of(write(b"a\nb"), documents="line") == [b"a", b"b"]


def test_an_empty_file_is_one_empty_document_where_files_are_documents(write):
    batches = batches_of(write(b""), documents="file")
    assert documents_in(batches) == [b""]
    assert batches[0].mark != batches[0].next_mark
    assert batches_of(write(b""), documents="file", mark=batches[0].next_mark) == []


def test_all_bytes_come_back_as_they_are(write):
    raw = bytes(range(256)) + b"\xef\xbb\xbf\xc0\xaf\xed\xa0\x80\r\n\r\0" + bytes(range(255, -1, -1))
    assert documents_of(write(raw), documents="file") == [raw]
    assert b"\n".join(documents_of(write(raw + b"x"), documents="line")) == raw + b"x"


@pytest.mark.parametrize("separator", ["<|endoftext|>", "--", "aba", "\n\n", " end of ", "é"])
def test_a_separator_at_every_position_of_a_batch(write, small_batches, separator):
    for length in (*range(80, 125), *range(180, 225)):
        text = b"ab " * 100
        data = text[:length] + separator.encode() + b"bab -"
        expected = data.split(separator.encode())
        assert documents_of(write(data), separator=separator, cut=cut_at_spaces) == expected


def test_separators_that_overlap_are_found_from_front_to_back(write, small_batches):
    for length in range(90, 110):
        data = b"a" * length + b"-" * 7 + b"b" * 150 + b"-----"
        assert documents_of(write(data), separator="---") == data.split(b"---")


def test_a_cut_never_falls_into_a_separator_that_holds_a_space(write, small_batches):
    for length in range(60, 140):
        data = b"x y " * (length // 4) + b"z" * (length % 4) + b"<the end>" + b"a b " * 50
        batches = batches_of(write(data), separator="<the end>", cut=cut_at_spaces)
        assert documents_in(batches) == data.split(b"<the end>")


def test_only_a_document_longer_than_a_batch_is_cut(write, small_batches):
    data = b"".join(b"word " * (i % 19) + b"<s>" for i in range(200)) + b"long one " * 50
    batches = batches_of(write(data), separator="<s>", cut=cut_at_spaces)
    cut = [batch for batch in batches if batch.spans().unfinished]
    assert cut
    for batch in cut:
        assert len(batch.spans().begins) == 1
        assert batch.mark.offset >= data.index(b"long one")


def test_the_beginning_of_a_document_that_is_cut_is_not(write, monkeypatch):
    monkeypatch.setattr(batch_sizes, "BATCH_BYTES", 100)
    monkeypatch.setattr(batch_sizes, "MIN_STRETCH_BYTES", 70)
    data = b"early cut " + b"x" * 200 + b" y" * 200
    batches = batches_of(write(data), cut=cut_at_spaces)
    first = batches[0].spans()
    assert first.ends[0] - first.begins[0] >= 70
    assert documents_in(batches) == [data]


def test_a_document_without_a_place_to_cut_is_read_up_to_the_limit_and_no_further(write):
    limit = 3 << 20
    path = write(b"x" * limit)
    assert len(documents_of(path, cut=cut_at_spaces, max_document_bytes=limit)[0]) == limit
    path = write(b"a b<|endoftext|>" + b"x" * (limit + 1))
    with pytest.raises(
        gm.CorpusError,
        match=r"a\.txt: the document at byte 16 has no place to cut it within max_document_bytes=3145728",
    ):
        documents_of(path, cut=cut_at_spaces, max_document_bytes=limit)
    with pytest.raises(
        gm.CorpusError, match=r"has no end within .* Pass a larger max_document_bytes, or check documents='separator'"
    ):
        documents_of(path, max_document_bytes=limit)


def test_batches_have_readable_padding_after_the_text(write, small_batches):
    for batch in batches_of(write(b"some words " * 200), cut=cut_at_spaces):
        assert len(batch.spans().text) >= batch.spans().ends[-1] + 64


@pytest.mark.parametrize("pattern", ["gpt2", "cl100k", "o200k", "whitespace"])
def test_words_do_not_depend_on_where_a_compressed_text_is_cut(tmp_path, monkeypatch, pattern):
    # A character, a contraction, CRLF, a run of spaces and a special at every place of a batch.
    import gzip

    text = "don't  stop —  naïve\r\n\r\n  東京<|endoftext|>we'll\t12345   go ".encode() * 60
    (tmp_path / "a.txt").write_bytes(text)
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(text))
    options = {"pattern": pattern, "special_tokens": ["<|endoftext|>"], "num_threads": 1, "progress": None}
    expected = gm.count_words(tmp_path / "a.txt", **options)
    for size in range(100, 180):
        monkeypatch.setattr(batch_sizes, "BATCH_BYTES", size)
        monkeypatch.setattr(batch_sizes, "MIN_STRETCH_BYTES", 1)
        assert gm.count_words(tmp_path / "a.txt.gz", **options) == expected


def test_the_last_separator_is_found_near_the_end_and_far_from_it(write):
    for tail in (0, 10, 16_380, 16_384, 16_390, 100_000):
        data = b"a<s>b<s>" + b"x" * tail
        batches = batches_of(write(data + b"<s>" + b"y" * (3 << 20)), separator="<s>")
        assert documents_in(batches) == [b"a", b"b", b"x" * tail, b"y" * (3 << 20)]
        assert batches[0].num_bytes == len(data) + 3
