"""Row 26: nothing to read, nothing to learn, nothing to encode."""

from __future__ import annotations

import gzip
import warnings
from pathlib import Path

import numpy as np
import pytest

import gristmill as gm
from faults.rows.entry_points import TOKENIZER
from faults.rows.fault import Fault
from gristmill.cli import main

FAULT = Fault(
    row=26,
    injected="Empty files, folders, tables and iterables; blank lines, null and empty texts; only special tokens; a "
    "vocabulary that is too small, or larger than the corpus has pairs",
    promise="A corpus without text is `EmptyCorpusError` for training and counting, and one without documents for "
    "encoding; an empty document has no ids but its end-of-text id. A vocabulary that is too small is "
    "`VocabSizeError` with the least one. If no pair is left, the tokenizer is smaller, with `EarlyStopWarning`",
    see_also=("tests/test_train.py", "tests/count/test_count.py", "tests/lm/test_generate.py"),
)

END = "<|endoftext|>"


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> Path:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet  # noqa: F401 - pa.parquet

    folder = tmp_path_factory.mktemp("files")
    for name, data in {
        "empty.txt": b"",
        "empty.jsonl": b"",
        "blank.jsonl": b"\n \n\r\n",
        "empty.txt.gz": gzip.compress(b""),
        "spaces.txt": b"  \n\n ",
        "specials.txt": 2 * END.encode(),
        "empty_texts.jsonl": b'{"text": ""}\n' * 2,
    }.items():
        (folder / name).write_bytes(data)
    for name, texts in {"empty": [], "nulls": [None, None], "empty_texts": ["", ""]}.items():
        pa.parquet.write_table(pa.table({"text": pa.array(texts, pa.string())}), folder / f"{name}.parquet")
    (folder / "no_files").mkdir()
    return folder


WITHOUT_TEXT = ("empty.txt", "empty.jsonl", "blank.jsonl", "empty.txt.gz", "empty.parquet", "nulls.parquet")
EMPTY_TEXTS = ("empty_texts.jsonl", "empty_texts.parquet")
ITERABLES = ([], (), iter([]), [""], ["", b""])


@pytest.mark.parametrize("name", [*WITHOUT_TEXT, *EMPTY_TEXTS])
def test_row_26_a_corpus_without_text_cannot_be_learned_from(files, name):
    for call in (gm.count_words, lambda corpus, **options: gm.train_tokenizer(corpus, vocab_size=300, **options)):
        with pytest.raises(gm.EmptyCorpusError, match=r"the corpus is empty: 0 bytes of text\. Pass files"):
            call(files / name, progress=None)


@pytest.mark.parametrize("corpus", ITERABLES)
def test_row_26_an_iterable_without_text_cannot_be_learned_from(corpus):
    with pytest.raises(gm.EmptyCorpusError, match="the corpus is empty"):
        gm.count_words(corpus, progress=None)


@pytest.mark.parametrize("name", WITHOUT_TEXT)
def test_row_26_a_corpus_without_documents_leaves_no_folder(files, tmp_path, name):
    with pytest.raises(gm.EmptyCorpusError, match=r"the corpus has no documents.*No folder was made"):
        gm.encode_corpus(files / name, TOKENIZER, out=tmp_path / "out", progress=None)
    assert not list(tmp_path.iterdir())


def test_row_26_empty_inputs_beside_others_change_nothing(files, tmp_path):
    both = [files / name for name in ("empty.txt", "spaces.txt", "empty.jsonl", "empty.parquet")]
    assert dict(gm.count_words(both, progress=None).items()) == {b"  \n\n ": 1}
    shards = gm.encode_corpus(both, TOKENIZER, out=tmp_path / "out", progress=None).shards("train")
    assert [TOKENIZER.decode(document) for document in shards] == [f"  \n\n {END}"]


@pytest.mark.parametrize("name", EMPTY_TEXTS)
def test_row_26_an_empty_document_is_its_end_of_text(files, tmp_path, name):
    shards = gm.encode_corpus(files / name, TOKENIZER, out=tmp_path / "out", progress=None).shards("train")
    assert [TOKENIZER.decode(document) for document in shards] == [END, END]


def test_row_26_special_tokens_alone_are_no_text(files):
    with pytest.raises(gm.EmptyCorpusError, match="contains only special tokens"):
        gm.train_tokenizer(files / "specials.txt", vocab_size=300, special_tokens=[END], progress=None)


def test_row_26_a_folder_without_files_is_an_error_that_lists_the_suffixes(files):
    with pytest.raises(FileNotFoundError, match=r"No file with a known suffix.*it contains no files"):
        gm.count_words(files / "no_files", progress=None)


@pytest.mark.parametrize("size", [-(2**63), -1, 0, 255, 256])
def test_row_26_a_vocabulary_that_is_too_small_names_the_least_one(size):
    with pytest.raises(gm.VocabSizeError, match=rf"vocab_size={size} is too small.*Pass vocab_size >= 257"):
        gm.train_tokenizer(["aaab"], vocab_size=size, special_tokens=[END], progress=None)


@pytest.mark.parametrize(("size", "num_merges"), [(257, 0), (258, 1), (300, 3)])
def test_row_26_training_ends_when_no_pair_is_left(size, num_merges):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        tok = gm.train_tokenizer(["aaab"], vocab_size=size, special_tokens=[END], progress=None)
    assert len(tok.merges) == num_merges
    messages = [str(warning.message) for warning in caught if warning.category is gm.EarlyStopWarning]
    assert len(messages) == (size == 300)
    assert all("no pair is left to merge" in message and "vocab_size" in message for message in messages)
    assert tok.decode(tok.encode("aaab")) == "aaab"


def test_row_26_nothing_has_no_ids(files):
    tok = TOKENIZER
    assert tok.encode("") == tok.encode_array("").tolist() == tok.encode_file(files / "empty.txt").tolist() == []
    assert list(tok.encode_iterable([])) == list(tok.encode_iterable(["", ""])) == []
    assert tok.encode_batch([]).offsets.tolist() == [0] and tok.encode_batch(["", ""]).offsets.tolist() == [0, 0, 0]
    assert (tok.decode([]), tok.decode_bytes(np.empty(0, np.uint32)), tok.count_tokens("")) == ("", b"", 0)
    assert gm.pretokenize("") == []
    decoder = tok.stream_decoder()
    assert decoder.push([]) + decoder.finish() == ""


@pytest.mark.parametrize("name", [*WITHOUT_TEXT, "no_files"])
def test_row_26_commands_report_it_in_one_line(files, tmp_path, capsys, name):
    TOKENIZER.save(tmp_path / "tok.json")
    for command in (
        ["count-words", str(files / name), "-o", str(tmp_path / "words.gmw")],
        ["train-tokenizer", str(files / name), "--vocab-size", "300", "-o", str(tmp_path / "new.json")],
        ["encode", str(files / name), "-t", str(tmp_path / "tok.json"), "-o", str(tmp_path / "shards")],
    ):
        assert main(command) == 1
        errors = [line for line in capsys.readouterr().err.splitlines() if "error" in line or "Traceback" in line]
        assert len(errors) == 1 and errors[0].startswith("gristmill: error"), errors
    assert [path.name for path in tmp_path.iterdir()] == ["tok.json"]
