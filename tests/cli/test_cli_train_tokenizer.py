"""gristmill train-tokenizer."""

import json
import os
import random
import signal

import pytest

import gristmill as package


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def output(tmp_path):
    folder = tmp_path / "out"
    folder.mkdir()
    return folder / "tok.json"


def test_file_holds_what_the_function_returns(gristmill, stories_path, output):
    code, out, err = gristmill("train-tokenizer", stories_path, "--vocab-size", 600, "-o", output)
    assert (code, err) == (0, "")
    expected = package.train_tokenizer(stories_path, vocab_size=600, special_tokens=["<|endoftext|>"], progress=None)
    assert package.Tokenizer.load(output) == expected
    assert names_in(output.parent) == ["tok.json"]
    for part in (
        f"{stories_path.stat().st_size:,} bytes",
        "600  (256 bytes, 343 merges, 1 special)",
        "bytes per token",
        str(output),
        "MB/s",
    ):
        assert part in out, part


def test_every_option_reaches_the_training(gristmill, stories_path, output):
    options = ["--pattern", "cl100k", "--special-tokens", "<|endoftext|>", "<|pad|>", "--tie-break", "huggingface"]
    options += ["--min-frequency", 3, "--max-token-bytes", 5, "--threads", 2, "--memory-limit", "64MiB"]
    code, _, err = gristmill("train-tokenizer", stories_path, "--vocab-size", 500, "-o", output, *options)
    assert (code, err) == (0, "")
    expected = package.train_tokenizer(
        stories_path,
        vocab_size=500,
        pattern="cl100k",
        special_tokens=["<|endoftext|>", "<|pad|>"],
        tie_break="huggingface",
        min_frequency=3,
        max_token_bytes=5,
        progress=None,
    )
    assert package.Tokenizer.load(output) == expected


def test_special_tokens_without_a_value_means_none_and_not_the_default(gristmill, stories_path, output):
    code, _, _ = gristmill("train-tokenizer", stories_path, "--vocab-size", 300, "-o", output, "--special-tokens")
    assert code == 0
    assert package.Tokenizer.load(output).special_tokens == {}


def test_several_files_and_globs_are_one_corpus(gristmill, stories_path, output):
    text = stories_path.read_bytes()
    (output.parent / "a.txt").write_bytes(text[:1000])
    (output.parent / "b.txt").write_bytes(text[1000:])
    code, out, _ = gristmill("train-tokenizer", output.parent / "*.txt", "--vocab-size", 300, "-o", output)
    assert code == 0
    assert f"{len(text):,} bytes" in out


def test_a_folder_that_a_glob_matches_too_is_passed_over(gristmill, stories_path, output):
    (output.parent / "corpus" / "folder").mkdir(parents=True)
    (output.parent / "corpus" / "text").write_bytes(stories_path.read_bytes())
    code, _, err = gristmill("train-tokenizer", output.parent / "corpus" / "*", "--vocab-size", 300, "-o", output)
    assert (code, err) == (0, "")


def test_an_unknown_kernel_is_an_error_of_one_line(gristmill, stories_path, output, monkeypatch):
    monkeypatch.setenv("GRISTMILL_KERNEL", "abacus")
    code, out, err = gristmill("train-tokenizer", stories_path, "--vocab-size", 300, "-o", output)
    assert (code, out) == (2, "")
    assert err.startswith("gristmill: error: GRISTMILL_KERNEL=abacus is not a kernel")


