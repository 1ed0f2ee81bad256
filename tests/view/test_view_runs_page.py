"""The page of runs in the browser: curves that grow while a run is written, several runs, keyboard, robustness."""

from __future__ import annotations

import json
import random
import shutil

import pytest

from recorded_runs import posterior_record, read_lines, train_record, write_json, write_lines, write_run
from view.pages import WIDTHS, check_accessibility, check_layout, serving

HOSTILE = "<img src=x onerror=alert(1)> \x1b[31m \u202eright to left\u202c"


def records_of(first, last):
    return [train_record(step, 4_000, random.Random(step)) for step in range(first, last + 1, 10)]


def append(run, records):
    with (run / "metrics.jsonl").open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(record) + "\n" for record in records)


@pytest.fixture
def runs(tmp_path):
    """Two runs: one with latents, alarms and hostile texts, one with another configuration."""
    latents = write_run(tmp_path / "runs/latents", num_records=100, max_steps=4_000)
    monitored = [
        posterior_record(step, alarms=[("raised", "collapse")] if step == 400 else [])
        for step in range(100, 1_001, 100)
    ]
    append(latents, [*monitored, {"kind": "sample", "step": 1_000, "prompt": "", "text": HOSTILE}])
    other = write_run(tmp_path / "runs/other", num_records=80, seed=1)
    write_json(other / "config.json", {**json.loads((other / "config.json").read_text()), "num_layers": 8})
    return tmp_path / "runs"


def chart(page, name):
    return page.locator(f'figure[data-chart="{name}"]')


def number_of(page, name, what):
    return int(chart(page, name).get_attribute(f"data-{what}") or 0)


def wait_until(page, check):
    """Wait until `check` holds; the timeout of the test suite ends it otherwise."""
    while not check():
        page.wait_for_timeout(50)


def card(page, name):
    return page.locator(f'#runs li[data-run="{name}"]')


def drawn_pixels(page, name):
    """Return the number of pixels of a chart that are not empty."""
    return (
        chart(page, name)
        .locator("canvas")
        .first.evaluate(
            """(canvas) => {
            const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
            return new Uint32Array(data.buffer).reduce((sum, pixel) => sum + (pixel !== 0), 0);
        }"""
        )
    )


def test_a_run_that_grows_extends_its_curves_without_drawing_them_again(tmp_path, open_page, monkeypatch):
    monkeypatch.setattr("gristmill.view.runs.POLL_SECONDS", 0.05)
    run = write_run(tmp_path / "run", num_records=100, max_steps=4_000)
    with serving(run) as served:
        page = open_page(f"{served.address}runs", height=3_000)
        card(page, "run").get_by_text("1,000 of 4,000").wait_for()
        append(run, records_of(1_020, 1_020))  # ends the range that was drawn first; the next one has some room
        card(page, "run").get_by_text("1,020 of 4,000").wait_for()
        names = ("loss", "learning_rate", "throughput")
        wait_until(page, lambda: all(number_of(page, name, "redraws") for name in names))
        before = {name: (number_of(page, name, "redraws"), drawn_pixels(page, name)) for name in names}
        append(run, records_of(1_030, 1_060))
        card(page, "run").get_by_text("1,060 of 4,000").wait_for()
        wait_until(page, lambda: all(number_of(page, name, "extensions") for name in names))
        for name, (num_redraws, num_pixels) in before.items():
            assert number_of(page, name, "redraws") == num_redraws, name
            assert drawn_pixels(page, name) > num_pixels, name
        label = chart(page, "loss").locator("canvas[role=img]").get_attribute("aria-label")
        assert "training: last" in label and "lowest" in label and "by step" in label

        page.reload()  # catches up
        card(page, "run").get_by_text("1,060 of 4,000").wait_for()
        write_lines(run / "new", read_lines(run / "metrics.jsonl")[:60])  # a resumed run drops its later steps
        (run / "new").rename(run / "metrics.jsonl")
        wait_until(page, lambda: "1,060" not in card(page, "run").inner_text())
        shutil.rmtree(run)
        card(page, "run").get_by_text("not found").wait_for()
        card(page, "run").get_by_text("no longer exists").wait_for()
        write_run(run, num_records=7, max_steps=500)
        card(page, "run").get_by_text("70 of 500").wait_for()
        chart(page, "loss").wait_for()
    page.get_by_text("The connection to the server is lost.").wait_for()
    page.close()
    page.errors.clear()  # the browser reports the lost connection


