"""GPT-2's vocab.json and merges.txt."""

from __future__ import annotations

import json
import warnings

import pytest
from format_cases import TEXTS, gpt2_folder, renumbered, same_ids, trained, whole_pieces, with_gaps

import gristmill as gm
from gristmill.errors import FormatWarning
from gristmill.tokenizer.formats import read_tokenizer, write_tokenizer
from gristmill.tokenizer.formats.byte_alphabet import CHARACTER_OF

BYTES = {character: byte for byte, character in enumerate(CHARACTER_OF)}


def write_files(folder, vocab, merges):
    (folder / "vocab.json").write_text(json.dumps(BYTES | vocab), encoding="utf-8")
    (folder / "merges.txt").write_text(merges, encoding="utf-8")
    return folder


@pytest.mark.parametrize("layout", [trained().parts, renumbered()], ids=["plain", "renumbered"])
def test_write_read_write_gives_the_same_bytes_and_the_same_tokenizer(layout, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        written = write_tokenizer(layout, tmp_path / "a", format="gpt2")
        again = read_tokenizer(tmp_path / "a")
        write_tokenizer(again, tmp_path / "b", format="gpt2")
    assert [path.name for path in written] == ["vocab.json", "merges.txt", "tokenizer_config.json"]
    for name in ("vocab.json", "merges.txt", "tokenizer_config.json"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    assert same_ids(layout, again)


def test_tokenizers_reads_the_files_and_gives_the_same_ids(tmp_path):
    tokenizers = pytest.importorskip("tokenizers")
    tok = gm.Tokenizer.from_parts(renumbered())
    vocab, merges, _ = tok.export(tmp_path, format="gpt2")
    theirs = tokenizers.Tokenizer(tokenizers.models.BPE.from_file(str(vocab), str(merges)))
    theirs.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    for text in TEXTS:
        assert tok.encode(text) == theirs.encode(text).ids


@pytest.mark.parametrize("name", ["", "vocab.json", "merges.txt"])
def test_the_folder_or_either_file_is_read(name, tmp_path):
    trained().export(tmp_path, format="gpt2")
    assert same_ids(read_tokenizer(tmp_path / name), trained().parts)


@pytest.mark.parametrize("names", [("tales-vocab.json", "tales-merges.txt"), ("encoder.json", "vocab.bpe")])
def test_files_with_longer_names_belong_together_by_their_beginning(names, tmp_path):
    with pytest.warns(FormatWarning, match=r"transformers treats '<\|end\|>' as text\. Pass the name of a folder"):
        written = trained().export(tmp_path / names[0], format="gpt2")
    assert [path.name for path in written] == list(names)
    for name in names:
        assert same_ids(read_tokenizer(tmp_path / name), trained().parts)


def test_the_first_line_is_the_version_and_no_other_line_is(tmp_path):
    vocab = {"#v": 300, "#version:": 301, "0.": 302, "##": 303}
    folder = write_files(tmp_path, vocab, "#version: 0.2\n# v\n# #\n")
    assert gm.Tokenizer.load(folder).merges == [(b"#", b"v"), (b"#", b"#")]
    folder = write_files(tmp_path, vocab, "# #\n# v\n")  # no version line: nothing is skipped
    assert gm.Tokenizer.load(folder).merges == [(b"#", b"#"), (b"#", b"v")]
    folder = write_files(tmp_path, vocab, "# v\r\n# #\r\n")
    assert len(gm.Tokenizer.load(folder).merges) == 2


def test_specials_are_recognized_by_their_form_or_named(tmp_path):
    vocab = {"ab": 256, "<|end|>": 257, "<s>": 258, "<end of text>": 259}
    folder = write_files(tmp_path, vocab, "#version: 0.2\na b\n")
    with pytest.raises(gm.TokenizerFormatError, match=r"'<end of text>' has characters .* special_tokens"):
        gm.Tokenizer.load(folder)
    tok = gm.Tokenizer.load(folder, special_tokens=["<s>", "<end of text>"])
    assert tok.special_tokens == {"<|end|>": 257, "<s>": 258, "<end of text>": 259}
    tok = gm.Tokenizer.load(folder, special_tokens={"<s>": 258, "<end of text>": 259, "<new>": 400})
    assert tok.special_tokens["<new>"] == 400
    assert gm.Tokenizer.load(folder, special_tokens=["<end of text>", "<new>"]).special_tokens["<new>"] == 260
    with pytest.raises(gm.TokenizerFormatError, match=r"'<s>' with id 1, but it has id 258 in vocab\.json"):
        gm.Tokenizer.load(folder, special_tokens={"<s>": 1, "<end of text>": 259})
    with pytest.raises(gm.TokenizerFormatError, match="'ab' with id 256, but merges create or use it"):
        gm.Tokenizer.load(folder, special_tokens=["ab", "<end of text>"])


def test_a_token_that_no_merge_makes_is_never_used_but_decoded(tmp_path):
    tok = gm.Tokenizer.load(write_files(tmp_path, {"xyz": 256}, "#version: 0.2\n"))
    assert tok.encode("xyz") == list(b"xyz")
    assert tok.decode([256]) == "xyz"


def test_the_pattern_is_gpt2s_unless_given(tmp_path):
    tok = trained("cl100k")
    with pytest.warns(FormatWarning, match="do not store the pattern.*pattern='cl100k'"):
        tok.export(tmp_path, format="gpt2")
    assert gm.Tokenizer.load(tmp_path).pattern == "gpt2"
    assert same_ids(read_tokenizer(tmp_path, pattern="cl100k"), tok.parts)


def test_specials_of_any_look_are_named_in_a_folder_and_lost_without_one(tmp_path):
    tok = gm.Tokenizer([(b"a", b"b")], special_tokens=["<s>", "<|x|>", "two words", "<|endoftext|>"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tok.export(tmp_path / "folder", format="gpt2")
    assert gm.Tokenizer.load(tmp_path / "folder") == tok
    message = r"treats '<s>', '<\|x\|>', 'two words' as text.*special_tokens=\['<s>', '<\|x\|>', 'two words'\]"
    with pytest.warns(FormatWarning, match=message):
        tok.export(tmp_path / "t-vocab.json", format="gpt2")
    again = gm.Tokenizer.load(tmp_path / "t-vocab.json", special_tokens=["<s>", "two words"])
    assert again.special_tokens == tok.special_tokens


@pytest.mark.parametrize(
    "text", ["[]", '{"added_tokens_decoder": [1]}', '{"added_tokens_decoder": {"1": {"content": 2}}}']
)
def test_a_config_that_names_no_special_tokens_changes_nothing(text, tmp_path):
    trained().export(tmp_path, format="gpt2")
    (tmp_path / "tokenizer_config.json").write_text(text)
    assert gm.Tokenizer.load(tmp_path) == trained()


def test_a_damaged_config_is_named(tmp_path):
    trained().export(tmp_path, format="gpt2")
    (tmp_path / "tokenizer_config.json").write_text("{")
    with pytest.raises(gm.TokenizerFormatError, match=r"tokenizer_config\.json: "):
        gm.Tokenizer.load(tmp_path)


def test_a_tokenizer_that_the_files_cannot_store_is_refused_and_nothing_is_written(tmp_path):
    with pytest.raises(gm.TokenizerFormatError, match="ids would differ"):
        write_tokenizer(whole_pieces(), tmp_path / "a", format="gpt2")
    with pytest.raises(gm.TokenizerFormatError, match="the special token 'é'"):
        gm.Tokenizer([], special_tokens=["é"]).export(tmp_path / "a", format="gpt2")
    assert not list(tmp_path.iterdir())


def test_gaps_are_held(tmp_path):
    with pytest.warns(FormatWarning, match="pattern"):
        write_tokenizer(with_gaps(), tmp_path, format="gpt2")
    assert same_ids(read_tokenizer(tmp_path, pattern="o200k"), with_gaps())


def test_nothing_is_replaced_unless_asked(tmp_path):
    trained().export(tmp_path, format="gpt2")
    (tmp_path / "vocab.json").unlink()
    with pytest.raises(FileExistsError, match=r"tokenizer_config\.json"):
        trained().export(tmp_path, format="gpt2", overwrite=False)
    assert not (tmp_path / "vocab.json").exists()


def test_gpt2_as_published_gives_the_ids_of_tiktoken():
    tiktoken = pytest.importorskip("tiktoken")
    tok = gm.Tokenizer.load(gpt2_folder() / "gpt2_vocab.json")
    assert tok.vocab_size == 50257
    assert tok.special_tokens == {"<|endoftext|>": 50256}
    theirs = tiktoken.Encoding(
        "gpt2",
        pat_str=r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
        mergeable_ranks={token: id for id, token in tok.vocab.items() if id < 50256},
        special_tokens=tok.special_tokens,
    )
    for text in TEXTS:
        assert tok.encode(text) == theirs.encode(text)
    assert same_ids(tok.parts, gm.Tokenizer.from_tiktoken(theirs).parts)


def test_a_failed_export_leaves_no_folder_that_it_made(tmp_path, monkeypatch):
    def fail(*args, **options):
        raise OSError("no space left")

    (tmp_path / "old").mkdir()
    monkeypatch.setattr("gristmill.tokenizer.formats.publish", fail)
    for name in ("old", "new"):
        with pytest.raises(OSError, match="no space left"):
            trained().export(tmp_path / name, format="gpt2")
    assert [path.name for path in tmp_path.iterdir()] == ["old"]