def test_no_corpus_is_a_usage_error_and_not_an_empty_tokenizer(gristmill, output):
    code, _, err = gristmill("train-tokenizer", "--vocab-size", 300, "-o", output)
    assert code == 2
    assert err == "gristmill: error: no corpus given. Pass at least one file or folder, before --special-tokens.\n"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["missing.txt", "--vocab-size", "300"], 1, "missing.txt: No such file or directory"),
        (["CORPUS", "--vocab-size", "200"], 2, "--vocab-size 200 is too small"),
        (["CORPUS", "--vocab-size", "300", "--pattern", "(unclosed"], 2, "--pattern"),
        (["CORPUS", "--vocab-size", "300", "--special-tokens", "a", "a"], 2, "given twice"),
        (["CORPUS", "--vocab-size", "300", "--memory-limit", "1kB"], 2, "--memory-limit 1000 is too small"),
        (["CORPUS", "--vocab-size", "300", "--threads", "0"], 2, "--threads must be >= 1, got 0"),
        (["FOLDER", "--vocab-size", "300"], 1, "No file with a known suffix in this folder"),
        (["EMPTY", "--vocab-size", "300"], 1, ""),
    ],
)
def test_bad_input_is_one_line_and_leaves_the_old_output_alone(
    gristmill, stories_path, output, arguments, code, message
):
    output.write_text("precious")
    (output.parent / "empty.txt").touch()
    (output.parent / "folder").mkdir()
    names = {"CORPUS": stories_path, "FOLDER": output.parent / "folder", "EMPTY": output.parent / "empty.txt"}
    arguments = [names.get(argument, argument) for argument in arguments]
    # Before --special-tokens, which takes all following arguments.
    found, out, err = gristmill("train-tokenizer", "-o", output, "--overwrite", *arguments)
    assert (found, out) == (code, "")
    assert err.startswith("gristmill: error: ")
    assert message in err
    assert err.count("\n") == 1
    assert output.read_text() == "precious"
    assert names_in(output.parent) == ["empty.txt", "folder", "tok.json"]


@pytest.mark.parametrize(
    ("option", "value"), [("--memory-limit", "lots"), ("--vocab-size", "many"), ("--progress", "x")]
)
def test_a_value_that_cannot_be_read_is_a_usage_error(gristmill, stories_path, output, option, value):
    code, out, err = gristmill("train-tokenizer", stories_path, "--vocab-size", 300, "-o", output, option, value)
    assert (code, out) == (2, "")
    assert option in err


def refuse_to_train(monkeypatch):
    def train(*_, **__):
        raise AssertionError("work was started")

    monkeypatch.setattr(package, "train_tokenizer", train)


def test_an_existing_output_is_refused_before_the_work_and_not_after(gristmill, stories_path, output, monkeypatch):
    refuse_to_train(monkeypatch)
    output.write_text("precious")
    code, out, err = gristmill("train-tokenizer", stories_path, "--vocab-size", 300, "-o", output)
    assert (code, out) == (1, "")
    assert err == f"gristmill: error: {output}: already exists. Pass --overwrite to replace it\n"
    assert output.read_text() == "precious"


def test_a_missing_output_folder_is_refused_before_the_work(gristmill, stories_path, tmp_path, monkeypatch):
    refuse_to_train(monkeypatch)
    code, _, err = gristmill("train-tokenizer", stories_path, "--vocab-size", 300, "-o", tmp_path / "no" / "tok.json")
    assert (code, err) == (1, f"gristmill: error: {tmp_path / 'no'}: output folder does not exist. Create it first\n")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission_is_refused_before_the_work(gristmill, stories_path, output, monkeypatch):
    refuse_to_train(monkeypatch)
    output.parent.chmod(0o500)
    code, _, err = gristmill("train-tokenizer", stories_path, "--vocab-size", 300, "-o", output)
    output.parent.chmod(0o700)
    assert (code, err) == (1, f"gristmill: error: {output.parent}: no permission to write in this folder\n")


def test_a_folder_as_output_is_refused_before_the_work(gristmill, stories_path, tmp_path, monkeypatch):
    refuse_to_train(monkeypatch)
    code, _, err = gristmill("train-tokenizer", stories_path, "--vocab-size", 300, "-o", tmp_path, "--overwrite")
    assert (code, err) == (1, f"gristmill: error: {tmp_path}: is a folder. Pass a file name\n")


def test_the_corpus_itself_is_never_overwritten(gristmill, tmp_path, monkeypatch):
    refuse_to_train(monkeypatch)
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("low lower lowest")
    code, _, err = gristmill("train-tokenizer", corpus, "--vocab-size", 257, "-o", corpus, "--overwrite")
    assert (code, err) == (
        1,
        f"gristmill: error: {corpus}: is also an input and would be overwritten. Pass another output\n",
    )


