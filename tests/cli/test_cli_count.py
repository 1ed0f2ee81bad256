"""gristmill count gives the same numbers as the Python API, for every input format, in bounded memory."""

import errno
import gzip
import io
import json
import subprocess
import sys

import pytest

import gristmill as gm
from gristmill.cli.streams import stdin_as_file


@pytest.fixture(scope="module")
def tokenizer(tokenizer_path):
    return gm.Tokenizer.load(tokenizer_path)


def counted(gristmill, *arguments):
    code, out, err = gristmill("count", *arguments, "--json", "--progress", "none")
    assert (code, err) == (0, "")
    return json.loads(out)


def test_a_text_without_separators_counts_as_encode_counts_it(gristmill, tokenizer, tokenizer_path, tmp_path):
    text = "The fox ran.\nThe end.\n" * 1000
    (tmp_path / "a.txt").write_text(text, encoding="utf-8")
    expected = {"documents": 1, "bytes": len(text), "tokens": len(tokenizer.encode(text))}
    found = counted(gristmill, tmp_path / "a.txt", "-t", tokenizer_path)
    assert {name: found[name] for name in expected} == expected
    assert found["bytes_per_token"] == pytest.approx(len(text) / expected["tokens"])
    assert counted(gristmill, "-t", tokenizer_path, "--string", text)["tokens"] == expected["tokens"]


def test_the_documents_of_a_corpus_count_as_in_shards_without_their_end_of_text(
    gristmill, tokenizer, tokenizer_path, stories_path, tmp_path
):
    train = gm.encode_corpus(stories_path, tokenizer, out=tmp_path / "shards", progress=None).manifest.splits["train"]
    found = counted(gristmill, stories_path, "-t", tokenizer_path)
    assert found["documents"] == train.documents
    assert found["bytes"] == train.source_bytes
    assert found["tokens"] == train.tokens - train.documents


def test_a_document_longer_than_a_batch_is_one_document(gristmill, tokenizer, tokenizer_path, tmp_path):
    text = "A long story without an end. " * 200_000
    (tmp_path / "long.txt").write_text(text, encoding="utf-8")
    found = counted(gristmill, tmp_path / "long.txt", "-t", tokenizer_path, "--threads", 2)
    assert (found["documents"], found["tokens"]) == (1, tokenizer.count_tokens(text))


def test_several_files_of_several_formats_have_rows_and_a_total(gristmill, tokenizer, tokenizer_path, tmp_path):
    (tmp_path / "a.txt").write_text("the end", encoding="utf-8")
    (tmp_path / "b.jsonl").write_text('{"body": "the"}\n{"body": " fox"}\n', encoding="utf-8")
    (tmp_path / "c.txt.gz").write_bytes(gzip.compress(b"the fox and the hen"))
    (tmp_path / "empty.txt").write_bytes(b"")
    names = [tmp_path / name for name in ("a.txt", "b.jsonl", "c.txt.gz", "empty.txt")]
    found = counted(gristmill, *names, "-t", tokenizer_path, "--text-field", "body")
    assert [file["file"] for file in found["files"]] == [str(name) for name in names]
    expected = [["the end"], ["the", " fox"], ["the fox and the hen"], []]
    assert [file["tokens"] for file in found["files"]] == [
        sum(len(tokenizer.encode(text)) for text in texts) for texts in expected
    ]
    assert found["tokens"] == sum(file["tokens"] for file in found["files"])
    code, out, _ = gristmill("count", *names, "-t", tokenizer_path, "--text-field", "body", "--progress", "none")
    assert code == 0
    lines = out.splitlines()
    assert len(lines) == 6
    assert lines[-1].split()[:2] == ["total", f"{found['tokens']:,}"]


def test_a_special_that_is_allowed_counts_as_one(gristmill, tokenizer_path):
    arguments = ["-t", tokenizer_path, "--string", "<|endoftext|>"]
    assert counted(gristmill, *arguments)["tokens"] > 1
    assert counted(gristmill, *arguments, "--allowed-special", "all")["tokens"] == 1


@pytest.mark.parametrize("data", [b"", b"the end", bytes(range(256)) * 100])
def test_stdin_is_counted_whatever_it_holds(tokenizer, tokenizer_path, data):
    command = [sys.executable, "-m", "gristmill", "count", "-t", str(tokenizer_path), "--json"]
    for dash in ([], ["-"]):
        done = subprocess.run([*command, *dash], input=data, capture_output=True, check=True, timeout=60)
        found = json.loads(done.stdout)
        assert (found["bytes"], found["tokens"]) == (len(data), len(tokenizer.encode(data)))
        assert found["files"][0]["file"] == "-"


