"""Row 26: inputs without content, and requests that leave nothing to do, in Python and on the command line."""

from __future__ import annotations

import gzip
import io
import sys
import warnings

import numpy as np
import pytest

import gristmill as gm
from faults.rows.fault import Fault
from gristmill.cli import main
from gristmill.corpus.packages import load_zstd

FAULT = Fault(
    row=26,
    injected="Empty files, corpora, tables and texts; only white space or special tokens; `vocab_size` below 256; no "
    "pair left to merge; no documents to encode; shards without tokens; empty prompts",
    promise="A defined result, with a warning where less was made than asked for, or an error that says what to do; "
    "never a traceback on the command line, and no output after an error",
    see_also=(
        "tests/test_train.py",
        "tests/corpus/test_tables.py",
        "tests/corpus/test_corpus_formats.py",
        "tests/report/test_tokenizer_report.py",
        "tests/lm/test_generate.py",
        "tests/lm/test_latent.py",
    ),
)

EOT = "<|endoftext|>"
TOK = gm.Tokenizer([(b"l", b"o"), (b"lo", b"w")], special_tokens=[EOT])
LAYOUTS = ("gristmill", "nanogpt", "llmc", "megatron", "npy", "parquet", "datatrove")


def write_corpus(name, folder):
    """Write a corpus without text, and return what to pass; documents is their number as `encode_corpus` counts."""
    path = folder / name
    text = {"spaces.txt": b" \n\t \n", "specials.txt": EOT.encode() * 3, "lines.jsonl": b"\n\n\n"}.get(name, b"")
    if name == "nulls.jsonl":
        text = b'{"text": null}\n{"text": ""}\n'
    if path.suffix == ".gz":
        text = gzip.compress(text)
    elif path.suffix == ".zst":
        text = load_zstd().compress(text)
    if path.suffix in (".parquet", ".arrow"):
        pa = pytest.importorskip("pyarrow")
        rows = {"none.parquet": [], "nulls.parquet": [None, None], "empty.parquet": [""]}.get(name, [])
        table = pa.table({"text": pa.array(rows, pa.string())})
        if path.suffix == ".parquet":
            pytest.importorskip("pyarrow.parquet").write_table(table, path)
        else:
            with pa.ipc.new_file(path, table.schema) as file:
                file.write(table)
    else:
        path.write_bytes(text)
    return path


# The number of documents that encode_corpus finds. Without documents it raises EmptyCorpusError.
FILES = {
    "empty.txt": 0,
    "empty.jsonl": 0,
    "empty.txt.gz": 0,
    "empty.txt.zst": 0,
    "lines.jsonl": 0,
    "none.parquet": 0,
    "none.arrow": 0,
    "nulls.parquet": 0,
    "empty.parquet": 1,
    "nulls.jsonl": 1,
    "specials.txt": 3,
}


@pytest.mark.parametrize("name", FILES)
def test_row_26_a_file_without_text_is_an_empty_corpus_for_training_and_counting(name, tmp_path, capsys):
    path = write_corpus(name, tmp_path)
    for call in (
        lambda: gm.train_tokenizer(path, vocab_size=300, progress=None),
        lambda: gm.count_words(path, progress=None),
        lambda: gm.count_words(path, executor=gm.Local(num_workers=1, work_folder=tmp_path / "w"), progress=None),
        lambda: TOK.extended(path, vocab_size=300, progress=None),
    ):
        with pytest.raises(gm.EmptyCorpusError, match=r"the corpus .*Pass files or documents with text\.$"):
            call()
    assert main(["train-tokenizer", str(path), "--vocab-size", "300", "-o", str(tmp_path / "t.json")]) == 1
    assert main(["count-words", str(path), "-o", str(tmp_path / "w.gmw")]) == 1
    assert capsys.readouterr().err.count("gristmill: error: the corpus ") == 2
    assert not list(tmp_path.glob("*.gmw")) and not list(tmp_path.glob("*.json"))


@pytest.mark.parametrize("name", FILES)
def test_row_26_a_file_without_text_gives_its_empty_documents_or_no_shards(name, tmp_path, capsys):
    path, num_documents = write_corpus(name, tmp_path), FILES[name]
    TOK.save(tmp_path / "tok.json")
    command = ["encode", str(path), "-t", str(tmp_path / "tok.json"), "-o", str(tmp_path / "s")]
    if num_documents == 0:
        with pytest.raises(gm.EmptyCorpusError, match=r"the corpus has no documents.*No folder was made\."):
            gm.encode_corpus(path, TOK, out=tmp_path / "s", progress=None)
        assert main(command) == 1
        assert "gristmill: error: the corpus has no documents" in capsys.readouterr().err
        assert not (tmp_path / "s").exists()
        return
    assert main(command) == 0
    shards = gm.Shards(tmp_path / "s")
    assert [ids.tolist() for ids in shards] == [[TOK.special_tokens[EOT]]] * num_documents
    assert [shards.decode(i) for i in range(num_documents)] == [EOT] * num_documents or shards.decode(0) == ""
    assert gm.verify_shards(tmp_path / "s").is_sound


