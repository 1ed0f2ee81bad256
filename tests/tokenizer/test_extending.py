"""`Tokenizer.extended`, and the tie-break rule of tokenizers from files that do not store it."""

from __future__ import annotations

import hashlib
import pickle
import warnings

import pytest

import gristmill as gm
from gristmill import reference
from texts import STORY, random_story

TEXTS = [STORY, random_story(1, 300)]
FORMATS = ["huggingface", "gpt2", "tiktoken", "minbpe"]


def trained(vocab_size, **options):
    return gm.train_tokenizer(TEXTS, vocab_size=vocab_size, progress=None, **options)


@pytest.fixture(scope="module")
def short():
    return trained(330)


@pytest.fixture
def exported(short, tmp_path, request):
    path = tmp_path / {"gpt2": "folder", "minbpe": "t.model", "tiktoken": "t.tiktoken"}.get(request.param, "t.json")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", gm.FormatWarning)
        short.export(path, format=request.param)
    given = {"pattern": "gpt2", "special_tokens": ["<|endoftext|>"]} if request.param in ("tiktoken", "gpt2") else {}
    return path, {"format": request.param, **given}


def test_the_method_and_the_function_give_what_a_longer_run_gives(short):
    long = trained(500)
    assert short.extended(TEXTS, vocab_size=500, progress=None) == long
    assert gm.extend_tokenizer(short, TEXTS, vocab_size=500, progress=None) == long
    assert long.truncated(330) == short


def test_the_method_takes_every_option_of_the_function(tmp_path):
    import inspect

    method = inspect.signature(gm.Tokenizer.extended).parameters
    function = inspect.signature(gm.extend_tokenizer).parameters
    assert list(method)[1:] == list(function)[1:]
    assert all(method[name].default == function[name].default for name in list(function)[1:])


def test_options_of_counting_and_merging_reach_them(short):
    words = {word: count for word, count in reference.count_words(TEXTS).items() if count >= 3}
    more = gm.Tokenizer([]).extended(
        TEXTS, vocab_size=280, min_frequency=3, max_token_bytes=3, tie_break="first-seen", num_threads=1, progress=None
    )
    expected = reference.learn_merges(words, 24, tie_break="first-seen", max_token_bytes=3)
    assert more.merges == expected
    assert more.tie_break == "first-seen"
    assert more.profile is not None


def test_read_options_that_do_not_exist_are_refused(short):
    with pytest.raises(TypeError, match="colour"):
        short.extended(TEXTS, vocab_size=400, colour=3)


@pytest.mark.parametrize("exported", FORMATS, indirect=True)
def test_a_round_trip_through_a_format_with_tie_break_extends_as_a_longer_run(exported):
    path, given = exported
    loaded = gm.Tokenizer.load(path, tie_break="greatest-bytes", **given)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        longer = loaded.extended(TEXTS, vocab_size=500, progress=None)
    expected = trained(500)
    assert longer.merges == expected.merges
    if longer.parts.vocabulary.is_plain:
        assert longer == expected


@pytest.mark.parametrize("exported", ["huggingface"], indirect=True)
def test_the_rule_that_the_caller_names_is_the_rule_that_extending_uses(exported):
    path, given = exported
    for tie_break in ("huggingface", "first-seen"):
        loaded = gm.Tokenizer.load(path, tie_break=tie_break, **given)
        assert loaded.tie_break == tie_break
        named = gm.Tokenizer.load(path, **given).extended(TEXTS, vocab_size=500, tie_break=tie_break, progress=None)
        assert loaded.extended(TEXTS, vocab_size=500, progress=None) == named
    assert named.tie_break == "first-seen"
    assert named.merges != trained(500).merges  # so the rule makes a difference here


@pytest.mark.parametrize("exported", FORMATS, indirect=True)
def test_extending_warns_when_the_rule_is_only_assumed(exported):
    path, given = exported
    loaded = gm.Tokenizer.load(path, **given)
    for tokenizer in (loaded, pickle.loads(pickle.dumps(loaded))):
        with pytest.warns(
            gm.FormatWarning, match=r"does not record tie_break; assuming 'greatest-bytes'\. Pass tie_break="
        ):
            tokenizer.extended(TEXTS, vocab_size=340, progress=None)


@pytest.mark.parametrize("exported", ["huggingface", "minbpe"], indirect=True)
def test_an_assumed_rule_stays_assumed_when_saved_and_truncated(exported, tmp_path):
    path, given = exported
    loaded = gm.Tokenizer.load(path, **given)
    loaded.save(tmp_path / "saved.json")
    saved = gm.Tokenizer.load(tmp_path / "saved.json")
    assert saved == loaded
    for tokenizer in (saved, saved.truncated(310), loaded.truncated(310)):
        with pytest.warns(gm.FormatWarning, match="does not record tie_break"):
            tokenizer.extended(TEXTS, vocab_size=340, progress=None)
    assert gm.Tokenizer.load(tmp_path / "saved.json", tie_break="huggingface").tie_break == "huggingface"


def test_a_stated_rule_is_saved_with_the_same_bytes_as_before(tmp_path):
    gm.Tokenizer([(b"l", b"o")], tie_break="first-seen").save(tmp_path / "t.json")
    data = (tmp_path / "t.json").read_bytes()
    assert b'\n"tie_break": "first-seen",\n' in data
    assert hashlib.sha256(data).hexdigest() == "01f71931a82b56b147a6ae434df75c69276e71421fa0c93e2eb5e6969abe50b0"
    gm.Tokenizer.load(tmp_path / "t.json").save(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == data


def test_the_objects_of_other_libraries_take_the_rule_too(short):
    pytest.importorskip("tiktoken")
    pytest.importorskip("tokenizers")
    for loaded in (
        gm.Tokenizer.from_tiktoken(short.to_tiktoken(), tie_break="huggingface"),
        gm.Tokenizer.from_huggingface(short.to_huggingface(), tie_break="huggingface"),
    ):
        assert loaded.tie_break == "huggingface"
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            loaded.extended(TEXTS, vocab_size=loaded.vocab_size + 5, progress=None)


def test_a_rule_other_than_that_of_the_file_is_an_error(tmp_path):
    tok = trained(300, tie_break="first-seen")
    tok.save(tmp_path / "t.json")
    assert gm.Tokenizer.load(tmp_path / "t.json", tie_break="first-seen") == tok
    with pytest.raises(
        gm.OptionError, match=r"t\.json: tie_break='huggingface', but the file records tie_break='first-seen'"
    ):
        gm.Tokenizer.load(tmp_path / "t.json", tie_break="huggingface")
    with pytest.raises(gm.OptionError, match="tie_break='fairest'"):
        tok.extended(TEXTS, vocab_size=310, tie_break="fairest")
