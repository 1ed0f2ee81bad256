"""Take the pictures of docs/view.md: `make screenshots`, or `python tools/screenshots.py --all build/screenshots`.

The script makes a corpus, two tokenizers, shards and two small runs with fixed seeds, serves them with
`gristmill view`, and opens the pages in headless Chromium. Nothing is downloaded. With --all FOLDER, it takes every
page at 390 and 1,280 px in light and dark colors, for a person who wants to look at all of them, and leaves docs/images
as it is.

A room is one entry of `PAGES`: its address and what to do on the page before the picture is taken. `PICTURES` lists
what goes to docs/images.
"""

from __future__ import annotations

import argparse
import io
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from look_at_site import SCHEMES, WIDTHS, browser

IMAGES = Path(__file__).resolve().parent.parent / "docs" / "images"
MAX_BYTES = 150_000
COLORS = 128  # of a picture: text on flat areas needs no more
HEIGHTS = {390: 780, 1280: 840}
PATIENCE_MILLISECONDS = 120_000  # a loaded machine generates slowly
RUN_OPTIONS = (
    *("--num-layers", 2, "--num-heads", 2, "--d-model", 64, "--context-length", 128, "--batch-size", 16),
    *("--log-interval", 5, "--val-check-interval", 30, "--limit-val-batches", 4, "--sample-interval", 100),
)
TEXT = """Byte-level BPE: "low", "lower", "lowest" share their first bytes.
def area(radius):
    return 3.14159 * radius ** 2
naïve café, 12,345.67 €, привет, καλημέρα<|endoftext|>"""


@dataclass(frozen=True)
class Page:
    """A page: where it is, relative to the served address or to the folder of reports, and how to prepare it."""

    address: str
    prepare: Callable[[Any], None]
    is_report: bool = False
    needs_runs: bool = False  # which take most of the time


def prepare_tokenizers(page: Any) -> None:
    """Type a text, and wait for the tokens of both tokenizers."""
    page.fill("#text", TEXT)
    page.wait_for_selector("#panels > *")


def prepare_shards(page: Any) -> None:
    """Search, open the second result and point at a token."""
    page.wait_for_selector("#tokens .t")
    page.fill("#query", "garden")
    page.press("#query", "Enter")
    page.wait_for_selector("#results li:nth-child(2) button")
    page.click("#results li:nth-child(2) button")
    page.wait_for_selector("#tokens .found")
    page.hover("#tokens .found")
    page.evaluate("window.scrollTo(0, 0)")


def prepare_runs(page: Any) -> None:
    """Wait for the curves; on a phone, scroll to them."""
    page.wait_for_selector("#charts canvas")
    page.evaluate("() => innerWidth < 700 && document.getElementById('charts').scrollIntoView()")


def prepare_playground(page: Any) -> None:
    """Generate a text, and point at one of its tokens."""
    page.fill("#prompt", "Once upon a time")
    page.fill("#seed", "1")
    page.fill("#temperature", "0.7")
    page.fill("#max_tokens", "120")
    page.click("#start")
    page.wait_for_selector("#halt:not([disabled])")
    page.wait_for_selector("#halt[disabled]")


def prepare_report(page: Any) -> None:
    """Reports need no preparation: they are files without scripts that load anything."""


PAGES = {
    "tokenizers": Page("tokenizers", prepare_tokenizers),
    "shards": Page("shards", prepare_shards),
    "runs": Page("runs", prepare_runs, needs_runs=True),
    "playground": Page("playground", prepare_playground, needs_runs=True),
    "report-run": Page("run.html", prepare_report, is_report=True, needs_runs=True),
    "report-tokenizer": Page("tokenizer.html", prepare_report, is_report=True),
    "report-shards": Page("shards.html", prepare_report, is_report=True),
    "report-comparison": Page("comparison.html", prepare_report, is_report=True),
}
# Name of the file without "view-" and ".png": page, width, scheme.
PICTURES = {
    "tokenizers": ("tokenizers", 1280, "light"),
    "tokenizers-phone": ("tokenizers", 390, "dark"),
    "shards": ("shards", 1280, "light"),
    "runs": ("runs", 1280, "light"),
    "runs-phone": ("runs", 390, "dark"),
    "playground": ("playground", 1280, "light"),
    "report-tokenizer": ("report-tokenizer", 1280, "light"),
    "report-comparison": ("report-comparison", 1280, "light"),
}


