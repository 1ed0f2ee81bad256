"""gristmill sample-corpus."""

import os
import signal

import pytest

from gristmill.cli.values import UsageError, parse_size


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())


def test_same_seed_same_file_and_the_size_is_an_upper_bound(gristmill, tmp_path):
    for name in ("a", "b"):
        code, out, err = gristmill("sample-corpus", "-o", tmp_path / name, "--size", "100kB", "--seed", 7)
        assert (code, err) == (0, "")
        assert str(tmp_path / name) in out
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert 90_000 < (tmp_path / "a").stat().st_size <= 100_000


def test_an_existing_file_is_refused_and_replaced_only_when_asked(gristmill, tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("precious")
    code, _, err = gristmill("sample-corpus", "-o", path, "--size", "10kB")
    assert (code, err) == (1, f"gristmill: error: {path}: already exists. Pass --overwrite to replace it\n")
    assert path.read_text() == "precious"
    assert gristmill("sample-corpus", "-o", path, "--size", "10kB", "--overwrite")[0] == 0
    assert path.stat().st_size > 5_000


def test_a_size_too_small_for_one_story_leaves_no_empty_file(gristmill, tmp_path):
    code, _, err = gristmill("sample-corpus", "-o", tmp_path / "a.txt", "--size", 10)
    assert code == 2
    assert "--size 10 is too small" in err
    assert names_in(tmp_path) == []


@pytest.mark.skipif(os.name == "nt", reason="no SIGINT for another process")
@pytest.mark.parametrize(
    ("sent", "code", "said"),
    [(signal.SIGINT, 130, b"gristmill: interrupted\n"), (signal.SIGTERM, 143, b"gristmill: terminated\n")],
)
def test_a_signal_leaves_no_half_written_file(gristmill_process, tmp_path, sent, code, said):
    process = gristmill_process("sample-corpus", "-o", tmp_path / "a.txt", "--size", "1TB")
    while not names_in(tmp_path):  # wait for the temporary file: writing has started
        assert process.poll() is None
    process.send_signal(sent)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (code, b"", said)
    assert names_in(tmp_path) == []


@pytest.mark.parametrize(
    ("text", "size"),
    [
        *[("0", 0), ("512", 512), ("1_000", 1000), ("50MB", 50_000_000), ("50 mb", 50_000_000), ("50M", 50_000_000)],
        *[("2GiB", 2 << 30), ("1.5k", 1500), ("1.5KiB", 1536), ("3TB", 3 * 10**12), ("9007199254740993", 2**53 + 1)],
    ],
)
def test_sizes_are_decimal_unless_they_say_i(text, size):
    assert parse_size(text, "--size") == size


@pytest.mark.parametrize("text", ["", "MB", "-1", "1e6x", "5 apples", "1,5k", "1iB", "0x10", "½MB", "1.MB", "٣MB"])
def test_what_is_no_size_is_refused(text):
    with pytest.raises(UsageError, match="is not a size"):
        parse_size(text, "--size")