def test_overwrite_replaces_a_symbolic_link_and_not_what_it_points_to(gristmill, stories_path, output):
    target = output.parent / "target"
    target.write_text("precious")
    output.symlink_to(target)
    assert gristmill("train-tokenizer", stories_path, "--vocab-size", 300, "-o", output)[0] == 1
    assert gristmill("train-tokenizer", stories_path, "--vocab-size", 300, "-o", output, "--overwrite")[0] == 0
    assert target.read_text() == "precious"
    assert not output.is_symlink()


def test_a_corpus_with_too_few_pairs_warns_says_so_and_still_saves(gristmill, output):
    corpus = output.parent / "small.txt"
    corpus.write_text("low lower lowest")
    code, out, err = gristmill("train-tokenizer", corpus, "--vocab-size", 1000, "-o", output)
    assert code == 0
    assert err.startswith("gristmill: warning: learned ")
    assert "stopped early" in out
    assert package.Tokenizer.load(output).vocab_size < 1000


def test_profile_has_a_row_for_every_stage(gristmill, stories_path, output):
    code, out, _ = gristmill("train-tokenizer", stories_path, "--vocab-size", 600, "-o", output, "--profile")
    assert code == 0
    table = out.split("\n\n")[1].splitlines()
    assert table[0].split() == ["stage", "seconds", "MB/s", "words", "pairs", "rounds", "merges", "merges/s"]
    rows = {line.split()[0]: line.split()[1:] for line in table[1:]}
    assert {"count", "join", "setup", "merge", "other", "total"} <= rows.keys()
    assert "343" in rows["merge"]
    assert "peak memory" in out


def test_progress_goes_to_stderr_as_lines_that_parse(gristmill, stories_path, output):
    code, out, err = gristmill(
        "train-tokenizer", stories_path, "--vocab-size", 600, "-o", output, "--progress", "jsonl"
    )
    assert code == 0
    reports = [json.loads(line) for line in err.splitlines()]
    assert reports[-1]["stage"] == "merge"
    assert reports[-1]["done"] == reports[-1]["total"] == 343
    assert "{" not in out


def test_result_does_not_depend_on_progress_or_threads(gristmill, stories_path, output):
    files = set()
    for progress, threads in (("none", 1), ("bar", 2), ("jsonl", 7)):
        options = ["--progress", progress, "--threads", threads, "--overwrite"]
        assert gristmill("train-tokenizer", stories_path, "--vocab-size", 600, "-o", output, *options)[0] == 0
        files.add(output.read_bytes())
    assert len(files) == 1


@pytest.fixture(scope="session")
def long_work(tmp_path_factory):
    """A slow corpus: two million distinct words, in documents of a thousand words."""
    path = tmp_path_factory.mktemp("long") / "random.txt"
    data = random.Random(0).randbytes(2_000_000 * 9).hex().encode()
    words = [data[i : i + 18] for i in range(0, len(data), 18)]
    path.write_bytes(b"<|endoftext|>".join(b" ".join(words[i : i + 1000]) for i in range(0, len(words), 1000)))
    return path


@pytest.mark.skipif(os.name == "nt", reason="no SIGINT for another process")
@pytest.mark.parametrize("stage", ["count", "merge"])
def test_ctrl_c_prints_one_line_exits_130_and_leaves_no_files(gristmill_process, long_work, output, stage):
    process = gristmill_process(
        "train-tokenizer", long_work, "--vocab-size", 2_000_000, "-o", output, "--progress", "jsonl"
    )
    for line in process.stderr:
        if json.loads(line)["stage"] == stage:
            break
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130
    assert out == b""
    assert err.splitlines()[-1] == b"gristmill: interrupted"
    assert b"Traceback" not in err
    assert names_in(output.parent) == []


@pytest.mark.skipif(os.name == "nt", reason="no SIGINT for another process")
def test_ctrl_c_while_worker_processes_run_a_pattern_leaves_no_files(gristmill_process, long_work, output):
    options = ["--vocab-size", 300, "-o", output, "--progress", "jsonl", "--pattern", r"\w+|\W+"]
    process = gristmill_process("train-tokenizer", long_work, *options)
    for line in process.stderr:
        if line.startswith(b"{"):
            break
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert (process.returncode, out) == (130, b"")
    assert err.splitlines()[-1] == b"gristmill: interrupted"
    assert b"Traceback" not in err
    assert names_in(output.parent) == []