def test_the_page_of_several_runs_with_the_keyboard(runs, open_page):
    with serving(runs) as served:
        page = open_page(f"{served.address}runs")
        chart(page, "loss").locator(".value").first.wait_for()
        # Alarms, samples and messages, as text only
        page.get_by_text("collapse, still active").or_(page.locator("#alarms")).first.wait_for()
        assert "still active" in page.locator("#alarms").inner_text()
        sample = page.locator("#samples").inner_text()
        assert "<img src=x onerror=alert(1)>" in sample and "␛[31m" in sample
        assert page.locator("#samples img").count() == 0
        # The cursor: arrow keys move it, and its text has the values of all runs
        slider = chart(page, "loss").get_by_role("slider")
        slider.focus()
        page.keyboard.press("Home")
        page.keyboard.press("Shift+ArrowRight")
        wait_until(page, lambda: "step" in (slider.get_attribute("aria-valuetext") or ""))
        text = slider.get_attribute("aria-valuetext")
        assert "latents, training" in text and "other, training" in text
        # Zoom
        page.keyboard.press("+")
        reset = page.get_by_role("button", name="Whole run")
        assert reset.is_enabled() and "to step" in page.locator("#status").inner_text()
        page.keyboard.press("0")
        assert reset.is_disabled()
        box = chart(page, "loss").locator(".plot").bounding_box()
        page.mouse.move(box["x"] + 300, box["y"] + 50)
        page.mouse.down()
        page.mouse.move(box["x"] + 500, box["y"] + 60)
        page.mouse.up()
        assert reset.is_enabled()
        slider.dblclick()
        assert reset.is_disabled()
        # The table, and a hidden run
        chart(page, "loss").get_by_text("Data table").click()
        wait_until(page, lambda: chart(page, "loss").locator("tbody tr").count() == 20)
        heads = chart(page, "loss").locator("th[scope=col]").all_inner_texts()
        assert heads[0] == "Step" and "other, validation" in heads
        page.get_by_label("latents").first.uncheck()
        wait_until(page, lambda: "latents" not in chart(page, "loss").locator(".legend").inner_text())
        assert page.locator("#samples").inner_text().count("latents") == 0
        assert chart(page, "posterior_units").count() == 0
        page.get_by_label("latents").first.check()
        page.get_by_label("Horizontal axis").select_option("tokens")
        wait_until(page, lambda: "by tokens" in chart(page, "loss").locator("canvas").first.get_attribute("aria-label"))
        # What differs
        differing = page.locator("#details tr.differs")
        differing.first.wait_for()
        assert any("num_layers" in row and "8" in row for row in differing.all_inner_texts())
        assert "vocab_size" not in page.locator("#details").inner_text()
        page.get_by_label("Only the options that differ").uncheck()
        assert "vocab_size" in page.locator("#details").inner_text()
        page.close()


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_layout_and_accessibility(runs, open_page, dark):
    with serving(runs) as served:
        page = open_page(f"{served.address}runs", width=WIDTHS[1], dark=dark)
        page.locator("#details table").first.wait_for()
        chart(page, "kl_per_dimension").wait_for()
        page.locator("summary").first.click()
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            check_layout(page)
            check_accessibility(page)
        page.close()


def test_a_run_without_records_and_one_with_a_very_long_line(tmp_path, open_page):
    (tmp_path / "runs/empty").mkdir(parents=True)
    (tmp_path / "runs/empty/metrics.jsonl").touch()
    write_lines(tmp_path / "runs/empty/metrics.jsonl", [])
    long = write_run(tmp_path / "runs/long", num_records=3)
    append(long, [{"kind": "sample", "step": 30, "prompt": "", "text": "x" * 1_000_000}])
    with serving(tmp_path / "runs") as served:
        page = open_page(f"{served.address}runs", width=390)
        page.locator("#samples p").first.wait_for()
        assert len(page.locator("#samples p").first.inner_text()) == 20_000
        check_layout(page)
        page.get_by_label("long").first.uncheck()
        page.get_by_text("The curves appear when the run records its first steps.").wait_for()
        page.close()
