"""Gristmill's own file: any vocabulary, and identical files for equal tokenizers."""

from __future__ import annotations

import base64
import json

import pytest
from format_cases import LAYOUTS, published_path, same_ids, trained, whole_pieces, with_gaps

import gristmill as gm
from gristmill.pretokenize.patterns import NATIVE_PATTERNS, resolve_pattern
from gristmill.tokenizer.formats import gristmill_json, read_tokenizer, write_tokenizer
from gristmill.tokenizer.parts import TokenizerParts
from gristmill.tokenizer.vocabulary import Vocabulary

on_every_layout = pytest.mark.parametrize("layout", LAYOUTS)


@on_every_layout
def test_write_read_write_gives_the_same_bytes_and_the_same_tokenizer(layout, tmp_path):
    parts = LAYOUTS[layout]()
    assert write_tokenizer(parts, tmp_path / "a.json") == [tmp_path / "a.json"]
    again = read_tokenizer(tmp_path / "a.json")
    write_tokenizer(again, tmp_path / "b.json")
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()
    assert same_ids(parts, again)
    assert again.vocabulary.whole_pieces == parts.vocabulary.whole_pieces


def test_gristmills_own_layout_is_version_1_which_earlier_versions_read():
    content = json.loads(gristmill_json.dump(trained().parts))
    assert content["version"] == 1
    assert sorted(content) == sorted([*gristmill_json.KEYS[1], "sha256"])


def test_the_file_of_another_layout_is_the_documented_json():
    parts = whole_pieces()
    text = gristmill_json.dump(parts).decode()
    content = json.loads(text)
    assert len(content.pop("sha256")) == 64
    assert content == {
        "format": "gristmill-tokenizer",
        "version": 2,
        "pattern": {"name": "llama3", "regex": NATIVE_PATTERNS["llama3"]},
        "tie_break": "greatest-bytes",
        "special_tokens": [["<|begin_of_text|>", 300]],
        "whole_pieces": True,
        "byte_ids": list(range(256)),
        "other_tokens": [[260, base64.b64encode(b"xyz").decode()], [261, base64.b64encode(b" the").decode()]],
        "merges": [[97, 98, 256], [98, 99, 257], [256, 99, 258], [97, 257, 258], [99, 256, 259]],
    }
    assert "\n[97, 98, 256],\n[98, 99, 257],\n" in text


def test_the_order_in_which_specials_and_others_were_given_does_not_show():
    parts = with_gaps()
    turned = Vocabulary(
        merges=parts.vocabulary.merges,
        byte_ids=parts.vocabulary.byte_ids,
        special_tokens=dict(reversed(parts.vocabulary.special_tokens.items())),
        other_tokens={},
        whole_pieces=False,
    )
    same = TokenizerParts(turned, parts.pattern, parts.tie_break)
    assert gristmill_json.dump(parts) == gristmill_json.dump(same)


def test_merges_may_come_before_the_ones_that_create_their_parts():
    id_of = {bytes([byte]): byte for byte in range(256)} | {b"a" * n: 254 + n for n in range(2, 2000)}
    pairs = [(b"a" * (n - 1), b"a") for n in range(1999, 1, -1)]
    parts = TokenizerParts(Vocabulary.from_pairs(id_of, pairs, {}), resolve_pattern("gpt2"), "greatest-bytes")
    data = gristmill_json.dump(parts)
    assert gristmill_json.dump(gristmill_json.parse(data)) == data


def test_no_flipped_bit_of_a_file_of_version_2_goes_unnoticed():
    data = gristmill_json.dump(whole_pieces())
    for position in range(0, len(data), 3):
        damaged = data[:position] + bytes([data[position] ^ 1 << position % 8]) + data[position + 1 :]
        with pytest.raises(ValueError):
            gristmill_json.parse(damaged)


def test_what_is_given_must_be_what_the_file_says(tmp_path):
    trained().save(tmp_path / "t.json")
    specials = trained().special_tokens
    for given in ({"pattern": "gpt2"}, {"special_tokens": specials}, {"special_tokens": list(specials)}):
        assert same_ids(read_tokenizer(tmp_path / "t.json", **given), trained().parts)
    with pytest.raises(
        gm.TokenizerFormatError, match=r"t\.json: the file stores pattern 'gpt2', which differs from pattern='cl100k'"
    ):
        read_tokenizer(tmp_path / "t.json", pattern="cl100k")
    for special_tokens in ([], ["<|end|>"], {**specials, "<|end|>": 7}):
        with pytest.raises(gm.TokenizerFormatError, match="the file stores special tokens"):
            read_tokenizer(tmp_path / "t.json", special_tokens=special_tokens)


def test_a_published_vocabulary_is_held(tmp_path):
    parts = read_tokenizer(published_path("cl100k_base"))
    write_tokenizer(parts, tmp_path / "t.json")
    again = read_tokenizer(tmp_path / "t.json")
    assert again.vocabulary.tokens == parts.vocabulary.tokens
    assert gristmill_json.dump(again) == (tmp_path / "t.json").read_bytes()
