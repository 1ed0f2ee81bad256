"""encode_corpus: the files of every format, splits, wrong options, and the records of a run."""

from __future__ import annotations

import json
import random
import warnings
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from shard_corpora import (
    EOT,
    digest,
    documents,
    expected_ids,
    flat,
    read_shards,
    small_batches,
    text_documents,
    tokenizer,
    write_jsonl,
    write_text,
)

import gristmill as gm
from gristmill import encode_corpus
from gristmill.shards import verify_shards
from gristmill.shards.request import differences
from texts import random_story


@pytest.fixture(scope="module")
def tok():
    return tokenizer()


def encode(corpus, tok, out, **options):
    return encode_corpus(corpus, tok, out=out, **{"progress": None, **options})


def test_each_document_has_its_own_ids_and_the_mark_after_it(tok, tmp_path):
    texts = documents()
    run = encode(write_text(tmp_path / "a.txt", texts), tok, tmp_path / "out")
    rows = expected_ids(texts, tok)
    ids, ends = read_shards(tmp_path / "out")
    assert ids == flat(rows)
    assert ends == np.cumsum([len(row) for row in rows]).tolist()
    assert (run.num_documents, run.num_tokens) == (len(texts), len(ids))
    assert run.source_bytes == sum(map(len, texts))
    assert not run.resumed


@pytest.mark.parametrize("batch_bytes", [32, 100, 5000])
@pytest.mark.parametrize("num_threads", [1, 3])
def test_batches_of_any_size_give_the_same_files(tok, tmp_path, monkeypatch, batch_bytes, num_threads):
    text = write_text(tmp_path / "a.txt", documents())
    lines = write_jsonl(tmp_path / "b.jsonl", text_documents(2))
    options = {"shard_tokens": 1000, "val_fraction": 0.3}
    small_batches(monkeypatch, 1 << 20)
    encode([text, lines], tok, tmp_path / "whole", **options)
    small_batches(monkeypatch, batch_bytes)
    encode([text, lines], tok, tmp_path / "small", num_threads=num_threads, **options)
    assert digest(tmp_path / "whole") == digest(tmp_path / "small")


@pytest.mark.parametrize("mode", ["separator", "file", "line"])
def test_documents_of_a_text_file(tok, tmp_path, monkeypatch, mode):
    small_batches(monkeypatch)
    texts = [random_story(i, 200).replace("\n", " ") for i in range(5)]
    joint = {"separator": EOT, "line": "\n", "file": EOT}[mode]
    path = tmp_path / "a.txt"
    path.write_text(joint.join(texts))
    run = encode(path, tok, tmp_path / "out", documents=mode)
    expected = [path.read_text()] if mode == "file" else texts
    assert read_shards(tmp_path / "out")[0] == flat(expected_ids(expected, tok))
    assert run.num_documents == len(expected)


