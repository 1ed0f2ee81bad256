"""Check that the four VAE presets end without posterior collapse, trained with the command line.

    python benchmarks/bench_vae_presets.py shards --out benchmarks/results/vae_presets.json --jobs 10

Every run is a separate process, and `--jobs` of them share the device. The warnings come from the summary of a run, the
last measurement of the monitor from its records. The weights are then measured on 64 documents of the validation split,
since `vae-max-performance` has no monitor. Runs named "without" have the shortcut of the encoder off.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import torch

from gristmill.lm.data.sequences import SequenceDataset, open_sequences
from gristmill.lm.models.vae.network import SequenceVAE
from gristmill.lm.training.checkpoint import load_model
from gristmill.posterior.estimates import mutual_information

PRESETS = ("vae-fast", "vae-max-performance", "vae-low-memory", "vae-debug")
WITHOUT = ("--no-encoder-shortcut",)
EPOCH = ("--epochs", "1")
LOOK = ("kl", "mutual_information", "active_units", "active_units_strict", "gap_shuffled", "aggregated_kl_floor")
# Steps and seed.
LENGTHS: tuple[tuple[str | int, int], ...] = (("epoch", 0), (300, 0), (150, 0), (150, 1), (150, 2), (100, 0))
LENGTHS_WITHOUT: tuple[tuple[str | int, int], ...] = ((150, 0),)
MEASURING = threading.Lock()  # torch's generator is shared by all threads


def plan() -> list[dict[str, Any]]:
    """Return all runs, the most important first."""
    runs = [
        {"preset": preset, "steps": steps, "seed": seed, "variant": variant}
        for variant, lengths in (("default", LENGTHS), ("without", LENGTHS_WITHOUT))
        for steps, seed in lengths
        for preset in PRESETS
    ]
    # Compiled runs take longest, and 150 steps are the most common test.
    order = {150: 0, "epoch": 1, 100: 2, 300: 3}
    return sorted(
        runs, key=lambda run: (run["variant"], order[run["steps"]], run["preset"] != "vae-max-performance", run["seed"])
    )


def measured(run: dict[str, Any], shards: Path, folder: Path, extra: list[str]) -> dict[str, Any]:
    """Return the run with its results."""
    name = "{preset}-{steps}-{seed}-{variant}".format(**run)
    out = folder / name
    length = EPOCH if run["steps"] == "epoch" else ("--max_steps", str(run["steps"]))
    options = ["--preset", run["preset"], *length, "--seed", str(run["seed"])]
    options += WITHOUT if run["variant"] == "without" else ()
    command = [sys.executable, "-m", "gristmill", "train-model", str(shards), "-o", str(out), *options, *extra]
    begin = time.perf_counter()
    ended = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    found = {**run, "seconds": round(time.perf_counter() - begin, 1), "exit": ended.returncode}
    if ended.returncode:
        return {**found, "error": ended.stderr[-1500:]}
    found["warnings"] = [line.strip() for line in ended.stderr.splitlines() if "posterior" in line or "latents" in line]
    found["summary"] = [line.strip() for line in ended.stdout.splitlines() if line.strip()][-25:]
    result = {**found, **records_of(out), "validation_split": on_validation(out, shards)}
    print(name, {k: v for k, v in result.items() if k not in (*run, "summary")}, flush=True)
    return result


def records_of(out: Path) -> dict[str, Any]:
    """Return the last validation, the last measurement of the monitor, and the active alarms."""
    records = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    looks = [record for record in records if record["kind"] == "posterior"]
    val = [record for record in records if record["kind"] == "val"][-1]
    alarms: set[str] = set()
    for change in (change for look in looks for change in look["alarms"]):
        (alarms.add if change["change"] == "raised" else alarms.discard)(change["kind"])
    found: dict[str, Any] = {"last_step": val["step"], "val_loss": val["loss"], "val_kl": val["kl"]}
    if looks:
        found |= {"last_look": {name: looks[-1].get(name) for name in LOOK}, "alarms": sorted(alarms)}
    return found


def on_validation(out: Path, shards: Path) -> dict[str, float]:
    """Measure the posterior of 64 validation documents with the last weights."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model, _ = load_model(out, which="latest", device=device)
    assert isinstance(model, SequenceVAE)
    length = model.config.max_sequence_length
    split = open_sequences(shards, max_sequence_length=length)
    assert split.val is not None
    dataset = SequenceDataset(split.val, max_sequence_length=length, batch_size=64, seed=0)
    batch = next(iter(dataset.validation_batches(1))).to(torch.device(device))
    with MEASURING, torch.no_grad():
        torch.manual_seed(0)
        loss, stats = model.loss(batch, {})
    mu, logvar, z = stats["mu"], stats["logvar"], stats["z"]
    gaps = model.reconstruction_nats(batch, z.roll(1, 0)) - model.reconstruction_nats(batch, z)
    return {
        "num_documents": len(mu),
        "loss": round(loss.item(), 4),
        "kl": round(stats["kl"].item(), 3),
        "mutual_information": round(float(mutual_information(mu, logvar, z)), 3),
        "active_units": int((mu.var(0) > 0.01).sum()),
        "active_units_strict": int((mu.var(0) > 0.2).sum()),
        "gap_shuffled": round(gaps.mean().item(), 3),
        "gap_shuffled_error": round((gaps.std() / len(gaps) ** 0.5).item(), 3),
    }


def main() -> None:
    """Run all trainings, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shards", type=Path)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "vae_presets.json")
    parser.add_argument("--jobs", type=int, default=4)
    parser.add_argument("--only", default="", help="Only runs whose name contains this.")
    options, extra = parser.parse_known_args()  # the rest are options for every run
    runs = [run for run in plan() if options.only in "{preset}-{steps}-{seed}-{variant}".format(**run)]
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else platform.processor() or "CPU"
    content: dict[str, Any] = {
        "machine": {"device": device, "torch": torch.__version__, "python": platform.python_version()},
        "command": "python benchmarks/bench_vae_presets.py shards " + " ".join(extra),
        "data": "gristmill sample-corpus --size 5MB; vocabulary of 4,000; --val-fraction 0.02",
        "runs": [],
    }
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(options.jobs) as pool:
        futures = [pool.submit(measured, run, options.shards, Path(folder), extra) for run in runs]
        for future in as_completed(futures):
            content["runs"].append(future.result())
            options.out.write_text(json.dumps(content, indent=1) + "\n")
    print("failed:", [run for run in content["runs"] if run["exit"]])


if __name__ == "__main__":
    main()
