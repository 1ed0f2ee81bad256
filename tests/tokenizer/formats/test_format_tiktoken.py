"""`.tiktoken` files and tiktoken's Encoding."""

from __future__ import annotations

import base64
import gzip
import sys
import warnings

import pytest
from format_cases import TEXTS, published_path, renumbered, same_ids, trained, with_gaps

import gristmill as gm
from gristmill.errors import FormatWarning
from gristmill.pretokenize.patterns import NATIVE_PATTERNS, resolve_pattern
from gristmill.tokenizer.formats import read_tokenizer, write_tokenizer
from gristmill.tokenizer.formats import tiktoken as format_module
from gristmill.tokenizer.parts import TokenizerParts
from gristmill.tokenizer.vocabulary import Vocabulary

tiktoken = pytest.importorskip("tiktoken")


@pytest.mark.parametrize("pattern", NATIVE_PATTERNS)
def test_write_read_write_gives_the_same_bytes_and_the_same_tokenizer(pattern, tmp_path):
    tok = trained(pattern)
    with pytest.warns(FormatWarning, match="neither the pattern nor special tokens. Load it with pattern="):
        tok.export(tmp_path / "a.tiktoken", format="tiktoken")
    again = read_tokenizer(tmp_path / "a.tiktoken", pattern=pattern, special_tokens=tok.special_tokens)
    assert same_ids(tok.parts, again)
    with pytest.warns(FormatWarning):
        write_tokenizer(again, tmp_path / "b.tiktoken", format="tiktoken")
    assert (tmp_path / "a.tiktoken").read_bytes() == (tmp_path / "b.tiktoken").read_bytes()


def test_tiktoken_reads_the_file_and_gives_the_same_ids(tmp_path):
    from tiktoken.load import load_tiktoken_bpe

    parts = with_gaps()
    with pytest.warns(FormatWarning):
        write_tokenizer(parts, tmp_path / "a.tiktoken", format="tiktoken")
    theirs = tiktoken.Encoding(
        "a",
        pat_str=parts.pattern.regex,
        mergeable_ranks=load_tiktoken_bpe(str(tmp_path / "a.tiktoken")),
        special_tokens=parts.vocabulary.special_tokens,
    )
    tok = gm.Tokenizer.from_parts(parts)
    for text in [*TEXTS, "a<|endoftext|>b<|endofprompt|>"]:
        assert tok.encode(text, allowed_special="all") == theirs.encode(text, allowed_special="all")


def test_a_file_without_a_known_name_needs_a_pattern(tmp_path):
    with pytest.warns(FormatWarning):
        trained().export(tmp_path / "a.tiktoken", format="tiktoken")
    with pytest.raises(
        gm.TokenizerFormatError, match=r"a\.tiktoken: a \.tiktoken file does not store the pattern.*Pass pattern="
    ):
        gm.Tokenizer.load(tmp_path / "a.tiktoken")
    tok = gm.Tokenizer.load(tmp_path / "a.tiktoken", pattern="gpt2")
    assert tok.special_tokens == {}
    tok = gm.Tokenizer.load(tmp_path / "a.tiktoken", pattern="gpt2", special_tokens=["<s>", "<t>"])
    assert tok.special_tokens == {"<s>": 448, "<t>": 449}


BYTES = {bytes([byte]): byte for byte in range(256)}
PAIRS = [(b"a", b"b"), (b"c", b"d"), (b"ab", b"cd")]
TOKENS = BYTES | {b"ab": 256, b"cd": 257, b"abcd": 258}


@pytest.mark.parametrize(
    ("tokens", "pairs"),
    [
        (TOKENS | {b"ab": 257, b"cd": 256}, PAIRS),  # merges that are not in order of id
        (TOKENS, [*PAIRS, (b"b", b"c")][::-1]),
        (TOKENS | {b"bcd": 259}, [*PAIRS, (b"b", b"cd"), (b"a", b"bcd")]),  # two merges create one token
        (TOKENS | {b"xyz": 259}, PAIRS),  # never used, but tiktoken would use it
    ],
    ids=["order", "backwards", "two_merges", "unused"],
)
def test_what_tiktoken_would_merge_in_another_way_is_refused(tokens, pairs, tmp_path):
    tokens = tokens | {left + right: 300 for left, right in pairs if left + right not in tokens}
    parts = TokenizerParts(Vocabulary.from_pairs(tokens, pairs, {}), resolve_pattern("gpt2"), "greatest-bytes")
    with pytest.raises(gm.TokenizerFormatError, match="ids would differ"):
        write_tokenizer(parts, tmp_path / "a.tiktoken", format="tiktoken")
    assert not list(tmp_path.iterdir())


def test_bytes_in_any_order_can_be_held(tmp_path):
    with pytest.warns(FormatWarning):
        write_tokenizer(renumbered(), tmp_path / "a.tiktoken", format="tiktoken")
    specials = renumbered().vocabulary.special_tokens
    again = read_tokenizer(tmp_path / "a.tiktoken", pattern="gpt2", special_tokens=specials)
    assert same_ids(again, renumbered())