def test_a_document_longer_than_many_batches_is_one_document_in_one_split(tok, tmp_path, monkeypatch):
    small_batches(monkeypatch)
    texts = [random_story(i, 2000) for i in range(6)]
    path = write_text(tmp_path / "a.txt", [text.encode() for text in texts])
    encode(path, tok, tmp_path / "out", val_fraction=0.5, shard_tokens=777)
    rows = expected_ids(texts, tok)
    found = []
    for split in ("train", "val"):
        ids, ends = read_shards(tmp_path / "out", split)
        found += [ids[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]
    assert sorted(found) == sorted(rows)
    assert all(read_shards(tmp_path / "out", split)[0] for split in ("train", "val"))


def test_every_shard_but_the_last_has_exactly_the_tokens_asked_for(tok, tmp_path):
    texts = documents(3)
    run = encode(iter(texts), tok, tmp_path / "out", shard_tokens=500)
    sizes = [shard.tokens for shard in run.manifest.splits["train"].shards]
    assert sizes[:-1] == [500] * (len(sizes) - 1) and 0 < sizes[-1] <= 500
    assert [(tmp_path / "out" / f"shard-{i:05}.bin").stat().st_size for i in range(len(sizes))] == [
        2 * n for n in sizes
    ]
    assert read_shards(tmp_path / "out")[0] == flat(expected_ids(texts, tok))


def test_shards_give_the_documents_back(tok, tmp_path):
    texts = text_documents(4)
    encode(write_jsonl(tmp_path / "a.jsonl", texts), tok, tmp_path / "out", shard_tokens=300)
    shards = gm.Shards(tmp_path / "out")
    assert [shards.decode(i) for i in range(len(shards))] == texts
    assert [list(row) for row in shards] == expected_ids(texts, tok)
    assert shards.source_bytes == sum(len(text.encode()) for text in texts)


def test_the_mark_may_come_before_or_be_left_out_or_be_another_special(tok, tmp_path):
    texts = ["aab", "", "b c"]
    encode(texts, tok, tmp_path / "before", end_of_text_position="before")
    assert read_shards(tmp_path / "before")[0] == flat(expected_ids(texts, tok, before=True))
    run = encode(texts, tok, tmp_path / "none", end_of_text=None)
    assert read_shards(tmp_path / "none")[0] == flat(expected_ids(texts, tok, eot=None))
    assert run.num_documents == 3  # one of them has no token at all
    encode(texts, tok, tmp_path / "pad", end_of_text="<|pad|>")
    assert read_shards(tmp_path / "pad")[0] == flat(expected_ids(texts, tok, eot="<|pad|>"))
    encode(texts, tok, tmp_path / "id", end_of_text=tok.special_tokens["<|pad|>"])
    assert read_shards(tmp_path / "id") == read_shards(tmp_path / "pad")


def test_documents_without_a_token_at_the_edge_of_a_shard_end_in_it_however_they_come(tok, tmp_path, monkeypatch):
    texts = ["abcd", "", "", "abcd", "", "efgh"]
    path = write_jsonl(tmp_path / "a.jsonl", texts)
    encode(path, tok, tmp_path / "one", end_of_text=None, shard_tokens=2)
    small_batches(monkeypatch, 1)
    encode(path, tok, tmp_path / "two", end_of_text=None, shard_tokens=2)
    assert digest(tmp_path / "one") == digest(tmp_path / "two")
    assert read_shards(tmp_path / "one")[0] == flat(expected_ids(texts, tok, eot=None))


def test_a_special_spelled_out_in_a_document_is_plain_text_unless_allowed(tok, tmp_path):
    texts = [f"forged {EOT} and <|pad|>"]
    encode(write_jsonl(tmp_path / "a.jsonl", texts), tok, tmp_path / "plain")
    ids = read_shards(tmp_path / "plain")[0]
    assert ids.count(tok.special_tokens[EOT]) == 1 and tok.special_tokens["<|pad|>"] not in ids
    encode(texts, tok, tmp_path / "allowed", allowed_special={"<|pad|>"})
    assert read_shards(tmp_path / "allowed")[0].count(tok.special_tokens["<|pad|>"]) == 1
    with pytest.raises(gm.SpecialTokenError, match="not a special token"):
        encode(texts, tok, tmp_path / "wrong", allowed_special={"<|no|>"})


@pytest.mark.parametrize(
    ("format", "read"),
    [
        ("nanogpt", lambda out: np.fromfile(out / "train.bin", "<u2")),
        ("llmc", lambda out: np.fromfile(out / "out_train_000001.bin", "<u2", offset=1024)),
        ("megatron", lambda out: np.fromfile(out / "train.bin", "<u2")),
        ("npy", lambda out: np.load(out / "train-00000.npy", mmap_mode="r")),
        ("datatrove", lambda out: np.fromfile(out / "train-00000.ds", "<u2")),
    ],
)
def test_every_format_holds_the_same_ids(tok, tmp_path, monkeypatch, format, read):
    small_batches(monkeypatch)
    texts = documents(5)
    run = encode(write_text(tmp_path / "a.txt", texts), tok, tmp_path / "out", format=format, val_fraction=0.2)
    rows = expected_ids(texts, tok, before=format == "llmc")
    ids = read(tmp_path / "out").tolist()
    assert 0 < len(ids) < len(flat(rows))
    chosen = gm.encode_corpus(iter(texts), tok, out=tmp_path / "judge", val_fraction=0.2, progress=None)
    assert len(ids) == chosen.manifest.splits["train"].tokens
    if format != "llmc":
        assert ids == read_shards(tmp_path / "judge")[0]
    assert run.manifest.layout == format


def test_parquet_holds_whole_documents_and_closes_a_file_with_the_document_that_fills_it(tok, tmp_path, monkeypatch):
    pq = pytest.importorskip("pyarrow.parquet")
    small_batches(monkeypatch)
    texts = documents(6)
    path = write_text(tmp_path / "a.txt", texts)
    encode(path, tok, tmp_path / "out", format="parquet", shard_tokens=1500)
    files = sorted((tmp_path / "out").glob("train-*.parquet"))
    tables = [pq.read_table(file)["tokens"].to_pylist() for file in files]
    assert [row for table in tables for row in table] == expected_ids(texts, tok)
    for table in tables[:-1]:
        assert sum(map(len, table)) >= 1500 > sum(map(len, table[:-1]))


def test_ids_are_as_wide_as_the_vocabulary_needs_or_as_asked(tok, tmp_path):
    encode(["abc"], tok, tmp_path / "wide", dtype="uint32")
    assert read_shards(tmp_path / "wide", dtype=np.uint32)[0] == flat(expected_ids(["abc"], tok))
    large = gm.Tokenizer([], special_tokens=[EOT, *(f"<{i}>" for i in range(66_000))])
    encode(["abc"], large, tmp_path / "large")
    assert read_shards(tmp_path / "large", dtype=np.uint32)[0] == [97, 98, 99, 256]
    with pytest.raises(gm.OptionError, match=r"65,?5"):
        encode(["abc"], large, tmp_path / "no", format="nanogpt")
    with pytest.raises(gm.OptionError, match="uint16"):
        encode(["abc"], large, tmp_path / "no", dtype="uint16")
    with pytest.raises(gm.OptionError, match="nanogpt"):
        encode(["abc"], tok, tmp_path / "no", format="nanogpt", dtype="uint32")
    assert not (tmp_path / "no").exists()


# The split


def test_the_split_of_a_document_depends_on_its_text_and_the_seed_alone(tok, tmp_path):
    texts = [random_story(i, 30) for i in range(300)]
    halves = [write_jsonl(tmp_path / "a.jsonl", texts[:150]), write_jsonl(tmp_path / "b.jsonl", texts[150:])]

    def val(out, corpus, **options):
        encode(corpus, tok, tmp_path / out, val_fraction=0.2, **options)
        return {
            gm.Shards(tmp_path / out, split="val").decode(i) for i in range(len(gm.Shards(tmp_path / out, split="val")))
        }

    first = val("one", halves)
    assert 30 < len(first) < 90
    assert val("reversed", halves[::-1]) == first
    assert val("shuffled", iter(random.Random(0).sample(texts, len(texts)))) == first
    assert val("half", halves[:1]) == first & set(texts[:150])
    assert val("seed", halves, seed=1) != first


def test_copies_of_a_document_are_never_in_two_splits(tok, tmp_path):
    texts = [random_story(i % 20, 30) for i in range(200)]
    encode(iter(texts), tok, tmp_path / "out", val_fraction=0.5)
    train, val = (set(map(bytes, gm.Shards(tmp_path / "out", split=split))) for split in ("train", "val"))
    assert train and val and not train & val


@pytest.mark.parametrize("fraction", [-0.1, 1.0, 1.5, float("nan"), "0.1", True, None])
def test_a_fraction_out_of_range_is_refused(tok, tmp_path, fraction):
    with pytest.raises(gm.OptionError, match="val_fraction"):
        encode(["a"], tok, tmp_path / "out", val_fraction=fraction)


# Errors


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"format": "csv"}, gm.OptionError, "gristmill.*nanogpt"),
        ({"end_of_text": "<|no|>"}, gm.SpecialTokenError, "not a special token"),
        ({"end_of_text": 5}, gm.SpecialTokenError, "not the id of a special"),
        ({"end_of_text_position": "between"}, gm.OptionError, "'after'"),
        ({"end_of_text_position": "before", "end_of_text": None}, gm.OptionError, "does not apply to end_of_text=None"),
        ({"shard_tokens": 0}, gm.OptionError, ">= 1"),
        ({"shard_tokens": 1.5}, gm.OptionError, "int"),
        ({"shard_tokens": 10, "format": "nanogpt"}, gm.OptionError, "one file"),
        ({"shard_tokens": 2**31, "format": "llmc"}, gm.OptionError, "2,147,483,647"),
        ({"seed": -1}, gm.OptionError, "seed"),
        ({"seed": None}, gm.OptionError, "seed"),
        ({"num_threads": 0}, gm.OptionError, "num_threads"),
        ({"checkpoint_seconds": -1}, gm.OptionError, "checkpoint_seconds"),
        ({"text_feld": "x"}, TypeError, "text_feld"),
        ({"documents": "page"}, gm.OptionError, "documents"),
        ({"progress": "loud"}, gm.OptionError, "progress"),
    ],
)
def test_wrong_options_are_refused_before_anything_is_written(tok, tmp_path, options, error, message):
    with pytest.raises(error, match=message):
        encode(["a b c"], tok, tmp_path / "out", **options)
    assert list(tmp_path.iterdir()) == []


