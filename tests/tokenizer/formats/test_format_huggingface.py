"""Hugging Face tokenizer.json: the same ids in `tokenizers`, and the contents of real files."""

from __future__ import annotations

import json
import sys
import warnings
from types import SimpleNamespace

import pytest
import regex
from format_cases import (
    LAYOUTS,
    SPECIALS,
    TEXTS,
    gpt2_folder,
    published_path,
    renumbered,
    same_ids,
    trained,
    whole_pieces,
    with_gaps,
)

import gristmill as gm
from gristmill.errors import FormatWarning
from gristmill.pretokenize.patterns import CLASSIC, NATIVE_PATTERNS, WHOLE_TEXT
from gristmill.tokenizer.formats import huggingface, read_tokenizer, write_tokenizer
from gristmill.tokenizer.formats.byte_alphabet import CHARACTER_OF, spell, unspell
from texts import STORY, random_story, random_text

tokenizers = pytest.importorskip("tokenizers")


def assert_ids_of_tokenizers(tok, theirs):
    for text in [*TEXTS, "a<|endoftext|>b <|end|><|endoftext|>"]:
        expected = theirs.encode(text, add_special_tokens=False).ids
        assert tok.encode(text, allowed_special="all") == expected


def test_without_tokenizers_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(gm.MissingPackageError, match=r"^to_huggingface\(\) needs tokenizers, .*install tokenizers$"):
        trained().to_huggingface()


# Writing


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_file_gives_the_same_ids_in_tokenizers(layout, tmp_path):
    tok = gm.Tokenizer.from_parts(LAYOUTS[layout]())
    tok.export(tmp_path / "tokenizer.json", format="huggingface")
    theirs = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert_ids_of_tokenizers(tok, theirs)
    ids = tok.encode(STORY)
    assert theirs.decode(ids, skip_special_tokens=False) == STORY
    for special, id in tok.special_tokens.items():
        assert theirs.token_to_id(special) == id


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("legacy_merges", [False, True])
def test_write_read_write_gives_the_same_bytes(layout, legacy_merges, tmp_path):
    parts = LAYOUTS[layout]()
    write_tokenizer(parts, tmp_path / "a.json", format="huggingface", legacy_merges=legacy_merges)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = read_tokenizer(tmp_path / "a.json")
    write_tokenizer(again, tmp_path / "b.json", format="huggingface", legacy_merges=legacy_merges)
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()
    assert same_ids(parts, again)


def test_objects_go_both_ways():
    tok = trained("cl100k")
    theirs = tok.to_huggingface()
    assert_ids_of_tokenizers(tok, theirs)
    assert same_ids(gm.Tokenizer.from_huggingface(theirs).parts, tok.parts)
    # a fast tokenizer of transformers wraps a tokenizers.Tokenizer
    assert same_ids(huggingface.from_object(SimpleNamespace(backend_tokenizer=theirs)), tok.parts)
    with pytest.raises(TypeError, match=r"SimpleNamespace is neither a tokenizers\.Tokenizer"):
        huggingface.from_object(SimpleNamespace())


def test_legacy_merges_are_strings_and_mean_the_same():
    tok = trained()
    data = huggingface.dump(tok.parts, legacy_merges=True)
    assert all(isinstance(merge, str) for merge in json.loads(data)["model"]["merges"])
    assert_ids_of_tokenizers(tok, tokenizers.Tokenizer.from_str(data.decode()))


def test_specials_are_in_the_model_so_that_its_vocab_size_counts_them():
    assert trained().to_huggingface().get_vocab_size(with_added_tokens=False) == trained().vocab_size
    for parts in (trained().parts, with_gaps(), renumbered()):
        content = json.loads(huggingface.dump(parts))
        assert {text: content["model"]["vocab"][text] for text in parts.vocabulary.special_tokens} == (
            parts.vocabulary.special_tokens
        )


@pytest.mark.parametrize("special", ["é", "ab", "Ġ"])
def test_a_special_that_tokenizers_would_take_for_a_plain_token_is_refused(special, tmp_path):
    tok = gm.Tokenizer([(b"a", b"b")], special_tokens=[special])
    with pytest.raises(
        gm.TokenizerFormatError, match=r"x\.json: the special token .* is spelled like the token with id"
    ):
        tok.export(tmp_path / "x.json", format="huggingface")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["model", "model/", "model.v2", "models.json"])
