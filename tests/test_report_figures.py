"""Numbers of the report: validation on the subset and on the whole split, perplexity, sizes, problems."""

import math
from random import Random

import pytest

from gristmill.report import validation, write_report
from gristmill.report.plots import validation_lines
from gristmill.report.records import read_records
from gristmill.report.summary import summarise
from recorded_runs import posterior_record, read_lines, train_record, val_record, write_json, write_lines, write_run


def figures(folder):
    """(value, note) of each figure by its name."""
    return {figure.name: (figure.value, figure.note) for figure in summarise(read_records(folder)).figures}


def write_vals(folder, *vals):
    """A run that only validated: (step, full, loss) or (step, full, loss, num_tokens)."""
    lines = [
        val_record(step, 100, full=full) | {"loss": loss, "num_tokens": size[0] if size else 1000}
        for step, full, loss, *size in vals
    ]
    write_lines(folder / "metrics.jsonl", lines)
    return folder


class Axes:
    """Records what is drawn."""

    def __init__(self):
        self.drawn = []

    def plot(self, x, y, **style):
        self.drawn.append((list(x), list(y), style.get("marker")))


# The subset and the whole split


def test_the_best_validation_is_among_those_on_the_subset_however_low_the_full_one_is(tmp_path):
    write_vals(tmp_path, (10, False, 2.0), (20, False, 1.5), (30, False, 1.7), (30, True, 1.1))
    assert figures(tmp_path)["Best validation loss"] == ("1.500", "on a fixed subset, at step 20")
    assert figures(tmp_path)["Full validation loss"] == ("1.100", "on the whole split")


def test_the_full_validation_is_a_mark_apart_from_the_curve_and_named(tmp_path):
    axes = Axes()
    write_vals(tmp_path, (10, False, 2.0), (20, False, 1.5), (20, True, 1.1))
    ends = validation_lines(axes, read_records(tmp_path).val, "loss", "red")
    assert axes.drawn == [([10, 20], [2.0, 1.5], "o"), ([20], [1.1], "D")]
    assert [words for _, _, words, _ in ends] == ["validation 1.500", "full validation 1.100"]


def test_where_every_validation_is_on_the_whole_split_they_make_the_curve(tmp_path):
    axes = Axes()
    write_vals(tmp_path, (10, True, 2.0), (20, True, 1.5), (30, True, 1.6))
    validation_lines(axes, read_records(tmp_path).val, "loss", "red")
    assert axes.drawn == [([10, 20, 30], [2.0, 1.5, 1.6], "o")]
    assert figures(tmp_path)["Best validation loss"] == ("1.500", "on the whole split, at step 20")


def test_a_full_validation_before_a_resumed_run_is_not_its_result(tmp_path):
    write_vals(tmp_path, (10, False, 1.6), (10, True, 1.5), (20, False, 1.2))
    summary = summarise(read_records(tmp_path))
    assert summary.result.startswith("Validation loss 1.200 on a fixed subset (")
    assert figures(tmp_path)["Full validation loss"] == ("1.500", "on the whole split, at step 10")


def test_the_full_validation_of_the_last_step_is_the_result(tmp_path):
    write_vals(tmp_path, (10, False, 1.6), (20, True, 1.5), (20, False, 1.2))
    assert summarise(read_records(tmp_path)).result.startswith("Validation loss 1.500 on the whole split (")


def test_losses_on_subsets_of_two_sizes_are_no_line_and_no_rivals(tmp_path):
    axes = Axes()
    write_vals(tmp_path, (10, False, 1.0, 500), (20, False, 0.9, 500), (30, False, 1.4, 800), (40, False, 1.3, 800))
    validation_lines(axes, read_records(tmp_path).val, "loss", "red")
    assert [x for x, *_ in axes.drawn] == [[10, 20], [30, 40]]
    best = validation.best(read_records(tmp_path).val)
    assert (best.step, best.loss) == (40, 1.3)


def test_the_page_explains_the_mark_of_the_full_validation(tmp_path):
    page = write_report(write_run(tmp_path / "run", num_records=20))
    assert "Diamond: full validation" in page.read_text(encoding="utf-8")


