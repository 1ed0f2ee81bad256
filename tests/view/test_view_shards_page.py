"""The shards room in a browser: reading, searching, statistics, and a folder that is replaced while it is viewed."""

from __future__ import annotations

import shutil

import pytest

from gristmill.view import shard_search
from shards.builder import build_folder, train
from view.pages import WIDTHS, check_accessibility, check_layout, serving

TOKENIZER = train()
TEXTS = [
    "low lower",
    "newest <b>widest</b> newer",
    "שלום low \u202e\x1b\n\tend",
    "",
    *["wider low newer"] * 40,
    "x " * 1500 + "needle",
]


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page") / "shards"
    build_folder(folder, TEXTS, shard_tokens=50, tokenizer=TOKENIZER, val_texts=["low", "wide"])
    with serving(folder) as served:
        yield f"{served.address}shards"


def wait_for_text(page, selector, text):
    page.wait_for_function(
        "([selector, text]) => document.querySelector(selector).textContent.includes(text)", arg=[selector, text]
    )


def look_again(page):
    """Let the page ask for the state of the folder now, as it does every few seconds."""
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")


def test_documents_are_read_with_buttons_keys_and_an_address(address, open_page):
    page = open_page(address)
    wait_for_text(page, "#tokens", "low lower")
    page.click("#next")
    wait_for_text(page, "#tokens", "<b>widest</b>")  # text, not HTML
    page.focus("#tokens")
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    second = TOKENIZER.encode(TEXTS[1])[1]
    assert f"Token 1: id {second} " in page.inner_text("#readout")
    current = page.get_attribute("#tokens", "aria-activedescendant")
    assert page.get_attribute("#tokens .t >> nth=1", "id") == current
    page.keyboard.press("n")
    wait_for_text(page, "#tokens", "\\u202e\\x1b")
    page.keyboard.press("p")
    wait_for_text(page, "#tokens", "widest")
    page.select_option("#mode", "ids")
    assert page.get_attribute("#tokens .t >> nth=1", "data-id") == str(second)
    page.select_option("#mode", "text")
    assert page.inner_text("#tokens") == TEXTS[1] + "<|endoftext|>"
    page.fill("#number", str(len(TEXTS) - 1))
    page.press("#number", "Enter")
    wait_for_text(page, "#place", "Tokens 0 to 1,999 of 3,00")
    page.click("#later")
    wait_for_text(page, "#tokens", "needle")
    assert page.is_disabled("#later") and page.is_disabled("#next")
    page.reload()
    wait_for_text(page, "#tokens", "needle")  # the address keeps the place
    page.click("label:has-text('val')")
    wait_for_text(page, "#total", "of 2")
    page.fill("#number", "77x")
    page.press("#number", "Enter")
    wait_for_text(page, "#message", "whole number")
    page.click("#random")
    page.wait_for_function("() => document.querySelector('#message').textContent === ''")


def test_search_marks_the_match_stops_and_finds_more(address, open_page, monkeypatch):
    page = open_page(address)
    wait_for_text(page, "#tokens", "low")
    page.fill("#query", "needle")
    page.press("#query", "Enter")
    wait_for_text(page, "#search-status", "1 document found. All ")
    page.click("#results button")
    page.wait_for_selector("#tokens .found")
    assert "needle".startswith(page.inner_text("#tokens .found >> nth=0").strip()[:1])
    page.fill("#query", "x")
    page.select_option("#kind", "ids")
    page.press("#query", "Enter")
    wait_for_text(page, "#search-status", "Type ids")
    monkeypatch.setattr(shard_search, "CHUNK_TOKENS", 1)
    monkeypatch.setattr(shard_search, "MAX_SECONDS", 0)
    page.select_option("#kind", "text")
    page.fill("#query", "no such text")
    page.press("#query", "Enter")  # thousands of requests
    page.click("#stop")
    wait_for_text(page, "#search-status", "Stopped.")
    assert page.is_hidden("#stop") and page.is_visible("#more")
    monkeypatch.undo()
    page.click("#more")
    wait_for_text(page, "#search-status", "0 documents found. All ")


def test_everything_fits_and_is_accessible(address, open_page):
    page = open_page(address)
    wait_for_text(page, "#tokens", "low")
    page.fill("#query", "newest")
    page.press("#query", "Enter")
    wait_for_text(page, "#search-status", "All ")
    for section in ("lengths", "zipf", "frequencies"):
        page.locator(f"#{section}").scroll_into_view_if_needed()
        page.wait_for_selector(f"#{section} .content > :not(p.hint)")
    page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    page.wait_for_selector("text=shard-00000.bin")
    for width, scheme in zip(WIDTHS, ("light", "dark"), strict=True):
        page.set_viewport_size({"width": width, "height": 800})
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")  # no half-faded colors
        page.wait_for_selector(f"html[data-theme={scheme}]")
        check_layout(page)
        check_accessibility(page)
    page.select_option("#order", "unused")
    wait_for_text(page, "#frequencies .content", "0 %")


def test_a_folder_that_goes_comes_back_or_is_replaced_and_a_server_that_stops(tmp_path, open_page):
    build_folder(tmp_path / "s", ["low", "lower"], tokenizer=TOKENIZER)
    with serving(tmp_path / "s") as served:
        page = open_page(f"{served.address}shards")
        wait_for_text(page, "#tokens", "low")
        shutil.rmtree(tmp_path / "s")
        look_again(page)
        wait_for_text(page, "#message", "no longer exists")
        assert page.is_hidden("#view")
        build_folder(tmp_path / "s", ["newest", "newer", "low"], tokenizer=TOKENIZER)
        look_again(page)
        wait_for_text(page, "#tokens", "newest")
        assert page.inner_text("#message") == ""
        assert page.inner_text("#total").startswith("of 3")
    look_again(page)
    wait_for_text(page, "#message", "server does not answer")
    page.errors.clear()  # Chromium reports the refused connection
