"""Pre-tokenizers of several steps, as in StarCoder and DeepSeek: the same pieces as `tokenizers` for every text."""

from __future__ import annotations

import json
import warnings

import pytest
from format_cases import trained
from llama_cpp_rules import varied_texts

import gristmill as gm
from gristmill.errors import FormatWarning
from gristmill.pretokenize.pieces import cut_into_pieces
from gristmill.reference import pretokenize
from gristmill.tokenizer.formats import huggingface, read_tokenizer, write_tokenizer
from gristmill.tokenizer.formats.byte_alphabet import spell
from texts import STORY, random_story

tokenizers = pytest.importorskip("tokenizers")


def split(regex, **options):
    return {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False, **options}


def digits(individual):
    return {"type": "Digits", "individual_digits": individual}


def byte_level(use_regex):
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": use_regex}


# The settings of published models.
MODELS = {
    "starcoder": [digits(True), byte_level(True)],
    "digit-runs": [digits(False), byte_level(True)],
    "deepseek-coder": [
        split("[\r\n]"),
        split("\\s?\\p{L}+"),
        split("\\s?\\p{P}+"),
        split("[一-龥ࠀ-一가-퟿]+"),
        digits(True),
        byte_level(False),
    ],
    "deepseek-llm": [
        split("[\r\n]"),
        split("\\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-Ֆ]+"),
        split("\\s?[!-/:-~！-／：-～‘-‟　-。]+"),
        split("\\s+$"),
        split("[一-龥ࠀ-一가-퟿]+"),
        digits(True),
        byte_level(False),
    ],
    "deepseek-v3": [
        split("\\p{N}{1,3}"),
        split("[一-龥぀-ゟ゠-ヿ]+"),
        split(
            "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
            "| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"
        ),
        byte_level(False),
    ],
    "a-string": [
        {"type": "Split", "pattern": {"String": "e.l"}, "behavior": "Isolated", "invert": False},
        byte_level(True),
    ],
    "a-word": [split("mill"), byte_level(True)],
    "nested": [{"type": "Sequence", "pretokenizers": [digits(True)]}, byte_level(False)],
}
TEXTS = [STORY, *varied_texts(5, 3000), "the mill e.l 12 e1l", "カ・タ゠ー゛\u3040\u3099x\u3040\x00١٢٣4½"]


def tokenizer_json(steps) -> bytes:
    content = json.loads(huggingface.dump(trained().parts))
    content["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": steps}
    return json.dumps(content).encode()


def parsed(steps):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FormatWarning)  # of ^ and $
        return huggingface.parse(tokenizer_json(steps))


@pytest.mark.parametrize("model", MODELS)
def test_pieces_and_ids_are_those_of_tokenizers(model):
    parts = parsed(MODELS[model])
    theirs = tokenizers.Tokenizer.from_str(tokenizer_json(MODELS[model]).decode())
    tok = gm.Tokenizer.from_parts(parts)
    for text in TEXTS:
        pieces = [piece for piece, _ in theirs.pre_tokenizer.pre_tokenize_str(text)]
        assert [spell(piece.encode()) for piece in cut_into_pieces(text.encode(), parts.pattern.regex)] == pieces
    for text in TEXTS[:500]:
        assert tok.encode(text, allowed_special="all") == theirs.encode(text).ids


@pytest.mark.parametrize("model", MODELS)
def test_the_reference_cuts_in_the_same_stages(model):
    pattern = str(parsed(MODELS[model]).pattern)
    for text in TEXTS[:200]:
        expected = [piece.encode() for piece in cut_into_pieces(text.encode(), pattern)]
        assert list(pretokenize(text.encode(), pattern)) == expected


@pytest.mark.parametrize("model", ["starcoder", "deepseek-v3"])
def test_a_pattern_in_stages_is_written_and_read_again(model, tmp_path):
    parts = parsed(MODELS[model])
    gm.Tokenizer.from_parts(parts).save(tmp_path / "t.json")
    assert read_tokenizer(tmp_path / "t.json") == parts
    with pytest.warns(FormatWarning, match="Oniguruma"):
        write_tokenizer(parts, tmp_path / "folder", format="huggingface")
    assert read_tokenizer(tmp_path / "folder") == parts
    theirs = tokenizers.Tokenizer.from_file(str(tmp_path / "folder" / "tokenizer.json"))
    tok = gm.Tokenizer.from_parts(parts)
    for text in TEXTS[:500]:
        assert tok.encode(text, allowed_special="all") == theirs.encode(text).ids


def test_formats_that_store_one_expression_refuse_several(tmp_path):
    tok = gm.Tokenizer.from_parts(parsed(MODELS["starcoder"]))
    with pytest.raises(gm.TokenizerFormatError, match="several expressions that cut one after the other"):
        tok.export(tmp_path / "t.model", format="minbpe")
    pytest.importorskip("tiktoken")
    with pytest.raises(gm.TokenizerFormatError, match="several expressions that cut one after the other"):
        tok.to_tiktoken()


def test_training_with_a_pattern_in_stages_counts_the_same_words():
    pattern = str(parsed(MODELS["starcoder"]).pattern)
    documents = [STORY, random_story(4, 500)]
    words = gm.count_words(documents, pattern=pattern, special_tokens=(), num_threads=1, progress=None)
    expected: dict[bytes, int] = {}
    for document in documents:
        for piece in pretokenize(document.encode(), pattern):
            expected[piece] = expected.get(piece, 0) + 1
    assert dict(words.items()) == expected


def test_one_step_is_a_plain_pattern_with_its_native_matcher():
    assert parsed([byte_level(True)]).pattern.name == "gpt2"
    assert parsed([split(r" ?\S+|\s+(?!\S)|\s+"), byte_level(False)]).pattern.name == "whitespace"
    assert parsed([digits(True), byte_level(False)]).pattern.regex == r"\p{N}"