def test_a_folder_has_the_two_files_that_transformers_reads(name, tmp_path):
    if name.endswith(".json"):
        (tmp_path / name).mkdir()  # an existing folder is a folder, whatever its name
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trained().export(f"{tmp_path}/{name}", format="huggingface")
    assert sorted(path.name for path in (tmp_path / name).iterdir()) == ["tokenizer.json", "tokenizer_config.json"]
    assert same_ids(read_tokenizer(tmp_path / name), trained().parts)
    config = json.loads((tmp_path / name / "tokenizer_config.json").read_text("utf-8"))
    assert config["tokenizer_class"] == "PreTrainedTokenizerFast"
    assert (config["eos_token"], config["additional_special_tokens"]) == ("<|endoftext|>", ["<|end|>"])
    assert config["clean_up_tokenization_spaces"] is False


def test_a_name_that_ends_in_json_is_one_file_and_a_bare_tokenizer_json_is_a_warning(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trained().export(tmp_path / "mill.json", format="huggingface")
    with pytest.warns(FormatWarning, match=r"no tokenizer_config\.json .* Pass the name of a folder"):
        trained().export(tmp_path / "tokenizer.json", format="huggingface")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mill.json", "tokenizer.json"]
    with pytest.raises(gm.OptionError, match=r"mill\.json is a single file\. Pass the name of a folder"):
        trained().export(tmp_path / "mill.json", format="huggingface", eos_token="<|end|>")
    (tmp_path / "tokenizer_config.json").write_text("{}")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trained().export(tmp_path / "tokenizer.json", format="huggingface")
    (tmp_path / "mill").write_text("a file")
    with pytest.raises(NotADirectoryError, match="Is a file; pass the name of a folder"):
        trained().export(tmp_path / "mill", format="huggingface")


def test_roles_must_be_special_tokens(tmp_path):
    with pytest.raises(gm.OptionError, match="pad_token='<pad>' is not a special token of this tokenizer"):
        trained().export(tmp_path / "model", format="huggingface", pad_token="<pad>")
    with pytest.raises(gm.OptionError, match=r"model_max_length=1\.5 is of type float"):
        trained().export(tmp_path / "model", format="huggingface", model_max_length=1.5)
    assert not list(tmp_path.iterdir())


def test_of_overlapping_specials_the_longest_wins_in_both():
    tok = gm.Tokenizer([(b"a", b"b")], special_tokens=["<s>", "<s>>", "s>>", "a|"])
    theirs = tok.to_huggingface()
    for text in ("<s>>", "<s>s>>", "a<s>>>", "aa|b s>>><s", "<s><s>>"):
        assert tok.encode(text, allowed_special="all") == theirs.encode(text).ids


def test_a_pattern_of_the_user_is_written_with_a_warning(tmp_path):
    tok = gm.Tokenizer([(b"a", b"b")], pattern=r"\p{L}+|\P{L}")
    with pytest.warns(FormatWarning, match="Oniguruma"):
        tok.export(tmp_path / "x.json", format="huggingface")
    again = gm.Tokenizer.load(tmp_path / "x.json")
    assert again.pattern == tok.pattern
    assert_ids_of_tokenizers(tok, tokenizers.Tokenizer.from_file(str(tmp_path / "x.json")))


def test_no_pattern_at_all_is_byte_level_alone():
    tok = gm.Tokenizer([(b"a", b" "), (b"a ", b"b")], pattern=WHOLE_TEXT)
    theirs = tok.to_huggingface()
    assert theirs.encode("a b").ids == tok.encode("a b") == [257]
    assert gm.Tokenizer.from_huggingface(theirs).pattern == WHOLE_TEXT


def test_an_option_of_another_format_is_refused(tmp_path):
    with pytest.raises(gm.OptionError, match=r"'huggingface' has no option 'pre'\. Its options: .*legacy_merges"):
        trained().export(tmp_path / "x.json", format="huggingface", pre="gpt-2")


@pytest.mark.parametrize("limit", [0, -3])
def test_a_model_that_takes_no_tokens_is_refused(limit, tmp_path):
    with pytest.raises(gm.OptionError, match=f"^model_max_length={limit} is less than 1"):
        trained().export(tmp_path / "x", format="huggingface", model_max_length=limit)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("special", ["éé", "Ġhello", "Éx", "<s>", "é中", "a b", "é "])
@pytest.mark.parametrize("format", ["huggingface", "gpt2"])
def test_an_export_warns_of_a_special_token_that_hugging_face_decodes_otherwise(special, format, tmp_path):
    tok = gm.Tokenizer([(b"a", b"b")], special_tokens=[special])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", FormatWarning)
        tok.export(tmp_path / "x", format=format)
        theirs = tok.to_huggingface()
    differs = theirs.decode([257], skip_special_tokens=False) != tok.decode([257])
    warned = [str(one.message) for one in caught]
    assert ["decodes them to other text" in message and repr(special) in message for message in warned] == [
        True,
        True,
    ] * differs
    assert theirs.encode(special).ids == [257]


# Patterns in Oniguruma's dialect


@pytest.mark.parametrize("name", NATIVE_PATTERNS)
def test_the_classic_spelling_matches_the_same_pieces(name):
    for text in [*TEXTS, *(random_text(seed, 400).decode("utf-8", "surrogateescape") for seed in range(60))]:
        for end in ("", " ", "\n", " \n ", "\n\n\t"):
            assert regex.findall(CLASSIC[name], text + end) == regex.findall(NATIVE_PATTERNS[name], text + end)
    assert not regex.search(r"[+*?}]\+|\$", regex.sub(r"\\p\{\w+\}", "x", CLASSIC[name]))


# Reading


def test_what_tokenizers_trains_and_saves_is_read():
    tok = tokenizers.Tokenizer(tokenizers.models.BPE())
    tok.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tok.decoder = tokenizers.decoders.ByteLevel()
    tok.post_processor = tokenizers.processors.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=600,
        special_tokens=SPECIALS,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tok.train_from_iterator([STORY, random_story(3, 1000)], trainer)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ours = gm.Tokenizer.from_huggingface(tok)
    assert ours.special_tokens == {"<|endoftext|>": 0, "<|end|>": 1}
    assert ours.vocab_size == tok.get_vocab_size()
    assert_ids_of_tokenizers(ours, tok)


def test_a_folder_with_a_tokenizer_json_is_read(tmp_path):
    (tmp_path / "model").mkdir()
    written = trained().export(tmp_path / "model", format="huggingface")
    assert [path.name for path in written] == ["tokenizer.json", "tokenizer_config.json"]
    (tmp_path / "model" / "vocab.json").write_text("{}")  # many models have both
    assert same_ids(read_tokenizer(tmp_path / "model"), trained().parts)


def test_a_piece_that_is_a_token_is_that_token_also_where_merges_make_another():
    parts = whole_pieces()
    content = json.loads(huggingface.dump(parts))
    # Now some merge creates every token, but merges turn the piece "bcab" into something else.
    content["model"]["vocab"] = {spell(bytes([byte])): byte for byte in range(256)} | {
        "ab": 256,
        "bc": 257,
        "bca": 258,
        "bcab": 259,
    }
    content["model"]["merges"] = [["a", "b"], ["b", "c"], ["bc", "a"], ["bca", "b"]]
    for ignore_merges, ids in ((True, [259]), (False, [257, 256])):
        content["model"]["ignore_merges"] = ignore_merges
        text = json.dumps(content)
        assert tokenizers.Tokenizer.from_str(text).encode("bcab").ids == ids
        assert gm.Tokenizer.from_parts(huggingface.parse(text.encode())).encode("bcab") == ids


@pytest.mark.parametrize("ignore_merges", [False, True])
def test_a_merge_of_a_token_that_no_merge_makes_never_happens(ignore_merges):
    content = json.loads(huggingface.dump(gm.Tokenizer([(b"a", b"b")]).parts))
    content["model"]["vocab"] |= {"xy": 300, "xyz": 301}
    content["model"]["merges"].append(["xy", "z"])
    content["model"]["ignore_merges"] = ignore_merges
    theirs = tokenizers.Tokenizer.from_str(json.dumps(content))
    tok = gm.Tokenizer.from_huggingface(theirs)
    for text in ("xyz", "xy", "wxyz ab", "xyz"):
        assert tok.encode(text) == theirs.encode(text).ids


def llama3_file():
    """Return a small file with all features of Llama 3's."""
    content = json.loads(huggingface.dump(whole_pieces()))
    template = [{"SpecialToken": {"id": "<|begin_of_text|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    specials = {"<|begin_of_text|>": {"id": "<|begin_of_text|>", "ids": [300], "tokens": ["<|begin_of_text|>"]}}
    content["post_processor"] = {
        "type": "Sequence",
        "processors": [
            {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True},
            {"type": "TemplateProcessing", "single": template, "pair": template, "special_tokens": specials},
        ],
    }
    return content


def test_a_file_like_that_of_llama3_is_read_and_settings_not_applied_are_warnings():
    text = json.dumps(llama3_file())
    with pytest.warns(FormatWarning, match=r"not added to texts: <\|begin_of_text\|>"):
        parts = huggingface.parse(text.encode())
    assert parts.pattern.name == "llama3"
    assert parts.vocabulary.whole_pieces
    assert_ids_of_tokenizers(gm.Tokenizer.from_parts(parts), tokenizers.Tokenizer.from_str(text))


def test_a_file_like_that_of_qwen2_is_read_and_settings_not_applied_are_warnings():
    content = json.loads(huggingface.dump(trained("qwen2").parts))
    content["normalizer"] = {"type": "NFC"}
    content["added_tokens"][1]["special"] = False
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        parts = huggingface.parse(json.dumps(content).encode())
    said = [str(warning.message) for warning in caught]
    assert len(said) == 2
    assert "NFC" in said[0]
    assert "the first is '<|end|>', are not marked special" in said[1]
    assert same_ids(parts, trained("qwen2").parts)


def changed(change):
    content = json.loads(huggingface.dump(trained("llama3").parts))
    change(content)
    return json.dumps(content).encode()


BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c.update(truncation={"max_length": 5}), "the truncation of this tokenizer is not applied"),
        (
            lambda c: (
                c["added_tokens"][0].update(content="<|e"),
                c["added_tokens"][1].update(normalized=True),
                c["model"]["vocab"].pop("<|endoftext|>"),
            ),
            "normalized=false overlap others",
        ),
        (lambda c: c.update(padding={"strategy": "BatchLongest"}), "the padding of"),
        (lambda c: c.update(decoder={"type": "Fuse"}), "the decoder 'Fuse' is not used"),
        (
            lambda c: c.update(post_processor={"type": "BertProcessing", "sep": ["</s>", 1], "cls": ["<s>", 0]}),
            "not added to texts: </s>, <s>",
        ),
        (
            lambda c: c["pre_tokenizer"]["pretokenizers"][0].update(pattern={"Regex": r"\p{N}{1,3}+|a$|."}),
            r"contains \{m,n\}\+ and \^ or \$",
        ),
    ],
)
def test_settings_that_are_not_applied_are_warnings(change, message):
    with pytest.warns(FormatWarning, match=message):
        huggingface.parse(changed(change))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c.update(normalizer={"type": "Lowercase"}), "the normalizer 'Lowercase'"),
        (
            lambda c: c.update(normalizer={"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "NFKC"}]}),
            "the normalizer 'NFKC'",
        ),
        (lambda c: c.update(pre_tokenizer={**BYTE_LEVEL, "add_prefix_space": True}), "add_prefix_space"),
        (lambda c: c.update(pre_tokenizer="Sequence"), r"the pre-tokenizer \[None\]"),
        (lambda c: c.update(pre_tokenizer="ByteLevel"), r"the pre-tokenizer \[None\]"),
        (lambda c: c["pre_tokenizer"]["pretokenizers"][1].update(add_prefix_space=True), "add_prefix_space"),
        (lambda c: c["pre_tokenizer"]["pretokenizers"][0].update(behavior="Removed"), "behavior='Removed'"),
        (lambda c: c["pre_tokenizer"]["pretokenizers"][0].update(invert=True), "invert=True"),
        (lambda c: c["pre_tokenizer"]["pretokenizers"][0].update(pattern={"String": ""}), "the pre-tokenizer 'Split'"),
        (lambda c: c["pre_tokenizer"]["pretokenizers"][0].update(pattern={"Regex": "("}), "not a valid regular"),
        (lambda c: c["pre_tokenizer"]["pretokenizers"].insert(0, {"type": "Punctuation"}), "tokenizer 'Punctuation'"),
        (
            lambda c: c["pre_tokenizer"]["pretokenizers"].insert(0, {"type": "ByteLevel", "add_prefix_space": False}),
            "'ByteLevel', which is not the last step",
        ),
        (lambda c: c["pre_tokenizer"]["pretokenizers"].pop(), "which does not end in ByteLevel"),
        (lambda c: c.update(pre_tokenizer={"type": "Metaspace"}), "the pre-tokenizer .'Metaspace'"),
        (lambda c: c.update(pre_tokenizer=None), "the pre-tokenizer"),
        (lambda c: c.update(post_processor={"type": "Novel"}), "the post-processor 'Novel'"),
        (lambda c: c["model"].update(type="Unigram"), "a model of type 'Unigram'"),
        (lambda c: c["model"].update(dropout=0.1), "dropout=0.1"),
        (lambda c: c["model"].update(continuing_subword_prefix="##"), "continuing_subword_prefix='##'"),
        (lambda c: c["model"].update(end_of_word_suffix="</w>"), "end_of_word_suffix='</w>'"),
        (lambda c: c["model"].update(byte_fallback=True), "byte_fallback=True"),
        (lambda c: c["model"].update(ignore_merges="yes"), "ignore_merges"),
        (lambda c: c["added_tokens"][0].update(lstrip=True), "lstrip=true for the added token '<|endoftext|>'"),
        (lambda c: c["added_tokens"][0].update(rstrip=True), "rstrip=true"),
        (lambda c: c["added_tokens"][0].update(single_word=True), "single_word=true"),
        (lambda c: c["added_tokens"][0].update(content="th", id=c["model"]["vocab"]["th"]), "merges create or use it"),
        (lambda c: c["model"]["vocab"].update({"<|end|>": 700}), "has id 700 in the vocabulary"),
        (lambda c: c["model"]["vocab"].update({"a b": 700}), "characters that are not in the byte alphabet"),
    ],
)
def test_what_would_change_ids_is_refused_by_its_name(change, message):
    with pytest.raises(ValueError, match=regex.escape(message) if "<|" in message else message):
        huggingface.parse(changed(change))


