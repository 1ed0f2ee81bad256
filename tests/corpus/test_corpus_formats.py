"""Every format and compression: the same documents, words and tokenizer, from any mark on."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from corpus_files import KINDS, batches_of, cut_at_spaces, documents_in, documents_of, find, write_documents

import gristmill as gm
from gristmill.corpus.formats import read_batches

DOCUMENTS = [
    b"Once upon a time",
    b"",
    'Zoë\'s 東京   \r\n😀\t\0 "quoted" \\ back'.encode(),
    *(f"document {i} ".encode() * (i % 7) for i in range(120)),
    b"one long document " * 40,
    b"the end",
]


@pytest.fixture(params=list(KINDS))
def path(request, tmp_path):
    return write_documents(tmp_path / request.param, DOCUMENTS)


def test_every_format_gives_the_same_documents(path):
    assert documents_of(path) == DOCUMENTS


def test_every_format_gives_the_same_documents_in_small_batches(path, small_batches):
    batches = batches_of(path, cut=cut_at_spaces)
    assert len(batches) > 10
    assert documents_in(batches) == DOCUMENTS


def test_a_reader_that_starts_at_a_mark_gives_the_batches_that_are_left(path, small_batches):
    batches = batches_of(path, cut=cut_at_spaces)
    expected = [(batch.mark, batch.next_mark, batch.num_bytes, documents(batch)) for batch in batches]
    for i, batch in enumerate(batches):
        rest = batches_of(path, cut=cut_at_spaces, mark=batch.mark)
        assert [(b.mark, b.next_mark, b.num_bytes, documents(b)) for b in rest] == expected[i:]
    assert batches_of(path, cut=cut_at_spaces, mark=batches[-1].next_mark) == []


def separated(path) -> dict[str, str]:
    """Return the option that makes the text between separators a document. Only text files have it."""
    return {"documents": "separator"} if {".txt", ".text"} & set(path.suffixes) else {}


def documents(batch):
    spans = batch.spans()
    return [bytes(spans.text[begin:end]) for begin, end in zip(spans.begins, spans.ends, strict=True)]


def test_marks_join_and_positions_grow_to_the_size_of_the_file(path, small_batches):
    batches = batches_of(path, cut=cut_at_spaces)
    for before, after in pairwise(batches):
        assert before.next_mark == after.mark
        assert before.position <= after.position
        assert before.next_mark.in_document == after.spans().continued == before.spans().unfinished
    assert batches[-1].position == path.stat().st_size
    assert not batches[-1].next_mark.in_document


def test_batches_are_about_as_large_as_they_should_be(path, small_batches):
    longest = max(map(len, DOCUMENTS)) + 40  # as a line of JSON
    for batch in batches_of(path, cut=cut_at_spaces):
        assert batch.num_bytes <= max(100, 2 * longest)


def test_a_batch_stays_as_it_is_while_others_are_read(path, small_batches):
    input, reading = find(path)
    first, *others = read_batches(input, reading, cut=cut_at_spaces)
    seen = documents(first)
    for batch in others:
        batch.spans()
    assert documents(first) == seen


@pytest.mark.parametrize("pattern", ["gpt2", r"\w+|\W+"])
@pytest.mark.parametrize("num_threads", [1, 3])
def test_every_format_gives_the_same_words(path, pattern, num_threads):
    options = {"pattern": pattern, "num_threads": num_threads, "progress": None}
    assert gm.count_words(path, **separated(path), **options, special_tokens=()) == gm.count_words(
        iter(DOCUMENTS), **options, special_tokens=()
    )


def test_every_format_gives_the_same_tokenizer(path):
    options = {"vocab_size": 300, "special_tokens": ["<|endoftext|>"], "progress": None}
    expected = gm.train_tokenizer(iter(DOCUMENTS), **options)
    # As one text, in which the separators are special tokens.
    assert gm.train_tokenizer(path, **options) == expected
    assert gm.train_tokenizer(path, **separated(path), **options) == expected


def test_extending_takes_every_format(path):
    small = gm.train_tokenizer(iter(DOCUMENTS), vocab_size=270, progress=None, special_tokens=())
    extended = gm.extend_tokenizer(small, path, vocab_size=290, **separated(path), progress=None)
    assert extended == gm.train_tokenizer(iter(DOCUMENTS), vocab_size=290, progress=None, special_tokens=())


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
@pytest.mark.parametrize("documents", ["separator", "file", "line"])
def test_random_bytes_in_every_form_of_documents_are_put_together_again(tmp_path, small_batches, suffix, documents):
    from corpus_files import compress

    source = random.Random(0)
    for length in (0, 1, 99, 100, 101, 500, 3000):
        data = bytes(source.choices(b"ab \n<|>endoftext\xff\0", k=length))
        data = data.replace(b"<", b"<|endoftext|>")
        (tmp_path / f"a.txt{suffix}").write_bytes(compress(data, suffix))
        expected = {
            "separator": data.split(b"<|endoftext|>"),
            "line": data.split(b"\n"),
            "file": [data],
        }[documents]
        if documents != "file" and expected[-1] == b"":
            expected.pop()
        assert documents_of(tmp_path / f"a.txt{suffix}", cut=cut_at_spaces, documents=documents) == expected


def test_an_empty_file_is_no_document_or_truncated_and_can_be_skipped(path):
    """Zero bytes are an empty text and zero JSON lines, but every other format has a header."""
    path.write_bytes(b"")
    other = path.with_name("other.txt")
    other.write_bytes(b"other")
    if path.suffix in (".txt", ".text", ".jsonl", ".ndjson"):
        assert documents_of(path) == []
        assert gm.count_words([path, other], progress=None, special_tokens=()).count("other") == 1
        return
    with pytest.raises(gm.TruncatedInputError, match="truncated at byte 0"):
        documents_of(path)
    with pytest.warns(gm.SkippedInputWarning, match="truncated at byte 0"):
        words = gm.count_words([path, other], on_error="skip", progress=None, special_tokens=())
    assert words.count("other") == 1
