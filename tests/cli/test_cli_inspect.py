"""gristmill inspect."""

import itertools
import json

import pytest

import gristmill as package
from gristmill.cli.table import show_token
from gristmill.tokenizer.formats.byte_alphabet import CHARACTER_OF


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
    assert out.splitlines()[3].replace("][", "").strip() == "[the␣␣end\\n]"


def test_the_ids_of_a_string_come_first(gristmill, tokenizer_path):
    _, out, _ = gristmill("inspect", tokenizer_path, "--string", "the end")
    ids = package.Tokenizer.load(tokenizer_path).encode("the end")
    assert out.splitlines()[:2] == ["Ids", "  " + " ".join(map(str, ids))]


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
    assert err == "gristmill: error: --text and --string exclude each other. Pass one of them.\n"


def test_a_file_that_is_no_tokenizer_is_one_line(gristmill, stories_path):
    code, out, err = gristmill("inspect", stories_path)
    assert (code, out) == (1, "")
    assert err.startswith("gristmill: error: ")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("format", "name", "options"),
    [
        ("huggingface", "tokenizer.json", []),
        ("gpt2", "folder", []),
        ("minbpe", "tok.model", []),
        ("tiktoken", "tok.tiktoken", ["--pattern", "gpt2", "--special-tokens", "<|endoftext|>=999"]),
    ],
)
def test_every_format_that_can_be_read_is_shown_the_same(gristmill, tokenizer_path, tmp_path, format, name, options):
    assert gristmill("export", tokenizer_path, "-f", format, "-o", tmp_path / name)[0] == 0
    _, expected, _ = gristmill("inspect", tokenizer_path)
    code, out, err = gristmill("inspect", tmp_path / name, *options)
    assert (code, err) == (0, "")
    assert out.split("\n\n")[1:] == expected.split("\n\n")[1:]


def test_a_vocabulary_from_elsewhere_is_shown_with_its_own_ids(gristmill, tmp_path):
    vocab = {character: 300 - byte for byte, character in enumerate(CHARACTER_OF)} | {"ab": 500, "xyz": 501}
    (tmp_path / "vocab.json").write_text(json.dumps(vocab), encoding="utf-8")
    (tmp_path / "merges.txt").write_text("#version: 0.2\na b\n")
    code, out, err = gristmill("inspect", tmp_path, "--string", "abc")
    assert (code, err) == (0, "")
    assert "502  (258 tokens: some ids are unused)" in out
    assert "500  a + b" in out
    assert "501     3 bytes  xyz" in out


def test_hundreds_of_specials_are_not_all_shown(gristmill, tmp_path):
    package.Tokenizer([], special_tokens=[f"<|{i}|>" for i in range(300)]).save(tmp_path / "many.json")
    _, out, _ = gristmill("inspect", tmp_path / "many.json")
    assert "<|19|> = 275, … 300 in all" in out
    assert "<|20|>" not in out


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


def test_counted_words_are_shown_as_such(gristmill, stories_path, tmp_path):
    gm_words = tmp_path / "w.gmw"
    assert gristmill("count-words", stories_path, "-o", gm_words, "--progress", "none")[0] == 0
    code, out, err = gristmill("inspect", gm_words)
    assert (code, err) == (0, "")
    words = package.Words.load(gm_words)
    assert out.startswith(f"word counts  {gm_words}")
    assert f"{len(words):,}  ({words.num_pieces:,} pieces)" in out
    assert f"{words.most_common(1)[0][1]:,}" in out
    code, _, err = gristmill("inspect", gm_words, "--string", "a")
    assert (code, err) == (
        2,
        f"gristmill: error: --string applies to a tokenizer, but {gm_words} holds word counts. Omit --string.\n",
    )
