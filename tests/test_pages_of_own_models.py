"""examples/train_optimized.py and the report: paths that are mistyped, and models with statistics of their own."""

import importlib
import sys
from pathlib import Path

import pytest

from gristmill import train_tokenizer
from gristmill.report import write_report
from gristmill.report.records import read_records
from gristmill.report.summary import summarise
from recorded_runs import read_lines, write_json, write_lines, write_run

EXAMPLES = Path(__file__).parent.parent / "examples"


@pytest.fixture
def script(monkeypatch, tmp_path):
    """The module examples/train_optimized.py, in a folder with a text `stories.txt`."""
    pytest.importorskip("torch")
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GRISTMILL_DATA", raising=False)
    monkeypatch.setenv("GRISTMILL_SETTLED_ARGUMENTS", "")  # which the script sets: restored after the test
    stories = "<|endoftext|>".join(f"The cat sat on mat {number}." for number in range(20))
    (tmp_path / "stories.txt").write_text(stories)
    return importlib.import_module("train_optimized")


def run(script, monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["train_optimized.py", *arguments])
    return script.train(script.OPTIMIZED, "train_optimized", for_sample=[])


def test_a_tokenizer_that_is_not_there_is_refused_and_not_trained(script, tmp_path, monkeypatch, capsys):
    assert run(script, monkeypatch, "stories.txt", "--tokenizer", "typo.json") == 2
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1
    assert "typo.json" in said[0]
    assert [path.name for path in tmp_path.iterdir()] == ["stories.txt"]


def test_another_tokenizer_gets_shards_of_its_own(script, tmp_path):
    folders = []
    for size in (260, 270, 270):
        train_tokenizer("stories.txt", vocab_size=size).save("tok.json", overwrite=True)
        folders.append(script.prepare("stories.txt", ["--tokenizer", "tok.json"], tmp_path / "made")[0])
    assert folders[0] != folders[1] == folders[2]


@pytest.mark.parametrize(
    "arguments", [["--dry_run"], ["--resume"], ["--resume", "auto"], ["--no-pin_memory"], ["--debug"], ["-o", "run"]]
)
def test_the_data_path_may_follow_any_option(script, arguments):
    command, _ = script.complete_command(script.OPTIMIZED, [*arguments, "stories.txt"], "train_optimized", [])
    assert command[-1].startswith(("runs", "run-data"))
    assert Path(command[-1], "manifest.json").exists()
    assert "stories.txt" not in command


def test_a_dry_run_names_no_folder_of_a_run(script, monkeypatch, capsys):
    tiny = ["--num_layers", "1", "--num_heads", "2", "--d_model", "16", "--latent_dim", "4"]
    assert run(script, monkeypatch, "--dry_run", "stories.txt", "--max_sequence_length", "40", *tiny) == 0
    assert "the run is in" not in capsys.readouterr().err
    assert not Path("runs", "train_optimized-1").exists()


def record_statistic(folder, name, *, train, val):
    """Add a statistic to what a run has recorded."""
    values = {"train": train, "val": val}
    records = read_lines(folder / "metrics.jsonl")
    added = [{**each, name: values[each["kind"]]} if each["kind"] in values else each for each in records]
    write_lines(folder / "metrics.jsonl", added)


def figures_of(folder):
    return {figure.name: figure.value for figure in summarise(read_records(folder)).figures}


def test_a_statistic_of_a_model_of_your_own_is_drawn_and_in_the_table(tmp_path):
    run = write_run(tmp_path / "run", num_records=20)
    before = {path.name for path in write_report(run).parent.joinpath("plots").iterdir()}
    record_statistic(run, "acc", train=0.25, val=0.75)
    page = write_report(run).read_text(encoding="utf-8")
    assert {path.name for path in (run / "plots").iterdir()} - before == {"statistic_acc.png"}
    found = figures_of(run)
    assert (found["Training acc"], found["Validation acc"]) == ("0.250", "0.750")
    assert "Validation acc" in page


@pytest.mark.parametrize("name", ["../acc", "$acc$ [x](y)", "memory", "a" * 300])
def test_the_name_of_a_statistic_is_never_a_path_or_another_plot(tmp_path, name):
    run = write_run(tmp_path / "run", num_records=3, num_vals=1)
    write_report(run)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.png")}
    record_statistic(run, name, train=0.25, val=0.75)
    write_report(run)
    after = {path: path.read_bytes() for path in tmp_path.rglob("*.png")}
    new = after.keys() - before.keys()
    assert [path.parent for path in new] == [run / "plots"]
    assert {path: after[path] for path in before} == before


def test_the_report_shows_a_perplexity_where_the_run_recorded_that_its_model_has_one(tmp_path):
    run = write_run(tmp_path / "run", num_records=3)
    assert "Perplexity" in figures_of(run)  # a folder of an older version, without a KL
    write_json(run / "machine.json", {"has_perplexity": False})
    assert "Perplexity" not in figures_of(run)
    assert "perplexity" not in summarise(read_records(run)).result
    record_statistic(run, "kl", train=0.5, val=0.5)
    write_json(run / "machine.json", {"has_perplexity": True})
    assert "Perplexity" in figures_of(run)
    write_json(run / "machine.json", {})
    assert "Perplexity" not in figures_of(run)  # a folder of an older version, with a KL


def test_a_run_records_whether_its_model_has_a_perplexity(tmp_path):
    pytest.importorskip("torch")
    from lm.tiny_runs import build_shards, train

    train(build_shards(tmp_path / "shards"), tmp_path / "run", max_steps=1, warmup_steps=0)
    assert read_records(tmp_path / "run").machine["has_perplexity"] is True
