"""The playground in a browser: streaming, probabilities of tokens, stopping, the queue, chat, and texts of latents."""

from __future__ import annotations

import re
import shutil

import pytest

import gristmill as gm
from view.pages import WIDTHS, check_accessibility, check_layout, serving
from view.playground_runs import Reply, gate_of, train_runs

GPT, VAE, CHAT = 0, 1, 2


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return train_runs(tmp_path_factory.getbasetemp())


@pytest.fixture(scope="module")
def served(runs):
    with serving(*runs) as server:
        yield server


@pytest.fixture
def gate(monkeypatch):
    with gate_of(monkeypatch) as made:
        yield made


@pytest.fixture
def expect():
    return pytest.importorskip("playwright.sync_api").expect


def opened(open_page, served, expect, run, **options):
    page = open_page(f"{served.address}playground?run={run}", **options)
    expect(page.locator("#start")).to_be_enabled()
    return page


def test_tokens_stream_show_their_probabilities_and_stop_with_escape(served, runs, open_page, expect, gate):
    page = opened(open_page, served, expect, GPT)
    tokens, progress = page.locator("[role=option]"), page.locator("#progress")
    page.fill("#prompt", "the cat")
    page.fill("#max_tokens", "4000")
    page.fill("#temperature", "0")  # does not end by itself
    gate.let(1)
    page.keyboard.press("Control+Enter")
    expect(tokens).to_have_count(1)
    gate.let(3)
    expect(tokens).to_have_count(4)
    expect(progress).to_contain_text("generating")
    expect(page.locator("#start")).to_be_disabled()

    tokens.nth(2).hover()
    readout = page.locator(".readout")
    expect(readout).to_contain_text("Model probability")
    expect(readout.locator("tbody tr")).to_have_count(10 if readout.locator("tr[aria-current]").count() else 11)
    assert re.search(r"\d %", readout.inner_text())
    expect(tokens.nth(2)).to_have_attribute("aria-selected", "true")
    page.locator("[role=listbox]").focus()
    page.keyboard.press("ArrowRight")
    expect(tokens.nth(3)).to_have_attribute("aria-selected", "true")
    expect(page.locator("#status")).to_contain_text("rank")
    page.keyboard.press("Home")
    first = tokens.first.get_attribute("id")
    expect(page.locator("[role=listbox]")).to_have_attribute("aria-activedescendant", first)

    page.keyboard.press("Escape")
    expect(progress).to_contain_text("stopped")
    gate.let_until_ended()  # the server noticed
    gate.let_all()

    page.fill("#seed", "7")  # also keeps it
    page.fill("#max_tokens", "30")
    page.fill("#temperature", "0.8")
    page.click("#start")
    expect(progress).to_contain_text("seed 7")
    expect(progress).to_contain_text("ended")
    page.click("summary")
    expected = gm.lm.generate(runs[GPT], "the cat", seed=7, max_tokens=30, device="cpu")
    assert page.locator("details .text").evaluate("box => box.textContent") == expected


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("dark", [False, True])
def test_the_page_fits_and_is_accessible(served, open_page, expect, width, dark):
    page = opened(open_page, served, expect, GPT, width=width, dark=dark)
    check_accessibility(page)
    page.fill("#prompt", "the <b>cat</b> \u202eabc " + "x" * 300)
    page.fill("#temperature", "3")  # all shades
    page.fill("#max_tokens", "60")
    page.click("#start")
    expect(page.locator("#progress")).to_contain_text("ended")
    check_layout(page)
    check_accessibility(page)


def test_a_queue_shows_the_place_and_wrong_values_are_refused_on_the_page(served, open_page, expect, gate):
    page = opened(open_page, served, expect, GPT)
    with Reply(served, GPT, client="other", prompt="a", max_tokens=4000, temperature=0) as other:
        gate.let(1)
        other.next_named("tokens")
        page.click("#start")
        expect(page.locator("#progress")).to_have_text("Waiting: 1 before you.")
    gate.let_all()
    expect(page.locator("#progress")).to_contain_text("ended")
    page.fill("#max_tokens", "5000")
    page.click("#start")
    expect(page.locator("#message")).to_have_text("Max tokens must be a whole number, 1 to 4,096.")