def test_an_end_of_text_token_with_another_id_is_named_with_both_ids(tmp_path):
    corpus = write_text(tmp_path / "a.txt", documents())
    small, large = (
        gm.train_tokenizer(corpus, vocab_size=size, special_tokens=["<|endoftext|>"], progress=None)
        for size in (270, 280)
    )
    encode(corpus, small, tmp_path / "out")
    with pytest.raises(gm.ShardsMismatchError, match=r"\(id 269\) after each document and is now .*\(id 279\) after"):
        encode(corpus, large, tmp_path / "out")


def test_what_is_not_a_tokenizer_or_a_corpus_is_refused(tok, tmp_path):
    with pytest.raises(TypeError, match="Tokenizer"):
        encode(["a"], 5, tmp_path / "out")
    with pytest.raises(FileNotFoundError, match=r"tokenizer='tok\.json': there is no such file"):
        encode(["a"], "tok.json", tmp_path / "out")
    with pytest.raises(TypeError, match="corpus"):
        encode(5, tok, tmp_path / "out")
    with pytest.raises(FileNotFoundError):
        encode(tmp_path / "none.txt", tok, tmp_path / "out")
    with pytest.raises(TypeError, match="document 1"):
        encode(iter(["a", 5]), tok, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_a_tokenizer_without_an_end_of_text_token_says_what_to_do(tmp_path):
    plain = gm.Tokenizer([])
    with pytest.raises(gm.SpecialTokenError, match="end_of_text=None"):
        encode(["a"], plain, tmp_path / "out")
    encode(["a", "b"], plain, tmp_path / "out", end_of_text=None)
    assert read_shards(tmp_path / "out")[0] == [97, 98]


def test_an_empty_corpus_is_an_error_and_leaves_nothing(tok, tmp_path):
    (tmp_path / "empty.txt").write_bytes(b"")
    for corpus in ([], tmp_path / "empty.txt", write_jsonl(tmp_path / "nulls.jsonl", [None, None])):
        with pytest.raises(gm.EmptyCorpusError, match="no documents"):
            encode(corpus, tok, tmp_path / "out")
        assert not (tmp_path / "out").exists()


def test_nulls_are_left_out_and_counted(tok, tmp_path):
    run = encode(write_jsonl(tmp_path / "a.jsonl", ["a", None, "b", None]), tok, tmp_path / "out")
    assert run.num_documents == 2 and run.manifest.num_nulls == 2


def test_a_damaged_input_is_an_error_that_names_it_and_leaves_nothing(tok, tmp_path):
    good = write_jsonl(tmp_path / "a.jsonl", ["a"] * 100)
    bad = tmp_path / "b.jsonl"
    bad.write_text('{"text": "x"}\n{"text": 5}\n')
    with pytest.raises(gm.CorpusError, match=r"b\.jsonl:2"):
        encode([good, bad], tok, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_damaged_input_can_be_skipped_whole_and_is_named(tok, tmp_path):
    good = [write_jsonl(tmp_path / "a.jsonl", ["one", "two"]), write_jsonl(tmp_path / "c.jsonl", ["three"])]
    bad = tmp_path / "b.jsonl"
    bad.write_text('{"text": "x"}\n{"text": 5}\n')
    with pytest.warns(gm.SkippedInputWarning, match=r"1 of 3 inputs.*b\.jsonl:2"):
        run = encode([good[0], bad, good[1]], tok, tmp_path / "out", on_error="skip")
    assert read_shards(tmp_path / "out")[0] == flat(expected_ids(["one", "two", "three"], tok))
    assert [entry.skipped is not None for entry in run.manifest.inputs] == [False, True, False]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert encode([good[0], bad, good[1]], tok, tmp_path / "out", on_error="skip").profile is None


def test_patterns_without_a_native_matcher_work_too(tmp_path):
    tok = tokenizer(pattern=r"\w+|\W")
    texts = text_documents(7)
    encode(iter(texts), tok, tmp_path / "out")
    assert read_shards(tmp_path / "out")[0] == flat(expected_ids(texts, tok))
    encode(iter(texts), tok, tmp_path / "before", end_of_text_position="before")
    assert read_shards(tmp_path / "before")[0] == flat(expected_ids(texts, tok, before=True))


# Records


def test_the_manifest_says_what_was_done_and_nothing_of_when_or_where(tok, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_jsonl(tmp_path / "a.jsonl", ["x"])
    run = encode("*.jsonl", tok, "out", val_fraction=0.25, text_field="text", allowed_special={"<|pad|>"})
    content = json.loads(Path("out/manifest.json").read_text())
    assert content["command"] == (
        "gristmill encode a.jsonl -t tokenizer.json --val-fraction 0.25 --allowed-special '<|pad|>'"
    )
    assert content["inputs"][0]["path"] == "a.jsonl"
    assert content["tokenizer_fingerprint"] == tok.fingerprint
    assert gm.Tokenizer.load("out/tokenizer.json") == tok
    assert run.manifest.options["val_fraction"] == 0.25
    assert str(tmp_path) not in Path("out/manifest.json").read_text()


def test_progress_tells_bytes_tokens_and_files(tok, tmp_path):
    paths = [write_jsonl(tmp_path / f"{i}.jsonl", ["tale " * 100] * 50) for i in range(3)]
    reports = []
    encode(paths, tok, tmp_path / "out", progress=reports.append)
    last = reports[-1]
    assert last.stage == "encode" and last.unit == "bytes"
    assert last.done == last.total == sum(path.stat().st_size for path in paths)
    assert last.tokens == encode(paths, tok, tmp_path / "out").num_tokens
    assert last.files == last.num_files == 3


def test_a_progress_callback_that_raises_stops_the_run(tok, tmp_path):
    class Enough(Exception):
        pass

    def stop(_):
        raise Enough

    with pytest.raises(Enough):
        encode(["a"], tok, tmp_path / "out", progress=stop)
    assert not (tmp_path / "out").exists()


def test_the_profile_has_the_figures_of_each_stage(tok, tmp_path):
    run = encode(["some text"] * 10, tok, tmp_path / "out")
    assert [stage.stage for stage in run.profile.stages] == ["read", "find", "encode", "write", "sync"]
    assert all(stage.num_bytes == 90 for stage in run.profile.stages)


def test_shards_stay_current_when_a_later_version_has_an_option_that_they_do_not_record():
    there = {"layout": "gristmill", "options": {"seed": 0}}
    assert differences(there, {"layout": "gristmill", "options": {"seed": 0, "on_error": "raise"}}) == []
    asked = {"layout": "gristmill", "options": {"seed": 0, "on_error": "skip"}}
    assert differences(there, asked) == ["on_error was 'raise' and is now 'skip'"]


def test_a_very_long_name_in_a_damaged_request_is_cut():
    there = {"inputs": [{"path": "a" * 40_000}]}
    (found,) = differences(there, {"inputs": []})
    assert len(found) < 5000


def test_the_column_of_parquet_has_the_name_that_was_asked_for(tok, tmp_path):
    texts = text_documents(3)
    out = tmp_path / "out"
    corpus = write_jsonl(tmp_path / "c.jsonl", texts)
    options = {"format": "parquet", "tokens_column": "input_ids", "val_fraction": 0.2, "progress": None}
    run = encode_corpus(corpus, tok, out=out, **options)
    tables = [pq.read_table(out / f"{split}-00000.parquet") for split in ("train", "val")]
    assert {name for table in tables for name in table.column_names} == {"input_ids"}
    rows = sorted(row for table in tables for row in table["input_ids"].to_pylist())
    assert rows == sorted(expected_ids(texts, tok))
    report = verify_shards(out)
    assert (report.is_sound, report.num_documents) == (True, len(texts))
    assert "--tokens-column input_ids" in run.manifest.command
    assert encode_corpus(corpus, tok, out=out, **options).profile is None
    with pytest.raises(gm.ShardsMismatchError, match="tokens_column was 'input_ids' and is now None"):
        encode_corpus(corpus, tok, out=out, **{**options, "tokens_column": None})
    with pytest.raises(gm.ShardsFormatError, match=r'\["input_ids"\]'):
        run.shards()


@pytest.mark.parametrize("column", [None, "tokens"])
def test_the_usual_column_of_parquet_is_called_tokens_and_is_not_recorded(tok, tmp_path, column):
    run = encode_corpus(["low"], tok, out=tmp_path / "o", format="parquet", tokens_column=column, progress=None)
    assert pq.read_table(tmp_path / "o" / "train-00000.parquet").column_names == ["tokens"]
    assert "tokens_column" not in run.manifest.options


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"tokens_column": "input_ids"},
            r"format='gristmill', which has no columns\. Pass format='parquet', or leave it out",
        ),
        ({"tokens_column": "", "format": "parquet"}, "is not a valid column name"),
        ({"tokens_column": 5, "format": "parquet"}, "tokens_column=5 is of type int"),
    ],
)
def test_an_invalid_column_name_is_refused(tok, tmp_path, options, message):
    with pytest.raises(gm.OptionError, match=message):
        encode_corpus(["low"], tok, out=tmp_path / "o", progress=None, **options)


