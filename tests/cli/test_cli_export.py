"""gristmill export."""

import json

import pytest

import gristmill as package
from gristmill.cli.options import UsageError
from gristmill.cli.tokenizers import parse_special_tokens
from gristmill.tokenizer.formats import FORMATS

WRITTEN = {
    "gristmill": ("tok.json", ["tok.json"]),
    "huggingface": ("folder", ["tokenizer.json", "tokenizer_config.json"]),
    "gpt2": ("folder", ["merges.txt", "tokenizer_config.json", "vocab.json"]),
    "tiktoken": ("tok.tiktoken", ["tok.tiktoken"]),
    "minbpe": ("tok", ["tok.model", "tok.vocab"]),
    "gguf": ("tok.gguf", ["tok.gguf"]),
}


@pytest.mark.parametrize("format", FORMATS)
def test_what_was_written_is_shown_and_loads_as_the_same_tokenizer(gristmill, tokenizer_path, tmp_path, format):
    name, files = WRITTEN[format]
    code, out, err = gristmill("export", tokenizer_path, "-f", format, "-o", tmp_path / name)
    assert code == 0
    assert err.startswith("gristmill: warning: a .tiktoken file stores neither") if format == "tiktoken" else err == ""
    assert sorted(path.name for path in tmp_path.rglob("*") if path.is_file()) == files
    assert all(file in out for file in files)
    for part in ("1,000", "743 merges", "1 special", "gpt2", format):
        assert part in out
    if format == "gguf":
        return
    given = {"pattern": "gpt2", "special_tokens": {"<|endoftext|>": 999}} if format == "tiktoken" else {}
    path = tmp_path / ("tok.model" if format == "minbpe" else name)
    assert package.Tokenizer.load(path, **given).vocab == package.Tokenizer.load(tokenizer_path).vocab


def test_one_foreign_format_becomes_another(gristmill, tokenizer_path, tmp_path):
    gristmill("export", tokenizer_path, "-f", "tiktoken", "-o", tmp_path / "a.tiktoken")
    specials = ["--special-tokens", "<|endoftext|>=999"]
    code, _, err = gristmill(
        *("export", tmp_path / "a.tiktoken", "-f", "huggingface", "-o", tmp_path / "b.json", "--pattern", "gpt2"),
        *specials,
    )
    assert (code, err) == (0, "")
    gristmill("export", tokenizer_path, "-f", "huggingface", "-o", tmp_path / "c.json")
    assert (tmp_path / "b.json").read_bytes() == (tmp_path / "c.json").read_bytes()


def test_a_file_without_a_pattern_says_which_option_is_missing(gristmill, tokenizer_path, tmp_path):
    gristmill("export", tokenizer_path, "-f", "tiktoken", "-o", tmp_path / "a.tiktoken")
    code, out, err = gristmill("export", tmp_path / "a.tiktoken", "-f", "gguf", "-o", tmp_path / "b.gguf")
    assert (code, out) == (1, "")
    assert "does not store the pattern" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("format", FORMATS)
def test_existing_output_is_replaced_only_with_overwrite(gristmill, tokenizer_path, tmp_path, format):
    name, files = WRITTEN[format]
    arguments = ("export", tokenizer_path, "-f", format, "-o", tmp_path / name)
    gristmill(*arguments)
    path = next(path for path in tmp_path.rglob("*") if path.name == files[0])
    path.write_text("precious")
    code, out, err = gristmill(*arguments)
    assert (code, out) == (1, "")
    assert "already exists. Pass --overwrite to replace it" in err
    assert path.read_text() == "precious"
    assert gristmill(*arguments, "--overwrite")[0] == 0
    assert path.read_bytes() != b"precious"


@pytest.mark.parametrize("format", ["huggingface", "gpt2"])
@pytest.mark.parametrize("options", [[], ["--overwrite"]])
def test_a_file_where_a_folder_is_needed_is_not_a_matter_of_overwriting(
    gristmill, tokenizer_path, tmp_path, format, options
):
    (tmp_path / "corpus.txt").write_text("precious")
    code, _, err = gristmill("export", tokenizer_path, "-f", format, "-o", tmp_path / "corpus.txt", *options)
    assert code == 1
    assert err.startswith(f"gristmill: error: {tmp_path / 'corpus.txt'}: Is a file; pass the name of a folder")
    assert (tmp_path / "corpus.txt").read_text() == "precious"


def test_where_ids_would_differ_nothing_is_written(gristmill, tokenizer_path, tmp_path):
    package.Tokenizer([], special_tokens=["end of text"]).save(tmp_path / "t.json")
    code, out, err = gristmill("export", tmp_path / "t.json", "-f", "minbpe", "-o", tmp_path / "u")
    assert (code, out) == (1, "")
    assert err.startswith(f"gristmill: error: {tmp_path / 'u'}: the special token 'end of text' contains white space")
    assert not list(tmp_path.glob("u*"))


def test_options_of_a_format_reach_it_and_no_other(gristmill, tokenizer_path, tmp_path):
    path = tmp_path / "t.json"
    assert gristmill("export", tokenizer_path, "-f", "huggingface", "-o", path, "--legacy-merges")[0] == 0
    assert json.loads(path.read_text(encoding="utf-8"))["model"]["merges"][0] == "h e"
    assert gristmill("export", tokenizer_path, "-f", "gguf", "-o", tmp_path / "t.gguf", "--pre", "mill")[0] == 0
    assert b"mill" in (tmp_path / "t.gguf").read_bytes()
    arguments = ("export", tokenizer_path, "-f", "gguf", "-o", tmp_path / "u.gguf", "--eos-token")
    assert gristmill(*arguments, "<|endoftext|>")[0] == 0
    code, _, err = gristmill(*arguments, "</s>", "--overwrite")
    assert code == 2
    assert "--eos-token '</s>' is not a special token" in err
    code, _, err = gristmill("export", tokenizer_path, "-f", "gguf", "-o", path, "--legacy-merges", "--overwrite")
    assert (code, err) == (2, "gristmill: error: --legacy-merges is not supported by -f gguf. Omit it.\n")


def test_an_unknown_format_is_a_usage_error(gristmill, tokenizer_path, tmp_path):
    code, out, err = gristmill("export", tokenizer_path, "-f", "pickle", "-o", tmp_path / "x")
    assert (code, out) == (2, "")
    assert "huggingface" in err


def test_special_tokens_have_all_ids_or_none():
    assert parse_special_tokens([]) is None
    assert parse_special_tokens(["<a=1>", "="]) == ["<a=1>", "="]
    with pytest.raises(UsageError, match="tokens with an id and tokens without"):
        parse_special_tokens(["<s>=300", "<t>"])


def test_a_file_without_a_pattern_asks_for_the_option(gristmill, tokenizer_path, tmp_path):
    path = tmp_path / "t.tiktoken"
    assert gristmill("export", tokenizer_path, "-f", "tiktoken", "-o", path)[0] == 0
    code, _, err = gristmill("inspect", path)
    assert code == 1
    assert "Pass --pattern, and --special-tokens" in err
    assert gristmill("inspect", path, "--pattern", "gpt2")[0] == 0
