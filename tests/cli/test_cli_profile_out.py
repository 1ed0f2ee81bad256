"""--profile-out of every long command."""

from __future__ import annotations

import dataclasses
import importlib
import io
import os
import signal

import pytest

from gristmill.cli import COMMANDS
from trace_checks import ReadTrace


def classes():
    for name in COMMANDS:
        module = importlib.import_module(f"gristmill.cli.{name.replace('-', '_')}")
        yield from module.every_command() if hasattr(module, "every_command") else [module.Command]


# Commands that end at once, write a text without reading one, or serve pages until they are stopped.
SHORT = {"sample-corpus", "truncate", "export", "view", "completion"}
# Classes that only name the actions of a command, or read a few files.
SHORT_ACTIONS = {("task", "Command"), ("task", "Plan"), ("task", "Status"), ("bench", "Command")}


def test_every_long_command_has_the_option():
    for command in classes():
        name = command.__module__.rpartition(".")[2].replace("_", "-")
        if name not in SHORT and (name, command.__name__) not in SHORT_ACTIONS:
            assert "profile_out" in {field.name for field in dataclasses.fields(command)}, command


def test_the_trace_has_a_span_for_the_whole_command(gristmill, stories_path, tmp_path):
    path = tmp_path / "trace.json"
    output = ["-o", tmp_path / "tok.json", "--progress", "none"]
    code, _, errors = gristmill(
        "train-tokenizer", stories_path, "--vocab-size", 300, *output, "--threads", 2, "--profile-out", path
    )
    assert code == 0
    read = ReadTrace(path)
    (whole,) = read.spans("gristmill train-tokenizer", "main")
    assert {"count", "join", "setup", "merge"} <= read.names()["main"]
    last = max(span["ts"] + span["dur"] for spans in read.rows.values() for span in spans)
    assert whole["ts"] + whole["dur"] == pytest.approx(last)
    num_spans = sum(map(len, read.rows.values()))
    assert errors == f"gristmill: saved a trace of {num_spans:,} spans to {path}\n"


def test_the_traces_of_tokenize_and_decode_have_their_batches(
    gristmill, stories_path, tokenizer_path, tmp_path, monkeypatch
):
    options = ["-t", tokenizer_path, "--profile-out", tmp_path / "trace.json"]
    for show in ("ids", "tokens"):
        code, out, errors = gristmill("tokenize", "--file", stories_path, "--show", show, *options)
        assert code == 0 and "saved a trace" in errors
        batches = ReadTrace(tmp_path / "trace.json").spans(f"write {show}", "main")
        assert len(batches) > 1 and sum(span["args"]["ids"] for span in batches) == len(out.split())
    ids = gristmill("tokenize", "--file", stories_path, "-t", tokenizer_path)[1]
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(ids.encode())))
    code, out, errors = gristmill("decode", *options)
    assert code == 0 and out == stories_path.read_text(encoding="utf-8") and "saved a trace" in errors
    trace = ReadTrace(tmp_path / "trace.json")
    assert sum(span["args"]["ids"] for span in trace.spans("decode", "main")) == len(ids.split())


def test_the_trace_of_inspect_has_the_parts_of_a_folder_of_shards(gristmill, stories_path, tokenizer_path, tmp_path):
    shards = tmp_path / "shards"
    assert gristmill("encode", stories_path, "-t", tokenizer_path, "-o", shards, "--progress", "none")[0] == 0
    assert gristmill("inspect", shards, "--profile-out", tmp_path / "trace.json")[0] == 0
    names = ReadTrace(tmp_path / "trace.json").names()["main"]
    assert {"gristmill inspect", "count tokens", "read document lengths", "read sample documents"} <= names


def test_a_command_that_fails_saves_its_trace_and_keeps_its_error(gristmill, tokenizer_path, tmp_path):
    path = tmp_path / "trace.json"
    (tmp_path / "bad.jsonl").write_text('{"text": "a"}\nnot json\n')
    arguments = ["-t", tokenizer_path, "-o", tmp_path / "shards", "--progress", "none", "--profile-out", path]
    code, _, errors = gristmill("encode", tmp_path / "bad.jsonl", *arguments)
    assert code == 1 and "bad.jsonl:2" in errors and "saved a trace" in errors
    assert ReadTrace(path).spans("gristmill encode")


def test_a_file_that_is_not_a_trace_is_refused_before_the_work(gristmill, stories_path, tokenizer_path, tmp_path):
    before = tokenizer_path.read_bytes()
    arguments = ["--vocab-size", 300, "-o", tmp_path / "tok.json", "--profile-out", tokenizer_path]
    code, out, errors = gristmill("train-tokenizer", stories_path, *arguments)
    assert (code, out) == (1, "") and "not a trace of Gristmill" in errors
    assert tokenizer_path.read_bytes() == before and not (tmp_path / "tok.json").exists()


def test_a_terminated_command_saves_its_trace(gristmill_process, tmp_path):
    (tmp_path / "slow.txt").write_text("a" * 60)
    options = ["--progress", "none", "--profile-out", tmp_path / "trace.json"]
    # The first line on stderr is the warning about a slow pattern. The worker then needs longer than its time limit.
    process = gristmill_process(
        "count-words", tmp_path / "slow.txt", "-o", tmp_path / "words.gmw", "--pattern", "(a|a|aa)+b", *options
    )
    assert b"no native matcher" in process.stderr.readline()
    os.kill(process.pid, signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 143 and b"saved a trace" in errors and b"terminated" in errors
    assert ReadTrace(tmp_path / "trace.json").spans("gristmill count-words")


def test_only_the_first_of_several_processes_writes_the_trace(
    gristmill, stories_path, tokenizer_path, tmp_path, monkeypatch
):
    monkeypatch.setenv("LOCAL_RANK", "1")
    path = tmp_path / "trace.json"
    assert gristmill("count", stories_path, "-t", tokenizer_path, "--progress", "none", "--profile-out", path)[0] == 0
    assert not path.exists()
    monkeypatch.setenv("LOCAL_RANK", "0")
    assert gristmill("count", stories_path, "-t", tokenizer_path, "--progress", "none", "--profile-out", path)[0] == 0
    assert ReadTrace(path).spans("gristmill count")
