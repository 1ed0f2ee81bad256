"""Command-line options for reading a corpus."""

import gzip
import json

import pytest

import gristmill as package


@pytest.fixture
def documents(stories_path):
    return stories_path.read_text(encoding="utf-8").split("<|endoftext|>")


@pytest.fixture
def output(tmp_path):
    return tmp_path / "tok.json"


def test_a_folder_of_json_lines_with_another_field_is_a_corpus(gristmill, tmp_path, output, documents):
    folder = tmp_path / "corpus"
    folder.mkdir()
    lines = [json.dumps({"id": i, "body": text}).encode() + b"\n" for i, text in enumerate(documents)]
    (folder / "0.jsonl").write_bytes(b"".join(lines[:100]))
    (folder / "1.jsonl.gz").write_bytes(gzip.compress(b"".join(lines[100:])))
    (folder / "README.md").write_text("not text to learn from")
    code, out, err = gristmill(
        "train-tokenizer", folder, "--vocab-size", 500, "-o", output, "--text-field", "body", "--threads", 2
    )
    assert (code, err) == (0, "")
    expected = package.train_tokenizer(iter(documents), vocab_size=500, special_tokens=["<|endoftext|>"], progress=None)
    assert package.Tokenizer.load(output) == expected
    assert f"{sum(len(text.encode()) for text in documents):,} bytes" in out
    assert "(first MB of the corpus)" in out


def test_lines_separators_and_formats_can_be_chosen(gristmill, tmp_path, output):
    corpus = tmp_path / "corpus.log"
    corpus.write_text('{"text": "low low lower#newest"}\n{"text": "widest#low"}\n')
    common = ["train-tokenizer", corpus, "--vocab-size", 270, "-o", output, "--overwrite"]
    for options, texts in (
        (["--input-format", "jsonl"], ["low low lower#newest", "widest#low"]),
        (["--documents", "line"], corpus.read_text().splitlines()),
        (["--documents", "separator", "--separator", "#"], corpus.read_text().split("#")),
    ):
        assert gristmill(*common, *options)[0] == 0
        expected = package.train_tokenizer(iter(texts), vocab_size=270, special_tokens=["<|endoftext|>"], progress=None)
        assert package.Tokenizer.load(output) == expected


def test_skipping_a_bad_file_is_a_warning_and_not_skipping_it_a_failure(gristmill, stories_path, tmp_path, output):
    bad = tmp_path / "bad.txt.gz"
    bad.write_bytes(gzip.compress(stories_path.read_bytes())[:-5])
    common = ["train-tokenizer", stories_path, bad, "--vocab-size", 300, "-o", output]
    code, out, err = gristmill(*common)
    assert (code, out) == (1, "")
    assert err.startswith(f"gristmill: error: {bad}: truncated at byte {bad.stat().st_size:,}")
    assert not output.exists()
    code, _, err = gristmill(*common, "--on-error", "skip")
    assert code == 0
    assert err.startswith("gristmill: warning: 1 of 2 inputs could not be read and were skipped: ")
    assert package.Tokenizer.load(output) == package.train_tokenizer(
        stories_path, vocab_size=300, special_tokens=["<|endoftext|>"], progress=None
    )


def test_a_url_is_a_corpus(gristmill, stories_path, output):
    import fsspec

    fsspec.filesystem("memory").pipe("/cli/stories.txt", stories_path.read_bytes())
    code, out, err = gristmill("train-tokenizer", "memory://cli/stories.txt", "--vocab-size", 300, "-o", output)
    assert (code, err) == (0, "")
    assert f"{stories_path.stat().st_size:,} bytes" in out


def test_bytes_per_token_are_those_of_the_first_megabyte_in_every_format(gristmill, stories_path, tmp_path, output):
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(stories_path.read_bytes()))
    rows = set()
    for corpus in (stories_path, tmp_path / "a.txt.gz"):
        out = gristmill("train-tokenizer", corpus, "--vocab-size", 600, "-o", output, "--overwrite")[1]
        rows |= {line for line in out.splitlines() if "bytes per token" in line}
    assert len(rows) == 1
