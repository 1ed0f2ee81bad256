"""Look at every page of the built site in headless Chromium: `python tools/look_at_site.py site`.

Each page is opened from the disk, without a network, at 390 and 1,280 px, light and dark. The check fails on console
errors, failed requests, requests to other hosts, a page wider than the window, images that do not load, and pages
without text. It also types into the search box and expects results.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any

WIDTHS = (390, 1280)
SCHEMES = ("light", "dark")
MIN_CHARACTERS = 100
# Boxes with a scroll bar, such as tables and code, may be wider than the page.
EXAMINE = """() => {
    const root = document.scrollingElement;
    const right = document.documentElement.clientWidth;
    const scrolls = (element) => {
        for (let each = element; each && each !== document.body; each = each.parentElement) {
            if (["auto", "scroll", "hidden"].includes(getComputedStyle(each).overflowX)) return true;
        }
        return false;
    };
    const wide = [...document.querySelectorAll("article *")]
        .filter((element) => element.getBoundingClientRect().right > right + 1 && !scrolls(element))
        .map((element) => element.tagName.toLowerCase() + ": " + (element.textContent || "").trim().slice(0, 60));
    const broken = [...document.images]
        .filter((image) => !(image.complete && image.naturalWidth))
        .map((image) => image.src);
    const article = document.querySelector("article");
    return {overflow: root.scrollWidth - root.clientWidth, wide: wide.slice(0, 3), broken,
            characters: article ? article.innerText.length : 0};
}"""


def find_chromium() -> str | None:
    """Return the path of the installed Chromium or Chrome, or None."""
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    return next((path for name in names if (path := shutil.which(name))), None)


@contextmanager
def browser() -> Iterator[Any]:
    """Start a headless Chromium, or exit with a message if it is not installed."""
    from playwright.sync_api import sync_playwright

    executable = find_chromium()
    if executable is None:
        sys.exit("Chromium was not found on PATH. Install it, for example with: apt-get install chromium")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        try:
            yield chromium
        finally:
            chromium.close()


def look(chromium: Any, site: Path, pages: list[str], screenshots: Path | None = None) -> list[str]:
    """Open each page at each width in each color scheme and return the problems, one line each."""
    problems = []
    for width, scheme in product(WIDTHS, SCHEMES):
        context = chromium.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, offline=True)
        tab = context.new_page()
        seen = _watch(tab)
        for page in pages:
            seen.clear()
            tab.goto((site / page).resolve().as_uri(), wait_until="load")
            problems += [f"{page} at {width} px, {scheme}: {each}" for each in [*seen, *_examine(tab)]]
            if screenshots:
                name = page.replace("/", "_").removesuffix(".html")
                tab.screenshot(path=screenshots / f"{name}_{width}_{scheme}.png", full_page=False)
        context.close()
    return problems


def _watch(tab: Any) -> list[str]:
    """Return a list that collects the errors of the scripts and requests of a tab."""
    seen: list[str] = []

    def note_message(message: Any) -> None:
        if message.type == "error":
            seen.append(f"console: {message.text}")

    def note_request(request: Any) -> None:
        if request.url.startswith("http"):
            seen.append(f"network: {request.url}")

    def note_failure(request: Any) -> None:
        if request.failure != "net::ERR_ABORTED":  # the next page was opened before this one had its icon
            seen.append(f"request failed: {request.url}")

    tab.on("console", note_message)
    tab.on("pageerror", lambda error: seen.append(f"script error: {error}"))
    tab.on("requestfailed", note_failure)
    tab.on("request", note_request)
    return seen


def _examine(tab: Any) -> list[str]:
    """Return the problems in the layout of the open page."""
    found = tab.evaluate(EXAMINE)
    problems = [f"image does not load: {image}" for image in found["broken"]]
    if found["overflow"] > 0:
        problems.append(f"page is {found['overflow']} px wider than the window")
    problems += [f"wider than the window: {each}" for each in found["wide"]]
    if found["characters"] < MIN_CHARACTERS:
        problems.append(f"has {found['characters']} characters of text")
    return problems


def search(chromium: Any, site: Path, query: str) -> list[str]:
    """Search the site, opened from the disk, and return the addresses of the results."""
    context = chromium.new_context(viewport={"width": 1280, "height": 900}, offline=True)
    tab = context.new_page()
    tab.goto((site / "index.html").resolve().as_uri(), wait_until="load")
    tab.click(".md-search__input")
    tab.keyboard.type(query)
    results = tab.locator(".md-search-result__link")
    results.first.wait_for(timeout=20_000)
    addresses = [results.nth(index).get_attribute("href") for index in range(results.count())]
    context.close()
    return addresses


def pages_of(site: Path) -> list[str]:
    """Return all pages of a built site."""
    return sorted(path.relative_to(site).as_posix() for path in site.rglob("*.html") if path.name != "404.html")


def main() -> int:
    """Look at the pages, print a summary and return the exit code."""
    parser = argparse.ArgumentParser(description="Check every page of the built site in headless Chromium.")
    parser.add_argument("site", type=Path, help="folder that mkdocs has built")
    parser.add_argument("--screenshots", type=Path, metavar="FOLDER", help="keep a picture of each page")
    parser.add_argument("--pages", nargs="*", metavar="PAGE", help="only these pages, such as index.html")
    arguments = parser.parse_args()
    pages = arguments.pages or pages_of(arguments.site)
    if not pages:
        sys.exit(f"{arguments.site} has no pages. Build the site first: make docs")
    if arguments.screenshots:
        arguments.screenshots.mkdir(parents=True, exist_ok=True)
    with browser() as chromium:
        problems = look(chromium, arguments.site, pages, arguments.screenshots)
        if not search(chromium, arguments.site, "shards"):
            problems.append("search finds nothing for 'shards'")
    print("\n".join(problems), end="\n" * bool(problems))
    views = len(WIDTHS) * len(SCHEMES)
    print(f"{len(pages)} pages in {views} views each: {len(problems)} problem{'s' * (len(problems) != 1)}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
