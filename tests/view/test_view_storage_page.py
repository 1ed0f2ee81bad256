"""Pages in a browser that blocks storage: they work, and forget the settings at a reload."""

from __future__ import annotations

import pytest

import gristmill as gm
from recorded_runs import write_run
from view.pages import serving

playwright = pytest.importorskip("playwright.sync_api")

BLOCKED = """
for (const name of ["localStorage", "sessionStorage"]) {
  Object.defineProperty(window, name, { get() { throw new DOMException("Access is denied.", "SecurityError"); } });
}
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    folder = tmp_path_factory.mktemp("view")
    gm.train_tokenizer(["low low low lower lowest"], vocab_size=261, progress=None).save(folder / "tok.json")
    write_run(folder / "run", num_records=50)
    with serving(folder / "tok.json", folder / "run") as server:
        yield server.address


def theme(page):
    return page.evaluate("document.documentElement.dataset.theme")


@pytest.mark.parametrize("room", ["runs", "tokenizers"])
def test_without_storage_the_colors_follow_the_system_and_the_button(served, open_page, room):
    page = open_page(served + room, dark=True, script=BLOCKED)
    assert theme(page) == "dark"
    page.get_by_role("button", name="Light colors").click()
    assert theme(page) == "light"
    playwright.expect(page.get_by_role("button", name="Dark colors")).to_be_visible()


def test_without_storage_the_settings_of_the_runs_can_be_changed(served, open_page):
    page = open_page(served + "runs", script=BLOCKED)
    redraws = page.locator('figure[data-chart="loss"]')
    playwright.expect(redraws).to_have_attribute("data-redraws", "1")
    page.locator("#scale").select_option("log")
    playwright.expect(redraws).to_have_attribute("data-redraws", "2")
    page.locator("#smoothing").fill("7")
    playwright.expect(page.locator("#smoothing-value")).to_have_text("7 %")


def test_without_storage_a_text_is_encoded(served, open_page):
    page = open_page(served + "tokenizers", script=BLOCKED)
    page.get_by_label("Text", exact=True).fill("low low")
    playwright.expect(page.locator("#panels .t")).to_have_count(2)


def test_settings_and_colors_last_over_a_reload(served, open_page):
    page = open_page(served + "runs")
    page.locator("#scale").select_option("log")
    page.locator("#smoothing").fill("7")
    page.get_by_role("button", name="Dark colors").click()
    page.reload()
    playwright.expect(page.locator("#smoothing-value")).to_have_text("7 %")
    assert page.locator("#scale").input_value() == "log"
    assert theme(page) == "dark"
