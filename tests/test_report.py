"""The report: from recorded files to one self-contained page."""

import base64
import math
import re
import struct
import subprocess
import sys
import xml.etree.ElementTree
from html.parser import HTMLParser

import numpy as np
import pytest

import gristmill
from gristmill.report import write_report
from gristmill.report.curves import smoothed, thinned
from gristmill.report.drawing import pushed_apart
from gristmill.report.page import html_page
from gristmill.report.posterior import heat_map
from gristmill.report.records import posterior_of, read_records
from gristmill.report.summary import summarise
from gristmill.report.validation import curve
from recorded_runs import posterior_record, read_lines, val_record, write_json, write_lines, write_run

PLOTS = {
    "loss",
    "bits_per_byte",
    "learning_rate",
    "gradient_norm",
    "throughput",
    "utilisation",
    "memory",
    "data_wait",
}
POSTERIOR_PLOTS = {
    "reconstruction",
    "kl",
    "posterior_information",
    "posterior_units",
    "posterior_kl_per_dimension",
    "posterior_gaps",
}
VOID = {"meta", "img", "source", "br", "link"}


class Page(HTMLParser):
    """The links and the text of a page, and a check that its elements are closed in order."""

    def __init__(self, path):
        super().__init__()
        self.addresses, self.open, self.words, self.tags = [], [], [], []
        self.feed(path.read_text(encoding="utf-8"))
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.addresses += [value for name, value in attributes if name in ("src", "srcset", "href", "data", "action")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)

    @property
    def text(self):
        return " ".join("".join(self.words).split())


def html_text(summary, folder):
    """Return the text of the page of a summary, without its plots."""
    path = folder / "page.html"
    path.write_text(html_page(summary, []), encoding="utf-8")
    return Page(path).text


def plot_names(folder):
    return {path.stem for path in (folder / "plots").glob("*.png")}


def result(folder):
    return summarise(read_records(folder)).result


@pytest.fixture(scope="module")
def tales(tmp_path_factory):
    """A finished run and its report."""
    folder = write_run(tmp_path_factory.mktemp("runs") / "tales")
    assert write_report(folder) == folder / "report.html"
    return folder


def test_a_finished_run_gives_a_page_a_summary_and_a_plot_of_every_measure(tales):
    page = Page(tales / "report.html")
    for words in ("tales", "Validation loss", "Bits per byte", "Learning rate", "Once upon a time", "vocab_size"):
        assert words in page.text
    for words in ("4,000", "Some CPU", "checkpoint written: checkpoints/step-002000"):
        assert words in page.text
    assert plot_names(tales) == PLOTS
    summary = (tales / "report.md").read_text(encoding="utf-8")
    assert summary.startswith("# tales\n\nValidation loss 1.43")
    assert all(f"](plots/{name}.png)" in summary for name in PLOTS)


@pytest.fixture(scope="module")
def latents(tmp_path_factory):
    """A run of a variational autoencoder whose posterior collapsed, came back and collapsed again, and its report."""
    folder = write_run(tmp_path_factory.mktemp("runs") / "latents")
    records = read_lines(folder / "metrics.jsonl")
    for record in records:
        if record["kind"] in ("train", "val"):
            record |= {"reconstruction": 0.9 * record["loss"], "kl": 5.0}
    alarms = {600: "raised", 1000: "cleared", 1800: "raised"}
    for step in range(100, 2001, 100):
        records.append(posterior_record(step, alarms=[(alarms[step], "collapse")] if step in alarms else []))
    write_lines(folder / "metrics.jsonl", records)
    write_report(folder)
    return folder


def test_a_variational_autoencoder_has_pictures_of_its_posterior_and_of_both_parts_of_its_loss(latents):
    assert plot_names(latents) == PLOTS | POSTERIOR_PLOTS
    page = Page(latents / "report.html")
    for words in (
        "Mutual information",
        "1.234",
        "at most 5.3 can be measured",
        "Active units",
        "of 16 latent dimensions",
    ):
        assert words in page.text
    assert "Shaded: an alarm was active." in page.text
    assert all(address.startswith("data:image/svg+xml;base64,") for address in page.addresses)
    assert not any(b"<image" in base64.b64decode(address.partition(",")[2]) for address in page.addresses)


