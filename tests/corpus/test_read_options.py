"""Read options that do not apply to the corpus are errors, not ignored."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet
import pytest

import gristmill as gm

TEXTS = ["low low lower", "newest widest"]


@pytest.fixture
def corpora(tmp_path, monkeypatch):
    """Corpora of every kind, by name."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mixed").mkdir()
    for folder in (tmp_path, tmp_path / "mixed"):
        (folder / "a.txt").write_text("<|endoftext|>".join(TEXTS))
        (folder / "a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
    pa.parquet.write_table(pa.table({"text": TEXTS}), tmp_path / "a.parquet")
    return {
        "text": "a.txt",
        "jsonl": "a.jsonl",
        "parquet": "a.parquet",
        "mixed": "mixed",
        "documents": TEXTS,
        "rows": [{"text": text} for text in TEXTS],
        "table": pa.table({"text": TEXTS}),
        "column": pa.array(TEXTS),
        "words": gm.Words.from_counts({"low": 2}),
    }


FILES = {"text", "jsonl", "parquet", "mixed"}
# option -> the corpora that it applies to
APPLIES = {
    "input_format": {"text"},  # as "text"; this test does not cover others
    "text_field": {"jsonl", "parquet", "mixed", "rows", "table"},
    "documents": {"text", "mixed"},
    "separator": {"text", "mixed"},
    "on_error": FILES,
    "max_document_bytes": FILES,
}
VALUES = {
    "input_format": "text",
    "text_field": "text",
    "documents": "separator",
    "separator": "<|endoftext|>",
    "on_error": "skip",
    "max_document_bytes": 2 << 20,
}
KINDS = ("text", "jsonl", "parquet", "mixed", "documents", "rows", "table", "column", "words")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("option", VALUES)
def test_an_option_applies_or_is_an_error_that_names_it(corpora, tmp_path, kind, option):
    options = {option: VALUES[option]}
    if option == "separator":
        options["documents"] = "separator"
    if option == "input_format" and kind in FILES - {"text"}:
        pytest.skip("a file may be read in another format")
    calls = [lambda: gm.count_words(corpora[kind], progress=None, **options)]
    if kind != "words":
        tok = gm.Tokenizer((), special_tokens=["<|endoftext|>"])
        calls.append(lambda: gm.encode_corpus(corpora[kind], tok, out=tmp_path / "out", progress=None, **options))
    for call in calls:
        if kind in APPLIES[option]:
            call()
            continue
        wrong = "documents" if option == "separator" else option
        with pytest.raises(gm.OptionError, match=rf"^{wrong}=.* does not apply: .*Leave it out"):
            call()


@pytest.mark.parametrize("kind", KINDS)
def test_values_that_ask_for_nothing_are_no_error(corpora, kind):
    gm.count_words(corpora[kind], input_format="auto", on_error="raise", progress=None)


def test_a_separator_needs_documents_that_have_one(corpora):
    for options in ({}, {"documents": "file"}, {"documents": "line"}):
        with pytest.raises(gm.OptionError, match=r"separator='x' does not apply to documents=.*documents='separator'"):
            gm.count_words("a.txt", separator="x", progress=None, **options)


def test_the_separator_that_encoding_sets_itself_is_not_one_that_was_given(corpora, tmp_path):
    tok = gm.Tokenizer((), special_tokens=["<|endoftext|>"])
    for number, (kind, options) in enumerate(
        [("parquet", {}), ("text", {"documents": "line"}), ("documents", {}), ("table", {})]
    ):
        gm.encode_corpus(corpora[kind], tok, out=tmp_path / str(number), progress=None, **options)


def test_the_command_line_passes_only_what_was_given(corpora, tmp_path, capsys):
    from gristmill.cli import main

    for name in ("a.txt", "a.parquet", "mixed"):
        out = str(tmp_path / f"{name}.json")
        assert main(["train-tokenizer", name, "--vocab-size", "260", "-o", out, "--progress", "none"]) == 0
        shards = str(tmp_path / f"shards-{name}")
        assert main(["encode", name, "-t", out, "-o", shards, "--progress", "none"]) == 0
    out = str(tmp_path / "wrong.json")
    assert main(["train-tokenizer", "a.txt", "--vocab-size", "260", "-o", out, "--text-field", "body"]) != 0
    assert "does not apply" in capsys.readouterr().err


def test_advice_to_skip_is_not_given_to_those_who_do(corpora, tmp_path):
    (tmp_path / "mixed" / "b.jsonl").write_text("not JSON\n")
    (tmp_path / "mixed" / "c.txt.gz").write_bytes(b"not gzip")
    with pytest.raises(gm.DamagedInputError, match="on_error='skip'"):
        gm.count_words("mixed", progress=None)
    with pytest.warns(gm.SkippedInputWarning, match="2 of 4 inputs") as caught:
        gm.count_words("mixed", on_error="skip", progress=None)
    assert all("on_error" not in str(warning.message) for warning in caught)
    tok = gm.Tokenizer((), special_tokens=["<|endoftext|>"])
    with pytest.warns(gm.SkippedInputWarning, match="2 of 4 inputs") as caught:
        run = gm.encode_corpus("mixed", tok, out=tmp_path / "out", on_error="skip", progress=None)
    assert all("on_error" not in str(warning.message) for warning in caught)
    assert all("on_error" not in (entry.skipped or "") for entry in run.manifest.inputs)
