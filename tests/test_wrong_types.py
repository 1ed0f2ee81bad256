"""An object of another stage in place of a tokenizer, a corpus or shards is a TypeError with advice."""

import re

import numpy as np
import pytest

import gristmill as gm
from gristmill.compat import huggingface, tiktoken


@pytest.fixture(scope="module")
def tok():
    return gm.Tokenizer([(b"l", b"o")], special_tokens=["<|endoftext|>"])


def stream_text(tokenizer, _):
    from gristmill import lm

    return lm.stream_text(None, tokenizer, "Once")


TAKE_A_TOKENIZER = {
    "extend_tokenizer": lambda tokenizer, _: gm.extend_tokenizer(tokenizer, ["low"], vocab_size=300, progress=None),
    "encode_corpus": lambda tokenizer, folder: gm.encode_corpus(["low"], tokenizer, out=folder / "out", progress=None),
    "lm.stream_text": stream_text,
    "compat.tiktoken.Encoding": lambda tokenizer, _: tiktoken.Encoding(tokenizer),
    "compat.huggingface.PreTrainedTokenizerFast": lambda tokenizer, _: huggingface.PreTrainedTokenizerFast(tokenizer),
}


@pytest.mark.parametrize("name", TAKE_A_TOKENIZER)
@pytest.mark.parametrize("wrong", [3, [1, 2], {"a": 1}], ids=["int", "list", "dict"])
def test_an_object_that_is_not_a_tokenizer_is_named_by_its_type(name, wrong, tmp_path):
    with pytest.raises(TypeError, match=rf"is a {type(wrong).__name__}\. Pass a gristmill\.Tokenizer"):
        TAKE_A_TOKENIZER[name](wrong, tmp_path)


def test_words_are_no_corpus_to_encode(tok, tmp_path):
    """Words iterate over their distinct pieces, which would be encoded as documents."""
    words = gm.count_words(["low low lower"], progress=None, special_tokens=())
    with pytest.raises(TypeError, match=r"corpus is a Words.*Pass the corpus that they were counted from"):
        gm.encode_corpus(words, tok, out=tmp_path / "out", progress=None)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("wrong", ["shards", 3, [1, 2]], ids=["path", "int", "list"])
def test_a_dataset_takes_open_shards_not_their_path(wrong):
    from gristmill.lm import TokenDataset

    message = f"shards is a {type(wrong).__name__}. Pass gristmill.Shards(folder)"
    with pytest.raises(TypeError, match=re.escape(message)):
        TokenDataset(wrong, context_length=4, batch_size=1, seed=0)
    assert TokenDataset(np.arange(20, dtype=np.uint16), context_length=4, batch_size=1, seed=0).num_windows == 4


def test_sequences_of_a_number_are_a_type_error_that_says_what_data_is():
    from gristmill.lm import open_sequences

    with pytest.raises(TypeError, match=r"data is a int\. Pass .*gristmill\.Shards"):
        open_sequences(3)
