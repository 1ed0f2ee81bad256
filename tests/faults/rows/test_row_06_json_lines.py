"""Row 6: JSON lines with lines that are no JSON, or have no text."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

import gristmill as gm
from faults.rows.entry_points import ENTRY_POINTS, TOKENIZER, count, encode
from faults.rows.fault import Fault
from gristmill.cli import main
from gristmill.corpus.packages import load_zstd
from gristmill.lm.data import conversation_files
from gristmill.lm.data.conversation_files import read_conversations

FAULT = Fault(
    row=6,
    injected="JSON lines with a byte order mark, invalid UTF-8, a lone surrogate, NaN, 2,000 levels, a missing field, "
    "a text that is not a string, or a last line without a newline",
    promise="An error with file and line number, also in compressed files, later batches and tasks; the last line is "
    "read",
    undetectable="A file that ends between two lines, and which of two equal keys was meant: the last one counts",
    see_also=("tests/corpus/test_corpus_jsonl.py", "tests/corpus/test_json_lines.py"),
)

GOOD = b'{"id": 1, "text": "good"}\n'
NAMES = ["count_words", "train_tokenizer", "encode_corpus"]
BAD = {
    "byte order mark": (b'\xef\xbb\xbf{"text": "a"}', "a byte order mark"),
    "invalid UTF-8": (b'{"text": "a\xff"}', "invalid UTF-8 at byte 11"),
    "invalid UTF-8 in a key": (b'{"text": "a", "\xc0\xaf": 1}', "invalid UTF-8 at byte 15"),
    "overlong UTF-8": (b'{"text": "\xe0\x80\xaf"}', "invalid UTF-8"),
    "surrogate as UTF-8": (b'{"text": "\xed\xa0\x80"}', "invalid UTF-8"),
    "lone surrogate": (b'{"text": "\\ud800"}', "an escaped surrogate that is not part of a pair"),
    "reversed surrogates": (b'{"text": "\\udc00\\ud800"}', "an escaped surrogate that is not part of a pair"),
    "NaN": (b'{"text": "a", "x": NaN}', "not a valid JSON number"),
    "minus infinity": (b'{"text": "a", "x": -Infinity}', "not a valid JSON number"),
    "2,000 levels": (b'{"text": "a", "x": ' + b"[" * 2000 + b"]" * 2000 + b"}", "more than 1,024 nested"),
    "2,000 objects": (b'{"x": ' * 2000 + b"1" + b"}" * 2000, "more than 1,024 nested"),
    "NUL": (b'{"text": "a\0"}', "an unescaped control character"),
    "cut": (b'{"text": "a', "(not valid JSON|an unescaped control character)"),
    "two objects": (b'{"text": "a"}{"text": "b"}', "not valid JSON"),
    "UTF-16": ('{"text": "a"}'.encode("utf-16-le"), "not valid JSON"),
    "missing field": (b'{"id": 7, "body": "a long text"}', r"no field 'text' \(fields: 'id', 'body'\)"),
    "number": (b'{"text": 7}', "field 'text' is a number, not a string"),
    "array": (b'[{"text": "a"}]', "the line is an array, not an object"),
}


def check(call, path: Path, folder: Path, number: int, message: str) -> None:
    with pytest.raises(gm.CorpusError, match=rf"\.jsonl(\.gz|\.zst)?:{number}: {message}") as caught:
        call(path, folder)
    assert str(caught.value).startswith(f"{path}:{number}: ")
    if isinstance(caught.value, gm.CorruptInputError):
        assert caught.value.path == str(path)


@pytest.mark.parametrize("kind", BAD)
@pytest.mark.parametrize("name", NAMES)
def test_row_06_a_bad_line_is_an_error_with_its_number(tmp_path, name, kind):
    line, message = BAD[kind]
    path = tmp_path / "a.jsonl"
    for before, after in ((0, b""), (4, b"\n" + GOOD)):
        path.write_bytes(GOOD * before + line + after)
        check(ENTRY_POINTS[name], path, tmp_path, before + 1, message)


@pytest.mark.parametrize("kind", BAD)
@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_row_06_line_numbers_are_those_of_the_decompressed_text(tmp_path, kind, suffix):
    line, message = BAD[kind]
    pack = gzip.compress if suffix == ".gz" else load_zstd().compress
    path = tmp_path / f"a.jsonl{suffix}"
    path.write_bytes(pack(b"\r\n" + GOOD * 2) + pack(b"\n" + GOOD + line + b"\r\n" + GOOD))
    check(count, path, tmp_path, 6, message)


@pytest.mark.parametrize(
    ("kind", "executor"),
    [("invalid UTF-8", "local"), ("missing field", "local"), ("NaN", "processes"), ("missing field", "processes")],
)
def test_row_06_line_numbers_count_through_batches_and_tasks(tmp_path, kind, executor):
    line, message = BAD[kind]
    path = tmp_path / "a.jsonl"
    num_lines = 300_000  # several batches of 2 MiB
    path.write_bytes(GOOD * num_lines + line + b"\n" + GOOD * 10)
    options = {}
    if executor == "processes":
        options["executor"] = gm.Processes(num_workers=2, part_bytes=1_000_000)
    with pytest.raises(gm.CorpusError, match=rf"a\.jsonl:{num_lines + 1}: {message}"):
        gm.count_words(path, progress=None, **options)


@pytest.mark.parametrize("kind", BAD)
def test_row_06_skipping_a_file_with_a_bad_line_uses_nothing_of_it(tmp_path, kind):
    path = tmp_path / "a.jsonl"
    path.write_bytes(GOOD + BAD[kind][0] + b"\n" + GOOD)
    (tmp_path / "b.jsonl").write_bytes(b'{"text": "other"}')
    with pytest.warns(gm.SkippedInputWarning, match=r"a\.jsonl:2: "):
        words = gm.count_words([path, tmp_path / "b.jsonl"], on_error="skip", progress=None)
    assert dict(words.items()) == {b"other": 1}


def test_row_06_the_last_line_is_read_without_a_newline(tmp_path):
    path = tmp_path / "a.jsonl"
    for end in (b"", b"\n", b"\r\n", b"\n\n \t\n"):
        path.write_bytes(b'{"text": "text"}\n{"text": "last"}' + end)
        assert dict(count(path, tmp_path).items()) == {b"text": 1, b"last": 1}
        assert encode(path, tmp_path) == [id for text in ("text", "last") for id in (*TOKENIZER.encode(text), 259)]
        (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(path.read_bytes()))
        assert dict(count(tmp_path / "a.jsonl.gz", tmp_path).items()) == {b"text": 1, b"last": 1}


def test_row_06_1024_levels_and_escaped_pairs_are_read(tmp_path):
    path = tmp_path / "a.jsonl"
    deep = b"[" * 1023 + b"]" * 1023
    path.write_bytes(b'{"deep": ' + deep + b', "x": 1e999, "text": "\\ud83d\\ude00\\u0000"}')
    assert encode(path, tmp_path) == [*TOKENIZER.encode("😀\0"), 259]


@pytest.mark.parametrize("kind", ["byte order mark", "2,000 levels", "missing field"])
def test_row_06_commands_name_the_line(tmp_path, capsys, kind):
    line, _ = BAD[kind]
    path = tmp_path / "a.jsonl"
    path.write_bytes(GOOD * 2 + line)
    TOKENIZER.save(tmp_path / "tok.json")
    for command in (
        ["train-tokenizer", path, "--vocab-size", "300", "-o", tmp_path / "new.json"],
        ["encode", path, "-t", tmp_path / "tok.json", "-o", tmp_path / "out"],
    ):
        assert main([*map(str, command)]) == 1
        errors = capsys.readouterr().err
        assert f"{path}:3: " in errors and errors.count("\n") == 1
        assert len(errors) < 1000
    assert not (tmp_path / "new.json").exists()
    assert not (tmp_path / "out").exists()


CONVERSATION = b'{"prompt": "Hello", "response": "Hi"}\n'


@pytest.mark.parametrize(
    "line",
    [
        b'{"prompt": "a\xff", "response": "b"}',
        b'{"prompt": "\\ud800", "response": "b"}',
        b'{"x": ' + b"[" * 100_000,
        b'{"prompt": "a", "response": "b", "x": ' + b"7" * 10_000 + b"}",
        b'{"prompt": "a", "respons": "b"}',
        b'{"prompt": "a", "response": NaN}',
        b"[1]",
    ],
    ids=lambda line: line[:30].decode("ascii", "backslashreplace"),
)
def test_row_06_a_bad_line_of_conversations_is_an_error_with_its_number(tmp_path, line):
    path = tmp_path / "a.jsonl"
    path.write_bytes(CONVERSATION * 2 + b"\n" + line)
    with pytest.raises(gm.CorpusError, match=r"a\.jsonl:4: "):
        list(read_conversations([path]))


def test_row_06_conversations_are_the_same_wherever_blocks_end(tmp_path, monkeypatch):
    path = tmp_path / "a.jsonl"
    pairs = [("é" * size, "Hi\n" * size) for size in range(20)]
    path.write_text("\n".join(json.dumps({"prompt": a, "response": b}, ensure_ascii=False) for a, b in pairs))
    for size in (1, 2, 7, 100, 1 << 20):
        monkeypatch.setattr(conversation_files, "BLOCK_BYTES", size)
        read = [tuple(message["content"] for message in found.messages) for found in read_conversations([path])]
        assert read == pairs


def test_row_06_a_line_of_conversations_has_a_stated_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(conversation_files, "BLOCK_BYTES", 1000)
    monkeypatch.setattr(conversation_files, "MAX_LINE_BYTES", 5000)
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(CONVERSATION + b'{"prompt": "' + b"0" * 1_000_000))
    with pytest.raises(gm.CorpusError, match=r"a line is longer than 5,000 bytes"):
        list(read_conversations([path]))
