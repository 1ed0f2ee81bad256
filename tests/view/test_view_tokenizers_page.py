"""The tokenizers page in the browser: typing, keys, merge trees, comparison, search, long and strange texts."""

from __future__ import annotations

import re

import pytest

import gristmill as gm
from view.pages import WIDTHS, check_accessibility, check_layout, serving

playwright = pytest.importorskip("playwright.sync_api")

CORPUS = ["low low low lower lowest slow slower the miller and the mill 東京 東京 東京\n\n"]
STRANGE = "low lower\n\t東京 €😀<|end|>\u202e\u200b\x00\u05e9\u05dc e\u0301 <b>x</b>"


@pytest.fixture(scope="module")
def tok():
    return gm.train_tokenizer(CORPUS, vocab_size=280, special_tokens=["<|end|>"], progress=None)


@pytest.fixture(scope="module")
def served(tmp_path_factory, tok):
    folder = tmp_path_factory.mktemp("page")
    tok.save(folder / "a.json")
    gm.Tokenizer([]).save(folder / "bytes.json")
    with serving(folder / "a.json", folder / "bytes.json") as server:
        yield server.address + "tokenizers"


def panel(page, name):
    return page.get_by_role("region", name=name, exact=True)


def ids_of(panel):
    return [int(each) for each in panel.locator(".t").evaluate_all("nodes => nodes.map(node => node.dataset.id)")]


def expect_ids(panel, ids):
    playwright.expect(panel.locator(".t")).to_have_count(len(ids))
    if ids:
        playwright.expect(panel.locator(".t").last).to_have_attribute("data-id", str(ids[-1]))
    for _ in range(200):  # the tokens of an earlier text may have the same number and the same last id
        if ids_of(panel) == ids:
            return
        panel.page.wait_for_timeout(25)
    assert ids_of(panel) == ids


def test_typing_and_deleting_in_the_middle_shows_the_tokens_of_the_text(served, open_page, tok):
    page = open_page(served)
    box, shown = page.get_by_label("Text", exact=True), panel(page, "a.json")
    box.fill("")
    playwright.expect(shown.get_by_text("the text is empty")).to_be_visible()
    page.keyboard.type("low lower miller")
    expect_ids(shown, tok.encode("low lower miller"))
    first = shown.locator(".t").first.element_handle()
    for _ in range(7):
        page.keyboard.press("ArrowLeft")
    page.keyboard.type("\nslow ")
    expect_ids(shown, tok.encode("low lower\nslow  miller"))
    assert first.evaluate("node => node.isConnected")  # tokens before the change are not drawn again
    expect_ids(panel(page, "bytes.json"), list(b"low lower\nslow  miller"))
    playwright.expect(shown.get_by_text("fewest tokens")).to_be_visible()
    row = page.locator("#comparison tbody tr").first
    assert row.locator("td").first.inner_text() == f"{len(ids_of(shown))} fewest"
    page.reload()
    playwright.expect(box).to_have_value("low lower\nslow  miller")
    playwright.expect(page.get_by_role("status")).to_contain_text(re.compile("a.json: [0-9]+ tokens"))


@pytest.mark.parametrize(("width", "dark"), [(WIDTHS[0], False), (WIDTHS[1], True)])
def test_any_text_fits_both_widths_and_has_no_serious_accessibility_finding(served, open_page, tok, width, dark):
    page = open_page(served, width=width, dark=dark)
    page.get_by_label("Text", exact=True).fill(STRANGE + "x" * 60)
    shown = panel(page, "a.json")
    expect_ids(shown, tok.encode(STRANGE + "x" * 60, allowed_special="all"))
    assert shown.locator(".t.special").inner_text() == "<|end|>"
    assert shown.locator(".t i.e").all_inner_texts() == ["U+0000"]
    assert shown.locator(".t i.b").first.inner_text() == "e2"
    page.get_by_role("checkbox", name="Bytes", exact=True).check()
    playwright.expect(page.locator("#vocabulary-rows tbody tr")).to_have_count(25)
    check_layout(page)
    check_accessibility(page)
    shown.locator(".t").nth(1).click()
    playwright.expect(page.get_by_role("dialog")).to_be_visible()
    check_layout(page)
    check_accessibility(page)


@pytest.mark.parametrize("early", ["", "lo"], ids=["focus", "keys"])
def test_keys_before_and_while_the_page_loads_do_not_mix_with_the_example(served, open_page, tok, early):
    page = open_page(served)
    page.locator(".t").first.wait_for()
    held = []
    page.route("**/api/tokenizers", lambda route: held.append(route))
    page.reload()
    box = page.get_by_label("Text", exact=True)
    box.focus()
    page.keyboard.type(early)
    while not held:
        page.wait_for_timeout(25)
    held[0].continue_()
    page.locator(".t").first.wait_for()
    page.keyboard.type("low"[len(early) :])
    expect_ids(panel(page, "a.json"), tok.encode("low"))
    playwright.expect(box).to_have_value("low")