@pytest.mark.parametrize(
    "change",
    [
        lambda c: c["model"].update(unk_token="<|endoftext|>", fuse_unk=True),  # every byte has a token
        lambda c: c["model"].update(dropout=0.0, continuing_subword_prefix="", end_of_word_suffix=""),
        lambda c: c["model"].pop("ignore_merges"),
        lambda c: c.update(post_processor=BYTE_LEVEL),
        lambda c: c.update(decoder=None),
        lambda c: c.update(normalizer={"type": "Sequence", "normalizers": []}),
        lambda c: c["pre_tokenizer"]["pretokenizers"][0].update(behavior="Removed", invert=True),
        lambda c: c["model"]["vocab"].update(
            {text: row["id"] for row in c["added_tokens"] for text in [row["content"]]}
        ),
        lambda c: c["model"].update(merges=[" ".join(merge) for merge in c["model"]["merges"]]),
    ],
)
def test_what_changes_nothing_is_read_without_a_word(change):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert same_ids(huggingface.parse(changed(change)), trained("llama3").parts)


def test_the_byte_alphabet_is_that_of_tokenizers():
    assert sorted(CHARACTER_OF) == sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    assert unspell(spell(bytes(range(256)))) == bytes(range(256))
    assert (spell(b" \n"), unspell("a b")) == ("ĠĊ", None)


