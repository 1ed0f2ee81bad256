"""GGUF: the keys of a tokenizer, read back with the gguf package."""

from __future__ import annotations

import dataclasses
import warnings

import pytest
from format_cases import TEXTS, renumbered, trained, whole_pieces, with_gaps

import gristmill as gm
from gristmill.errors import FormatWarning
from gristmill.tokenizer.formats import gguf as format_module
from gristmill.tokenizer.formats import read_tokenizer, write_tokenizer
from gristmill.tokenizer.formats.byte_alphabet import unspell
from gristmill.tokenizer.vocabulary import Vocabulary

gguf = pytest.importorskip("gguf")


def keys_of(path):
    reader = gguf.GGUFReader(path)
    assert not reader.tensors
    return {name: field.contents() for name, field in reader.fields.items() if name.startswith("tokenizer.")}


@pytest.mark.parametrize("layout", [trained().parts, renumbered()], ids=["plain", "renumbered"])
def test_the_gguf_package_reads_tokens_kinds_and_merges(layout, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert write_tokenizer(layout, tmp_path / "t.gguf", format="gguf") == [tmp_path / "t.gguf"]
    keys = keys_of(tmp_path / "t.gguf")
    tok = gm.Tokenizer.from_parts(layout)
    special_ids = set(tok.special_tokens.values())
    assert keys["tokenizer.ggml.model"] == "gpt2"
    assert keys["tokenizer.ggml.pre"] == "gpt-2"
    assert len(keys["tokenizer.ggml.tokens"]) == tok.vocab_size
    for id, token in tok.vocab.items():
        text = keys["tokenizer.ggml.tokens"][id]
        assert token == (text.encode() if id in special_ids else unspell(text))
    assert keys["tokenizer.ggml.token_type"] == [3 if id in special_ids else 1 for id in range(tok.vocab_size)]
    pairs = [tuple(unspell(part) for part in merge.split(" ")) for merge in keys["tokenizer.ggml.merges"]]
    assert pairs == tok.merges
    end = tok.special_tokens["<|endoftext|>"]
    assert (keys["tokenizer.ggml.bos_token_id"], keys["tokenizer.ggml.eos_token_id"]) == (end, end)
    assert keys["tokenizer.ggml.add_bos_token"] is False


def test_the_keys_give_the_same_ids_in_tokenizers(tmp_path):
    tokenizers = pytest.importorskip("tokenizers")
    tok = trained("qwen2")
    tok.export(tmp_path / "t.gguf", format="gguf")
    keys = keys_of(tmp_path / "t.gguf")
    merges = [tuple(merge.split(" ")) for merge in keys["tokenizer.ggml.merges"]]
    vocab = {text: id for id, text in enumerate(keys["tokenizer.ggml.tokens"])}
    theirs = tokenizers.Tokenizer(tokenizers.models.BPE(vocab, merges))
    theirs.pre_tokenizer = tok.to_huggingface().pre_tokenizer
    for text in TEXTS:
        assert tok.encode(text) == theirs.encode(text).ids


def test_ids_that_no_token_has_are_filled_up(tmp_path):
    with pytest.warns(FormatWarning, match="combining marks"):
        write_tokenizer(with_gaps(), tmp_path / "t.gguf", format="gguf", pre="gpt-4o")
    keys = keys_of(tmp_path / "t.gguf")
    assert keys["tokenizer.ggml.tokens"][1000] == "[PAD1000]"
    assert keys["tokenizer.ggml.token_type"][998:1001] == [5, 3, 5]
    assert keys["tokenizer.ggml.pre"] == "gpt-4o"
    assert keys["tokenizer.ggml.eos_token_id"] == 999


@pytest.mark.parametrize("pattern", ["whitespace", r"\w+|\W"])
def test_a_pattern_that_llama_cpp_has_no_name_for_is_a_warning(pattern, tmp_path):
    tok = gm.Tokenizer([(b"a", b"b")], pattern=pattern)
    with pytest.warns(FormatWarning, match="llama.cpp has no name for the pattern.*Pass pre="):
        tok.export(tmp_path / "t.gguf", format="gguf")
    assert "tokenizer.ggml.pre" not in keys_of(tmp_path / "t.gguf")
    with pytest.warns(FormatWarning, match="^pre='mill' is not known to cut text.*: ids may differ.* Compare some ids"):
        tok.export(tmp_path / "t.gguf", format="gguf", pre="mill")
    assert keys_of(tmp_path / "t.gguf")["tokenizer.ggml.pre"] == "mill"


def test_whole_pieces_go_by_the_one_name_that_means_them(tmp_path):
    write_tokenizer(whole_pieces(), tmp_path / "t.gguf", format="gguf")
    assert keys_of(tmp_path / "t.gguf")["tokenizer.ggml.pre"] == "llama-bpe"
    trained("llama3").export(tmp_path / "t.gguf", format="gguf")
    assert keys_of(tmp_path / "t.gguf")["tokenizer.ggml.pre"] == "dbrx"
    parts = dataclasses.replace(whole_pieces(), pattern=trained("qwen2").parts.pattern)
    with pytest.raises(gm.TokenizerFormatError, match="ids would differ"):
        write_tokenizer(parts, tmp_path / "u.gguf", format="gguf")
    assert not (tmp_path / "u.gguf").exists()


def test_the_tokens_that_begin_and_end_a_text_can_be_named(tmp_path):
    trained().export(tmp_path / "t.gguf", format="gguf", bos_token="<|end|>")
    keys = keys_of(tmp_path / "t.gguf")
    assert keys["tokenizer.ggml.bos_token_id"] == trained().special_tokens["<|end|>"]
    assert keys["tokenizer.ggml.eos_token_id"] == trained().special_tokens["<|endoftext|>"]
    with pytest.raises(gm.OptionError, match="eos_token='</s>' is not a special token"):
        trained().export(tmp_path / "t.gguf", format="gguf", eos_token="</s>")
    gm.Tokenizer([], special_tokens=["<s>"]).export(tmp_path / "t.gguf", format="gguf")
    assert "tokenizer.ggml.eos_token_id" not in keys_of(tmp_path / "t.gguf")


@pytest.mark.parametrize("specials", [{"é": 300}, {"[PAD300]": 301}])
def test_two_ids_with_one_spelling_are_refused(specials, tmp_path):
    vocabulary = Vocabulary.from_ranks({bytes([byte]): byte for byte in range(256)}, specials)
    with pytest.raises(gm.TokenizerFormatError, match="both spelled"):
        write_tokenizer(dataclasses.replace(trained().parts, vocabulary=vocabulary), tmp_path / "t.gguf", format="gguf")


def test_the_same_tokenizer_gives_the_same_bytes():
    first, second = (format_module.dump(trained().parts) for _ in range(2))
    assert first == second
    assert first[:24] == b"GGUF\x03\0\0\0" + bytes(8) + b"\x09" + bytes(7)


def test_it_is_written_but_not_read(tmp_path):
    trained().export(tmp_path / "t.gguf", format="gguf")
    with pytest.raises(gm.TokenizerFormatError, match=r"t\.gguf: GGUF is only written, not read"):
        read_tokenizer(tmp_path / "t.gguf")


def test_the_format_is_not_offered_for_reading(tmp_path):
    trained().save(tmp_path / "t.json")
    for path in (tmp_path, tmp_path / "t.json"):
        with pytest.raises(gm.TokenizerFormatError, match="GGUF is only written, not read"):
            gm.Tokenizer.load(path, format="gguf")
    with pytest.raises(gm.OptionError, match=r"Pass one of 'auto', (?!.*gguf)"):
        gm.Tokenizer.load(tmp_path / "t.json", format="no such")
    with pytest.raises(gm.OptionError, match=r"Pass one of 'gristmill', .*'gguf'"):
        trained().export(tmp_path / "t.json", format="auto")


def test_the_name_of_the_pattern_is_a_str(tmp_path):
    with pytest.raises(gm.OptionError, match=r"pre=3 is a int\. Pass the name of a pattern"):
        trained().export(tmp_path / "t.gguf", format="gguf", pre=3)
    with pytest.raises(gm.OptionError, match=r"pre='' is empty\. Pass the name of a pattern in llama\.cpp"):
        trained().export(tmp_path / "t.gguf", format="gguf", pre="")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("pattern", "pre"), [("gpt2", "llama-bpe"), ("gpt2", "nope"), ("qwen2", "gpt-2"), ("o200k", "nope")]
)
def test_a_given_name_of_another_pattern_warns(pattern, pre, tmp_path):
    with pytest.warns(FormatWarning, match=f"^pre='{pre}' is not known to cut text.*ids may differ.*Leave pre= out"):
        trained(pattern).export(tmp_path / "t.gguf", format="gguf", pre=pre)
    assert keys_of(tmp_path / "t.gguf")["tokenizer.ggml.pre"] == pre


