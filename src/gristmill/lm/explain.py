"""What was passed where the folder of a run belongs, and what to pass or to run first: for error messages."""

from __future__ import annotations

from pathlib import Path

from gristmill.shards.manifest import MANIFEST_FILE

__all__ = ["is_run", "why_no_run"]

CONFIG_FILE = "config.json"
CHECKPOINTS = "checkpoints"
STATE_FILE = "state.json"
REPLACED_FOLDER = ".replaced"  # the old run, while a new one that replaces it is set up
HUGGINGFACE_WEIGHTS = ("model.safetensors", "model.safetensors.index.json")  # a run has none at its top
TRAIN = "Train a model first with lm.train(), and pass the folder that it wrote to."


def is_run(folder: Path) -> bool:
    """Whether it is the folder of a run, with or without a checkpoint."""
    return (folder / CONFIG_FILE).is_file() and not (folder / MANIFEST_FILE).exists()


def why_no_run(path: Path) -> str:
    """What is at `path`, where a run with a checkpoint is needed, and what to do; one line."""
    if not path.exists():
        return f"{path}: there is no such folder. {TRAIN}"
    if not path.is_dir():
        return f"{path}: it is a file, and the folder of a run is needed. {TRAIN}"
    if (path / MANIFEST_FILE).exists():
        return f"{path}: it holds token shards, not a trained model. {TRAIN}"
    if (path / STATE_FILE).exists() and is_run(path.parent.parent):
        return (
            f"{path}: it is one checkpoint of a run. Pass the folder of the run, {path.parent.parent}, and name the "
            f"checkpoint: {path.name!r}."
        )
    if path.name == CHECKPOINTS and is_run(path.parent):
        return f"{path}: it holds the checkpoints of a run. Pass the folder of the run, {path.parent}."
    if is_run(path / REPLACED_FOLDER):
        return (
            f"{path}: a new run was replacing the one there, and has no checkpoint yet. The old run is whole in "
            f"{path / REPLACED_FOLDER}: pass that folder. The next training run in {path} puts it back."
        )
    if any((path / name).is_file() for name in HUGGINGFACE_WEIGHTS):
        return (
            f"{path}: it is a model in the format of Hugging Face, and the folder of a run is needed. Pass the run "
            f"that it was exported from, or train this model further with lm.train(), and pass that run."
        )
    if is_run(path):
        return f"{path}: the run has no checkpoint yet. Train it further, or pass a smaller checkpoint_interval."
    return f"{path}: it is not the folder of a run: it has no {CONFIG_FILE}. {TRAIN}"
