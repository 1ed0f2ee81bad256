"""Measure the page of runs: how fast a long run opens, and what an open page costs a training step.

    python benchmarks/view_runs.py                           both, prints tables and JSON
    python benchmarks/view_runs.py --pairs 9 --seconds 20    longer phases
    python benchmarks/view_runs.py --quick                   a smoke test

`run_of_100_000_records` opens a fresh server and a fresh page each time, so the records are parsed within the time.
`training_step` trains a small model on the CPU in one process and alternates between phases with a page open and
without: the step times of neighbouring phases are compared. Browser, server and training share all cores.
"""

import argparse
import contextlib
import json
import math
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from statistics import median
from typing import Any

import gristmill as gm
from gristmill.sample_corpus import stories

Row = dict[str, Any]
SETTLE_SECONDS = 2.0  # after a switch, not counted: the page loads
# The clock starts with the navigation and stops in the task after the frame in which the first curve was drawn.
OBSERVE = """
  const look = () => {
    if (!document.querySelector("[data-redraws]")) { requestAnimationFrame(look); return; }
    requestAnimationFrame(() => setTimeout(() => { window.curvesPainted = performance.now(); }));
  };
  look();
"""
TRAINING = """
import sys
import gristmill as gm
shards, out, device = sys.argv[1:]
gm.lm.train(shards, out=out, max_steps=10_000_000, num_layers=2, num_heads=2, d_model=64, context_length=64,
            batch_size=8, learning_rate=1e-3, progress=None, device=device, val_check_interval=10_000_000,
            checkpoint_interval=10_000_000, log_interval=10)
"""


def main() -> int:
    """Measure and show."""
    options = _options()
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        rows = []
        for row in chain(
            run_of_100_000_records(browser, options, Path(folder)), training_step(browser, options, Path(folder))
        ):
            rows.append(row)
            values = row["values"]
            spread = f"{min(values):.3g} to {max(values):.3g}"
            print(f"{row['bar']}: median {median(values):.3g} {row['unit']} ({spread}, n={len(values)})", flush=True)
    print(json.dumps(rows))
    return 0


def run_of_100_000_records(browser: Any, options: argparse.Namespace, folder: Path) -> Iterator[Row]:
    """Yield the time from the navigation to the painted curves, for a fresh server and for one that was used before."""
    run = folder / "long"
    write_long_run(run, options.records)
    fresh, again = [], []
    for _ in range(options.repetitions):
        with view(run) as (address, _):
            fresh.append(_open(browser, address))
            again.append(_open(browser, address))
    yield {"bar": f"{options.records:,} records, fresh server", "unit": "ms", "values": fresh}
    yield {"bar": f"{options.records:,} records, opened again", "unit": "ms", "values": again}


def _open(browser: Any, address: str) -> float:
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    try:
        page = context.new_page()
        page.add_init_script(OBSERVE)
        page.goto(f"{address}runs")
        while not (painted := page.evaluate("window.curvesPainted || 0")):
            page.wait_for_timeout(20)
        return float(painted)
    finally:
        context.close()


def training_step(browser: Any, options: argparse.Namespace, folder: Path) -> Iterator[Row]:
    """Yield how much longer a step is with a page open, per pair of phases, and the CPU time of server and browser."""
    texts = list(islice(stories(0), 2_000))
    tok = gm.train_tokenizer(texts, vocab_size=1_000, special_tokens=["<|endoftext|>"], progress=None)
    gm.encode_corpus(texts, tok, out=folder / "shards", progress=None)
    run = folder / "run"
    command = [sys.executable, "-c", TRAINING, str(folder / "shards"), str(run), options.device]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as training:
        try:
            while not (run / "metrics.jsonl").exists() or _last(run) is None:
                if training.poll() is not None:
                    raise RuntimeError("the training ended: run it by hand to see why")
                time.sleep(0.2)
            with view(run) as (address, server):
                phases = [_phase(browser, address, run, options, server, i) for i in range(2 * options.pairs)]
        finally:
            training.terminate()
    pairs = [(phases[i], phases[i + 1]) for i in range(0, len(phases) - 1, 2)]
    changes = []
    for one, other in pairs:
        with_page, without = (one, other) if one["is_open"] else (other, one)
        changes.append(100 * (with_page["step"] / without["step"] - 1))
    opened = [phase for phase in phases if phase["is_open"]]
    yield {"bar": "step with a page open, against the phase beside it", "unit": "%", "values": changes}
    yield {"bar": "a step", "unit": "ms", "values": [1e3 * phase["step"] for phase in phases if not phase["is_open"]]}
    for name in ("server", "browser"):
        shares = [100 * phase[name] / (os.cpu_count() or 1) for phase in opened]
        yield {"bar": f"CPU time of the {name}, of all cores", "unit": "%", "values": shares}