# Perplexity


def test_perplexity_is_the_exponential_of_the_loss(tmp_path):
    write_vals(tmp_path, (10, False, 2.0), (20, True, math.log(7.25)))
    assert figures(tmp_path)["Perplexity"] == ("7.25", "validation, on the whole split")
    assert "perplexity 7.25" in summarise(read_records(tmp_path)).result


def test_a_loss_with_a_kl_part_has_no_perplexity(tmp_path):
    write_lines(tmp_path / "metrics.jsonl", [val_record(10, 10, full=True) | {"kl": 3.0, "reconstruction": 1.0}])
    assert "Perplexity" not in figures(tmp_path)
    assert "perplexity" not in summarise(read_records(tmp_path)).result


def test_a_loss_too_large_for_exp_has_a_page(tmp_path):
    write_vals(tmp_path, (10, True, 5000.0))
    assert figures(tmp_path)["Perplexity"][0] == "over 1e+300"


# Sizes


def test_parameters_tokens_and_epochs_are_figures_and_no_settings_of_the_machine(tmp_path):
    folder = write_run(tmp_path / "run", num_records=100)
    write_json(folder / "machine.json", {"device": "cpu", "num_parameters": 17_123_456, "num_train_tokens": 2_048_000})
    found = figures(folder)
    assert found["Parameters"] == ("17.1M", "17,123,456")
    assert found["Tokens"][0] == "4.1M"
    assert found["Epochs"][0] == "2"
    assert summarise(read_records(folder)).machine == [("device", "cpu")]


def test_a_run_of_an_older_version_has_neither_parameters_nor_epochs(tmp_path):
    found = figures(write_run(tmp_path / "run", num_records=5))
    assert not found.keys() & {"Parameters", "Epochs", "Gradient norm"}
    assert found.keys() >= {"Tokens", "Time"}


def test_the_largest_gradient_norm_is_a_figure_and_drawn_where_it_is_recorded(tmp_path):
    folder = write_run(tmp_path / "run", num_records=5, grad_norm_max=3.25)
    assert figures(folder)["Gradient norm"] == ("3.250", "largest of all steps")
    assert "Thin line: the largest" in write_report(folder).read_text(encoding="utf-8")


# Problems


def test_a_run_that_stopped_because_of_a_loss_that_is_no_number_says_so_in_one_line(tmp_path):
    from gristmill.lm.training.advice import NOT_FINITE

    folder = write_run(tmp_path / "run", num_records=5)
    message = NOT_FINITE.format(
        what="the loss of", step=57, kept="step-000050 is the last good checkpoint.", precision=""
    )
    stop = {"kind": "event", "step": 58, "message": message}
    write_lines(folder / "metrics.jsonl", [*read_lines(folder / "metrics.jsonl"), stop])
    said = "Stopped at step 58: the loss of step 57 is NaN or infinite."
    assert summarise(read_records(folder)).trouble == said
    page = write_report(folder)
    assert f'<p class="trouble">{said}</p>' in page.read_text(encoding="utf-8")
    assert f"\n**{said}**\n" in page.with_suffix(".md").read_text(encoding="utf-8")
    more = [*read_lines(folder / "metrics.jsonl"), train_record(60, 100, Random(0))]
    write_lines(folder / "metrics.jsonl", more)
    assert summarise(read_records(folder)).trouble == "", "a resumed run is over it"


@pytest.mark.parametrize("changes, is_named", [(("raised",), True), (("raised", "cleared"), False)])
def test_a_collapse_that_lasts_to_the_end_is_named_at_the_top(tmp_path, changes, is_named):
    folder = write_run(tmp_path / "run", num_records=20)
    alarms = [posterior_record(10 * i, alarms=[(change, "collapse")]) for i, change in enumerate(changes, 1)]
    write_lines(folder / "metrics.jsonl", [*read_lines(folder / "metrics.jsonl"), *alarms])
    write_report(folder)
    top = (folder / "report.md").read_text(encoding="utf-8").split("| measure")[0]
    assert ("**Since step 10: collapse" in top) is is_named
