"""gristmill encode."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

import gristmill as package
from gristmill.corpus import batches

END = "<|endoftext|>"


@pytest.fixture(scope="module")
def texts(stories_path):
    return [text.strip() for text in stories_path.read_text(encoding="utf-8").split(END)[:-1]]


@pytest.fixture
def folder(tmp_path, texts):
    """A corpus of two files, one compressed, with a record that has no text."""
    path = tmp_path / "corpus"
    path.mkdir()
    lines = [json.dumps({"text": text}) + "\n" for text in texts]
    (path / "a.jsonl").write_text("".join(lines[:100]) + '{"text": null}\n')
    (path / "b.jsonl.gz").write_bytes(gzip.compress("".join(lines[100:]).encode()))
    return path


@pytest.fixture
def encode(gristmill, tokenizer_path, tmp_path):
    """Run the command with the shared tokenizer and output folder."""

    def run(*arguments, tokenizer=tokenizer_path, output=tmp_path / "out"):
        return gristmill("encode", *arguments, "-t", tokenizer, "-o", output)

    return run


def rows(out):
    """Return the rows of the summary by name."""
    return dict(line.strip().split("  ", 1) for line in out.split("\n\n")[0].splitlines())


def files_of(folder):
    return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


def test_shards_are_those_of_the_function_and_the_summary_is_theirs(encode, folder, texts, tokenizer_path, tmp_path):
    code, out, err = encode(folder, "--val-fraction", 0.1, "--shard-tokens", "20k", "--threads", 2)
    assert (code, err) == (0, "")
    tok = package.Tokenizer.load(tokenizer_path)
    run = package.encode_corpus(
        folder, tok, out=tmp_path / "same", val_fraction=0.1, shard_tokens=20_000, progress=None
    )
    assert files_of(tmp_path / "out") == files_of(tmp_path / "same")
    table = {name: value.strip() for name, value in rows(out).items()}
    assert list(table) == [
        "inputs",
        "without text",
        "train",
        "val",
        "token files",
        "time",
        *["peak memory"] * ("peak memory" in table),
        "saved to",
    ]
    assert table["inputs"].startswith("2 files, ")
    assert table["inputs"].endswith(f"; {sum(len(text.encode()) for text in texts):,} bytes of text")
    assert table["without text"] == "1 record, skipped"
    for name, split in run.manifest.splits.items():
        ratio = split.source_bytes / split.tokens
        assert table[name] == f"{split.documents:,} documents, {split.tokens:,} tokens, {ratio:.3f} bytes/token"
    assert len(run.manifest.splits["train"].shards) > 1
    num_files = sum(len(split.shards) for split in run.manifest.splits.values())
    assert table["token files"] == f"uint16, format gristmill, {num_files} files"
    assert table["saved to"] == str(tmp_path / "out")


def test_profile_has_a_row_for_every_stage(encode, folder):
    code, out, _ = encode(folder, "--profile")
    assert code == 0
    table = out.split("\n\n")[1].splitlines()
    assert table[0].split() == ["stage", "seconds", "MB/s"]
    assert [line.split()[0] for line in table[1:]] == ["read", "find", "encode", "write", "sync", "total"]


def test_a_second_run_reports_that_the_shards_were_complete(encode, folder, tmp_path):
    encode(folder)
    before = files_of(tmp_path / "out")
    code, out, err = encode(folder, "--profile", "--threads", 1)  # the number of threads does not change the output
    assert (code, err) == (0, "")
    assert rows(out)["time"].strip() == "none: the shards were already complete"
    assert "stage" not in out
    assert files_of(tmp_path / "out") == before


def test_shards_of_an_interrupted_run_are_resumed_and_reported(encode, folder, tokenizer_path, tmp_path, monkeypatch):
    monkeypatch.setattr(batches, "BATCH_BYTES", 20_000)
    monkeypatch.setattr("gristmill.shards.meter.REPORT_SECONDS", 0)

    class Stop(Exception):
        pass

    def stop(report):
        if report.tokens > 20_000:
            raise Stop

    tok = package.Tokenizer.load(tokenizer_path)
    with pytest.raises(Stop):
        package.encode_corpus(folder, tok, out=tmp_path / "out", checkpoint_seconds=0, progress=stop)
    assert (tmp_path / "out" / "progress.json").is_file()
    code, out, err = encode(folder)
    assert (code, err) == (0, "")
    assert "; resumed an earlier run)" in rows(out)["time"]
    package.encode_corpus(folder, tok, out=tmp_path / "judge", progress=None)
    assert files_of(tmp_path / "out") == files_of(tmp_path / "judge")


@pytest.mark.parametrize(
    ("options", "difference"),
    [
        (["--seed", 3, "--val-fraction", 0.5], "--val-fraction was 0.0 and is now 0.5; --seed was 0 and is now 3"),
        (["--format", "npy"], "layout was gristmill and is now npy"),
        (["--dtype", "uint32"], "dtype was uint16 and is now uint32"),
        (["--end-of-text", "none"], ") after each document and is now none"),
        (["--end-of-text-position", "before"], f"and is now '{END}' (id "),
        (["--on-error", "skip"], "--on-error was 'raise' and is now 'skip'"),
        (["INPUT"], "is new: it was not an input of the earlier run"),
    ],
)
def test_another_way_to_encode_is_refused_with_the_difference_and_the_old_shards_stay(
    encode, folder, stories_path, tmp_path, options, difference
):
    encode(folder)
    before = files_of(tmp_path / "out")
    options = [stories_path if option == "INPUT" else option for option in options]
    code, out, err = encode(folder, *options)
    assert (code, out) == (1, "")
    place = f"gristmill: error: {tmp_path / 'out'}: "
    assert err.startswith(f"{place}The folder holds finished shards made with other options or inputs: ")
    assert difference in err
    assert err.count("\n") == 1
    assert files_of(tmp_path / "out") == before
    code, out, err = encode(folder, *options, "--overwrite")
    assert (code, err) == (0, "")
    assert files_of(tmp_path / "out") != before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["corpus", "out"]


def test_another_tokenizer_and_a_changed_input_are_refused(encode, folder, tokenizer_path, tmp_path):
    encode(folder)
    package.Tokenizer.load(tokenizer_path).truncated(500).save(tmp_path / "small.json")
    code, _, err = encode(folder, tokenizer=tmp_path / "small.json")
    assert code == 1
    assert "the tokenizer is different (vocab_size was " in err
    with (folder / "a.jsonl").open("a") as file:
        file.write('{"text": "one more"}\n')
    code, _, err = encode(folder)
    assert code == 1
    assert f"the input {folder / 'a.jsonl'} has changed: bytes " in err


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["missing.txt"], 1, "missing.txt: No such file or directory"),
        (["CORPUS", "--format", "nanogpt", "--shard-tokens", "5"], 2, "nanogpt has one file per split"),
        (["CORPUS", "--val-fraction", "1.5"], 2, "--val-fraction must be >= 0 and < 1, got 1.5"),
        (["CORPUS", "--end-of-text", "<|no|>"], 2, "'<|no|>' is not a special token of this tokenizer"),
        (["CORPUS", "--end-of-text", "5"], 2, "--end-of-text 5 is not the id of a special token"),
        (["CORPUS", "--allowed-special", "<|no|>"], 2, "<|no|>"),
        (["CORPUS", "--threads", "0"], 2, "--threads must be >= 1, got 0"),
        (["CORPUS", "--text-field", "body"], 1, "a.jsonl:1: no field 'body' (fields: 'text')"),
        (["EMPTY"], 1, "the corpus has no documents"),
        (["FOLDER"], 1, "No file with a known suffix in this folder"),
    ],
)
def test_bad_input_is_one_line_and_no_folder(encode, folder, tmp_path, arguments, code, message):
    (tmp_path / "empty.txt").touch()
    (tmp_path / "folder").mkdir()
    names = {"CORPUS": folder, "EMPTY": tmp_path / "empty.txt", "FOLDER": tmp_path / "folder"}
    found, out, err = encode(*(names.get(argument, argument) for argument in arguments))
    assert (found, out) == (code, "")
    assert err.startswith("gristmill: error: ")
    assert message in err
    assert err.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_tokenizer_that_is_not_there_or_none_is_one_line(encode, folder, tmp_path):
    code, out, err = encode(folder, tokenizer=tmp_path / "no.json")
    assert (code, out, err) == (1, "", f"gristmill: error: {tmp_path / 'no.json'}: No such file or directory\n")
    (tmp_path / "bad.json").write_text("{}")
    code, out, err = encode(folder, tokenizer=tmp_path / "bad.json")
    assert (code, out) == (1, "")
    assert "bad.json" in err


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--shard-tokens", "lots"),
        ("--val-fraction", "some"),
        ("--format", "csv"),
        ("--dtype", "float32"),
        ("--documents", "page"),
        ("--end-of-text-position", "middle"),
    ],
)
def test_a_value_that_cannot_be_read_is_a_usage_error(encode, folder, tmp_path, option, value):
    code, out, err = encode(folder, option, value)
    assert (code, out) == (2, "")
    assert option in err
    assert not (tmp_path / "out").exists()


def test_no_corpus_is_a_usage_error(encode):
    code, _, err = encode()
    assert (code, err) == (2, "gristmill: error: no corpus given. Pass at least one file or folder.\n")


def test_help_lists_the_choices_there_are_and_no_none(gristmill):
    _, out, _ = gristmill("encode", "--help")
    for choices in ("{separator,file,line}", "{after,before}", "{uint16,uint32}"):
        assert choices in out
    assert "None" not in out


def test_skipping_a_bad_input_is_a_warning_and_a_figure_and_not_skipping_it_a_failure(encode, folder, tmp_path):
    bad = folder / "c.jsonl.gz"
    bad.write_bytes((folder / "b.jsonl.gz").read_bytes()[:-5])
    code, out, err = encode(folder)
    assert (code, out) == (1, "")
    assert err.startswith(f"gristmill: error: {bad}: truncated at byte {bad.stat().st_size:,}")
    assert not (tmp_path / "out").exists()
    code, out, err = encode(folder, "--on-error", "skip")
    assert code == 0
    assert err.startswith("gristmill: warning: 1 of 3 inputs could not be read and were skipped")
    assert str(bad) in err
    assert err.count("\n") == 1
    assert rows(out)["inputs"].strip().startswith("3 files, 1 skipped, ")


@pytest.mark.parametrize(
    ("format", "token_file", "read"),
    [
        ("nanogpt", "train.bin", lambda path: np.fromfile(path, "<u2")),
        ("llmc", "out_train_000001.bin", lambda path: np.fromfile(path, "<u2", offset=1024)),
        ("megatron", "train.bin", lambda path: np.fromfile(path, "<u2")),
        ("npy", "train-00000.npy", np.load),
        ("datatrove", "train-00000.ds", lambda path: np.fromfile(path, "<u2")),
    ],
)
def test_every_format_can_be_written_verified_and_inspected(
    gristmill, encode, folder, texts, tokenizer_path, tmp_path, format, token_file, read
):
    code, out, err = encode(folder, "--format", format)
    assert (code, err) == (0, "")
    assert f"format {format}" in rows(out)["token files"]
    tok = package.Tokenizer.load(tokenizer_path)
    end = tok.special_tokens[END]
    documents = [[*tok.encode_ordinary(text), end] for text in texts]
    if format == "llmc":
        documents = [[end, *ids[:-1]] for ids in documents]
    assert read(tmp_path / "out" / token_file).tolist() == [id for ids in documents for id in ids]
    assert gristmill("verify", tmp_path / "out")[0] == 0
    assert gristmill("inspect", tmp_path / "out")[0] == 0


def test_parquet_in_and_out(gristmill, encode, texts, tmp_path):
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.table({"body": texts}), tmp_path / "a.parquet")
    code, _, err = encode(tmp_path / "a.parquet", "--text-field", "body", "--format", "parquet")
    assert (code, err) == (0, "")
    assert pq.read_table(tmp_path / "out" / "train-00000.parquet").num_rows == len(texts)
    assert gristmill("verify", tmp_path / "out")[0] == 0


def test_the_separator_is_the_end_of_text_token_unless_another_is_given(encode, tmp_path):
    package.Tokenizer([], special_tokens=["</s>"]).save(tmp_path / "tok.json")
    corpus = tmp_path / "corpus.txt"
    corpus.write_text(f"a</s>b{END}c")
    for options, texts in (
        ([], ["a", f"b{END}c"]),
        (["--separator", END], ["a</s>b", "c"]),
        (["--documents", "line"], [f"a</s>b{END}c"]),
        (["--end-of-text", "none"], ["a</s>b", "c"]),
    ):
        code, _, err = encode(corpus, *options, "--overwrite", tokenizer=tmp_path / "tok.json")
        assert (code, err) == (0, "")
        shards = package.Shards(tmp_path / "out")
        assert [shards.decode(i) for i in range(len(shards))] == texts


def test_specials_that_are_allowed_become_ids(encode, tmp_path):
    tok = package.Tokenizer([], special_tokens=[END, "<|pad|>", "<|sep|>"])
    tok.save(tmp_path / "tok.json")
    (tmp_path / "a.txt").write_text("a<|pad|><|sep|>")
    for options, num_special in (
        ([], 0),
        (["--allowed-special", "<|pad|>"], 1),
        (["--allowed-special", "<|pad|>", "<|sep|>"], 2),
        (["--allowed-special", "all"], 2),
    ):
        assert encode(tmp_path / "a.txt", *options, "--overwrite", tokenizer=tmp_path / "tok.json")[0] == 0
        assert (package.Shards(tmp_path / "out")[0] > tok.special_tokens[END]).sum() == num_special


def test_a_tokenizer_of_another_tool_is_completed_by_options(gristmill, encode, tokenizer_path, folder, tmp_path):
    exported = tmp_path / "tok.tiktoken"
    assert gristmill("export", tokenizer_path, "-f", "tiktoken", "-o", exported)[0] == 0
    options = ["--pattern", "gpt2", "--special-tokens", END]
    code, _, err = encode(folder, *options, tokenizer=exported)
    assert code == 0, err
    ours = gristmill("encode", folder, "-t", tokenizer_path, "-o", tmp_path / "ours")
    assert ours[0] == 0
    shard = "shard-00000.bin"
    assert (tmp_path / "out" / shard).read_bytes() == (tmp_path / "ours" / shard).read_bytes()


def test_progress_goes_to_stderr_as_lines_that_parse(encode, folder):
    code, out, err = encode(folder, "--progress", "jsonl")
    assert code == 0
    assert "saved to" in out
    last = [json.loads(line) for line in err.splitlines()][-1]
    assert last["stage"] == "encode"
    assert last["done"] == last["total"] == sum(path.stat().st_size for path in folder.iterdir())
    assert last["tokens"] > 0
    assert last["num_files"] == 2


def test_the_command_in_the_manifest_makes_the_same_files(gristmill, encode, folder, tmp_path, monkeypatch):
    import shlex

    encode(folder, "--val-fraction", 0.25, "--shard-tokens", "30k", "--end-of-text-position", "before")
    command = shlex.split(json.loads((tmp_path / "out" / "manifest.json").read_text())["command"])
    monkeypatch.chdir(tmp_path / "out")
    assert gristmill(*command[1:], "-o", tmp_path / "again")[0] == 0
    assert files_of(tmp_path / "again") == files_of(tmp_path / "out")


def test_a_url_is_a_corpus(encode, texts):
    fsspec = pytest.importorskip("fsspec")
    lines = "".join(json.dumps({"text": text}) + "\n" for text in texts)
    fsspec.filesystem("memory").pipe("/cli-encode/stories.jsonl", lines.encode())
    code, out, err = encode("memory://cli-encode/*.jsonl")
    assert (code, err) == (0, "")
    assert f"{len(texts):,} documents" in rows(out)["train"]
