"""A tiny folder of shards and a tiny model for the tests of training."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch

import gristmill as gm
from shards.builder import build_folder

VOCAB_SIZE = 300
WORDS = "the a little old big red cat dog bird fox sat ran saw ate and then on under mat tree house home day night"

TINY = {
    "context_length": 16,
    "num_layers": 2,
    "num_heads": 2,
    "d_model": 32,
    "batch_size": 4,
    "max_steps": 20,
    "learning_rate": 3e-3,
    "checkpoint_interval": 10,
    "val_check_interval": 10,
    "limit_val_batches": 2,
    "log_interval": 4,
    "device": "cpu",
}


def texts(number, seed=0):
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS.split(), 12)) + "." for _ in range(number)]


def tokenizer():
    return gm.train_tokenizer(
        [" ".join(texts(200))], vocab_size=VOCAB_SIZE, special_tokens=["<|endoftext|>"], progress=None
    )


def build_shards(folder, *, seed=0, number=120, val=True):
    """A folder of shards with a few thousand tokens, in several files."""
    build_folder(
        folder,
        texts(number, seed),
        shard_tokens=700,
        tokenizer=tokenizer(),
        val_texts=texts(20, seed + 1) if val else None,
    )
    return Path(folder)


def train(shards, out, *, progress=None, resume="never", overwrite=False, **options):
    from gristmill.lm.training.trainer import train

    torch.set_num_threads(1)
    return train(shards, out=out, progress=progress, resume=resume, overwrite=overwrite, **{**TINY, **options})


class Crash(Exception):
    """Stands in for any failure of a process."""


def crash_at(step):
    """Return a progress function that raises when the run reaches `step`."""

    def show(record):
        if record["kind"] == "train" and record["step"] >= step:
            raise Crash

    return show


def records(run, kind):
    """Return the records of a kind, without values that depend on time."""
    timed = ("seconds", "tokens_per_second", "mfu", "mfu_matmul", "data_wait", "memory_bytes")
    lines = (Path(run) / "metrics.jsonl").read_text().splitlines()
    found = [json.loads(line) for line in lines]
    return [{key: r[key] for key in r if key not in timed} for r in found if r["kind"] == kind]


def tensors(run, step, file="model.safetensors"):
    """Return the tensors of a checkpoint, in one file or in parts."""
    from gristmill.lm.training.checkpoint import read_state, read_tensors

    folder = Path(run) / "checkpoints" / f"step-{step:06d}"
    return read_tensors(folder, file, read_state(folder))


def assert_same_run(one, other, step):
    """Check that weights, optimizer and all recorded numbers are identical."""
    for file in ("model.safetensors", "optimizer.safetensors"):
        a, b = tensors(one, step, file), tensors(other, step, file)
        assert a.keys() == b.keys()
        assert [name for name in a if not torch.equal(a[name], b[name])] == []
    for kind in ("train", "val", "sample"):
        assert records(one, kind) == records(other, kind)
