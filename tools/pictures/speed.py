"""The speed chart of the front page, from the committed results of the benchmarks."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median
from typing import Any

from pictures.svg import Picture

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results"
OURS = "gristmill"
# Results that the chart shows. All were measured on the same text and on two cores.
TRAINING, ENCODING, FILES = "train_english_32000_2t_all_systems", "encode_english_gpt2_2t", "pipeline_english_2t"


def _load(name: str) -> dict[str, Any]:
    result: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return result


def _measured(result: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the entries with a valid time."""
    return [entry for entry in result["entries"] if entry["runs"] and not entry["problem"]]


def training_speeds() -> dict[str, float]:
    """Return MB/s of training a tokenizer, by system."""
    result = _load(TRAINING)
    # Results before `gristmill bench` have the runs by system, later ones in entries, where a failed system has none.
    runs_by_system = result.get("runs") or {entry["system"]: entry["runs"] for entry in _measured(result)}
    return {
        system: result["num_bytes"] / 1e6 / median(run["seconds"] for run in runs)
        for system, runs in runs_by_system.items()
    }


def encoding_speeds() -> dict[str, float]:
    """Return MB/s of the first pass over a text in memory, by system, with the fastest function of each."""
    result = _load(ENCODING)
    speeds: dict[str, float] = {}
    for entry in _measured(result):
        seconds = median(run["facts"]["cold"]["seconds"] for run in entry["runs"])
        speed = result["num_bytes"] / 1e6 / seconds
        speeds[entry["system"]] = max(speed, speeds.get(entry["system"], 0))
    return speeds


def file_speeds() -> dict[str, float]:
    """Return MB/s from a text file to a file of ids, by system, with the fastest form of each."""
    result = _load(FILES)
    speeds: dict[str, float] = {}
    for entry in _measured(result):
        speed = result["num_bytes"] / 1e6 / median(run["seconds"] for run in entry["runs"])
        speeds[entry["system"]] = max(speed, speeds.get(entry["system"], 0))
    return speeds


def draw_speed() -> Picture:
    """Draw three groups of bars."""
    groups = [
        ("Train a tokenizer, 32,000 tokens", training_speeds()),
        ("Encode a text in memory, gpt2", encoding_speeds()),
        ("Text file to token file, gpt2", file_speeds()),
    ]
    picture = Picture(
        "Speed of Gristmill and other tools",
        "Horizontal bars of MB/s in three groups. "
        + " ".join(
            f"{name}: " + ", ".join(f"{system} {speed:.0f}" for system, speed in _ranked(speeds)) + "."
            for name, speeds in groups
        ),
        width=560,
    )
    most = max(speed for _, speeds in groups for speed in speeds.values())
    (num_bytes,) = {_load(name)["num_bytes"] for name in (TRAINING, ENCODING, FILES)}
    title = f"{num_bytes / 1e6:.0f} MB of English on two cores: MB/s, longer is better"
    picture.text(14, 26, title, bold=True, size=15)
    y = 42.0
    for name, speeds in groups:
        y += 16
        picture.text(14, y, name, size=13, colour="muted")
        y += 8
        ranked = _ranked(speeds)
        best_rival = max(speed for system, speed in ranked if system != OURS)
        for system, speed in ranked:
            ours = system == OURS
            picture.text(104, y + 13, system, size=13, anchor="end", bold=ours, colour="accent" if ours else "ink")
            width = max(2.0, speed / most * 292)
            picture.rect(112, y, width, 17, fill="accent" if ours else "line", line="none", r=2)
            shown = f"{speed:.0f}" if speed >= 10 else f"{speed:.1f}"
            factor = f"  {speed / best_rival:.1f}× the next" if ours else ""
            picture.text(112 + width + 7, y + 13, shown + factor, size=13, bold=ours)
            y += 22
    return picture


def _ranked(speeds: dict[str, float]) -> list[tuple[str, float]]:
    return sorted(speeds.items(), key=lambda each: -each[1])
