"""The bars of `bench_view.py` about the page of runs: how fast a long run opens, and what an open page costs.

Browser, server and training share the cores of the machine.
"""

import argparse
import contextlib
import json
import math
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import gristmill as gm
from gristmill.bench.fresh_process import ForeignCpu
from gristmill.bench.machine import num_cores
from gristmill.sample_corpus import stories

Phase = dict[str, Any]
Row = dict[str, Any]  # bar, unit, values, and a bound or None
MOST_ATTEMPTS = 4
QUIET_SHARE = 0.1  # of a CPU, that other processes may use in a phase
SETTLE_SECONDS = 0.3  # after a switch, not counted
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
shards, out = sys.argv[1:]
gm.lm.train(shards, out=out, max_steps=10_000_000, num_layers=2, num_heads=2, d_model=64, context_length=64,
            batch_size=8, learning_rate=1e-3, progress=None, device="cpu", val_check_interval=10_000_000,
            checkpoint_interval=10_000_000, log_interval=10)
"""


def measure_long_run(browser: Any, options: argparse.Namespace, folder: Path) -> Iterator[Row]:
    """Yield the time from the navigation to the painted curves, for a fresh server and for one that was used before."""
    run = folder / "long"
    write_long_run(run, options.records)
    fresh, again = [], []
    for _ in range(options.repetitions):
        with view(run) as (address, _):
            fresh.append(_open(browser, address))
            again.append(_open(browser, address))
    yield {"bar": f"run of {options.records:,} records, fresh server", "unit": "ms", "values": fresh, "bound": 1_000}
    yield {"bar": f"run of {options.records:,} records, opened again", "unit": "ms", "values": again, "bound": 1_000}


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


def measure_training(browser: Any, options: argparse.Namespace, folder: Path) -> Iterator[Row]:
    """Yield how much longer a step is with a page open, per pair of phases, and the CPU time of server and browser."""
    texts = list(islice(stories(0), 2_000))
    tok = gm.train_tokenizer(texts, vocab_size=1_000, special_tokens=["<|endoftext|>"], progress=None)
    gm.encode_corpus(texts, tok, out=folder / "shards", progress=None)
    for num_threads in sorted({1, num_cores()}):
        run = folder / f"run{num_threads}"
        with _training(folder / "shards", run, num_threads) as training, view(run) as (address, server):
            context = browser.new_context(viewport={"width": 1280, "height": 900})
            page = context.new_page()
            page.goto(f"{address}runs")
            page.locator("[data-redraws]").first.wait_for()
            pairs = [_pair(run, options.seconds, training, server, i) for i in range(options.pairs)]
            context.close()
        yield from _training_rows(pairs, f"training with {num_threads} thread{'s' * (num_threads > 1)}")


def _training_rows(pairs: list[list[Phase]], about: str) -> Iterator[Row]:
    for name, key, bound in (("wall time of a step", "step", 0.5), ("CPU time of a step", "step_cpu", None)):
        changes = [100 * (with_page[key] / without[key] - 1) for without, with_page in pairs]
        yield {"bar": f"{about}: {name}, page open against closed", "unit": "%", "values": changes, "bound": bound}
    steps = [1e3 * without["step"] for without, _ in pairs]
    yield {"bar": f"{about}: a step without a page", "unit": "ms", "values": steps, "bound": None}
    for name in ("server", "browser"):
        shares = [100 * with_page[name] / num_cores() for _, with_page in pairs]
        yield {"bar": f"{about}: CPU time of the {name}, of all cores", "unit": "%", "values": shares, "bound": None}


@contextlib.contextmanager
def _training(shards: Path, run: Path, num_threads: int) -> Iterator[int]:
    """Yield the number of a process that trains, after its first record."""
    command = [sys.executable, "-c", TRAINING, str(shards), str(run)]
    environment = os.environ | {"OMP_NUM_THREADS": str(num_threads)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as training:
        try:
            while not (run / "metrics.jsonl").exists() or _last(run) is None:
                if training.poll() is not None:
                    raise RuntimeError("the training ended: run it by hand to see why")
                time.sleep(0.2)
            yield training.pid
        finally:
            training.kill()


def _pair(run: Path, seconds: float, training: int, server: int, number: int) -> list[Phase]:
    """Return a phase without the page and one with it. A pair that other processes disturbed is measured again."""
    order = (False, True) if number % 2 else (True, False)
    for _ in range(MOST_ATTEMPTS):
        pair = [_phase(run, seconds, training, server, is_open) for is_open in order]
        if max(phase["foreign"] for phase in pair) < QUIET_SHARE:
            break
    return sorted(pair, key=lambda phase: bool(phase["is_open"]))


def _phase(run: Path, seconds: float, training: int, server: int, is_open: bool) -> Phase:
    """Measure the steps of a phase. Without the page, server and browser are stopped."""
    chromium = _chromium_processes()
    for process in [server, *chromium]:
        os.kill(process, signal.SIGCONT if is_open else signal.SIGSTOP)
    try:
        time.sleep(SETTLE_SECONDS)
        first, before, began, all_cpu = (
            _next(run),
            _cpu_times(training, server, chromium),
            time.monotonic(),
            ForeignCpu(),
        )
        time.sleep(seconds)
        last, after, elapsed = _next(run), _cpu_times(training, server, chromium), time.monotonic() - began
        foreign = all_cpu.since_start(own=sum(after.values()) - sum(before.values())) or 0.0
    finally:
        for process in [server, *chromium]:
            os.kill(process, signal.SIGCONT)
    num_steps = last["step"] - first["step"]
    spent = {name: after[name] - before[name] for name in after}
    return {
        "is_open": is_open,
        "step": (last["seconds"] - first["seconds"]) / num_steps,
        "step_cpu": spent["training"] / num_steps,
        "server": spent["server"] / elapsed,
        "browser": spent["browser"] / elapsed,
        "foreign": foreign / elapsed,
    }


def _next(run: Path) -> dict[str, Any]:
    """Wait for the next training record, and return it."""
    seen = _last(run)
    while (record := _last(run)) is None or record == seen:
        time.sleep(0.002)
    return record


def _cpu_times(training: int, server: int, chromium: list[int]) -> dict[str, float]:
    return {
        "training": _cpu(training),
        "server": _cpu(server),
        "browser": sum(map(_cpu, chromium)),
        "this program": time.process_time(),
    }


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


def _chromium_processes() -> list[int]:
    """Return the descendants of this process that belong to Chromium."""
    parents: dict[int, int] = {}
    names: dict[int, str] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError, ValueError, IndexError):
                text = (entry / "stat").read_text()
                names[int(entry.name)] = text.partition("(")[2].rpartition(")")[0]
                parents[int(entry.name)] = int(text.rpartition(")")[2].split()[1])
    found = []
    for process, name in names.items():
        above = process
        while above in parents and above != os.getpid():
            above = parents[above]
        if above == os.getpid() and "chrom" in name:
            found.append(process)
    return found


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
def view(*paths: Path) -> Iterator[tuple[str, int]]:
    """Yield the address of a server, a process of its own as for a user, and its process number."""
    command = [sys.executable, "-m", "gristmill", "view", *map(str, paths)]
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
