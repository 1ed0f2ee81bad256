"""Commands that read one text file decompress it, as `Tokenizer.encode_file` does."""

import gzip
import os
import threading

import pytest

import gristmill as gm
from gristmill.analysis.texts import file_chunks, first_bytes
from gristmill.corpus.packages import load_zstd

TEXT = "Once upon a time there was a fox. The end.\n" * 5000


@pytest.fixture
def gzipped(tmp_path):
    path = tmp_path / "tale.txt.gz"
    path.write_bytes(gzip.compress(TEXT.encode()))
    return path


@pytest.mark.parametrize(("suffix", "compress"), [(".gz", gzip.compress), (".zst", load_zstd().compress)])
def test_tokenize_gives_the_ids_of_the_unpacked_text(gristmill, tokenizer_path, tmp_path, suffix, compress):
    path = tmp_path / f"tale.txt{suffix}"
    path.write_bytes(compress(TEXT.encode()))
    code, out, err = gristmill("tokenize", "-t", tokenizer_path, "--file", path)
    assert (code, err) == (0, "")
    assert list(map(int, out.split())) == gm.Tokenizer.load(tokenizer_path).encode(TEXT)


def test_compare_and_inspect_measure_on_the_unpacked_text(gristmill, tokenizer_path, gzipped):
    for command in (["compare", tokenizer_path, tokenizer_path], ["inspect", tokenizer_path]):
        code, out, err = gristmill(*command, "--text", gzipped)
        assert (code, err) == (0, "")
        assert f"{len(gm.Tokenizer.load(tokenizer_path).encode(TEXT)):,}" in out


@pytest.mark.parametrize("command", ["tokenize", "compare", "inspect"])
def test_a_truncated_file_is_an_error_that_names_no_option_the_command_lacks(
    gristmill, tokenizer_path, gzipped, command
):
    gzipped.write_bytes(gzipped.read_bytes()[:-20])
    arguments = {
        "tokenize": ["-t", tokenizer_path, "--file", gzipped],
        "compare": [tokenizer_path, tokenizer_path, "--text", gzipped],
        "inspect": [tokenizer_path, "--text", gzipped],
    }[command]
    code, _, err = gristmill(command, *arguments)
    assert code == 1
    assert str(gzipped) in err and "truncated" in err and "skip" not in err


@pytest.mark.parametrize("name", ["tale.parquet", "tale.zip", "tale.txt.xz"])
def test_a_file_whose_bytes_are_not_text_is_refused(gristmill, tokenizer_path, tmp_path, name):
    (tmp_path / name).write_bytes(b"PAR1")
    code, out, err = gristmill("tokenize", "-t", tokenizer_path, "--file", tmp_path / name)
    assert (code, out) == (1, "")
    assert name in err and ("is not plain text" in err or "is a table, not one text" in err)


@pytest.mark.parametrize("limit", [1, 65_536, 65_537, len(TEXT) - 1, len(TEXT), len(TEXT) + 1])
def test_the_first_bytes_of_a_file_and_whether_there_are_more(tmp_path, gzipped, limit):
    (tmp_path / "tale.txt").write_text(TEXT, encoding="utf-8", newline="")
    expected = TEXT.encode()[:limit], limit < len(TEXT)
    assert first_bytes(tmp_path / "tale.txt", limit) == expected
    assert first_bytes(gzipped, limit) == expected


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_pipe_is_read_as_it_is_whatever_its_name_ends_in(tmp_path):
    path = tmp_path / "pipe.gz"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=(b"plain",), daemon=True)
    writer.start()
    assert b"".join(file_chunks(path)) == b"plain"
    writer.join(timeout=60)