@pytest.mark.parametrize(
    ("pattern", "pre"), [("gpt2", "gpt-2"), ("qwen2", "qwen2"), ("llama3", "dbrx"), ("llama3", "llama-bpe")]
)
def test_the_right_name_is_taken_without_a_word(pattern, pre, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trained(pattern).export(tmp_path / "t.gguf", format="gguf", pre=pre)
    assert keys_of(tmp_path / "t.gguf")["tokenizer.ggml.pre"] == pre


def test_a_name_that_ignores_merges_warns_where_they_matter_and_the_reverse(tmp_path):
    tok = gm.Tokenizer([(b"a", b"b"), (b"b", b"c"), (b"a", b"bc")], pattern="llama3")
    with pytest.warns(FormatWarning, match="pre='llama-bpe' is not known"):
        tok.export(tmp_path / "t.gguf", format="gguf", pre="llama-bpe")
    with pytest.warns(FormatWarning, match="pre='dbrx' is not known"):
        write_tokenizer(whole_pieces(), tmp_path / "t.gguf", format="gguf", pre="dbrx")


@pytest.mark.parametrize(("pre", "where"), [("gpt-4o", "combining marks"), ("granite-embed-multi-97m", "ÉCOLE")])
def test_a_given_name_for_o200k_warns_as_the_chosen_one_does(pre, where, tmp_path):
    with pytest.warns(FormatWarning, match=f"{pre}.*{where}"):
        trained("o200k").export(tmp_path / "t.gguf", format="gguf", pre=pre)
