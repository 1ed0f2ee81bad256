"""Small models that are interrupted and resumed. The weights have the same bytes each time."""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gristmill as gm
from soaking.kind import Kind, check_equal, digests

COMMON = {
    "num_layers": 2,
    "num_heads": 2,
    "d_model": 32,
    "batch_size": 4,
    "max_steps": 60,
    "learning_rate": 3e-3,
    "dropout": 0.1,
    "checkpoint_interval": 10,
    "val_check_interval": 20,
    "limit_val_batches": 2,
    "log_interval": 2,
    "device": "cpu",
}
MODELS: dict[str, dict[str, Any]] = {
    "gpt": {**COMMON, "context_length": 64},
    "vae": {**COMMON, "model": "vae", "max_sequence_length": 48, "latent_dim": 4, "plot_frequency": 0},
}
PROGRAM = """
import sys
import torch
from soaking.models import train
torch.set_num_threads(1)
train(*sys.argv[1:])
"""


class Interruption(Exception):
    """Stands in for any failure of a run."""


class Models(Kind):
    """Trains a GPT and a VAE in one long-lived process, and now and then in a process that is killed."""

    process = "models"

    def prepare(self) -> None:
        """Train each model without a disturbance. The pages show these runs, and the one that is in work."""
        import torch

        torch.set_num_threads(1)
        self.expected, self.seconds = {}, {}
        for name in MODELS:
            began = time.monotonic()
            train(name, self.inputs / "shards", self.root / "runs" / name)
            self.seconds[name] = time.monotonic() - began
            self.expected[name] = weights(self.root / "runs" / name)
        self.run = self.root / "runs" / "live"
        shutil.copytree(self.root / "runs" / "gpt", self.run)

    def work(self, source: random.Random, thread: int) -> str:
        """Interrupt a run, resume it, and compare weights and optimizer with those of the undisturbed run."""
        name = source.choice(list(MODELS))
        how = source.choice([self._raise, self._raise, self._press_ctrl_c, self._press_ctrl_c, self._kill])
        shutil.rmtree(self.run)
        for _ in range(source.randrange(1, 3)):
            how(source, name)
        train(name, self.inputs / "shards", self.run, resume="auto")
        check_equal(weights(self.run), self.expected[name], f"{name} after {how.__name__}")
        return f"{name}, {INTERRUPTIONS[how.__name__]}"

    def _raise(self, source: random.Random, name: str) -> None:
        def fail() -> None:
            raise Interruption

        self._train_until(source.randrange(1, 60), name, fail)

    def _press_ctrl_c(self, source: random.Random, name: str) -> None:
        self._train_until(source.randrange(1, 60), name, lambda: signal.raise_signal(signal.SIGINT))

    def _train_until(self, step: int, name: str, stop: Callable[[], None]) -> None:
        def progress(record: Mapping[str, Any]) -> None:
            if record["kind"] == "train" and record["step"] >= step:
                stop()

        try:
            train(name, self.inputs / "shards", self.run, resume="auto", progress=progress)
        except (Interruption, KeyboardInterrupt):
            return

    def _kill(self, source: random.Random, name: str) -> None:
        command = [sys.executable, "-c", PROGRAM, name, str(self.inputs / "shards"), str(self.run), "auto"]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            before, end = last_step(self.run), time.monotonic() + 60
            while last_step(self.run) <= before and process.poll() is None and time.monotonic() < end:
                time.sleep(0.01)
            time.sleep(source.uniform(0, 1) * self.seconds[name])
            process.kill()


INTERRUPTIONS = {"_raise": "stopped by an exception", "_press_ctrl_c": "stopped by Ctrl-C", "_kill": "killed"}


def train(name: str, shards: Path | str, out: Path | str, resume: Any = "never", progress: Any = None) -> None:
    """Train one of the models."""
    gm.lm.train(shards, out=out, resume=resume, progress=progress, **MODELS[name])


def last_step(run: Path) -> int:
    """Return the step of the last checkpoint, 0 without one."""
    return max((int(path.name[5:]) for path in run.glob("checkpoints/step-*")), default=0)


def weights(run: Path) -> dict[str, str]:
    """Return the digests of the last checkpoint's tensors."""
    step = last_step(run)
    check_equal(step, COMMON["max_steps"], "the last step")
    found = digests(run / "checkpoints" / f"step-{step:06d}")
    return {name: digest for name, digest in found.items() if name.endswith(".safetensors")}
