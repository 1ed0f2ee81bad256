"""Coverage by script, against a count of single characters with the regex module."""

import pytest
import regex

import gristmill as gm
from gristmill.analysis import scripts
from gristmill.analysis.scripts import INVALID, OTHER, SCRIPTS, script_usage, scripts_of, vocabulary_scripts
from gristmill.analysis.vocabulary import is_partial_utf8
from gristmill.sample_corpus import stories

MIXED = "Ünïcode, Привет мир! 日本語です。カナ 👩‍👩‍👧 नमस्ते สวัสดี שלום مرحبا 안녕 é̈ \ue000\U000e0fff"
TOKENIZER = gm.train_tokenizer(
    [story for story, _ in zip(stories(), range(10), strict=False)] + [MIXED * 3], vocab_size=600, progress=None
)
ALL = TOKENIZER, gm.Tokenizer([])


def plain_usage(tokenizer, data):
    """Script -> [characters, bytes, tokens, partial tokens], byte by byte."""
    of_byte, totals = [], {}
    for character in data.decode("utf-8", "surrogateescape"):
        name = plain_script(character)
        size = len(character.encode("utf-8", "surrogateescape"))
        of_byte += [name] * size
        row = totals.setdefault(name, [0, 0, 0.0, 0.0])
        row[0] += 1
        row[1] += size
    position = 0
    for id in tokenizer.encode(data):
        token = tokenizer.token_bytes(id)
        for name in of_byte[position : position + len(token)]:
            totals[name][2] += 1 / len(token)
            totals[name][3] += is_partial_utf8(token) / len(token)
        position += len(token)
    return totals


def plain_script(character):
    if 0xD800 <= ord(character) <= 0xDFFF:
        return INVALID
    found = [script for script in SCRIPTS if regex.match(rf"\p{{Script={script}}}", character)]
    assert len(found) <= 1
    return found[0].replace("_", " ") if found else OTHER


@pytest.mark.parametrize("tokenizer", ALL, ids=["trained", "only bytes"])
@pytest.mark.parametrize("data", [MIXED.encode(), b"", b"a", b"caf\xc3 \xff\x80\x80\xf0\x9f ok", b"  " * 30])
def test_scripts_are_counted_as_byte_by_byte(tokenizer, data, monkeypatch):
    expected = plain_usage(tokenizer, data)
    for size in (1, 7, 1 << 18):  # a cut must not fall into a character
        monkeypatch.setattr(scripts, "CHUNK_TOKENS", size)
        found = script_usage(tokenizer, tokenizer.encode_array(data), data)
        assert {usage.script for usage in found} == set(expected)
        for usage in found:
            row = [usage.num_characters, usage.num_bytes, usage.num_tokens, usage.num_partial]
            assert row == pytest.approx(expected[usage.script], abs=1e-5), (usage.script, size)
    assert [usage.num_characters for usage in found] == sorted((row[0] for row in expected.values()), reverse=True)


def test_the_table_of_scripts_is_complete():
    """Every assigned character of a few blocks belongs to a script of the table."""
    letters = "".join(
        map(chr, [*range(0x20, 0x250), *range(0x370, 0x400), *range(0x3041, 0x3097), *range(0x4E00, 0x4E50)])
    )
    assigned = regex.sub(r"\p{Cn}", "", letters)
    assert OTHER not in scripts_of(assigned)
    assert len(set(SCRIPTS)) == len(SCRIPTS)
    for script in SCRIPTS:
        regex.compile(rf"\p{{Script={script}}}")  # an unknown name raises an error


@pytest.mark.parametrize("tokenizer", ALL, ids=["trained", "only bytes"])
def test_a_token_of_the_vocabulary_belongs_to_the_script_of_its_first_letter(tokenizer):
    expected = {}
    for id, token in tokenizer.vocab.items():
        if id in tokenizer.special_tokens.values():
            continue
        if is_partial_utf8(token):
            name = "partial UTF-8"
        else:
            names = [plain_script(character) for character in token.decode()]
            name = next((name for name in names if name not in ("Common", "Inherited")), "Common")
        expected[name] = expected.get(name, 0) + 1
    assert vocabulary_scripts(tokenizer) == expected