def _phase(
    browser: Any, address: str, run: Path, options: argparse.Namespace, server: int, number: int
) -> dict[str, Any]:
    """Measure the steps of a phase. The order within a pair alternates: open first, then closed first."""
    is_open = number % 4 in (0, 3)
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    try:
        page = context.new_page()
        if is_open:
            page.goto(f"{address}runs")
            page.locator("[data-redraws]").first.wait_for()
        time.sleep(SETTLE_SECONDS)
        first, cpu, began = _last(run), (_cpu(server), _browser_cpu()), time.monotonic()
        time.sleep(options.seconds)
        while (last := _last(run)) is None or first is None or last["step"] <= first["step"]:
            time.sleep(0.1)
        elapsed = time.monotonic() - began
        return {
            "is_open": is_open,
            "step": (last["seconds"] - first["seconds"]) / (last["step"] - first["step"]),
            "server": (_cpu(server) - cpu[0]) / elapsed,
            "browser": (_browser_cpu() - cpu[1]) / elapsed,
        }
    finally:
        context.close()


def _last(run: Path) -> dict[str, Any] | None:
    """Return the last training record."""
    with (run / "metrics.jsonl").open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - 8_192))
        lines = [line for line in file.read().split(b"\n")[:-1] if b'"train"' in line]
    for line in reversed(lines):
        with contextlib.suppress(ValueError):
            return dict(json.loads(line))
    return None


def _cpu(pid: int) -> float:
    """Return the CPU time of a process in seconds."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _browser_cpu() -> float:
    """Return the CPU time of the descendants of this process that belong to Chromium."""
    parents: dict[int, int] = {}
    names: dict[int, str] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError, ValueError, IndexError):
                text = (entry / "stat").read_text()
                names[int(entry.name)] = text.partition("(")[2].rpartition(")")[0]
                parents[int(entry.name)] = int(text.rpartition(")")[2].split()[1])
    total = 0.0
    for pid, name in names.items():
        above = pid
        while above in parents and above != os.getpid():
            above = parents[above]
        if above == os.getpid() and "chrom" in name:
            total += _cpu(pid)
    return total


def write_long_run(folder: Path, num_records: int) -> None:
    """Write a run with a training record per step."""
    folder.mkdir()
    noise = random.Random(0)
    with (folder / "metrics.jsonl").open("w") as file:
        for step in range(1, num_records + 1):
            record = {
                "kind": "train",
                "step": step,
                "loss": 1.4 + 5 * math.exp(-12 * step / num_records) + noise.gauss(0, 0.08),
                "lr": 6e-4 * (1 + math.cos(math.pi * step / num_records)) / 2,
                "grad_norm": abs(noise.gauss(0.6, 0.2)),
                "grad_norm_max": abs(noise.gauss(1.1, 0.3)),
                "tokens": step * 8_192,
                "tokens_per_second": noise.gauss(52_000, 900),
                "mfu": noise.gauss(0.41, 0.01),
                "mfu_matmul": noise.gauss(0.55, 0.01),
                "data_wait": abs(noise.gauss(0, 0.004)),
                "memory_bytes": 3_100_000_000,
                "seconds": step * 0.16,
            }
            file.write(json.dumps(record) + "\n")
    (folder / "config.json").write_text(json.dumps({"max_steps": num_records}))


@contextlib.contextmanager
def view(path: Path) -> Iterator[tuple[str, int]]:
    """Yield the address of a server, a process of its own as for a user, and its process number."""
    command = [sys.executable, "-m", "gristmill", "view", str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        try:
            assert server.stdout is not None
            yield server.stdout.readline().strip(), server.pid
        finally:
            server.terminate()


@contextlib.contextmanager
def chromium() -> Iterator[Any]:
    """Yield the system's Chromium."""
    from playwright.sync_api import sync_playwright

    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--records", type=int, default=100_000, help="records of the long run (default: 100000)")
    add("--repetitions", type=int, default=7, help="fresh servers that the long run is opened on (default: 7)")
    add("--pairs", type=int, default=8, help="pairs of phases with and without a page (default: 8)")
    add("--seconds", type=float, default=15.0, help="length of a phase (default: 15)")
    add("--device", default="cpu", help="device of the training (default: cpu)")
    add("--quick", action="store_true", help="a smoke test: small numbers")
    options = parser.parse_args()
    if options.quick:
        options.records, options.repetitions, options.pairs, options.seconds = 1_000, 1, 1, 1.0
    return options


if __name__ == "__main__":
    sys.exit(main())
