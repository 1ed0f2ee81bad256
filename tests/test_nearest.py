"""Every function suggests the right name for a misspelled one."""

import pytest

import gristmill as gm
from gristmill.arguments import nearest


@pytest.mark.parametrize(
    ("name", "names", "expected"),
    [
        ("nanogtp", ["gristmill", "nanogpt", "npy"], "nanogpt"),
        ("HuggingFace", ["gpt2", "huggingface"], "huggingface"),
        ("hf", ["gpt2", "huggingface"], "huggingface"),
        ("lr", ["layers", "learning_rate", "lower"], "learning_rate"),
        ("--lr", ["--log-every", "--learning-rate"], "--learning-rate"),
        ("vocab-size", ["vocab_size", "vocab_file"], "vocab_size"),
        ("mega", ["llmc", "megatron"], "megatron"),
    ],
)
def test_the_nearest_name_is_found(name, names, expected):
    assert nearest(name, names) == f" Did you mean {expected!r}?"


@pytest.mark.parametrize("name", ["", "x", "zzz", "fh", 3, None, ["huggingface"]])
def test_a_name_that_is_like_none_gets_no_guess(name):
    assert nearest(name, ["huggingface", "gpt2"]) == ""


@pytest.fixture(scope="module")
def tokenizer():
    return gm.train_tokenizer(["low low lower"], vocab_size=259, progress=None)


def test_formats_of_tokenizers_are_answered_with_the_nearest(tokenizer, tmp_path):
    with pytest.raises(gm.GristmillError, match=r"format='hf' is not valid\. Did you mean 'huggingface'\? Pass one of"):
        tokenizer.export(tmp_path / "t", format="hf")
    tokenizer.save(tmp_path / "t.json")
    with pytest.raises(gm.GristmillError, match="Did you mean 'tiktoken'"):
        gm.Tokenizer.load(tmp_path / "t.json", format="tiktokn")


def test_formats_and_options_of_shards_are_answered_with_the_nearest(tokenizer, tmp_path):
    with pytest.raises(gm.GristmillError, match=r"format='nanogtp' is not valid\. Did you mean 'nanogpt'\?"):
        gm.encode_corpus(["a"], tokenizer, out=tmp_path / "s", format="nanogtp", progress=None)
    with pytest.raises(TypeError, match="Did you mean 'shard_tokens'"):
        gm.encode_corpus(["a"], tokenizer, out=tmp_path / "s", shard_token=3, progress=None)


def test_options_of_training_are_answered_with_the_nearest():
    for options, meant in [
        ({"pattern": "gtp2"}, "gpt2"),
        ({"pattern": "GPT2"}, "gpt2"),
        ({"tie_break": "hf"}, "huggingface"),
        ({"tie_break": "first_seen"}, "first-seen"),
        ({"documents": "lines"}, "line"),
        ({"input_format": "json"}, "jsonl"),
    ]:
        with pytest.raises(gm.GristmillError, match=f"Did you mean '{meant}'"):
            gm.train_tokenizer(["low low"], vocab_size=258, progress=None, **options)
    with pytest.raises(TypeError, match="Did you mean 'text_field'"):
        gm.train_tokenizer(["low low"], vocab_size=258, progress=None, text_feild="a")
