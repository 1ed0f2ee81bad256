"""Measure the pages of `gristmill view` in Chromium: how long after the last key the tokens are on the screen.

    python benchmarks/bench_view.py                          all bars, 12 repetitions
    python benchmarks/bench_view.py --tokenizer a.json b.json
    python benchmarks/bench_view.py --quick                  a smoke test that writes nothing

The server is a process of its own, as for a user. To add a bar, write a function `measure_X(browser, options)` that
returns rows, and add it to `BARS`.
"""

import argparse
import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

import gristmill as gm
from gristmill.bench.machine import describe_run
from gristmill.bench.tables import markdown_table, write_result
from gristmill.sample_corpus import stories

RESULTS = Path(__file__).resolve().parent / "results"
NUM_CHARACTERS = 1_000

# The time of the last key is that of its event, before the page runs. A frame is on the screen soon after the callbacks
# of the next animation frame, so the clock stops in a task that the callback schedules.
OBSERVE = """() => {
  const box = document.getElementById("text");
  window.timing = { key: 0, painted: 0 };
  box.addEventListener("keydown", (event) => { window.timing.key = event.timeStamp; }, true);
  const painted = new MessageChannel();
  painted.port1.onmessage = () => { window.timing.painted = performance.now(); };
  new MutationObserver(() => requestAnimationFrame(() => painted.port2.postMessage(0)))
    .observe(document.getElementById("panels"), { childList: true, subtree: true, characterData: true });
}"""

Row = dict[str, Any]


def main() -> int:
    """Measure, show, write."""
    options = _options()
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder, _chromium() as browser:
        if not options.tokenizer:
            options.tokenizer = _train_tokenizers(Path(folder), options)
        rows = [row for measure in BARS for row in measure(browser, options)]
    table = markdown_table(
        ["bar", "median ms", "min–max ms", "bound ms"],
        [
            [row["bar"], f"{median(row['ms']):.1f}", f"{min(row['ms']):.1f}–{max(row['ms']):.1f}", str(row["bound_ms"])]
            for row in rows
        ],
    )
    print(table)
    if not options.quick:
        note = (
            "Time from the event of the last key to the first task after the animation frame in which the page drew "
            "the tokens of the whole text. Every key is a real key event, sent as fast as the browser takes them."
        )
        about = describe_run(["gristmill", "starlette", "uvicorn", "playwright"])
        about["load average of the last minute"] = f"{load:.1f} at the start, {os.getloadavg()[0]:.1f} at the end"
        write_result(
            "view", title="Pages", about=about, body=f"{table}\n\n{note}", data={"rows": rows}, folder=options.output
        )
    return int(any(median(row["ms"]) > row["bound_ms"] for row in rows))


def measure_typing(browser: Any, options: argparse.Namespace) -> Iterator[Row]:
    """Yield the time from the last of 1,000 keys to the tokens on the screen, for one tokenizer and for all."""
    text = " ".join(next(stories(7)).split())[: options.characters]
    for count in sorted({1, len(options.tokenizer)}):
        paths = options.tokenizer[:count]
        expected = sum(len(gm.Tokenizer.load(path).encode(text)) for path in paths)
        with _view(paths) as address:
            times = [_type(browser, f"{address}tokenizers", text, expected) for _ in range(options.repetitions)]
        beside = f"{count} tokenizers side by side" if count > 1 else "one tokenizer"
        yield {"bar": f"{len(text):,} characters typed, {beside}", "ms": times, "bound_ms": 50}


def _type(browser: Any, address: str, text: str, num_tokens: int) -> float:
    """Type `text` into a fresh page and return the time from the last key to its tokens, in milliseconds."""
    from playwright.sync_api import expect

    context = browser.new_context(viewport={"width": 1280, "height": 900})
    try:
        page = context.new_page()
        page.goto(address)
        page.locator(".t").first.wait_for()
        page.locator("#text").fill("")
        expect(page.locator(".t")).to_have_count(0)
        page.evaluate(OBSERVE)
        page.locator("#text").focus()
        page.keyboard.type(text)
        expect(page.locator(".t")).to_have_count(num_tokens, timeout=30_000)
        page.evaluate("() => new Promise((done) => requestAnimationFrame(() => setTimeout(done, 100)))")
        return float(page.evaluate("window.timing.painted - window.timing.key"))
    finally:
        context.close()


BARS: list[Callable[[Any, argparse.Namespace], Iterator[Row]]] = [measure_typing]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--tokenizer", nargs="+", type=Path, help="tokenizers to show (default: three, trained on the sample corpus)")
    add("--characters", type=int, default=NUM_CHARACTERS, help="characters to type (default: 1000)")
    add("--repetitions", type=int, default=12, help="repetitions of each row (default: 12)")
    add("--quick", action="store_true", help="one repetition of 50 characters, write nothing")
    add("--output", type=Path, default=RESULTS, help="folder for the table (default: the committed one)")
    options = parser.parse_args()
    if options.quick:
        options.characters, options.repetitions = 50, 1
    return options


def _train_tokenizers(folder: Path, options: argparse.Namespace) -> list[Path]:
    texts = list(islice(stories(0), 50 if options.quick else 4_000))
    sizes = (300, 400) if options.quick else (8_192, 2_048, 512)
    paths = [folder / f"{size}.json" for size in sizes]
    for path, size in zip(paths, sizes, strict=True):
        gm.train_tokenizer(texts, vocab_size=size, special_tokens=["<|endoftext|>"], progress=None).save(path)
    return paths


@contextlib.contextmanager
def _view(paths: list[Path]) -> Iterator[str]:
    command = [sys.executable, "-m", "gristmill", "view", *map(str, paths)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        try:
            assert server.stdout is not None
            yield server.stdout.readline().strip()
        finally:
            server.terminate()


@contextlib.contextmanager
def _chromium() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


if __name__ == "__main__":
    sys.exit(main())
