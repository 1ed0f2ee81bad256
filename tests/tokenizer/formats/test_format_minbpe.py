"""minbpe's .model and .vocab."""

from __future__ import annotations

import dataclasses
import itertools
import warnings

import pytest
import regex
from format_cases import TEXTS, renumbered, same_ids, trained, whole_pieces, with_gaps

import gristmill as gm
from gristmill.errors import FormatWarning
from gristmill.pretokenize.patterns import NATIVE_PATTERNS, WHOLE_TEXT
from gristmill.tokenizer.formats import read_tokenizer, write_tokenizer


def load_as_minbpe_does(path):
    """Pattern, specials and merges, read as minbpe's loader does."""
    with path.open(encoding="utf-8") as file:
        assert file.readline().strip() == "minbpe v1"
        pattern = file.readline().strip()
        specials = {}
        for _ in range(int(file.readline().strip())):
            special, id = file.readline().strip().split()
            specials[special] = int(id)
        merges = {}
        for id, line in enumerate(file, 256):
            merges[tuple(map(int, line.split()))] = id
    return pattern, specials, merges


def encode_as_minbpe_does(text, pattern, merges):
    """Return the ids of a text without specials: in each piece, merge the pair that was learned first, and repeat."""
    ids = []
    for piece in regex.findall(pattern, text) if pattern else [text]:
        parts = list(piece.encode())
        while len(parts) > 1:
            pair = min(itertools.pairwise(parts), key=lambda pair: merges.get(pair, float("inf")))
            if pair not in merges:
                break
            merged, i = [], 0
            while i < len(parts):
                found = tuple(parts[i : i + 2]) == pair
                merged.append(merges[pair] if found else parts[i])
                i += 2 if found else 1
            parts = merged
        ids += parts
    return ids


@pytest.mark.parametrize("pattern", NATIVE_PATTERNS)
def test_write_read_write_gives_the_same_bytes_and_the_same_tokenizer(pattern, tmp_path):
    tok = trained(pattern)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        written = tok.export(tmp_path / "a", format="minbpe")
        again = read_tokenizer(tmp_path / "a.model")
        write_tokenizer(again, tmp_path / "b.model", format="minbpe")
    assert [path.name for path in written] == ["a.model", "a.vocab"]
    assert same_ids(tok.parts, again)
    for suffix in ("model", "vocab"):
        assert (tmp_path / f"a.{suffix}").read_bytes() == (tmp_path / f"b.{suffix}").read_bytes()


@pytest.mark.parametrize("pattern", NATIVE_PATTERNS)
def test_minbpe_gives_the_same_ids(pattern, tmp_path):
    tok = trained(pattern)
    tok.export(tmp_path / "a.model", format="minbpe")
    read_pattern, specials, merges = load_as_minbpe_does(tmp_path / "a.model")
    assert specials == tok.special_tokens
    for text in [text[:300] for text in TEXTS]:
        assert tok.encode(text) == encode_as_minbpe_does(text, read_pattern, merges)


def test_the_file_is_the_documented_text(tmp_path):
    tok = gm.Tokenizer([(b"h", b"e"), (b"t", b"he")], special_tokens=["<é>"])
    tok.export(tmp_path / "a.model", format="minbpe")
    regex_of_gpt2 = NATIVE_PATTERNS["gpt2"]
    assert (tmp_path / "a.model").read_bytes() == (
        f"minbpe v1\n{regex_of_gpt2}\n1\n<é> 258\n104 101\n116 256\n".encode()
    )
    vocab = (tmp_path / "a.vocab").read_text(encoding="utf-8")
    assert vocab.endswith("[h][e] -> [he] 256\n[t][he] -> [the] 257\n[<é>] 258\n")
    assert "[\\u000a] 10\n" in vocab


def test_no_pattern_is_an_empty_line_as_for_its_basic_tokenizer(tmp_path):
    tok = gm.Tokenizer([(b"a", b" "), (b"a ", b"b")], pattern=WHOLE_TEXT)
    tok.export(tmp_path / "a.model", format="minbpe")
    assert (tmp_path / "a.model").read_text() == "minbpe v1\n\n0\n97 32\n256 98\n"
    assert gm.Tokenizer.load(tmp_path / "a.model").encode("a b") == [257]


def test_specials_keep_their_ids(tmp_path):
    parts = trained("cl100k").parts
    vocabulary = dataclasses.replace(parts.vocabulary, special_tokens={"<|endoftext|>": 100257})
    parts = dataclasses.replace(parts, vocabulary=vocabulary)
    write_tokenizer(parts, tmp_path / "a.model", format="minbpe")
    assert read_tokenizer(tmp_path / "a.model").vocabulary.special_tokens == {"<|endoftext|>": 100257}


def test_its_gpt4_pattern_has_a_native_matcher(tmp_path):
    pattern = (
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
    )
    (tmp_path / "a.model").write_text(f"minbpe v1\n{pattern}\n0\n97 98\n", encoding="utf-8")
    assert gm.Tokenizer.load(tmp_path / "a.model").pattern == "llama3"


@pytest.mark.parametrize("layout", [renumbered, whole_pieces], ids=["renumbered", "whole_pieces"])
def test_a_layout_that_its_ids_cannot_follow_is_refused(layout, tmp_path):
    with pytest.raises(gm.TokenizerFormatError, match="has other ids"):
        write_tokenizer(layout(), tmp_path / "a.model", format="minbpe")
    assert not list(tmp_path.iterdir())


def test_gaps_before_the_specials_are_held(tmp_path):
    write_tokenizer(with_gaps(), tmp_path / "a.model", format="minbpe")
    assert same_ids(read_tokenizer(tmp_path / "a.model"), with_gaps())


def test_what_does_not_fit_on_a_line_is_refused(tmp_path):
    with pytest.raises(gm.TokenizerFormatError, match="contains white space"):
        gm.Tokenizer([], special_tokens=["end of text"]).export(tmp_path / "a.model", format="minbpe")
    with pytest.raises(gm.TokenizerFormatError, match="line breaks"):
        gm.Tokenizer([], pattern="a|\n|b").export(tmp_path / "a.model", format="minbpe")


def test_a_pattern_that_may_not_match_everything_is_a_warning(tmp_path):
    with pytest.warns(FormatWarning, match="minbpe drops text"):
        gm.Tokenizer([], pattern=r" \w+").export(tmp_path / "a.model", format="minbpe")
    assert gm.Tokenizer.load(tmp_path / "a.model").pattern == r"(?: \w+)"
