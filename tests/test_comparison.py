"""The comparison of runs: one page with their curves, their numbers and the options that differ."""

import json
import math
import re

import pytest

import gristmill as gm
from gristmill.errors import CheckpointError, OptionError
from gristmill.report import write_comparison
from gristmill.report.comparison import compare, compared_runs
from gristmill.report.overlays import all_overlays
from gristmill.report.records import read_records
from recorded_runs import posterior_record, read_lines, train_record, val_record, write_json, write_lines, write_run


def changed(folder, *, machine=(), worse=0.0, subset=None, **options):
    """The run with other options, with losses that are `worse`, and with another size of the validation subset."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    write_json(folder / "config.json", config | options)
    if machine:
        write_json(folder / "machine.json", dict(machine))
    records = read_lines(folder / "metrics.jsonl")
    for record in records:
        if record["kind"] in ("train", "val"):
            record["loss"] += worse
        if record["kind"] == "val":
            record["bits_per_byte"] = record["loss"] / math.log(2) / 3.6
            record["num_tokens"] = subset if subset and not record["full"] else record["num_tokens"]
    write_lines(folder / "metrics.jsonl", records)
    return folder


def runs(*folders):
    return compared_runs(folders, [read_records(folder) for folder in folders])


def cells(comparison, name):
    """The values of a row, with a star at the best."""
    row = next(row for row in comparison.figures if row.name == name)
    return ["★" * cell.is_best + cell.value for cell in row.cells]


def text_of(page):
    return " ".join(re.sub(r"<style>.*?</style>|<[^>]*>", " ", page.read_text(encoding="utf-8"), flags=re.S).split())


@pytest.fixture
def good(tmp_path):
    return changed(write_run(tmp_path / "good", num_records=20), worse=0.0)


@pytest.fixture
def bad(tmp_path):
    return changed(write_run(tmp_path / "bad", num_records=20), worse=0.5, learning_rate=6e-3)


def test_one_page_holds_the_figures_the_curves_and_only_the_options_that_differ(good, bad, tmp_path):
    page = write_comparison([good, bad], out=tmp_path / "c.html")
    assert page == tmp_path / "c.html"
    text = text_of(page)
    for words in ("good and bad", "Lowest full validation loss: good,", "Training loss by tokens", "learning_rate"):
        assert words in text
    assert "num_layers" not in text and "vocab_size" not in text
    sources = re.findall(r'(?:src|srcset)="([^"]*)"', page.read_text(encoding="utf-8"))
    assert len(sources) > 8 and all(source.startswith("data:image/svg+xml;base64,") for source in sources)


def test_the_best_of_each_row_is_marked_where_less_or_more_is_better(good, bad):
    comparison = compare(runs(good, bad))
    assert [value.startswith("★") for value in cells(comparison, "Full validation loss")] == [True, False]
    assert [value.startswith("★") for value in cells(comparison, "Perplexity")] == [True, False]
    assert cells(comparison, "Steps") == ["200", "200"]
    assert not any(value.startswith("★") for value in cells(comparison, "Memory")), "they look the same"


def test_losses_of_different_tokenizers_are_not_ranked_and_bits_per_byte_are(good, bad):
    changed(bad, vocab_size=8000)
    comparison = compare(runs(good, bad))
    assert not any("★" in value for value in cells(comparison, "Full validation loss"))
    assert [value.startswith("★") for value in cells(comparison, "Bits per byte")] == [True, False]
    assert comparison.result.startswith("Lowest bits per byte: good")


def test_losses_of_texts_that_take_other_numbers_of_tokens_are_not_ranked(good, bad):
    records = read_lines(bad / "metrics.jsonl")
    for record in records:
        if record["kind"] == "val":
            record["bits_per_byte"] *= 1.1
    write_lines(bad / "metrics.jsonl", records)
    assert not any("★" in value for value in cells(compare(runs(good, bad)), "Full validation loss"))


def test_the_best_validation_on_subsets_of_different_sizes_is_not_ranked(good, bad):
    assert any("★" in value for value in cells(compare(runs(good, bad)), "Best validation loss"))
    changed(bad, subset=1234)
    assert not any("★" in value for value in cells(compare(runs(good, bad)), "Best validation loss"))


def test_models_with_different_options_leave_a_cell_empty(good, bad):
    changed(bad, model="other", latent_dim=16)
    comparison = compare(runs(good, bad))
    rows = {row.name: [cell.value for cell in row.cells] for row in comparison.options}
    assert rows == {"model": ["gpt", "other"], "learning_rate": ["0.003", "0.006"], "latent_dim": ["", "16"]}
    assert comparison.some_are_absent


def test_a_run_without_a_configuration_makes_no_option_differ(good, bad):
    (good / "config.json").unlink()
    assert compare(runs(good, bad)).options == []


def test_machines_that_differ_are_shown_without_what_belongs_to_the_run(good, bad):
    changed(bad, machine={"device": "cuda", "name": "Some CPU", "threads": 2, "torch": "2.11.0", "num_parameters": 7})
    rows = {row.name: [cell.value for cell in row.cells] for row in compare(runs(good, bad)).machines}
    assert rows == {"device": ["cpu", "cuda"]}


def test_an_unfinished_run_says_how_far_it_came_and_has_no_full_validation(good, tmp_path):
    young = write_run(tmp_path / "young", num_records=7, max_steps=500)
    write_lines(young / "metrics.jsonl", [r for r in read_lines(young / "metrics.jsonl") if not r.get("full")])
    comparison = compare(runs(good, young))
    assert cells(comparison, "Full validation loss")[1] == "–"
    assert next(row for row in comparison.figures if row.name == "Steps").cells[1].note == "of 500: unfinished"
    assert len(all_overlays(runs(good, young))) == 7


def test_folders_of_the_same_name_are_distinguished_by_the_folders_above_them(tmp_path):
    folders = [write_run(tmp_path / name / "run", num_records=3) for name in ("a", "b")]
    assert [run.name for run in runs(*folders)] == ["a/run", "b/run"]


def test_a_run_that_has_recorded_nothing_or_no_tokens_does_not_keep_the_others_from_the_page(good, tmp_path):
    empty, odd = tmp_path / "empty", tmp_path / "odd"
    for folder, lines in ((empty, []), (odd, [val_record(10, 10, full=True)])):
        folder.mkdir()
        write_lines(folder / "metrics.jsonl", lines)
    assert "empty" in text_of(write_comparison([empty, odd, good], out=tmp_path / "c.html"))
    assert "empty" in text_of(write_comparison([empty, odd], out=tmp_path / "d.html"))


def test_losses_that_are_no_numbers_are_drawn_and_named(good, tmp_path):
    broken = write_run(tmp_path / "broken", num_records=10, num_vals=0, loss=None)
    page = write_comparison([good, broken], out=tmp_path / "c.html")
    assert "broken : The loss is NaN or infinite at step 10." in text_of(page)


def test_a_collapse_is_named_at_the_top_with_the_run_it_belongs_to(good, bad, tmp_path):
    alarm = posterior_record(100, alarms=[("raised", "collapse")])
    write_lines(bad / "metrics.jsonl", [*read_lines(bad / "metrics.jsonl"), alarm])
    assert "bad : Since step 100: collapse" in text_of(write_comparison([good, bad], out=tmp_path / "c.html"))


def test_validations_are_at_the_tokens_of_their_step(tmp_path):
    from random import Random

    folder = tmp_path / "run"
    folder.mkdir()
    lines = [train_record(step, 40, Random(0)) | {"tokens": step * 1_000_000} for step in (20, 40)]
    write_lines(folder / "metrics.jsonl", [*lines, *(val_record(step, 40, full=False) for step in (10, 30))])
    plot = next(plot for plot in all_overlays(runs(folder, folder)) if plot.name == "validation_loss_by_tokens")
    places = []

    class Axes:
        def plot(self, x, y, **style):
            places.append(list(x))
            raise StopIteration

    with pytest.raises(StopIteration):
        plot.draw(Axes())
    assert places == [[10.0, 30.0]]
    assert (plot.across, plot.last_step) == ("million tokens", 40.0)


def test_more_runs_than_colours_have_distinct_lines(tmp_path):
    folders = [write_run(tmp_path / f"run-{i}", num_records=2, num_vals=1) for i in range(10)]
    lines = {(run.colour, run.dash) for run in runs(*folders)}
    assert len(lines) == 10
    assert "Comparison of 10 training runs" in text_of(write_comparison(folders, out=tmp_path / "c.html"))


def test_a_page_that_is_there_is_kept_unless_overwrite(good, bad, tmp_path):
    page = tmp_path / "c.html"
    page.write_text("old", encoding="utf-8")
    with pytest.raises(FileExistsError, match="overwrite=True"):
        write_comparison([good, bad], out=page)
    assert page.read_text(encoding="utf-8") == "old"
    write_comparison([good, bad], out=page, overwrite=True)
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")


@pytest.mark.parametrize(
    "names, words",
    [
        (["good"], "must have two or more run folders, got 1"),
        ([], "must have two or more run folders, got 0"),
        (["good", "bad", "./good"], "is given twice"),
    ],
)
def test_fewer_than_two_runs_are_refused_before_anything_is_written(good, bad, tmp_path, names, words):
    with pytest.raises(OptionError, match=words):
        gm.report.write_comparison([tmp_path / name for name in names], out=tmp_path / "c.html")
    with pytest.raises(OptionError, match=r"must be a list of two or more run folders"):
        gm.report.write_comparison(str(good), out=tmp_path / "c.html")
    assert not (tmp_path / "c.html").exists()


def test_a_folder_that_is_no_run_leaves_no_page(good, tmp_path):
    (tmp_path / "other").mkdir()
    with pytest.raises(CheckpointError, match=r"other is not a run folder: it has no metrics\.jsonl"):
        write_comparison([good, tmp_path / "other"], out=tmp_path / "c.html")
    assert not list(tmp_path.glob("*c.html*"))


def test_settings_that_no_run_has_are_shown_or_left_out(good, bad, tmp_path):
    changed(good, vocab_size=[1], machine={"num_parameters": 10**400, "num_train_tokens": 10**400})
    changed(bad, vocab_size={"a": 1}, machine={"num_parameters": True, "num_train_tokens": 0})
    assert "Parameters" not in text_of(write_comparison([good, bad], out=tmp_path / "c.html"))


def test_markup_in_the_name_of_a_run_stays_text(good, tmp_path):
    odd = write_run(tmp_path / "<b>bold", num_records=3)
    page = write_comparison([good, odd], out=tmp_path / "c.html").read_text(encoding="utf-8")
    assert "<b>" not in page and "&lt;b&gt;bold" in page
