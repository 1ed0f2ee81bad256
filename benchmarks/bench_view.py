"""Measure the pages of `gristmill view` in Chromium: typing, opening a long run, and the cost of an open page.

    python benchmarks/bench_view.py                          all bars
    python benchmarks/bench_view.py --bars training --pairs 100
    python benchmarks/bench_view.py --tokenizer a.json b.json
    python benchmarks/bench_view.py --quick                  a smoke test that writes nothing

The server is a process of its own, as for a user. To add a bar, write a function `measure_X(browser, options, folder)`
that yields rows, and add it to `BARS`. The bars of the page of runs are in view_runs.py.
"""

import argparse
import os
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
from view_runs import Row, chromium, measure_long_run, measure_training, view

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


def main() -> int:
    """Measure, show, write."""
    options = _options()
    load = os.getloadavg()[0]
    rows = []
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        for name in options.bars:
            for row in BARS[name](browser, options, Path(folder)):
                print(f"{row['bar']}: median {median(row['values']):.3g} {row['unit']}", file=sys.stderr, flush=True)
                rows.append(row)
    table = markdown_table(["bar", "median", "min–max", "bound"], list(map(_cells, rows)))
    print(table)
    if not options.quick:
        about = describe_run(["gristmill", "starlette", "uvicorn", "playwright", "torch"])
        about["load average of the last minute"] = f"{load:.1f} at the start, {os.getloadavg()[0]:.1f} at the end"
        body = "\n\n".join([table, *(NOTES[name] for name in options.bars)])
        write_result("view", title="Pages", about=about, body=body, data={"rows": rows}, folder=options.output)
    return int(any(row["bound"] is not None and median(row["values"]) > row["bound"] for row in rows))


def _cells(row: Row) -> list[str]:
    values, unit = row["values"], row["unit"]
    bound = f"{row['bound']:,} {unit}" if row["bound"] is not None else "–"
    return [row["bar"], f"{median(values):.3g} {unit}", f"{min(values):.3g}–{max(values):.3g}", bound]


def measure_typing(browser: Any, options: argparse.Namespace, folder: Path) -> Iterator[Row]:
    """Yield the time from the last of 1,000 keys to the tokens on the screen, for one tokenizer and for all."""
    text = " ".join(next(stories(7)).split())[: options.characters]
    tokenizers = options.tokenizer or _train_tokenizers(folder, options)
    for count in sorted({1, len(tokenizers)}):
        paths = tokenizers[:count]
        expected = sum(len(gm.Tokenizer.load(path).encode(text)) for path in paths)
        with view(*paths) as (address, _):
            times = [_type(browser, f"{address}tokenizers", text, expected) for _ in range(options.repetitions)]
        beside = f"{count} tokenizers side by side" if count > 1 else "one tokenizer"
        yield {"bar": f"{len(text):,} characters typed, {beside}", "unit": "ms", "values": times, "bound": 50}


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


BARS: dict[str, Callable[[Any, argparse.Namespace, Path], Iterator[Row]]] = {
    "typing": measure_typing,
    "long-run": measure_long_run,
    "training": measure_training,
}
NOTES = {
    "typing": (
        "Characters typed: time from the event of the last key to the first task after the animation frame in which "
        "the page drew the tokens of the whole text. Every key is a real key event, sent as fast as the browser takes "
        "them."
    ),
    "long-run": (
        "Records: time from the navigation to the first task after the animation frame in which the first curve was "
        "drawn. A fresh server parses metrics.jsonl within this time."
    ),
    "training": (
        "Training: a small model trains on the CPU, with one thread and with all. Phases with the page open and phases "
        "in which server and browser are stopped (SIGSTOP) alternate, and the first of a pair alternates too. Each "
        "value compares the time per step in a phase with that of its neighbor; a pair in which other processes used a "
        "tenth of a CPU is measured again. Server and browser run on the same machine: with one thread they have the "
        "other core, and with all threads they take their time from the training."
    ),
}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--tokenizer", nargs="+", type=Path, help="tokenizers to show (default: three, trained on the sample corpus)")
    add("--characters", type=int, default=NUM_CHARACTERS, help="characters to type (default: 1000)")
    add("--bars", nargs="+", choices=BARS, default=list(BARS), help="bars to measure (default: all)")
    add("--repetitions", type=int, default=9, help="repetitions of typing and of opening a run (default: 9)")
    add("--records", type=int, default=100_000, help="records of the long run (default: 100000)")
    add("--pairs", type=int, default=50, help="pairs of phases with and without a page (default: 50)")
    add("--seconds", type=float, default=4.0, help="length of a phase (default: 4)")
    add("--quick", action="store_true", help="a smoke test: small numbers, writes nothing")
    add("--output", type=Path, default=RESULTS, help="folder for the table (default: the committed one)")
    options = parser.parse_args()
    if options.quick:
        options.characters, options.repetitions, options.records = 50, 1, 1_000
        options.pairs, options.seconds = 1, 1.0
    return options


def _train_tokenizers(folder: Path, options: argparse.Namespace) -> list[Path]:
    texts = list(islice(stories(0), 50 if options.quick else 4_000))
    sizes = (300, 400) if options.quick else (8_192, 2_048, 512)
    paths = [folder / f"{size}.json" for size in sizes]
    for path, size in zip(paths, sizes, strict=True):
        gm.train_tokenizer(texts, vocab_size=size, special_tokens=["<|endoftext|>"], progress=None).save(path)
    return paths


if __name__ == "__main__":
    sys.exit(main())