@pytest.mark.parametrize("name", ["cl100k_base", "o200k_base"])
def test_a_published_vocabulary_gives_the_same_ids_in_tokenizers(name):
    tok = gm.Tokenizer.load(published_path(name))
    theirs = tok.to_huggingface()
    for text in [*TEXTS, "a<|endoftext|>b<|endofprompt|>"]:
        assert tok.encode(text, allowed_special="all") == theirs.encode(text).ids
    assert gm.Tokenizer.from_huggingface(theirs) == tok


def test_line_breaks_in_a_pattern_are_read_whether_escaped_or_not():
    content = json.loads(huggingface.dump(trained("llama3").parts))
    split = content["pre_tokenizer"]["pretokenizers"][0]["pattern"]
    split["Regex"] = split["Regex"].replace(r"\r", "\r").replace(r"\n", "\n")
    assert huggingface.parse(json.dumps(content).encode()).pattern.name == "llama3"


def test_gpt2_as_published_gives_the_ids_of_tokenizers(tmp_path):
    folder = gpt2_folder()
    theirs = tokenizers.Tokenizer(
        tokenizers.models.BPE.from_file(str(folder / "gpt2_vocab.json"), str(folder / "gpt2_merges.txt"))
    )
    theirs.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    theirs.add_special_tokens(["<|endoftext|>"])
    theirs.save(str(tmp_path / "tokenizer.json"))
    tok = gm.Tokenizer.load(tmp_path)
    assert tok.vocab_size == 50257
    for text in TEXTS:
        assert tok.encode(text) == theirs.encode(text).ids
    assert tok.encode("a<|endoftext|>", allowed_special="all") == theirs.encode("a<|endoftext|>").ids
