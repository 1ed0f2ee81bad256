"""JSON lines: errors name file, line and field; the texts are those of the standard library."""

from __future__ import annotations

import gzip
import json
import random
import tracemalloc

import pytest
from corpus_files import batches_of, documents_of, jsonl

import gristmill as gm


@pytest.fixture
def write(tmp_path):
    def write(data, name="a.jsonl"):
        (tmp_path / name).write_bytes(data)
        return tmp_path / name

    return write


GOOD = b'{"text": "good"}\n'


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b'\xef\xbb\xbf{"text": "a"}', "a byte order mark"),
        (b'{"text": "a\xff"}', "invalid UTF-8 at byte 11"),
        (b'{"text": "\\ud800"}', "an escaped surrogate that is not part of a pair"),
        (b'{"text": "a", "x": NaN}', "not a valid JSON number"),
        (b'{"text": ' + b"[" * 2000 + b"]" * 2000 + b"}", "more than 1,024 nested objects and arrays"),
        (b'{"text": "a\x01"}', "an unescaped control character"),
        (b'{"text": "a"', "not valid JSON at byte 12 of the line, near"),
        (b'{"text": "a"} x', "not valid JSON"),
        (b"plain text", "not valid JSON"),
    ],
)
def test_a_line_that_is_no_json_is_named_with_its_number_and_place(write, line, message):
    path = write(GOOD * 7 + b"\n" + line + b"\n" + GOOD)
    with pytest.raises(gm.CorruptInputError, match=rf"a\.jsonl:9: {message}") as caught:
        documents_of(path)
    assert caught.value.path == str(path)
    assert len(GOOD) * 7 <= caught.value.offset <= len(GOOD) * 7 + len(line) + 1


def test_a_missing_field_lists_the_existing_ones_and_suggests_the_longest_text(write):
    path = write(GOOD + json.dumps({"id": 7, "title": "T", "body": "a long text"}).encode() + b"\n")
    with pytest.raises(gm.CorpusError) as caught:
        documents_of(path)
    assert str(caught.value) == (
        f"{path}:2: no field 'text' (fields: 'id', 'title', 'body'). Pass text_field=\"body\"."
    )
    with pytest.raises(gm.CorpusError, match=r"fields: none"):
        documents_of(write(b"{}"))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b'{"text": 7}', "field 'text' is a number, not a string"),
        (b'{"text": ["a"]}', "field 'text' is an array, not a string"),
        (b'{"text": {"a": 1}}', "field 'text' is an object, not a string"),
        (b'{"text": true}', "field 'text' is true or false, not a string"),
        (b"[1]", "the line is an array, not an object. Each line must be an object with a field 'text'"),
        (b'"text"', "the line is a string, not an object"),
        (b"null", "the line is null, not an object"),
    ],
)
def test_a_record_of_another_kind_is_named(write, line, message):
    with pytest.raises(gm.CorpusError, match=rf"a\.jsonl:1: {message}"):
        documents_of(write(line + b"\n"))


def test_line_numbers_count_through_batches_and_compression(write, small_batches):
    data = GOOD * 50 + b"\n\n" + GOOD * 20 + b"{]\n" + GOOD * 50
    for path in (write(data), write(gzip.compress(data), "a.jsonl.gz")):
        batches = batches_of(path)
        assert len(batches) > 10
        for batch in batches:
            if batch.mark.line <= 72 < batch.next_mark.line:
                with pytest.raises(gm.CorruptInputError, match=r"a\.jsonl(\.gz)?:73: not valid JSON"):
                    batch.spans()
            else:
                batch.spans()


def test_the_last_line_needs_no_newline_and_blank_lines_are_skipped(write):
    assert documents_of(write(b'\n  \r\n{"text": "a"}\r\n\n{"text": "b"}')) == [b"a", b"b"]
    assert documents_of(write(b"")) == []
    assert documents_of(write(b"\n\n")) == []


def test_null_is_skipped_and_counted(write):
    (batch,) = batches_of(write(b'{"text": null}\n{"text": "a"}\n{"text": null}\n{"text": ""}'))
    assert batch.spans().num_nulls == 2
    assert documents_of(write(b'{"text": null}\n{"text": "a"}\n{"text": ""}')) == [b"a", b""]


def test_another_field_is_the_text(write):
    path = write(b'{"text": "no", "n\\u00e9": "yes"}\n')
    assert documents_of(path, text_field="né") == [b"yes"]


def test_a_line_longer_than_a_batch_is_read_whole_up_to_the_limit(write):
    text = "long " * 600_000
    path = write(jsonl([b"a", text.encode(), b"b"]))
    assert documents_of(path) == [b"a", text.encode(), b"b"]
    with pytest.raises(gm.CorpusError, match=r"a\.jsonl:2: the line is longer than max_document_bytes=2,097,152"):
        documents_of(path, max_document_bytes=2 << 20)


