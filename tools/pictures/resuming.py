"""An interrupted run that resumes, compared with an uninterrupted one: both are trained, and their weights compared."""

from __future__ import annotations

import contextlib
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import gristmill as gm
from pictures.run_folder import TINY, make_shards
from pictures.svg import Picture

NUM_STEPS, STOP_AFTER = 8, 5


@dataclass(frozen=True)
class Comparison:
    """Result of the comparison of two runs."""

    saved_at: int  # the step of the checkpoint that the interrupted run left
    is_identical: bool  # the weights after the last step


@cache
def compare_runs() -> Comparison:
    """Train one run without a break and one that is interrupted, and compare the weights."""
    options: dict[str, Any] = {**TINY, "max_steps": NUM_STEPS, "log_interval": 1}

    def stop(record: Any) -> None:
        if record.get("step") == STOP_AFTER:
            raise KeyboardInterrupt

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shards = make_shards(folder)
        gm.lm.train(shards, out=folder / "whole", **options)
        with contextlib.suppress(KeyboardInterrupt):
            gm.lm.train(shards, out=folder / "parts", **{**options, "progress": stop})
        saved_at = max(int(path.name.removeprefix("step-")) for path in (folder / "parts/checkpoints").iterdir())
        gm.lm.train(shards, out=folder / "parts", resume=True, progress=None)
        weights = [
            (folder / run / f"checkpoints/step-{NUM_STEPS:06}/model.safetensors").read_bytes()
            for run in ("whole", "parts")
        ]
        return Comparison(saved_at, weights[0] == weights[1])


def draw_resuming() -> Picture:
    """Draw the steps of both runs."""
    found = compare_runs()
    if not found.is_identical:
        raise ValueError("the weights of the resumed run differ from those of the uninterrupted one")
    picture = Picture(
        "Resuming is bit-exact",
        f"Two rows of {NUM_STEPS} training steps. The first run is not interrupted. The second is interrupted after "
        f"step {STOP_AFTER}, saves a checkpoint at step {found.saved_at} and resumes there. The weights are equal.",
    )
    picture.text(12, 24, "A run without a break", bold=True)
    _draw_steps(picture, 12, 34, range(1, NUM_STEPS + 1))
    title = f"The same run, interrupted after step {STOP_AFTER} and resumed"
    picture.text(12, 88, title, bold=True)
    x = _draw_steps(picture, 12, 98, range(1, found.saved_at + 1))
    picture.line(x, 94, x, 132, colour="third", dashed=True)
    picture.text(x, 146, f"checkpoint at step {found.saved_at}", size=12, colour="third", anchor="middle")
    x = _draw_steps(picture, x + 4, 98, range(found.saved_at + 1, STOP_AFTER + 1), "accent")
    picture.text(x + 8, 117, "interrupted, then repeated", size=12, colour="accent")
    _draw_steps(picture, 12 + found.saved_at * 46 + 4, 156, range(found.saved_at + 1, NUM_STEPS + 1), "second")
    y = 184.0
    picture.rect(12, y + 16, 416, 26, fill="third-fill")
    label = f"weights after step {NUM_STEPS}: identical, byte for byte"
    picture.text(220, y + 33.5, label, anchor="middle", colour="third", bold=True)
    y += 68
    picture.text(12, y, "What the checkpoint holds", bold=True)
    rows = [
        ("weights, optimizer", "all tensors, in safetensors files"),
        ("step number", "batches, learning rates and the"),
        ("", "seeds of dropout follow from it"),
        ("losses so far", "for the means in the next record"),
        ("options, data", "compared with those of the resumed run"),
    ]
    y += 8
    for name, how in rows:
        y += 20
        picture.text(12, y, name, size=12)
        picture.text(140, y, how, size=12, colour="muted")
    return picture


def _draw_steps(picture: Picture, x: float, y: float, steps: range, kind: str = "") -> float:
    """Draw one cell per step and return the x after the last."""
    for step in steps:
        picture.rect(x, y, 42, 28, fill=f"{kind}-fill" if kind else "cell")
        picture.text(x + 21, y + 19, str(step), anchor="middle", mono=True, colour=kind or "ink")
        x += 46
    return x
