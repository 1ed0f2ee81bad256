"""Paths that are not folders of shards, and invalid options: each message names the value and what to do."""

import json

import pytest

import gristmill as gm
from gristmill.shards import Shards, encode_corpus, verify_shards
from shards.builder import build_folder, train

TOKENIZER = train()


@pytest.fixture
def somewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "corpus.txt").write_text("low lower")
    (tmp_path / "rows.jsonl").write_text('{"text": "low"}\n')
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "a.txt").write_text("low")
    (tmp_path / "empty").mkdir()
    TOKENIZER.save(tmp_path / "tok.json")
    (tmp_path / "train.bin").write_bytes(b"\1\0")
    return tmp_path


@pytest.mark.parametrize("open_them", [Shards, verify_shards])
@pytest.mark.parametrize(
    ("path", "error", "message"),
    [
        (
            "corpus.txt",
            NotADirectoryError,
            "text file, not a folder of shards.*Encode it first with encode_corpus",
        ),
        ("rows.jsonl", NotADirectoryError, "text file.*encode_corpus"),
        ("tok.json", NotADirectoryError, "looks like a tokenizer.*Encode a corpus with it first"),
        ("train.bin", NotADirectoryError, r"a single token file\. Pass its folder"),
        ("texts", gm.ShardsFormatError, r"corpus files such as a\.txt\. Encode it first"),
        ("empty", gm.ShardsFormatError, "not a folder of shards.*encode_corpus"),
        ("missing", FileNotFoundError, "missing"),
        (5, TypeError, r"folder must be the path of a folder, got 5 \(int\)"),
        ("a\0b", gm.OptionError, "null character"),
    ],
)
def test_text_a_tokenizer_and_the_like_in_place_of_shards(open_them, path, error, message, somewhere):
    with pytest.raises(error, match=message):
        open_them(path)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"out": 5}, TypeError, r"out must be the path of a folder, got 5 \(int\)"),
        ({"out": None}, TypeError, "out must be the path of a folder, got None"),
        ({"out": "\0"}, gm.OptionError, "out=.* null character"),
        ({"format": []}, gm.OptionError, r"format=\[\] is of type list\. Pass one of 'gristmill'"),
        ({"format": None}, gm.OptionError, "format=None is of type NoneType. Pass one of 'gristmill'"),
        ({"format": "nanogtp"}, gm.OptionError, "format='nanogtp' is not valid. Did you mean 'nanogpt'"),
        ({"format": "LLMC"}, gm.OptionError, "Did you mean 'llmc'"),
        ({"format": "x"}, gm.OptionError, r"'x' is not valid\. Pass one of"),
    ],
)
def test_wrong_options_of_encode_corpus(options, error, message, tmp_path):
    with pytest.raises(error, match=message):
        encode_corpus(["low"], TOKENIZER, **{"out": tmp_path / "out", "progress": None, **options})


def test_a_name_with_a_newline_does_not_break_the_line_of_a_message(tmp_path):
    folder = tmp_path / "a\nb"
    build_folder(folder, ["low"], tokenizer=TOKENIZER)
    (folder / "shard-00009\n.bin").touch()
    report = verify_shards(folder)
    assert [str(problem).count("\n") for problem in report.problems] == [0]
    with pytest.raises(FileExistsError) as caught:
        encode_corpus(["low"], TOKENIZER, out=folder, overwrite=True, progress=None)
    assert "\n" not in str(caught.value)
    assert "\n" not in repr(Shards(folder))
    with pytest.raises(gm.OptionError) as caught:
        Shards(folder, split="val")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_damaged_manifest_says_what_to_do(overwrite, tmp_path):
    build_folder(tmp_path / "s", ["low"], tokenizer=TOKENIZER)
    path = tmp_path / "s" / "manifest.json"
    for damaged in (path.read_text().replace("uint16", "uint32"), json.dumps({}), path.read_text()[:-3]):
        path.write_text(damaged)
        with pytest.raises(gm.ShardsFormatError, match="remove the folder yourself, or pass another one"):
            encode_corpus(["low"], TOKENIZER, out=tmp_path / "s", overwrite=overwrite, progress=None)
        assert path.read_text() == damaged
