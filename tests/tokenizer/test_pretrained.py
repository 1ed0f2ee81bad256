"""Tokenizer.from_pretrained: folders, and names on the Hub with a fake huggingface_hub."""

from __future__ import annotations

import sys
import types
import warnings

import pytest

import gristmill as gm
from gristmill.errors import FormatWarning
from texts import STORY


@pytest.fixture(scope="module")
def tok():
    return gm.train_tokenizer(
        [STORY], vocab_size=300, pattern="gpt2", special_tokens=["<|endoftext|>", "<s>"], num_threads=1, progress=None
    )


@pytest.fixture
def hub(monkeypatch):
    """A fake huggingface_hub that returns `hub.folder` or raises `hub.error`, and records its requests."""
    module = types.ModuleType("huggingface_hub")
    module.asked, module.folder, module.error = [], None, None

    def snapshot_download(name, **options):
        module.asked.append((name, options))
        if module.error is not None:
            raise module.error
        return str(module.folder)

    module.snapshot_download = snapshot_download
    monkeypatch.setitem(sys.modules, "huggingface_hub", module)
    return module


def export(tok, path, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FormatWarning)
        tok.export(path, **options)


@pytest.mark.parametrize(
    ("format", "name"),
    [
        ("huggingface", "model"),
        ("gpt2", "model"),
        ("minbpe", "model/tokenizer.model"),
        ("gristmill", "model/tokenizer.json"),
        ("gristmill", "model/mill.json"),
        ("tiktoken", "model/mill.tiktoken"),
    ],
)
def test_a_folder_with_a_tokenizer_of_any_format_is_read(tok, format, name, tmp_path, hub):
    (tmp_path / "model").mkdir()
    export(tok, tmp_path / name, format=format)
    (tmp_path / "model" / "config.json").write_text("{}")
    (tmp_path / "model" / "generation_config.json").write_text('{"max_length": 20}')
    (tmp_path / "model" / "added_tokens.json").write_text('{"<pad>": 300}')
    given = {"pattern": "gpt2", "special_tokens": tok.special_tokens} if format == "tiktoken" else {}
    again = gm.Tokenizer.from_pretrained(tmp_path / "model", **given)
    assert (again.vocab, again.special_tokens, again.pattern) == (tok.vocab, tok.special_tokens, tok.pattern)
    assert gm.Tokenizer.from_pretrained(str(tmp_path / name), **given) == again
    assert gm.Tokenizer.load(tmp_path / "model", **given) == again
    assert gm.Tokenizer.load(tmp_path / "model", format=format, **given) == again
    assert hub.asked == []


def test_a_folder_wins_over_a_name_on_the_hub(tok, tmp_path, monkeypatch, hub):
    monkeypatch.chdir(tmp_path)
    tok.export("gpt2", format="huggingface")
    assert gm.Tokenizer.from_pretrained("gpt2") == tok
    assert hub.asked == []
    with pytest.raises(gm.OptionError, match="revision='main' applies to names on the Hub, but gpt2 is a path"):
        gm.Tokenizer.from_pretrained("gpt2", revision="main")


@pytest.mark.parametrize("name", ["gpt2", "owner/some-model.v2"])
def test_a_name_is_downloaded_and_nothing_but_tokenizer_files(tok, name, tmp_path, hub):
    hub.folder = tmp_path / "snapshot"
    tok.export(hub.folder, format="huggingface")
    assert gm.Tokenizer.from_pretrained(name, revision="v1.0") == tok
    ((asked, options),) = hub.asked
    assert (asked, options["revision"]) == (name, "v1.0")
    allowed = options["allow_patterns"]
    assert {"tokenizer.json", "vocab.json", "merges.txt"} <= set(allowed)
    assert not any(word in pattern for pattern in allowed for word in ("safetensors", "bin", "pkl", ".pt", ".py"))


def test_what_the_hub_refuses_is_one_plain_line(tmp_path, hub):
    hub.error = OSError("401 Client Error.\n\nRepository Not Found for url: https://…")
    with pytest.raises(
        FileNotFoundError,
        match=r"^owner/name: .*the download from the Hugging Face Hub failed at revision='x': 401 Client Error\.$",
    ):
        gm.Tokenizer.from_pretrained("owner/name", revision="x")
    hub.error, hub.folder = None, tmp_path
    with pytest.raises(gm.TokenizerFormatError, match=r"^owner/name: the folder has no tokenizer file"):
        gm.Tokenizer.from_pretrained("owner/name")


def test_without_huggingface_hub_the_message_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(gm.MissingPackageError, match=r"^gpt2: no such folder\. .*pip install huggingface_hub$"):
        gm.Tokenizer.from_pretrained("gpt2")


