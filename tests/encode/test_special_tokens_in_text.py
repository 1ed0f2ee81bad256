"""Special tokens in text follow one rule in all methods, and a new tokenizer has one default."""

from __future__ import annotations

import numpy as np
import pytest

import gristmill as gm
from gristmill import reference
from gristmill.cli.train_tokenizer import Command
from texts import STORY

TEXT = STORY + "<|endoftext|>one <|pad|><|endoftext|> two <|endof <|pad|>x"
SPECIALS = ["<|endoftext|>", "<|pad|>"]
ALLOWED = [(), {"<|pad|>"}, {"<|endoftext|>"}, set(SPECIALS), "all"]


@pytest.fixture(scope="module", params=["gpt2", r"\p{L}+|\p{N}"])
def tok(request):
    return gm.train_tokenizer(
        [TEXT], vocab_size=300, pattern=request.param, special_tokens=SPECIALS, num_threads=1, progress=None
    )


def ids_of_the_reference(tok, allowed):
    """Return the ids of `TEXT` from a tokenizer that has only the allowed special tokens."""
    names = SPECIALS if allowed == "all" else [special for special in SPECIALS if special in allowed]
    ids = reference.encode(TEXT, tok.merges, pattern=tok.pattern, special_tokens=names)
    first = 256 + len(tok.merges)
    return [id if id < first else tok.special_tokens[names[id - first]] for id in ids]


def ids_of_the_corpus(path, tok, out, **rule):
    """Return the ids that `encode_corpus` writes for the file, without the end-of-text id after it."""
    gm.encode_corpus(path, tok, out=out, documents="file", progress=None, **rule)
    *ids, end = np.concatenate([*gm.Shards(out)]).tolist()
    assert end == tok.special_tokens["<|endoftext|>"]
    return ids


@pytest.mark.parametrize("allowed", ALLOWED, ids=["none", "pad", "end", "both", "all"])
def test_every_way_to_encode_gives_a_text_with_specials_the_same_ids(tok, allowed, tmp_path):
    path = tmp_path / "text.txt"
    path.write_bytes(TEXT.encode())
    expected = ids_of_the_reference(tok, allowed)
    rule = {"allowed_special": allowed}
    assert tok.encode(TEXT, **rule) == expected
    assert tok.encode_array(TEXT, **rule).tolist() == expected
    assert tok.encode_batch([TEXT], **rule).tolist() == [expected]
    assert list(tok.encode_iterable([TEXT], **rule)) == expected
    assert tok.encode_with_offsets(TEXT, **rule).ids.tolist() == expected
    assert tok.count_tokens(TEXT, **rule) == len(expected)
    assert tok.encode_file(path, **rule).tolist() == expected
    assert ids_of_the_corpus(path, tok, tmp_path / "shards", **rule) == expected


def test_without_options_every_way_takes_specials_as_plain_text(tok, tmp_path):
    path = tmp_path / "text.txt"
    path.write_bytes(TEXT.encode())
    plain = ids_of_the_reference(tok, ())
    assert tok.encode(TEXT) == tok.encode_ordinary(TEXT) == tok.encode_file(path).tolist() == plain
    assert list(tok.encode_iterable([TEXT])) == tok.encode_batch([TEXT]).tolist()[0] == plain
    assert ids_of_the_corpus(path, tok, tmp_path / "shards") == plain


# The default special tokens


def test_training_and_encoding_a_corpus_work_with_defaults(tmp_path):
    path = tmp_path / "corpus.txt"
    path.write_text("one story<|endoftext|>another story<|endoftext|>")
    tok = gm.train_tokenizer(path, vocab_size=270, progress=None)
    assert tok.special_tokens == {"<|endoftext|>": tok.vocab_size - 1}
    gm.encode_corpus(path, tok, out=tmp_path / "shards", progress=None)
    documents = [document.tolist() for document in gm.Shards(tmp_path / "shards")]
    end = tok.special_tokens["<|endoftext|>"]
    assert documents == [[*tok.encode("one story"), end], [*tok.encode("another story"), end]]


def test_python_and_the_command_line_have_the_same_default(tmp_path):
    (tmp_path / "corpus.txt").write_text(STORY)
    command = Command(
        corpus=(str(tmp_path / "corpus.txt"),), vocab_size=300, output=tmp_path / "t.json", progress="none"
    )
    assert command.run() == 0
    assert gm.Tokenizer.load(tmp_path / "t.json") == gm.train_tokenizer(
        tmp_path / "corpus.txt", vocab_size=300, progress=None
    )


def test_counting_and_training_have_the_same_default():
    words = gm.count_words([STORY], progress=None)
    assert words.special_tokens == gm.Words.from_counts({"a": 1}).special_tokens == ("<|endoftext|>",)
    assert gm.train_tokenizer(words, vocab_size=300) == gm.train_tokenizer([STORY], vocab_size=300, progress=None)


def test_an_empty_tuple_means_no_special_tokens():
    assert gm.train_tokenizer([STORY], vocab_size=300, special_tokens=(), progress=None).special_tokens == {}
    assert gm.count_words(["a<|endoftext|>"], special_tokens=(), progress=None).special_tokens == ()
    assert gm.Words.from_counts({"a": 1}, special_tokens=()).special_tokens == ()


def test_a_special_token_that_is_allowed_and_disallowed_is_an_error_only_in_a_text_that_holds_it(tok):
    both = {"allowed_special": {"<|pad|>"}, "disallowed_special": {"<|pad|>", "<|endoftext|>"}}
    assert tok.encode("plain", **both) == tok.encode("plain")
    with pytest.raises(gm.SpecialTokenError, match="at byte 2, which is not allowed"):
        tok.encode("a <|pad|>", **both)
    rest = {"allowed_special": {"<|pad|>"}, "disallowed_special": "all"}
    assert tok.encode("<|pad|>", **rest) == [tok.special_tokens["<|pad|>"]]
    with pytest.raises(gm.SpecialTokenError, match="contains the special token"):
        tok.encode("<|pad|>", allowed_special="all", disallowed_special={"<|pad|>"})