def make_artefacts(folder: Path, *, with_runs: bool) -> list[Path]:
    """Make everything that the pages show; return the paths to serve. Takes about a minute with runs."""
    corpus, small, large, shards = (folder / name for name in ("stories.txt", "small.json", "large.json", "shards"))
    gristmill("sample-corpus", "-o", corpus, "--size", "4MB", "--seed", 0)
    for path, size in ((small, 1_000), (large, 8_000)):
        gristmill("train-tokenizer", corpus, "--vocab-size", size, "-o", path)
    gristmill("encode", corpus, "-t", small, "-o", shards, "--val-fraction", 0.02, "--shard-tokens", 200_000)
    runs: list[Path] = []
    for name, learning_rate in with_runs * (("run", 3e-3), ("run-slow", 5e-4)):
        runs.append(folder / name)
        gristmill(
            *("train-model", shards, "-o", runs[-1], "--max-steps", 300, "--seed", 0, "--device", "cpu"),
            *("--learning-rate", learning_rate, *RUN_OPTIONS),
        )
    return [small, large, shards, *runs]


def make_reports(folder: Path, *, with_runs: bool) -> None:
    """Write the reports of the artefacts."""
    reports = folder / "reports"
    reports.mkdir()
    if with_runs:
        gristmill("report", folder / "run")
        (reports / "run.html").write_bytes((folder / "run" / "report.html").read_bytes())
    # With names relative to the folder, because the pages show them.
    corpus = ("--text", "stories.txt")
    gristmill("report", "small.json", *corpus, "-o", reports / "tokenizer.html", folder=folder)
    gristmill("report", "shards", "-o", reports / "shards.html", folder=folder)
    gristmill("report", "small.json", "large.json", *corpus, "-o", reports / "comparison.html", folder=folder)


def gristmill(*arguments: object, folder: Path | None = None) -> None:
    """Run a command, in `folder` if given; exit with its error message if it fails."""
    command = [sys.executable, "-m", "gristmill", *map(str, arguments)]
    print("gristmill", *(getattr(each, "name", each) for each in arguments), flush=True)
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stderr}")


@contextmanager
def serving(paths: list[Path]) -> Iterator[str]:
    """Serve artefacts; yield the address of the pages."""
    command = [sys.executable, "-m", "gristmill", "view", *map(str, paths), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().strip()
            if not address:
                sys.exit("gristmill view did not start.")
            yield address
        finally:
            process.send_signal(signal.SIGINT)


def take(chromium: Any, page: Page, address: str, reports: Path, *, width: int, scheme: str) -> bytes:
    """Return a picture of the first screen of a page, as PNG."""
    from PIL import Image

    context = chromium.new_context(
        viewport={"width": width, "height": HEIGHTS[width]},
        color_scheme=scheme,
        locale="en-US",
        reduced_motion="reduce",
    )
    try:
        tab = context.new_page()
        tab.set_default_timeout(PATIENCE_MILLISECONDS)
        tab.goto((reports / page.address).as_uri() if page.is_report else address + page.address)
        page.prepare(tab)
        tab.wait_for_timeout(500)  # charts draw in the next frames
        picture = Image.open(io.BytesIO(tab.screenshot()))
    finally:
        context.close()
    data = io.BytesIO()
    picture.convert("RGB").quantize(COLORS, dither=Image.Dither.NONE).save(data, "PNG", optimize=True)
    return data.getvalue()


def wanted_pictures(arguments: argparse.Namespace) -> dict[Path, tuple[str, int, str]]:
    """Return the files to write, each with its page, width and scheme."""
    if arguments.all is not None:
        wanted = {
            arguments.all / f"{name}-{width}-{scheme}.png": (name, width, scheme)
            for name, width, scheme in product(PAGES, WIDTHS, SCHEMES)
        }
    else:
        wanted = {IMAGES / f"view-{name}.png": picture for name, picture in PICTURES.items()}
    return {path: picture for path, picture in wanted.items() if not arguments.pages or picture[0] in arguments.pages}


def main() -> int:
    """Make the artefacts, take the pictures and report their sizes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="*", metavar="PAGE", help=f"pages to take: {', '.join(PAGES)} (default: all)")
    parser.add_argument("--all", type=Path, metavar="FOLDER", help="write every width and color scheme to this folder")
    arguments = parser.parse_args()
    unknown = set(arguments.pages) - set(PAGES)
    if unknown:
        parser.error(f"unknown page {', '.join(sorted(unknown))}. Pages: {', '.join(PAGES)}.")
    wanted = wanted_pictures(arguments)
    too_large = []
    with tempfile.TemporaryDirectory() as temporary, browser() as chromium:
        folder = Path(temporary)
        pages = [PAGES[name] for name, _, _ in wanted.values()]
        with_runs = any(page.needs_runs for page in pages)
        paths = make_artefacts(folder, with_runs=with_runs)
        if any(page.is_report for page in pages):
            make_reports(folder, with_runs=with_runs)
        with serving(paths) as address:
            for path, (name, width, scheme) in wanted.items():
                data = take(chromium, PAGES[name], address, folder / "reports", width=width, scheme=scheme)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
                print(f"{path}  {len(data):,} bytes")
                if len(data) > MAX_BYTES:
                    too_large.append(path.name)
    if too_large and arguments.all is None:
        sys.exit(f"larger than {MAX_BYTES:,} bytes: {', '.join(too_large)}. Lower HEIGHTS or COLORS.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
