"""Error messages for paths that are not the folder of a run: what is there, and what to pass or run instead."""

from __future__ import annotations

from pathlib import Path

from gristmill.shards.manifest import MANIFEST_FILE

__all__ = ["has_foreign_weights", "is_run", "why_no_run"]

CONFIG_FILE = "config.json"
CHECKPOINTS = "checkpoints"
# Weights of a Hugging Face folder: one file, or several with an index.
WEIGHTS_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"
STATE_FILE = "state.json"
REPLACED_FOLDER = ".replaced"  # the old run, while the run that replaces it is set up
TRAIN = "Train a model with lm.train() first, and pass its output folder."


def is_run(folder: Path) -> bool:
    """Whether it is the folder of a run, with or without a checkpoint."""
    return (folder / CONFIG_FILE).is_file() and not (folder / MANIFEST_FILE).exists()


def has_foreign_weights(folder: Path) -> bool:
    """Whether it is a folder with Hugging Face weights, and not a run."""
    return any((folder / name).exists() for name in (WEIGHTS_FILE, INDEX_FILE)) and not (folder / CHECKPOINTS).exists()


def why_no_run(path: Path) -> str:
    """Explain what is at `path`, where a run with a checkpoint is needed, and what to do; one line."""
    if not path.exists():
        return f"{path}: no such folder. {TRAIN}"
    if not path.is_dir():
        return f"{path}: this is a file, not the folder of a run. {TRAIN}"
    if (path / MANIFEST_FILE).exists():
        return f"{path}: the folder holds token shards, not a trained model. {TRAIN}"
    if (path / STATE_FILE).exists() and is_run(path.parent.parent):
        return (
            f"{path}: this is a single checkpoint of a run. Pass the folder of the run, {path.parent.parent}, and name "
            f"the checkpoint: {path.name!r}."
        )
    if path.name == CHECKPOINTS and is_run(path.parent):
        return f"{path}: this folder holds the checkpoints of a run. Pass the folder of the run, {path.parent}."
    if is_run(path / REPLACED_FOLDER):
        return (
            f"{path}: a new run was replacing the old one, and has no checkpoint yet. The old run is complete in "
            f"{path / REPLACED_FOLDER}: pass that folder. The next training run in {path} restores it."
        )
    if has_foreign_weights(path):
        return (
            f"{path}: this is a Hugging Face folder, not a run. Use it with transformers, or train it further with "
            f"lm.train() and the option init_from, and pass the folder of that run."
        )
    if is_run(path):
        return f"{path}: the run has no checkpoint yet. Train it further, or pass a smaller checkpoint_interval."
    return f"{path}: this is not the folder of a run: it has no {CONFIG_FILE}. {TRAIN}"
