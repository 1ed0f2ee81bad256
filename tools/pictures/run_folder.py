"""The files of a folder of shards and of a run, from folders that Gristmill has just made."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import gristmill as gm
from pictures.sample import sample_text
from pictures.svg import Picture

# The smallest model that trains: the files are the same for every size.
TINY: dict[str, Any] = {
    "num_layers": 1, "d_model": 8, "num_heads": 1, "context_length": 8, "batch_size": 1, "max_steps": 4,
    "checkpoint_interval": 2, "val_check_interval": 2, "limit_val_batches": 1, "device": "cpu", "progress": None,
}  # fmt: skip

SHARDS = {
    "shard-00000.bin": "ids of the training documents, little-endian",
    "shard-00000.idx": "where each document ends",
    "val-00000.bin": "ids of the validation documents",
    "val-00000.idx": "where each document ends",
    "tokenizer.json": "a copy of the tokenizer",
    "manifest.json": "contents, sources and checksums; written last",
}
RUN = {
    "config.json": "all options, as resolved",
    "machine.json": "machine and package versions",
    "tokenizer.json": "a copy of the tokenizer",
    "metrics.jsonl": "one record per logged step, appended",
    "checkpoints/step-000002/model.safetensors": "the weights",
    "checkpoints/step-000002/optimizer.safetensors": "the state of the optimizer",
    "checkpoints/step-000002/state.json": "step number, running means, checksums",
    "checkpoints/step-000004/model.safetensors": "the latest checkpoint",
    "checkpoints/step-000004/optimizer.safetensors": "",
    "checkpoints/step-000004/state.json": "",
}


def make_shards(folder: Path) -> Path:
    """Encode the sample corpus into `folder`/shards."""
    tok = gm.train_tokenizer([sample_text()], vocab_size=300, progress=None)
    documents = sample_text().decode().split("<|endoftext|>")
    gm.encode_corpus([d for d in documents if d.strip()], tok, out=folder / "shards", val_fraction=0.2, progress=None)
    return folder / "shards"


def files_of(folder: Path) -> list[str]:
    """Return the names of the files in `folder`, without those that begin with a dot."""
    found = [Path(root, name).relative_to(folder) for root, _, names in os.walk(folder) for name in names]
    return sorted(path.as_posix() for path in found if not path.name.startswith("."))


@cache
def made_folders() -> tuple[list[str], list[str]]:
    """Return the files of a folder of shards and of a run."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shards = make_shards(folder)
        gm.lm.train(shards, out=folder / "run", **TINY)
        return files_of(shards), files_of(folder / "run")


def check(found: list[str], described: Mapping[str, str]) -> None:
    """Raise `ValueError` if the picture describes other files than the folder has."""
    if set(found) != set(described):
        raise ValueError(f"the files are {found}, the picture describes {sorted(described)}")


def draw_folders() -> Picture:
    """Draw both folders as trees."""
    shards, run = made_folders()
    check(shards, SHARDS)
    check(run, RUN)
    picture = Picture(
        "The folders of shards and of a run",
        "Two trees of files with a few words about each file, in the order in which they are written.",
    )
    y = _draw_tree(picture, 24, "shards/", SHARDS)
    y = _draw_tree(picture, y + 18, "run/", RUN)
    picture.prose(
        12,
        y + 12,
        "Every file is written under a temporary name, flushed to the disk and renamed. A folder of shards with a "
        "manifest is complete. A checkpoint is a folder that is renamed as a whole.",
    )
    return picture


def _draw_tree(picture: Picture, y: float, title: str, files: Mapping[str, str]) -> float:
    picture.text(12, y, title, bold=True, colour="accent")
    y += 22
    last: str | None = None
    for path, about in files.items():
        folder, _, name = path.rpartition("/")
        if folder and folder != last:
            picture.text(24, y, f"{folder}/", mono=True, size=12, colour="second")
            y += 19
        last = folder
        x = 44 if folder else 24
        picture.text(x, y, name, mono=True, size=12)
        if about:
            y += 16
            picture.text(x + 12, y, about, size=12, colour="muted")
        y += 20
    return y