def test_row_26_a_truncated_compressed_file_of_no_bytes_is_not_an_empty_corpus(tmp_path):
    for name in ("a.txt.gz", "a.txt.zst", "a.jsonl.gz"):
        (tmp_path / name).touch()
        with pytest.raises(gm.TruncatedInputError, match=r"truncated at byte 0"):
            gm.count_words(tmp_path / name, progress=None)


@pytest.mark.parametrize("documents", [[], [""], ["", ""], [EOT], iter(()), (text for text in ()), gm.Documents([])])
def test_row_26_documents_without_text_are_an_empty_corpus(documents, tmp_path):
    with pytest.raises(gm.EmptyCorpusError, match="Pass files or documents with text"):
        gm.train_tokenizer(documents, vocab_size=300, progress=None)


def test_row_26_tables_without_rows_are_an_empty_corpus(tmp_path):
    pa = pytest.importorskip("pyarrow")
    for table in (pa.table({"text": pa.array([], pa.string())}), pa.table({"text": pa.array([None], pa.string())})):
        with pytest.raises(gm.EmptyCorpusError):
            gm.train_tokenizer(table, vocab_size=300, progress=None)
        with pytest.raises(gm.EmptyCorpusError):
            gm.encode_corpus(table, TOK, out=tmp_path / "s", progress=None)
    assert list(tmp_path.iterdir()) == []


def test_row_26_a_table_of_no_words_is_saved_shown_and_added_but_not_trained_on(tmp_path, capsys):
    path = tmp_path / "none.gmw"
    gm.Words.from_counts({}).save(path)
    words = gm.Words.load(path)
    assert (len(words), words.num_pieces, words.most_common(3), list(words)) == (0, 0, [], [])
    assert list((words + words).items()) == [] and "0 distinct" in repr(words) and words._repr_html_()
    assert main(["inspect", str(path)]) == 0
    with pytest.raises(gm.EmptyCorpusError):
        gm.train_tokenizer(words, vocab_size=300, progress=None)
    assert main(["train-tokenizer", str(path), "--vocab-size", "300", "-o", str(tmp_path / "t.json")]) == 1
    with pytest.raises(gm.EmptyCorpusError, match="min_frequency=9"):
        gm.train_tokenizer(gm.Words.from_counts({"a": 1}), vocab_size=300, min_frequency=9, progress=None)


@pytest.mark.parametrize("vocab_size", [-1, 0, 1, 255, 256])
def test_row_26_a_vocabulary_that_does_not_hold_the_bytes_is_refused(vocab_size, tmp_path, capsys):
    message = rf"vocab_size={vocab_size} is too small: 256 byte tokens and 1 special .*Pass vocab_size >= 257\."
    (tmp_path / "a.txt").write_text("low")
    with pytest.raises(gm.VocabSizeError, match=message):
        gm.train_tokenizer(["low low"], vocab_size=vocab_size, progress=None)
    with pytest.raises(gm.VocabSizeError, match=message):
        TOK.truncated(vocab_size)
    command = ["train-tokenizer", str(tmp_path / "a.txt"), f"--vocab-size={vocab_size}", "-o", str(tmp_path / "t.json")]
    assert main(command) == 2
    assert f"--vocab-size {vocab_size} is too small" in capsys.readouterr().err
    assert not (tmp_path / "t.json").exists()


@pytest.mark.parametrize("text", ["a", "a b c", " ", "aa", "é", EOT + "x"])
def test_row_26_a_corpus_with_no_pair_left_gives_a_smaller_tokenizer_and_a_warning(text, tmp_path, capsys):
    with pytest.warns(gm.EarlyStopWarning, match=r"learned \d+ of [\d,]+ merges: no pair is left.* instead of 5,000"):
        tok = gm.train_tokenizer([text], vocab_size=5000, progress=None)
    assert tok.vocab_size == 257 + len(tok.merges) < 265
    assert tok.decode(tok.encode(text)) == text
    assert gm.Tokenizer.load(tok.save(tmp_path / "t.json") or tmp_path / "t.json") == tok
    (tmp_path / "a.txt").write_text(text)
    command = ["train-tokenizer", str(tmp_path / "a.txt"), "--vocab-size", "5000", "-o", str(tmp_path / "c.json")]
    assert main(command) == 0
    captured = capsys.readouterr()
    assert "no pair is left to merge" in captured.err + captured.out
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert gm.train_tokenizer([text], vocab_size=257, progress=None).merges == []  # nothing was asked for


