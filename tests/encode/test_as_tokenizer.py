"""Objects that are accepted as a tokenizer, and how Python and notebooks show a tokenizer."""

from __future__ import annotations

import subprocess
import sys

import pytest

import gristmill as gm
from gristmill.compat import huggingface, tiktoken
from gristmill.encode import as_tokenizer


@pytest.fixture(scope="module")
def tok():
    return gm.Tokenizer([(b"l", b"o"), (b"lo", b"w")], special_tokens=["<|endoftext|>"])


def saved(tok, folder):
    tok.save(folder / "tok.json")
    return folder / "tok.json"


def exported(tok, folder):
    tok.export(folder / "tokenizer.json", format="huggingface")
    return str(folder / "tokenizer.json")


def in_a_folder(tok, folder):
    tok.export(folder / "tokenizer.json", format="huggingface")
    return folder


def of_tiktoken(tok, folder):
    pytest.importorskip("tiktoken")
    return tok.to_tiktoken()


def of_tokenizers(tok, folder):
    pytest.importorskip("tokenizers")
    return tok.to_huggingface()


def of_transformers(tok, folder):
    transformers = pytest.importorskip("transformers")
    return transformers.PreTrainedTokenizerFast(tokenizer_object=of_tokenizers(tok, folder))


GIVEN = [saved, exported, in_a_folder, of_tiktoken, of_tokenizers, of_transformers]


@pytest.mark.parametrize("given", GIVEN, ids=lambda given: given.__name__)
def test_paths_and_tokenizers_of_other_libraries_are_tokenizers(given, tok, tmp_path):
    other = given(tok, tmp_path)
    assert as_tokenizer(other) == tok
    gm.encode_corpus(["low lo", "x"], other, out=tmp_path / "shards", progress=None)
    assert [row.tolist() for row in gm.Shards(tmp_path / "shards")] == [[257, 32, 256, 258], [120, 258]]
    longer = gm.extend_tokenizer(other, ["low low"], vocab_size=260, tie_break="greatest-bytes", progress=None)
    assert longer == tok.extended(["low low"], vocab_size=260, progress=None)
    assert tiktoken.Encoding(other).encode("low") == [257]
    assert huggingface.PreTrainedTokenizerFast(other).encode("low") == [257]


def test_no_library_is_imported_to_look_at_what_was_passed(tok):
    script = (
        "import sys, gristmill as gm\n"
        "try: gm.extend_tokenizer(3, ['a'], vocab_size=300)\n"
        "except TypeError: print([name for name in ('tiktoken', 'tokenizers', 'transformers') if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stdout == "[]\n"


@pytest.mark.parametrize(
    "content", [b"Once upon a time there was a mill.\n" * 9, b'{"text": "a"}\n' * 9, b"\0\1\2", b""]
)
def test_a_corpus_in_place_of_a_tokenizer_says_what_to_run_first(content, tmp_path):
    path = tmp_path / "corpus.txt"
    path.write_bytes(content)
    with pytest.raises(gm.TokenizerFormatError, match=r"tokenizer='.*corpus\.txt' is not a tokenizer file.*train"):
        gm.encode_corpus(["a"], path, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_missing_file_says_what_was_passed_and_what_to_run_first(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"tokenizer='gpt3': there is no such file.*train_tokenizer"):
        gm.encode_corpus(["a"], "gpt3", out=tmp_path / "out")


def test_a_damaged_tokenizer_file_keeps_the_message_of_its_format(tok, tmp_path):
    path = saved(tok, tmp_path)
    path.write_bytes(path.read_bytes().replace(b"gpt2", b"gpt3"))
    with pytest.raises(gm.TokenizerFormatError, match="its checksum does not match"):
        as_tokenizer(path)


# Display in Python and notebooks


def test_len_counts_tokens_and_not_the_gaps_between_ids(tok):
    assert len(tok) == len(tok.vocab) == tok.vocab_size == 259
    pytest.importorskip("tiktoken")
    import tiktoken as theirs

    ranks = {bytes([i]): i for i in range(256)}
    gaps = gm.Tokenizer.from_tiktoken(
        theirs.Encoding("gaps", pat_str=r"\w+|\W+", mergeable_ranks=ranks, special_tokens={"<s>": 999})
    )
    assert (len(gaps), gaps.vocab_size) == (257, 1000)


def test_reprs_are_short_whatever_the_pattern_and_the_specials_are():
    regex = "|".join(f"word{i}" for i in range(1000)) + r"|\w+|\W+"
    specials = [f"<|special {i} {'x' * 500}|>" for i in range(50)]
    tok = gm.Tokenizer([], pattern=regex, special_tokens=specials)
    words = gm.Words.from_counts({"a" * 5000: 3, "b": 1}, pattern=regex, special_tokens=specials)
    assert len(repr(tok)) < 300 and "vocab_size 306" in repr(tok) and "word0|word1|" in repr(tok)
    assert len(repr(words)) < 200 and "2 distinct, 4 pieces" in repr(words)
    assert len(tok._repr_html_()) < 1500 and len(words._repr_html_()) < 1500


def test_notebooks_show_markup_of_a_corpus_as_text():
    tok = gm.Tokenizer([], pattern=r"<b>|\w+|\W+", special_tokens=["<script>"])
    words = gm.Words.from_counts({"<img>": 3}, pattern=r"<b>|\w+|\W+", special_tokens=["<script>"])
    for html in (tok._repr_html_(), words._repr_html_()):
        assert "<script>" not in html and "<b>" not in html and "<img>" not in html
        assert "&lt;script&gt;" in html
    assert "&lt;img&gt;" in words._repr_html_()


def test_old_names_work_and_name_the_new_ones(tok):
    with pytest.warns(DeprecationWarning, match=r"of_parts\(\) is deprecated. Use Tokenizer\.from_parts\(\)"):
        assert gm.Tokenizer.of_parts(tok.parts) == tok
    words = gm.Words.from_counts({"a": 3, "b": 1})
    with pytest.warns(DeprecationWarning, match=r"Words\.total is deprecated. Use Words\.num_pieces"):
        assert words.total == words.num_pieces == 4
