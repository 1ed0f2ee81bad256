"""Skipped files of a folder: reported once, and only if the user may have wanted them."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

import gristmill as gm
from gristmill.cli import main


@pytest.fixture
def data(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("data/deep").mkdir(parents=True)
    Path("data/a.txt").write_text("low low lower")
    Path("data/b.jsonl").write_text('{"text": "newest"}\n')
    return Path("data")


def left_out(corpus, **options) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        gm.count_words(corpus, progress=None, **options)
    assert all(warning.category is gm.SkippedInputWarning for warning in caught)
    return [str(warning.message) for warning in caught]


def test_files_whose_suffix_is_not_known_are_counted_by_suffix(data):
    for name in ("one.md", "deep/two.md", "three.CSV", "four.json", "five.html.gz"):
        (data / name).write_text("text")
    assert left_out("data") == [
        "skipped 5 files of data with suffixes that are not read as text: .md (2), .csv (1), .html.gz (1), .json (1). "
        "To include them, pass their paths or a glob."
    ]


def test_several_folders_are_one_warning(data):
    Path("more").mkdir()
    Path("more/a.txt").write_text("text")
    for name in ("data/a.md", "more/a.md"):
        Path(name).write_text("text")
    (message,) = left_out(["data", "more"])
    assert message.startswith("skipped 2 files of 2 folders with suffixes that are not read as text: .md (2).")


def test_the_advice_works(data):
    (data / "a.md").write_text("text")
    assert left_out(["data", "data/a.md"]) != []
    assert left_out("data/*") == []
    assert gm.count_words("data/*", progress=None).count("text") == 1


@pytest.mark.parametrize(
    "name", ["README.md", "LICENSE", "LICENSE.txt.bak", "dataset_info.json", "state.json", ".x.md"]
)
def test_files_that_are_beside_every_corpus_are_not_reported(data, name):
    (data / name).write_text("text")
    assert left_out("data") == []


def test_shards_in_the_folder_of_the_corpus_are_not_reported(data):
    tok = gm.train_tokenizer("data", vocab_size=260, progress=None)
    for _ in range(2):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            gm.encode_corpus("data", tok, out="data/shards", progress=None)
    assert left_out("data") == []


def test_an_explicit_format_skips_other_files_without_a_warning(data):
    (data / "a.md").write_text("text")
    assert left_out("data", input_format="jsonl") == []


def test_a_folder_with_nothing_to_read_says_what_it_holds(data):
    for folder, what in {"deep": "it contains no files", "other": r"it contains \.md \(2\), \.csv \(1\)"}.items():
        Path(folder).mkdir()
        if folder == "other":
            for name in ("a.md", "b.md", "c.csv"):
                (Path(folder) / name).write_text("text")
        with pytest.raises(FileNotFoundError, match=what):
            gm.count_words(folder, progress=None)


def test_the_command_line_shows_it_once(data, capsys):
    (data / "a.md").write_text("text")
    arguments = ["train-tokenizer", "data", "--vocab-size", "260", "-o", "tok.json", "--progress", "none"]
    assert main(arguments) == 0
    assert capsys.readouterr().err.count("gristmill: warning: skipped 1 file of data") == 1
    assert main(["encode", "data", "-t", "tok.json", "-o", "shards", "--progress", "none"]) == 0
    assert capsys.readouterr().err.count("gristmill: warning: skipped 1 file of data") == 1