def test_texts_of_latents_are_sampled_reconstructed_and_interpolated_with_a_slider(served, runs, open_page, expect):
    page = opened(open_page, served, expect, VAE, width=390)
    page.fill("#samples", "3")
    page.fill("#seed", "4")
    page.click("#start")
    expect(page.locator("#progress")).to_contain_text("3 texts")
    shown = page.locator(".texts .text").evaluate_all("boxes => boxes.map(box => box.textContent)")
    assert shown == gm.lm.sample_texts(runs[VAE], 3, seed=4, device="cpu")

    page.check("[value=reconstruct]")
    page.click("#start")
    expect(page.locator("#message")).to_have_text("Text is empty. Enter at least one character.")
    page.fill("#prompt", "the cat sat.")
    page.click("#start")
    [expected] = gm.lm.reconstruct_texts(runs[VAE], ["the cat sat."], device="cpu")
    expect(page.locator(".sides .text").nth(1)).to_have_text(expected)

    page.check("[value=interpolate]")
    page.fill("#other", "a dog ran.")
    page.fill("#points", "5")
    page.click("#start")
    expect(page.locator("#progress")).to_contain_text("5 texts")
    between = gm.lm.interpolate_texts(runs[VAE], "the cat sat.", "a dog ran.", 5, device="cpu")
    page.focus("#point")
    for number, text in enumerate(between):
        expect(page.locator("#point")).to_have_attribute("aria-valuetext", f"Point {number + 1} of 5")
        assert page.locator("#view .text >> nth=0").evaluate("box => box.textContent") == text
        page.keyboard.press("ArrowRight")
    page.click("summary")
    expect(page.locator(".texts li[aria-current] .who")).to_have_text("Point 5")
    check_layout(page)
    check_accessibility(page)


def test_a_chat_keeps_the_conversation(served, open_page, expect):
    page = opened(open_page, served, expect, CHAT)
    expect(page.locator("[value=chat]")).to_be_checked()
    for question in ("what did the cat do?", "and the dog?"):
        page.fill("#prompt", question)
        page.fill("#max_tokens", "5")
        page.click("#start")
        expect(page.locator("#progress")).to_contain_text("ended")
        expect(page.locator("#prompt")).to_have_value("")
    expect(page.locator(".chat li")).to_have_count(3)
    expect(page.locator(".chat li").first).to_contain_text("what did the cat do?")
    check_accessibility(page)
    page.click("#fresh")
    expect(page.locator(".chat")).to_have_count(0)


def test_a_removed_checkpoint_and_a_stopped_server_are_reported(runs, tmp_path, open_page, expect, gate):
    shutil.copytree(runs[GPT], tmp_path / "run")
    with serving(tmp_path / "run") as server:
        page = opened(open_page, server, expect, 0)
        removed, kept = page.locator("#checkpoint option").evaluate_all("all => all.slice(2).map(each => each.value)")
        page.select_option("#checkpoint", removed)
        shutil.rmtree(tmp_path / "run" / "checkpoints" / removed)
        page.click("#start")
        expect(page.locator("#message")).to_contain_text(f"has no checkpoint '{removed}'")
        expect(page.locator("#checkpoint option")).to_have_count(3)
        page.select_option("#checkpoint", kept)
        page.fill("#temperature", "0")
        gate.let(2)
        page.click("#start")
        expect(page.locator("[role=option]")).to_have_count(2)
    gate.let_all()
    expect(page.locator("#message")).to_contain_text("It may have been stopped")
    page.errors.clear()  # the browser reports the refused connection