@pytest.mark.parametrize(("number", "words"), [(1, "1 text is null"), (2, "2 texts are null")])
def test_a_corpus_of_nulls_says_how_many_there_are(tok, number, words, tmp_path):
    with pytest.raises(gm.EmptyCorpusError, match=rf"no documents \({words}\)"):
        encode([{"text": None}] * number, tok, tmp_path / "out")


def test_a_corpus_of_damaged_files_says_how_many_were_skipped(tok, tmp_path):
    (tmp_path / "a.txt.gz").write_bytes(b"damaged")
    with pytest.raises(gm.EmptyCorpusError, match=r"no documents \(1 input was skipped\)"):
        encode(tmp_path / "a.txt.gz", tok, tmp_path / "out", on_error="skip")


@pytest.mark.parametrize("layout", ["gristmill", "npy"])
def test_an_empty_corpus_leaves_no_folder_although_its_position_was_saved(tok, tmp_path, layout):
    pyarrow = pytest.importorskip("pyarrow")
    pytest.importorskip("pyarrow.parquet")
    corpus, out = tmp_path / "nulls.parquet", tmp_path / "out"
    pyarrow.parquet.write_table(pyarrow.table({"text": pyarrow.array([None] * 50, pyarrow.string())}), corpus)
    with pytest.raises(gm.EmptyCorpusError, match="No folder was made"):
        encode_corpus(corpus, tok, out=out, format=layout, checkpoint_seconds=0, progress=None)
    assert not out.exists()