def test_an_active_alarm_is_shown_at_the_top_and_one_that_is_over_is_not(latents, tmp_path):
    said = "Since step 1,800: collapse is raised: pass --free_bits 4."
    assert said in Page(latents / "report.html").text
    assert summarise(read_records(latents)).trouble == said
    records = [posterior_record(step, alarms=[(change, "x")]) for step, change in ((100, "raised"), (200, "cleared"))]
    write_lines(tmp_path / "metrics.jsonl", records)
    assert summarise(read_records(tmp_path)).trouble == ""


def test_a_model_without_latents_has_no_pictures_of_them(tales):
    assert not plot_names(tales) & POSTERIOR_PLOTS
    assert "Active units" not in Page(tales / "report.html").text


def test_posterior_records_alone_and_with_unknown_figures_make_a_page(tmp_path):
    unknown = dict.fromkeys(("kl", "mutual_information", "active_units", "gap_shuffled", "gap_prior"))
    lines = [posterior_record(100, **unknown, kl_per_dimension=[None] * 4), posterior_record(200, latent_dim=4)]
    write_lines(tmp_path / "metrics.jsonl", lines)
    write_report(tmp_path)
    assert plot_names(tmp_path) == POSTERIOR_PLOTS - {"reconstruction", "kl"}
    write_lines(tmp_path / "metrics.jsonl", lines[:1])
    write_report(tmp_path)


def test_a_heat_map_of_many_looks_and_dimensions_is_a_small_picture(tmp_path):
    write_lines(tmp_path / "metrics.jsonl", [posterior_record(step, latent_dim=512) for step in range(10, 10_000, 10)])
    write_report(tmp_path)
    assert (tmp_path / "report.html").stat().st_size < 1_500_000


def test_a_heat_map_is_sorted_by_what_a_dimension_holds_at_the_end_and_loses_no_nat():
    posterior = posterior_of([posterior_record(step, latent_dim=100) for step in range(1, 201)])
    edges, cells = heat_map(posterior.table.steps, posterior.kl_SZ)
    assert cells.shape == (25, 50) and len(edges) == 51
    assert (edges[0], edges[-1]) == (0.5, 200.5)
    assert np.all(np.diff(cells[:, -1]) >= 0)
    assert 4 * cells[:, 0].sum() == pytest.approx(posterior.kl_SZ[0].sum())


def test_the_page_needs_nothing_from_outside(tales):
    page = Page(tales / "report.html")
    assert page.addresses
    assert all(address.startswith("data:image/svg+xml;base64,") for address in page.addresses)
    assert not {"script", "link", "iframe"} & set(page.tags)
    source = (tales / "report.html").read_text(encoding="utf-8")
    assert "@import" not in source and "url(" not in source.partition("</style>")[0]
    for address in page.addresses:
        svg = base64.b64decode(address.partition(",")[2])
        root = xml.etree.ElementTree.fromstring(svg)
        assert root.tag.endswith("svg")
        assert b"@import" not in svg and b"<image" not in svg


def test_png_plots_are_pictures_of_a_useful_size(tales):
    for path in (tales / "plots").glob("*.png"):
        data = path.read_bytes()
        assert data.startswith(b"\x89PNG\r\n")
        width, height = struct.unpack(">II", data[16:24])
        assert 700 < width < 1700 and 400 < height < 1000


def test_the_same_records_give_the_same_bytes(tales, tmp_path):
    again = write_run(tmp_path / "tales")
    write_report(again)
    for file in ("report.html", "report.md", "plots/loss.png"):
        assert (tales / file).read_bytes() == (again / file).read_bytes()


def test_a_report_replaces_an_old_one(tmp_path):
    folder = write_run(tmp_path / "run", num_records=5)
    write_report(folder)
    write_run(folder, num_records=50)
    write_report(folder)
    assert "500 steps" in Page(folder / "report.html").text


def test_an_unfinished_run_says_how_far_it_has_come(tmp_path):
    folder = write_run(tmp_path / "run", num_records=100, max_steps=5000)
    write_report(folder)
    assert "after 1,000 of 5,000 steps" in result(folder)
    assert "(unfinished)" in Page(folder / "report.html").text