def test_row_26_texts_and_ids_of_length_zero_have_results_of_length_zero(tmp_path):
    (tmp_path / "a.txt").touch()
    for tok in (TOK, gm.Tokenizer([]), gm.Tokenizer(TOK.merges, pattern=r"\w+")):
        for empty in ("", b""):
            assert tok.encode(empty) == tok.encode_ordinary(empty) == tok.encode_array(empty).tolist() == []
            assert tok.count_tokens(empty) == 0
            assert tok.encode_batch([empty, "low", empty]).tolist() == [[], tok.encode("low"), []]
            assert list(tok.encode_iterable([empty, empty])) == []
            assert len(tok.encode_with_offsets(empty).ids) == 0
        assert len(tok.encode_batch([])) == 0 and list(tok.encode_iterable([])) == []
        assert tok.encode_file(tmp_path / "a.txt").tolist() == []
        for ids in ([], (), np.array([], np.uint16), np.array([], np.int64)):
            assert (tok.decode(ids), tok.decode_bytes(ids)) == ("", b"")
        assert (tok.decode_batch([]), tok.decode_batch([[], []])) == ([], ["", ""])
        assert tok.stream_decoder().push([]) + tok.stream_decoder().finish() == ""
        with pytest.raises(gm.UnknownTokenError):
            tok.id_of("")
    assert gm.pretokenize("") == []


@pytest.mark.parametrize("name", LAYOUTS)
def test_row_26_shards_of_no_tokens_are_written_read_and_verified(name, tmp_path, capsys):
    if name == "parquet":
        pytest.importorskip("pyarrow")
    run = gm.encode_corpus(["", ""], TOK, out=tmp_path / "s", format=name, end_of_text=None, progress=None)
    assert (run.num_documents, run.num_tokens) == (2, 0)
    assert gm.verify_shards(tmp_path / "s").is_sound
    assert main(["verify", str(tmp_path / "s")]) == 0
    assert main(["inspect", str(tmp_path / "s")]) == 0
    assert "Traceback" not in capsys.readouterr().err
    if name == "parquet":
        return
    shards = gm.Shards(tmp_path / "s")
    assert shards.num_tokens == len(shards.tokens) == 0 and shards.tokens[:].tolist() == []
    if name in ("gristmill", "megatron", "datatrove"):  # these have an index of documents
        assert [ids.tolist() for ids in shards] == [[], []] and shards.decode(0) == ""


@pytest.mark.parametrize(
    "arguments",
    [
        ["tokenize", "-t", "tok.json", ""],
        ["tokenize", "-t", "tok.json"],
        ["decode", "-t", "tok.json"],
        ["count", "-t", "tok.json"],
        ["count", "-t", "tok.json", "empty.txt"],
        ["compare", "tok.json", "tok.json", "--text", "empty.txt"],
        ["inspect", "tok.json", "--text", "empty.txt"],
        ["truncate", "tok.json", "--vocab-size", "257", "-o", "out.json"],
    ],
    ids=" ".join,
)
def test_row_26_commands_with_an_empty_text_succeed(arguments, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    TOK.save("tok.json")
    (tmp_path / "empty.txt").touch()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
    assert main(arguments) == 0, capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["inspect", "empty.txt"],
        ["inspect", "folder"],
        ["verify", "folder"],
        ["export", "empty.txt", "-f", "gpt2", "-o", "out"],
        ["encode", "folder", "-t", "tok.json", "-o", "out"],
        ["encode", "empty.txt", "-t", "empty.txt", "-o", "out"],
        ["train-tokenizer", "folder", "--vocab-size", "300", "-o", "out.json"],
        ["extend", "tok.json", "empty.txt", "--vocab-size", "300", "-o", "out.json"],
        ["count", "-t", "tok.json", ""],
        ["report", "folder", "-o", "out.html"],
        ["task", "count", "folder"],
        ["sample-corpus", "-o", "out.txt", "--size", "0"],
    ],
    ids=" ".join,
)
def test_row_26_commands_with_nothing_to_work_on_fail_with_one_line(arguments, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    TOK.save("tok.json")
    (tmp_path / "empty.txt").touch()
    (tmp_path / "folder").mkdir()
    assert main(arguments) in (1, 2)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1 and lines[0].startswith("gristmill: error: ")
    assert not lines[0].startswith("gristmill: error: :")  # an empty name used to leave its colon
    assert not list(tmp_path.glob("out*"))


def test_row_26_models_say_what_is_missing_and_generate_without_a_prompt(tmp_path):
    torch = pytest.importorskip("torch")
    torch.set_num_threads(1)
    tiny = {"context_length": 8, "num_layers": 1, "num_heads": 1, "d_model": 8, "batch_size": 2, "max_steps": 2}
    tiny |= {"device": "cpu", "progress": None}
    gm.encode_corpus(["", ""], TOK, out=tmp_path / "none", end_of_text=None, progress=None)
    gm.encode_corpus(["low"], TOK, out=tmp_path / "few", progress=None)
    for name in ("none", "few"):
        with pytest.raises(gm.TrainingError, match="tokens"):
            gm.lm.train(tmp_path / name, out=tmp_path / "run", **tiny)
        assert not (tmp_path / "run").exists()
    gm.encode_corpus(["low lower " * 30], TOK, out=tmp_path / "s", progress=None)
    gm.lm.train(tmp_path / "s", out=tmp_path / "run", **tiny)
    assert isinstance(gm.lm.generate(tmp_path / "run", "", max_tokens=3, device="cpu", seed=0), str)
    with pytest.raises(gm.OptionError, match=r"contains no prompt\. Pass at least one; '' starts a new"):
        gm.lm.generate(tmp_path / "run", [], max_tokens=3, device="cpu")
