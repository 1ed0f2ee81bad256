"""Checks and messages before the first step: source of the weights, context length, conversations."""

import os
import subprocess
import sys

import pytest

import gristmill as gm
from gristmill.cli import main
from lm.chats import questions, tokenizer, write_lines
from lm.tiny_runs import TINY, tensors

torch = pytest.importorskip("torch")

SMALL = {"context_length": 64, "num_layers": 1, "num_heads": 1, "d_model": 8, "max_steps": 1, "batch_size": 2}
SMALL |= {"device": "cpu", "progress": None, "conversations": True}


def make_llama(folder, length):
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 1}
    config = transformers.LlamaConfig(**sizes, vocab_size=400, max_position_embeddings=length)
    transformers.LlamaForCausalLM(config).save_pretrained(folder)


@pytest.mark.parametrize(
    ("length", "options", "is_reported"),
    [(8192, {}, True), (8192, {"context_length": 32}, False), (64, {}, False)],
)
def test_a_long_context_of_a_hugging_face_folder_is_reported_with_its_option(
    tmp_path, length, options, is_reported, capsys
):
    make_llama(tmp_path / "base", length)
    chats = write_lines(tmp_path / "chats.jsonl", questions())
    tokenizer().save(tmp_path / "tokenizer.json")
    run = {"max_steps": 1, "batch_size": 1, "device": "cpu", "progress": "jsonl", "val_fraction": 0.0, **options}
    run |= {"conversations": True, "tokenizer": str(tmp_path / "tokenizer.json"), "init_from": str(tmp_path / "base")}
    gm.lm.train(chats, out=tmp_path / "run", **run)
    assert capsys.readouterr().err.count(f"context_length={length}, from") == is_reported


def test_several_files_of_conversations_are_read_one_after_the_other(tmp_path):
    rows = questions()
    whole = write_lines(tmp_path / "whole.jsonl", rows)
    parts = [write_lines(tmp_path / "b.jsonl", rows[:5]), write_lines(tmp_path / "a.jsonl", rows[5:])]
    tokenizer().save(tmp_path / "tokenizer.json")
    options = {**SMALL, "tokenizer": str(tmp_path / "tokenizer.json")}
    for number, data in enumerate([whole, parts]):
        gm.lm.train(data, out=tmp_path / f"run-{number}", **options)
    first, second = (tensors(tmp_path / f"run-{number}", 1) for number in (0, 1))
    assert [name for name in first if not torch.equal(first[name], second[name])] == []
    flags = [
        "--conversations",
        "--context-length=64",
        "--num-layers=1",
        "--num-heads=1",
        "--d-model=8",
        "--max-steps=1",
    ]
    flags += ["--batch-size=2", "--device=cpu", "--progress=none", "--tokenizer", str(tmp_path / "tokenizer.json")]
    assert main(["train-model", *map(str, parts), "-o", str(tmp_path / "run-2"), *flags]) == 0


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "data is empty. With conversations=True, pass the path of JSON lines"),
        ([3], "data is of type int, but conversations=True reads JSON lines. Pass their path"),
        (3, "data is of type int, but conversations=True reads JSON lines. Pass their path"),
    ],
)
def test_data_that_is_not_a_path_of_conversations_is_refused(tmp_path, data, message):
    with pytest.raises((gm.OptionError, TypeError), match=message):
        gm.lm.train(data, out=tmp_path / "run", **SMALL)


def test_missing_weights_to_start_from_are_noticed_before_the_data_is_opened(tmp_path):
    with pytest.raises(gm.CheckpointError, match="no-base"):
        gm.lm.train(tmp_path / "no-data", out=tmp_path / "run", init_from=str(tmp_path / "no-base"), **TINY)


def test_a_corpus_is_not_encoded_for_a_run_whose_weights_are_missing(tmp_path, capsys):
    (tmp_path / "corpus.txt").write_text("the cat sat\n" * 200)
    arguments = ["train-model", str(tmp_path / "corpus.txt"), "-o", str(tmp_path / "run"), "--device=cpu"]
    assert main([*arguments, "--init-from", str(tmp_path / "no-base")]) != 0
    assert "no-base" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["corpus.txt"]


@pytest.mark.parametrize(("run", "out", "name"), [(None, "out", "run"), ("run", None, "out"), (3, "out", "run")])
def test_an_export_of_what_is_no_path_is_refused(run, out, name):
    with pytest.raises(gm.OptionError, match=f"{name}=.* is not a path. Pass a str or a pathlib.Path"):
        gm.lm.export(run, out)


def test_the_help_of_generate_has_no_empty_lines_among_its_options():
    environment = {**os.environ, "PYTHONIOENCODING": "utf-8", "COLUMNS": "80"}
    command = [sys.executable, "-m", "gristmill", "generate", "--help"]
    shown = subprocess.run(command, env=environment, capture_output=True, encoding="utf-8", check=True).stdout
    assert "--jsonl" in shown
    assert not [line for line in shown.splitlines() if line.startswith("│") and not line.strip("│ ")]