def test_tokens_that_only_whole_pieces_are_can_be_held(tmp_path):
    ranks = BYTES | {b"xyz": 256, b"ab": 257}
    tok = gm.Tokenizer.from_tiktoken(
        tiktoken.Encoding("a", pat_str=NATIVE_PATTERNS["gpt2"], mergeable_ranks=ranks, special_tokens={})
    )
    assert tok.encode("xyz wxyz ab") == tok.to_tiktoken().encode("xyz wxyz ab")
    with pytest.warns(FormatWarning):
        tok.export(tmp_path / "a.tiktoken", format="tiktoken")
    assert gm.Tokenizer.load(tmp_path / "a.tiktoken", pattern="gpt2").encode("xyz wxyz ab") == tok.encode("xyz wxyz ab")


@pytest.mark.parametrize("pattern", NATIVE_PATTERNS)
def test_objects_go_both_ways(pattern):
    tok = trained(pattern)
    theirs = tok.to_tiktoken("mill")
    assert theirs.name == "mill"
    for text in [*TEXTS, "a<|end|>"]:
        assert tok.encode(text, allowed_special="all") == theirs.encode(text, allowed_special="all")
    assert same_ids(gm.Tokenizer.from_tiktoken(theirs).parts, tok.parts)


def test_an_object_that_is_not_an_encoding_is_a_type_error():
    with pytest.raises(TypeError, match=r"int is not a tiktoken\.Encoding"):
        gm.Tokenizer.from_tiktoken(7)


def test_a_name_is_looked_up_by_tiktoken(monkeypatch):
    monkeypatch.setattr(tiktoken, "get_encoding", {"mill": trained().to_tiktoken()}.__getitem__)
    assert same_ids(format_module.from_encoding("mill"), trained().parts)


def test_without_tiktoken_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "tiktoken", None)
    with pytest.raises(gm.MissingPackageError, match=r"^to_tiktoken\(\) needs tiktoken, .*: pip install tiktoken$"):
        trained().to_tiktoken()
    with pytest.raises(gm.MissingPackageError, match=r"^from_tiktoken\(\) needs tiktoken, .*: pip install tiktoken$"):
        gm.Tokenizer.from_tiktoken("mill")


def test_a_pattern_of_the_user_is_passed_on_with_a_warning():
    with pytest.warns(FormatWarning, match="another regex engine"):
        gm.Tokenizer([], pattern=r"\w|\W").to_tiktoken()


@pytest.mark.parametrize("name", ["cl100k_base", "o200k_base"])
def test_a_published_vocabulary_loads_by_its_name_and_gives_the_ids_of_tiktoken(name, tmp_path, monkeypatch):
    openai_public = pytest.importorskip("tiktoken_ext.openai_public")
    data = gzip.decompress(published_path(name).read_bytes())
    tok = gm.Tokenizer.load(published_path(name))
    ranks = {
        base64.b64decode(token): int(rank) for token, _, rank in (line.partition(b" ") for line in data.splitlines())
    }
    monkeypatch.setattr(openai_public, "load_tiktoken_bpe", lambda *_, **__: ranks)  # the real one downloads them
    theirs = tiktoken.Encoding(**getattr(openai_public, name)())
    assert tok.special_tokens == theirs._special_tokens
    assert tok.vocab_size == theirs.n_vocab
    for text in [*TEXTS, "a<|endoftext|>b<|endofprompt|>"]:
        assert tok.encode(text, allowed_special="all") == theirs.encode(text, allowed_special="all")
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # the name gives the pattern and the special tokens
        tok.export(tmp_path / f"{name}.tiktoken", format="tiktoken")
    assert (tmp_path / f"{name}.tiktoken").read_bytes().split() == data.split()


def test_the_published_names_are_those_of_tiktoken(monkeypatch):
    openai_public = pytest.importorskip("tiktoken_ext.openai_public")
    monkeypatch.setattr(openai_public, "load_tiktoken_bpe", lambda *_, **__: {})
    for name, (pattern, specials) in format_module.PUBLISHED.items():
        encoding = getattr(openai_public, name)()
        assert encoding["pat_str"] == NATIVE_PATTERNS[pattern]
        assert encoding["special_tokens"] == specials


def test_a_gzipped_file_is_unpacked_within_bounds(tmp_path, monkeypatch):
    monkeypatch.setattr(format_module, "MAX_FILE_BYTES", 1 << 20)
    (tmp_path / "bomb.tiktoken.gz").write_bytes(gzip.compress(bytes(8 << 20)))
    with pytest.raises(gm.TokenizerFormatError, match="decompresses to more than 1,048,576 bytes"):
        read_tokenizer(tmp_path / "bomb.tiktoken.gz", pattern="gpt2")


def test_a_special_that_is_a_prefix_of_another_is_a_warning(tmp_path):
    tok = gm.Tokenizer([(b"a", b"b")], special_tokens=["<s>>", "<t>", "<s>"])
    with pytest.warns(FormatWarning, match=r"'<s>' is a prefix of '<s>>'.* ids may differ"):
        tok.to_tiktoken()
    with pytest.warns(FormatWarning, match="neither"), pytest.warns(FormatWarning, match="'<s>' is a prefix of"):
        tok.export(tmp_path / "a.tiktoken", format="tiktoken")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gm.Tokenizer([(b"a", b"b")], special_tokens=["<s>", "<t>"]).to_tiktoken()