def test_a_run_that_is_being_written_may_end_in_half_a_line(tmp_path):
    folder = write_run(tmp_path / "run")
    with (folder / "metrics.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"kind": "train", "step": 99999, "lo')
    assert "after 2,000 steps" in result(folder)


@pytest.mark.parametrize("line", ["{", "3", "\x00\x00"])
def test_a_damaged_line_in_the_middle_is_an_error_that_names_it(tmp_path, line):
    folder = write_run(tmp_path / "run", num_records=3)
    lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    (folder / "metrics.jsonl").write_text("\n".join([lines[0], line, *lines[1:], ""]), encoding="utf-8")
    with pytest.raises(gristmill.CheckpointError, match=r"metrics\.jsonl:2: (not a JSON object|not valid JSON)"):
        write_report(folder)
    assert not (folder / "report.html").exists()


def test_a_folder_that_is_no_run_is_an_error_that_says_what_to_pass(tmp_path):
    with pytest.raises(gristmill.CheckpointError, match=r"it has no metrics\.jsonl.*lm\.train"):
        write_report(tmp_path)
    with pytest.raises(FileNotFoundError):
        write_report(tmp_path / "missing")


def test_a_run_without_validation_reports_its_training_loss(tmp_path):
    folder = write_run(tmp_path / "run", num_vals=0)
    write_report(folder)
    assert result(folder).startswith("Training loss 1.4")
    assert plot_names(folder) == PLOTS - {"bits_per_byte"}


def test_one_record_is_enough(tmp_path):
    folder = write_run(tmp_path / "run", num_records=1, stride=1, num_vals=0, num_samples=0)
    write_report(folder)
    assert "after 1 step and 4.1k tokens" in result(folder)
    assert "loss" in plot_names(folder)


def test_a_run_that_has_recorded_nothing_yet_has_a_page(tmp_path):
    (tmp_path / "metrics.jsonl").touch()
    write_report(tmp_path)
    assert "No records yet" in Page(tmp_path / "report.html").text
    assert plot_names(tmp_path) == set()


def test_only_validation_records_make_a_page(tmp_path):
    write_lines(tmp_path / "metrics.jsonl", [val_record(10, 100, full=False)])
    write_report(tmp_path)
    assert plot_names(tmp_path) == {"loss", "bits_per_byte"}


@pytest.mark.parametrize("bad", [math.nan, math.inf, None])
def test_a_loss_that_is_not_a_number_is_reported_and_the_rest_is_drawn(tmp_path, bad):
    folder = write_run(tmp_path / "run", num_records=20, num_vals=0)
    records = read_lines(folder / "metrics.jsonl")
    for record in records:
        if record["kind"] == "train" and record["step"] >= 150:
            record["loss"] = record["grad_norm"] = bad
    write_lines(folder / "metrics.jsonl", records)
    write_report(folder)
    page = Page(folder / "report.html")
    assert "The loss is NaN or infinite at step 150." in page.text
    assert result(folder).startswith("Training loss ")
    assert plot_names(folder) >= {"loss", "gradient_norm"}


def test_a_run_whose_every_loss_is_not_a_number_has_a_page_too(tmp_path):
    folder = write_run(tmp_path / "run", num_records=20, num_vals=0, loss=math.nan)
    write_report(folder)
    assert result(folder).startswith("No finite loss after 200 steps")
    assert "loss" not in plot_names(folder)


def test_measures_that_a_machine_does_not_have_are_left_out(tmp_path):
    folder = write_run(tmp_path / "run", num_records=20, mfu=None, mfu_matmul=None, memory_bytes=None)
    write_report(folder)
    assert plot_names(folder) == PLOTS - {"utilisation", "memory"}
    assert "MFU" not in Page(folder / "report.html").text


def test_a_constant_or_zero_measure_can_be_drawn(tmp_path):
    fields = {"loss": 2.0, "lr": 0.0, "grad_norm": 0.0, "data_wait": 0.0, "tokens_per_second": 5.0, "memory_bytes": 0}
    write_report(write_run(tmp_path / "run", num_records=20, num_vals=0, **fields))
    assert plot_names(tmp_path / "run") == PLOTS - {"bits_per_byte"}


def test_tens_of_thousands_of_records_make_a_small_page_that_still_shows_a_spike(tmp_path):
    folder = write_run(tmp_path / "run", num_records=30_000, stride=1)
    records = read_lines(folder / "metrics.jsonl")
    next(record for record in records if record["step"] == 20_011)["loss"] = 123.0
    write_lines(folder / "metrics.jsonl", records)
    write_report(folder)
    assert (folder / "report.html").stat().st_size < 1_500_000
    table = read_records(folder).train
    assert thinned(table.steps, table["loss"])[1].max() == 123.0


def test_the_validation_curve_holds_only_points_that_can_be_compared(tmp_path):
    records = [val_record(step, 20, full=full) for step, full in ((10, False), (20, False), (20, True))]
    write_lines(tmp_path / "metrics.jsonl", records)
    assert curve(read_records(tmp_path).val).steps.tolist() == [10, 20]
    write_lines(tmp_path / "metrics.jsonl", records[2:])
    assert curve(read_records(tmp_path).val).steps.tolist() == [20]


def test_markup_that_the_model_writes_stays_text(tmp_path):
    folder = write_run(tmp_path / "<b>run & co", num_records=5, num_samples=0)
    text = "<script>alert(1)</script> & ```` | *x* </p>"
    with (folder / "metrics.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"kind": "sample", "step": 5, "prompt": "", "text": "%s"}\n' % text)  # noqa: UP031
    write_report(folder)
    page = Page(folder / "report.html")
    assert "script" not in page.tags and "b" not in page.tags
    assert text in page.text
    assert f"\n`````text\n{text}\n`````\n" in (folder / "report.md").read_text(encoding="utf-8")


def test_a_prompt_is_shown_once_whether_the_text_repeats_it_or_not(tmp_path):
    records = [
        {"kind": "sample", "step": 1, "prompt": "Once", "text": "Once upon a time"},
        {"kind": "sample", "step": 2, "prompt": "Once", "text": " upon a time"},
    ]
    write_lines(tmp_path / "metrics.jsonl", records)
    assert [sample.text for sample in read_records(tmp_path).samples] == [" upon a time"] * 2


def test_many_samples_and_events_are_spread_and_counted(tmp_path):
    folder = write_run(tmp_path / "run", num_records=100, num_samples=50)
    summary = summarise(read_records(folder))
    assert [sample.step for sample in summary.samples] == [20, 220, 420, 600, 800, 1000]
    assert (summary.num_samples, summary.num_events) == (50, 1)
    assert "6 of 50 samples" in html_text(summary, tmp_path)


def test_nested_settings_are_flat_in_the_table(tmp_path):
    folder = write_run(tmp_path / "run", num_records=1)
    write_json(folder / "config.json", {"model": {"num_layers": 12}, "betas": [0.9, 0.95], "lr": 6e-4, "mask": False})
    rows = summarise(read_records(folder)).config
    assert rows == [("model.num_layers", "12"), ("betas", "0.9, 0.95"), ("lr", "0.0006"), ("mask", "no")]


def test_settings_files_that_are_not_there_are_no_error_and_damaged_ones_are(tmp_path):
    folder = write_run(tmp_path / "run", num_records=1)
    (folder / "machine.json").unlink()
    assert read_records(folder).machine == {}
    (folder / "config.json").write_text("[1]", encoding="utf-8")
    with pytest.raises(gristmill.CheckpointError, match=r"config\.json: not a JSON object"):
        write_report(folder)


def test_a_report_needs_no_torch(tmp_path):
    folder = write_run(tmp_path / "run", num_records=3)
    code = f"""if True:
        import sys
        from gristmill.report import write_report

        write_report({str(folder)!r})
        print("torch" in sys.modules)
    """
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "False"


def test_without_matplotlib_the_error_says_what_to_install(tmp_path, monkeypatch):
    folder = write_run(tmp_path / "run", num_records=3)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(gristmill.GristmillError, match=re.escape("pip install 'gristmill[report]'")):
        write_report(folder)


def test_smoothing_a_straight_line_changes_only_its_last_stretch():
    y = np.linspace(5, 1, 500)
    mean = smoothed(y)
    assert np.allclose(mean[:490], y[:490])
    assert mean[-1] == pytest.approx(y[-11:].mean())


def test_smoothing_keeps_gaps():
    y = np.array([3.0, np.nan, 1.0, np.inf, 1.0])
    assert np.isfinite(smoothed(y)).tolist() == [True, False, True, False, True]


def test_names_of_lines_that_end_together_are_pushed_apart():
    moved = pushed_apart([50.0, 50.5, 90.0], 11)
    assert moved[1] - moved[0] == pytest.approx(11)
    assert moved[2] == 90.0
    assert pushed_apart([50.0, 51.0, 50.0, 49.0], 10) == [45.0, 65.0, 55.0, 35.0]
    assert max(pushed_apart([99.0, 99.0], 11, highest=100)) <= 100