def test_a_json_file_of_ambiguous_format_is_an_error(write, tmp_path):
    path = write(GOOD, "a.json")
    with pytest.raises(
        gm.CorpusError, match=r"a\.json: the format of a \.json file is ambiguous.*input_format='jsonl'"
    ):
        documents_of(path)
    assert documents_of(path, input_format="jsonl") == [b"good"]
    assert documents_of(path, input_format="text", documents="file") == [GOOD]


@pytest.mark.parametrize("num_threads", [1, 4])
def test_an_error_in_a_file_is_raised_by_counting_with_its_line(write, num_threads):
    path = write(GOOD * 100_000 + b"{\n")
    with pytest.raises(gm.CorruptInputError, match=r"a\.jsonl:100001: not valid JSON"):
        gm.count_words(path, num_threads=num_threads, progress=None, special_tokens=())


DEEP = b"[" * 1022 + b"]" * 1022
HOSTILE = {
    "deep": b'{"a": ' + DEEP + b', "body": "b"}',
    "deep array": b"[" * 1024 + b"]" * 1024,
    "deep in the field": b'{"text": ' + DEEP + b"}",
    "too deep": b"[" * 100_000,
    "10,000 digits": b'{"n": ' + b"7" * 10_000 + b', "body": "b"}',
    "10,000 digits in the field": b'{"text": ' + b"7" * 10_000 + b"}",
    "10,000 digits alone": b"-" + b"7" * 10_000,
    "no double": b'{"n": 1e309, "body": "b"}',
    "repeated": b'{"body": "b", "body": 1, "body": {"body": []}}',
    "repeated field": b'{"text": "a", "text": [1]}',
    "escaped keys": b'{"\\"}": 1, "\\\\": "{", "\\n\\ud83d\\ude00": "[\\"", "te\\u0078": {"a": "}"}}',
    "no keys": b"{}",
    "empty key": b'{"": "b"}',
    "long key": b'{"' + b"k" * 100_000 + b'": "b"}',
    "many keys": b"{" + b",".join(b'"%d":%d' % (i, i) for i in range(100_000)) + b"}",
    "control": b'{"a\x00": 1}',
    "not UTF-8": b'{"\xff": 1}',
}


@pytest.mark.parametrize("name", list(HOSTILE))
def test_every_line_that_has_no_text_is_explained_in_a_few_words_and_can_be_skipped(write, name):
    """Python's parser fails on some lines that the core accepts: deep nesting and long integers."""
    path = write(GOOD * 3 + HOSTILE[name] + b"\r\n" + GOOD)
    with pytest.raises(gm.CorpusError, match=r"a\.jsonl:4: ") as caught:
        documents_of(path)
    assert len(str(caught.value)) < len(str(path)) + 2000
    other = write(GOOD, "b.jsonl")
    with pytest.warns(gm.SkippedInputWarning, match=r"a\.jsonl:4: "):
        words = gm.count_words([path, other], on_error="skip", progress=None, special_tokens=())
    assert words.count("good") == 1


def test_the_fields_of_a_line_are_those_of_its_object_and_not_of_those_inside(write):
    with pytest.raises(gm.CorpusError) as caught:
        documents_of(write(HOSTILE["escaped keys"]))
    assert r"""(fields: '"}', '\\', '\n😀', 'tex'). Pass text_field="\n😀".""" in str(caught.value)
    with pytest.raises(gm.CorpusError, match=r"fields: 'a', 'body'\)\. Pass text_field=\"body\""):
        documents_of(write(HOSTILE["deep"]))
    with pytest.raises(gm.CorpusError, match=r"fields: 'body'\)\. Pass text_field=…"):
        documents_of(write(HOSTILE["repeated"]))  # the last one counts, and is not a string
    with pytest.raises(gm.CorpusError, match=r"'0', '1', .*'19', …"):
        documents_of(write(HOSTILE["many keys"]))


def test_explaining_a_huge_line_takes_little_memory(write):
    """json.loads would make an object of every value."""
    path = write(b'{"a": [' + b"{}," * 10_000_000 + b'0], "body": "b"}')
    (batch,) = batches_of(path)
    tracemalloc.start()
    with pytest.raises(gm.CorpusError, match=r"a\.jsonl:1: no field 'text' \(fields: 'a'"):
        batch.spans()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3 * path.stat().st_size


@pytest.mark.parametrize("seed", range(4))
def test_random_lines_give_documents_or_an_error_of_the_tree(write, seed):
    source = random.Random(seed)
    signs = [b"{", b"}", b"[", b"]", b":", b",", b'"', b"\\", b"\\u00", b'"text"', b'"a":', b"1e999", b"null", b"\xff"]
    lines = [bytes(line) for line in HOSTILE.values() if len(line) < 20_000]
    num_errors = 0
    for _ in range(400):
        line = bytearray(source.choice(lines))
        for _ in range(source.randrange(4)):
            at = source.randrange(len(line) + 1)
            line[at : at + source.randrange(3)] = source.choice(signs)
        path = write(GOOD + bytes(line) + b"\n")
        try:
            documents_of(path)
        except gm.CorpusError as error:
            assert str(error).startswith(f"{path}:2")
            num_errors += 1
    assert num_errors > 300