@pytest.mark.parametrize("name", ["./missing", "a/b/c", "/no/such", "~/x", "a//b", "name with spaces", "../x"])
def test_what_cannot_be_a_name_is_a_path_that_is_missing(name, hub, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises((FileNotFoundError, gm.TokenizerFormatError)):
        gm.Tokenizer.from_pretrained(name)
    assert hub.asked == []


@pytest.mark.parametrize("load", [gm.Tokenizer.load, gm.Tokenizer.from_pretrained])
def test_an_empty_name_is_not_the_current_folder(load, tok, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tok.save("tokenizer.json")
    with pytest.raises(gm.OptionError, match=r"^(path|name)='' is empty\. Pass the path of a tokenizer"):
        load("")
    assert load(".") == tok


@pytest.mark.parametrize("load", [gm.Tokenizer.load, gm.Tokenizer.from_pretrained])
def test_an_object_in_place_of_a_path_names_the_methods_for_objects(load, tok):
    for wrong, kind in ((None, "NoneType"), (tok.to_huggingface(), "Tokenizer"), (5, "int")):
        with pytest.raises(
            TypeError, match=rf"^(path|name) is of type {kind}, not a path.*from_huggingface.*from_tiktoken"
        ):
            load(wrong)


def test_load_of_a_name_that_may_be_on_the_hub_mentions_from_pretrained(tmp_path, monkeypatch, hub):
    monkeypatch.chdir(tmp_path)
    for name in ("gpt2", "openai-community/gpt2"):
        with pytest.raises(FileNotFoundError, match=rf"No such file or folder.*from_pretrained\('{name}'\)"):
            gm.Tokenizer.load(name)
    with pytest.raises(FileNotFoundError, match=r"tokenizer='owner/gpt2'.*from_pretrained\('owner/gpt2'\)"):
        gm.encode_corpus([STORY], "owner/gpt2", out=tmp_path / "out", progress=None)
    for name in ("tok.json", "./gpt2", str(tmp_path / "gpt2")):
        with pytest.raises(FileNotFoundError, match=r"^(?!.*from_pretrained)"):
            gm.Tokenizer.load(name)
    assert hub.asked == []


def test_a_revision_is_a_str(hub):
    with pytest.raises(gm.OptionError, match=r"^revision=5 is of type int\. Pass the name of a branch, tag or commit"):
        gm.Tokenizer.from_pretrained("a/b", revision=5)
    assert hub.asked == []


def test_several_candidates_are_named(tok, tmp_path):
    tok.save(tmp_path / "a.json")
    tok.save(tmp_path / "b.json")
    with pytest.raises(
        gm.TokenizerFormatError, match=r"has 2 files that may be tokenizers: a\.json, b\.json\. Pass the"
    ):
        gm.Tokenizer.from_pretrained(tmp_path)
    with pytest.raises(gm.TokenizerFormatError, match=r"has 2 files that may be tokenizers: a\.json, b\.json"):
        gm.Tokenizer.load(tmp_path)


def test_the_tie_break_can_be_passed(tok, tmp_path):
    tok.export(tmp_path / "m", format="huggingface")
    assert gm.Tokenizer.from_pretrained(tmp_path / "m", tie_break="smallest-ids").tie_break == "smallest-ids"
    with pytest.raises(gm.OptionError, match=r"^tie_break='none'"):
        gm.Tokenizer.from_pretrained(tmp_path / "m", tie_break="none")


def test_another_tie_break_than_the_file_records_is_an_error_that_names_the_file(tok, tmp_path, hub):
    tok.save(tmp_path / "tokenizer.json")
    hub.folder = tmp_path
    for name, shown in ((tmp_path, tmp_path / "tokenizer.json"), ("owner/name", "owner/name/tokenizer.json")):
        with pytest.raises(gm.OptionError) as caught:
            gm.Tokenizer.from_pretrained(name, tie_break="huggingface")
        start = f"{shown}: tie_break='huggingface', but the file records tie_break='greatest-bytes'."
        assert str(caught.value).startswith(start)


def test_an_error_names_the_file_that_was_found_in_a_folder(tok, tmp_path):
    export(tok, tmp_path / "mill.tiktoken", format="tiktoken")
    for read in (gm.Tokenizer.load, gm.Tokenizer.from_pretrained):
        with pytest.raises(
            gm.TokenizerFormatError, match=r"mill\.tiktoken: a \.tiktoken file does not store the pattern"
        ):
            read(tmp_path)


def test_a_model_file_of_another_tool_is_passed_over(tok, tmp_path):
    (tmp_path / "tokenizer.model").write_bytes(b"\n\x0e\n\x05<unk>\x15\x00\x00\x00\x00\x18\x02")  # SentencePiece
    with pytest.raises(gm.TokenizerFormatError, match="has no tokenizer file"):
        gm.Tokenizer.load(tmp_path)
    tok.save(tmp_path / "mill.json")
    assert gm.Tokenizer.load(tmp_path) == tok


def test_what_encodes_a_corpus_takes_a_folder_with_a_file_of_any_name(tok, tmp_path):
    (tmp_path / "model").mkdir()
    tok.save(tmp_path / "model" / "mill.json")
    gm.encode_corpus([STORY], tmp_path / "model", out=tmp_path / "shards", progress=None)
    assert gm.Shards(tmp_path / "shards").tokenizer == tok