def test_keys_move_between_tokens_and_open_the_merge_tree(served, open_page, tok):
    page = open_page(served)
    text = "low mill € slow"
    page.get_by_label("Text", exact=True).fill(text)
    shown = panel(page, "a.json")
    ids = tok.encode(text)
    expect_ids(shown, ids)
    assert shown.locator("[tabindex='0']").count() == 1  # one stop of the Tab key
    shown.locator("[tabindex='0']").focus()
    page.keyboard.press("ArrowRight")
    focused = shown.locator("[aria-selected=true]")
    playwright.expect(focused).to_have_attribute("aria-label", f"token 2 of {len(ids)}: '␣mill', id {ids[1]}")
    playwright.expect(shown.locator(".readout")).to_contain_text("Merge rank")
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    playwright.expect(dialog.get_by_role("heading", name="Merge tree")).to_be_visible()
    leaves = dialog.locator(".tree li:not(:has(ul))").count()
    assert leaves == len(" mill")
    ranks = [int(text) for text in dialog.locator(".steps tbody tr td:first-child").all_inner_texts()]
    assert ranks == sorted(ranks) and ranks[-1] == ids[1] - 256
    dialog.locator(".steps button").first.press("Enter")
    playwright.expect(dialog.get_by_text("A single byte.")).to_be_visible()
    dialog.get_by_role("button", name="Back").click()
    playwright.expect(dialog.locator(".tree")).to_be_visible()
    page.keyboard.press("Escape")
    playwright.expect(dialog).to_be_hidden()
    playwright.expect(page.locator(":focus")).to_have_attribute("role", "listbox")  # the focus returns to the tokens
    playwright.expect(focused).to_have_attribute("data-id", str(ids[1]))
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    assert "contains a part of €" in focused.get_attribute("aria-label")
    playwright.expect(shown.locator(".readout")).to_contain_text("holds a part of €")
    page.keyboard.press("End")
    playwright.expect(focused).to_have_attribute("data-id", str(ids[-1]))


def test_special_tokens_and_white_space_follow_their_switches(served, open_page, tok):
    page = open_page(served)
    page.get_by_label("Text", exact=True).fill("low <|end|>\n")
    shown = panel(page, "a.json")
    expect_ids(shown, tok.encode("low <|end|>\n", allowed_special="all"))
    assert shown.locator(".t i.w").all_inner_texts() == ["␣", "↵"]
    page.get_by_label("Special tokens in the text become their ids").uncheck()
    expect_ids(shown, tok.encode("low <|end|>\n"))
    assert shown.locator(".t.special").count() == 0
    playwright.expect(shown.get_by_text("The text spells <|end|>")).to_be_visible()
    page.get_by_label("White space as").uncheck()
    assert shown.locator(".t i.w").count() == 0


def test_the_vocabulary_is_searched_while_typing_and_paged(served, open_page, tok):
    page = open_page(served)
    rows, where = page.locator("#vocabulary-rows tbody tr"), page.locator("#where")
    of_class = page.locator("select[name=of_class]")
    of_class.select_option("all")
    playwright.expect(where).to_have_text("1–25 of 280 tokens")
    page.get_by_role("button", name="Next").click()
    playwright.expect(where).to_have_text("26–50 of 280 tokens")
    page.get_by_label("Search for").fill("low")
    found = [id for id, token in tok.vocab.items() if b"low" in token]
    playwright.expect(rows).to_have_count(len(found))
    assert [int(text) for text in page.locator("#vocabulary-rows td:first-child").all_inner_texts()] == found
    page.locator("select[name=by]").select_option("bytes")
    playwright.expect(where).to_contain_text("Enter bytes in hexadecimal")
    page.get_by_label("Search for").fill("")
    of_class.select_option("unused")
    page.get_by_label("Text", exact=True).fill("low")
    playwright.expect(where).to_have_text(re.compile("of 278 tokens"))
    of_class.select_option("special")
    rows.first.get_by_role("button").click()
    playwright.expect(page.get_by_role("dialog").get_by_text("A special token.")).to_be_visible()


def test_a_text_that_is_too_long_is_cut_shown_in_parts_and_the_page_stays_usable(served, open_page):
    page = open_page(served)
    page.get_by_role("checkbox", name="bytes.json").uncheck()
    page.get_by_label("Text", exact=True).evaluate(
        "box => { box.value = 'x '.repeat(310_000); box.dispatchEvent(new Event('input')); }"
    )
    shown = panel(page, "a.json")
    playwright.expect(shown.get_by_text("Tokens 1–2,000 of 600,000")).to_be_visible()
    playwright.expect(page.get_by_text("Only the first 600,000 characters")).to_be_visible()
    shown.get_by_role("button", name="Later tokens").click()
    playwright.expect(shown.get_by_text("Tokens 2,001–4,000")).to_be_visible()
    assert shown.locator(".t").count() == 2_000
    page.get_by_label("Text", exact=True).fill("low")
    playwright.expect(shown.locator(".t")).to_have_count(1)


def test_a_stopped_server_is_a_message_and_a_removed_file_is_a_note(tmp_path, browser, tok):
    tok.save(tmp_path / "tok.json")
    context = browser.new_context()
    page = context.new_page()
    try:
        with serving(tmp_path / "tok.json") as server:
            page.goto(server.address + "tokenizers")
            page.locator(".t").first.wait_for()
            (tmp_path / "tok.json").unlink()
            page.locator("#text").fill("low")
            playwright.expect(page.locator(".tokenizer").get_by_text("tok.json no longer exists")).to_be_visible()
            gm.Tokenizer([(b"l", b"o")]).save(tmp_path / "tok.json")
            page.locator("#text").fill("lo")
            playwright.expect(page.locator(".t")).to_have_attribute("data-id", "256")
            playwright.expect(page.locator("#facts")).to_contain_text("257 tokens")
        page.locator("#text").fill("low low")
        playwright.expect(page.get_by_role("alert")).to_contain_text("The server does not answer")
    finally:
        context.close()
