"""Small files: reading any path ends with a result or with a Gristmill error."""

import os
import sys

import pytest

from gristmill.errors import FormatError, OptionError
from gristmill.small_files import parse_json, read_json_lines, read_small_file

needs_devices = pytest.mark.skipif(sys.platform != "linux", reason="pipes with names, and devices")


def read(path, **options):
    return read_small_file(path, **{"what": "a config", "max_bytes": 100, "error": OptionError} | options)


def lines(path, **options):
    return list(read_json_lines(path, what="metrics", max_bytes=1000, error=FormatError, **options))


def test_all_of_a_file_up_to_the_limit_and_not_a_byte_more(tmp_path):
    (tmp_path / "a").write_bytes(b"x" * 100)
    assert read(tmp_path / "a") == b"x" * 100
    assert read(tmp_path / "a", first_bytes=7) == b"x" * 7
    (tmp_path / "a").write_bytes(b"x" * 101)
    with pytest.raises(OptionError, match=r"a: has 101 bytes, but a config can have at most 100\."):
        read(tmp_path / "a")


def test_a_large_file_is_whole(tmp_path):
    data = os.urandom(3_000_000)
    (tmp_path / "a").write_bytes(data)
    assert read(tmp_path / "a", max_bytes=1 << 30) == data


@needs_devices
def test_a_file_that_hides_its_size_is_bounded_too():
    with pytest.raises(OptionError, match="has more than 100 bytes"):  # /proc reports size 0
        read("/proc/self/status")


@needs_devices
def test_a_pipe_is_refused_and_not_waited_for_with_a_writer_and_without(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OptionError, match="pipe: is a pipe or device; a config must be a regular file"):
        read(tmp_path / "pipe")
    writer = os.open(tmp_path / "pipe", os.O_RDWR)
    with pytest.raises(OptionError, match="is a pipe"):
        read(tmp_path / "pipe")
    os.close(writer)


@needs_devices
@pytest.mark.parametrize("device", ["/dev/zero", "/dev/null", "/dev/urandom"])
def test_a_link_to_a_device_is_refused(device, tmp_path):
    (tmp_path / "a").symlink_to(device)
    with pytest.raises(OptionError, match="is a pipe or device"):
        read(tmp_path / "a")


def test_a_link_to_a_file_is_followed_and_a_folder_is_refused(tmp_path):
    (tmp_path / "a").write_bytes(b"x")
    (tmp_path / "b").symlink_to("a")
    assert read(tmp_path / "b") == b"x"
    with pytest.raises(IsADirectoryError) as error:
        read(tmp_path)
    assert error.value.filename == str(tmp_path)


@pytest.mark.parametrize(("name", "why"), [("a\x00b", "a NUL byte"), ("a\ud800b", "a character that file names")])
def test_a_name_that_no_file_can_have(name, why, tmp_path):
    with pytest.raises(OptionError, match=f"not a valid file name: it has {why}"):
        read(tmp_path / name)


def test_no_descriptor_is_left_open(tmp_path):
    (tmp_path / "a").write_bytes(b"x" * 101)
    before = os.open(os.devnull, os.O_RDONLY)
    os.close(before)
    for path in (tmp_path / "a", tmp_path):
        with pytest.raises((OptionError, OSError)):
            read(path)
    after = os.open(os.devnull, os.O_RDONLY)
    os.close(after)
    assert before == after


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\xff",
        b"\xef\xbb\xbf{}",
        b"{",
        b"NaN",
        b"[Infinity]",
        b"[1e400]",
        b"-1e999",
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b"9" * 5000,
        b'{"a": 1} x',
        '"é"'.encode("utf-16"),
    ],
)
def test_invalid_json_is_an_error_of_the_tree(text):
    with pytest.raises(FormatError, match=r"a\.json: not valid JSON"):
        parse_json(text, source="a.json", error=FormatError)


def test_lone_surrogates_come_through():  # how a file name that is not UTF-8 is stored
    assert parse_json(rb'"a\udcff"', error=FormatError) == "a\udcff"


def test_a_record_may_have_a_loss_that_is_not_a_number(tmp_path):
    (tmp_path / "a").write_bytes(b'{"loss": NaN}\n{"loss": 1e400}\n')
    assert [str(record["loss"]) for record in lines(tmp_path / "a")] == ["nan", "inf"]


def test_repeated_keys_and_too_many_items_are_refused_where_that_is_asked():
    assert parse_json(b'{"a": 1, "a": 2}', error=FormatError) == {"a": 2}
    with pytest.raises(FormatError, match="the key 'a' twice"):
        parse_json(b'{"a": 1, "a": 2}', error=FormatError, unique_keys=True)
    with pytest.raises(FormatError, match="has 4 items; at most 3 are allowed"):
        parse_json(b"[1, 2, 3, 4]", error=FormatError, max_items=3)


def test_without_a_limit_of_its_own_a_text_has_that_of_all_texts_and_a_line_a_smaller_one(tmp_path, monkeypatch):
    with pytest.raises(FormatError, match="has 33,554,434 items; at most 33,554,432 are allowed"):
        parse_json(b"[" + b"," * ((1 << 25) + 1), error=FormatError)
    monkeypatch.setattr("gristmill.small_files.MAX_LINE_ITEMS", 10)
    (tmp_path / "a").write_bytes(b'{"a": 1}\n{"a": [' + b"[]," * 10 + b'[]]}\n{"a": 3}\n')
    with pytest.raises(FormatError, match=r"a:2: has 23 items; at most 10 are allowed"):
        lines(tmp_path / "a")
    assert [record["a"] for record in lines(tmp_path / "a", skip_damaged=True)] == [1, 3]


def test_lines_end_at_the_one_that_was_being_written(tmp_path):
    (tmp_path / "a").write_bytes(b'{"a": 1}\n{"a": 2}\n{"a"')
    assert lines(tmp_path / "a") == [{"a": 1}, {"a": 2}]
    (tmp_path / "a").write_bytes(b'{"a": 1}\n{"a": 2}')
    assert lines(tmp_path / "a") == [{"a": 1}, {"a": 2}]
    (tmp_path / "a").write_bytes(b"")
    assert lines(tmp_path / "a") == []


@pytest.mark.parametrize("line", [b"{", b"3", b"", b"[" * 900, b"9" * 950])
def test_a_damaged_line_is_named_or_left_out(line, tmp_path):
    (tmp_path / "a").write_bytes(b'{"a": 1}\n' + line + b'\n{"a": 2}\n')
    with pytest.raises(FormatError, match="a:2: "):
        lines(tmp_path / "a")
    assert lines(tmp_path / "a", skip_damaged=True) == [{"a": 1}, {"a": 2}]
