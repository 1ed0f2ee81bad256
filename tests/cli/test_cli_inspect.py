"""gristmill inspect."""

import itertools

import pytest

import gristmill as package
from gristmill.cli.table import show_token


def test_sizes_pattern_specials_lengths_and_merges_are_shown(gristmill, tokenizer_path, monkeypatch):
    monkeypatch.chdir(tokenizer_path.parent)
    code, out, err = gristmill("inspect", tokenizer_path.name)
    assert (code, err) == (0, "")
    for part in ("1,000", "743", "<|endoftext|> = 999", "gpt2", "greatest-bytes", "First merges", "Last merges"):
        assert part in out, part
    assert "256  h + e" in out
    assert max(map(len, out.splitlines())) <= 80


def test_lengths_add_up_to_the_vocabulary_without_the_specials(gristmill, tokenizer_path):
    _, out, _ = gristmill("inspect", tokenizer_path)
    lines = out.split("Tokens by length in bytes\n")[1].split("\n\n")[0].splitlines()
    assert sum(int(line.split()[1].replace(",", "")) for line in lines) == 999


def test_bytes_per_token_is_that_of_the_text_given(gristmill, tokenizer_path, stories_path):
    data = stories_path.read_bytes()
    num_tokens = len(package.Tokenizer.load(tokenizer_path).encode(data, allowed_special="all"))
    _, out, _ = gristmill("inspect", tokenizer_path, "--text", stories_path)
    assert f"{len(data):,}" in out
    assert f"{num_tokens:,}" in out
    assert f"{len(data) / num_tokens:.3f}" in out


def test_a_string_is_shown_cut_into_its_tokens(gristmill, tokenizer_path):
    _, out, _ = gristmill("inspect", tokenizer_path, "--string", "the  end\n")
    assert out.splitlines()[-1].replace("][", "").strip() == "[the␣␣end\\n]"


def test_an_empty_string_is_no_division_by_zero(gristmill, tokenizer_path):
    code, out, err = gristmill("inspect", tokenizer_path, "--string", "")
    assert (code, err) == (0, "")
    assert "0.000" in out


def test_a_special_spelled_out_in_the_text_counts_as_one_token(gristmill, tokenizer_path):
    code, out, _ = gristmill("inspect", tokenizer_path, "--string", "<|endoftext|>")
    assert code == 0
    assert "[<|endoftext|>]" in out


def test_a_tokenizer_without_merges_has_something_to_show(gristmill, tmp_path):
    package.Tokenizer([]).save(tmp_path / "bytes.json")
    code, out, err = gristmill("inspect", tmp_path / "bytes.json")
    assert (code, err) == (0, "")
    assert "none" in out


def test_text_and_string_together_are_a_usage_error(gristmill, tokenizer_path):
    code, _, err = gristmill("inspect", tokenizer_path, "--text", tokenizer_path, "--string", "x")
    assert code == 2
    assert err == "gristmill: error: --text and --string cannot both be given. Pass one of them.\n"


def test_a_file_that_is_no_tokenizer_is_one_line(gristmill, stories_path):
    code, out, err = gristmill("inspect", stories_path)
    assert (code, out) == (1, "")
    assert err.startswith("gristmill: error: ")
    assert err.count("\n") == 1


def test_no_two_tokens_look_the_same():
    alphabet = [b"\\", b"n", b"x", b"0", b"a", b" ", b"\n", b"\xc3", b"\xa9", b"\x00", "␣".encode(), b"\xcc\x81"]
    tokens = [b"".join(parts) for length in (1, 2, 3) for parts in itertools.product(alphabet, repeat=length)]
    tokens = list(dict.fromkeys(tokens))
    assert len({show_token(token) for token in tokens}) == len(tokens)


@pytest.mark.parametrize("byte", range(256))
def test_every_byte_can_be_shown_on_one_line(byte):
    shown = show_token(bytes([byte]))
    assert shown
    assert shown.isprintable()