def test_memory_does_not_grow_with_the_file(tokenizer_path, stories_path, tmp_path):
    data = stories_path.read_bytes()
    peaks = []
    for copies in (10, 700):  # 3 MB and 210 MB
        with (tmp_path / "large.txt").open("wb") as file:
            for _ in range(copies):
                file.write(data)
        code = (
            "import resource, sys; from gristmill.cli import main; assert main(sys.argv[1:]) == 0;"
            "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr)"
        )
        command = [sys.executable, "-c", code, "count", str(tmp_path / "large.txt"), "-t", str(tokenizer_path)]
        done = subprocess.run([*command, "--threads", "2"], capture_output=True, text=True, check=True, timeout=300)
        peaks.append(int(done.stderr.split()[-1]))
    assert peaks[1] - peaks[0] < 100_000  # kB


def test_what_cannot_be_counted_is_explained(gristmill, tokenizer_path, tmp_path):
    code, _, err = gristmill("count", "-t", tokenizer_path, tmp_path / "missing.txt")
    assert (code, err) == (1, f"gristmill: error: {tmp_path / 'missing.txt'}: No such file or directory\n")
    code, _, err = gristmill("count", "-t", tokenizer_path, tokenizer_path, "--string", "a")
    assert (code, err) == (2, "gristmill: error: files and --string exclude each other. Pass one of them.\n")


def test_every_string_is_counted(gristmill, tokenizer, tokenizer_path):
    report = counted(gristmill, "-t", tokenizer_path, "--string", "the end", "--string=of it")
    tokens = [len(tokenizer.encode(text)) for text in ("the end", "of it")]
    assert [row["tokens"] for row in report["files"]] == tokens
    assert (report["tokens"], report["documents"], report["bytes"]) == (sum(tokens), 2, 12)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--string", "x", "--separator", "b"], "--separator applies to files, not to --string."),
        (["--string", "-x"], "--string needs a text, but '-x' looks like an option. Write --string=-x."),
        (["--string"], "--string needs a value: --string TEXT."),
    ],
)
def test_what_does_not_go_with_a_string_is_refused(gristmill, tokenizer_path, arguments, message):
    code, out, err = gristmill("count", "-t", tokenizer_path, *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--text-field", "body"], "--text-field body does not apply: it names a field of JSON lines, rows and tables"),
        (["--documents", "line", "--separator", "x"], "--separator x does not apply to --documents line."),
    ],
)
def test_an_option_for_reading_that_does_not_apply_is_refused_as_encode_does(
    gristmill, tokenizer_path, tmp_path, options, message
):
    (tmp_path / "a.txt").write_text("the end", encoding="utf-8")
    code, out, err = gristmill("count", tmp_path / "a.txt", "-t", tokenizer_path, *options)
    assert (code, out) == (2, "")
    assert message in err
    more = ["-t", tokenizer_path, "-o", tmp_path / "shards", "--progress", "none"]
    assert gristmill("encode", tmp_path / "a.txt", *more, *options) == (code, out, err)


def test_the_separator_of_the_tokenizer_is_no_option_that_could_be_out_of_place(gristmill, tokenizer_path, tmp_path):
    (tmp_path / "a.txt").write_text("the\nend\n", encoding="utf-8")
    (tmp_path / "b.jsonl").write_text('{"text": "the end"}\n', encoding="utf-8")
    for name, options, documents in (("a.txt", ["--documents", "line"], 2), ("b.jsonl", [], 1)):
        assert counted(gristmill, tmp_path / name, "-t", tokenizer_path, *options)["documents"] == documents


def test_a_file_name_forges_no_line_and_no_colour(gristmill, tokenizer_path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = ["\x1b[31mred.txt", "a\nb.txt", "plain.txt"]
    for name in names:
        (tmp_path / name).write_text("the end")
    code, out, _ = gristmill("count", "-t", tokenizer_path, *names, "--progress", "none")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()] == [
        *("file", r"\x1b[31mred.txt", r"a\nb.txt", "plain.txt", "total")
    ]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other systems have no files without a name")
def test_the_copy_of_stdin_has_no_name_that_a_killed_process_could_leave(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"the end")))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with stdin_as_file("a file") as path:
        assert path.read_bytes() == b"the end"
        assert not list(tmp_path.iterdir())


def test_a_full_temporary_folder_is_named(gristmill, tokenizer_path, tmp_path, monkeypatch):
    def copy(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"the end")))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("shutil.copyfileobj", copy)
    code, out, err = gristmill("count", "-t", tokenizer_path)
    assert (code, out) == (1, "")
    assert err.startswith(f"gristmill: error: {tmp_path}: has no space left for a copy of stdin. Set $TMPDIR")
    assert not list(tmp_path.iterdir())
