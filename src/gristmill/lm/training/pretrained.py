"""A Hugging Face folder that a run starts from: its sizes, weights and tokenizer.

The folder is untrusted input. Its config.json must be small, weights are read only from safetensors, and their headers
are compared with the sizes before a model is built. Nothing is unpickled. `Model` and `ModelConfig` of the run map the
sizes and weights to their own names.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gristmill.errors import CheckpointError, GristmillError, OptionError
from gristmill.lm.explain import CHECKPOINTS, CONFIG_FILE, INDEX_FILE, WEIGHTS_FILE, has_foreign_weights
from gristmill.lm.models.registry import build_model, find_model
from gristmill.packages import packages_for
from gristmill.small_files import parse_json, read_small_file

if TYPE_CHECKING:
    from torch import Tensor

    from gristmill.encode.tokenizer import Tokenizer
    from gristmill.lm.data.training_data import TrainingData
    from gristmill.lm.training.config import TrainConfig

__all__ = [
    "check_pretrained",
    "check_vocabulary",
    "is_pretrained",
    "pretrained_options",
    "read_tensors",
    "tokenizer_difference",
]

MAX_CONFIG_BYTES = 1 << 20
MAX_INDEX_BYTES = 1 << 26
# Weight files that are or may be pickles: loading one can run arbitrary code.
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")
FLOATS = ("F64", "F32", "F16", "BF16")


def is_pretrained(folder: Path) -> bool:
    """Return whether this is a Hugging Face folder, by its config.json or weights, and not a run."""
    if not (folder / CONFIG_FILE).is_file() or (folder / CHECKPOINTS).exists():
        return False
    if has_foreign_weights(folder):
        return True
    return not {"model_type", "architectures"}.isdisjoint(_read_config(folder))


def _read_config(folder: Path) -> dict[str, Any]:
    path = folder / CONFIG_FILE
    data = read_small_file(path, what="a config", max_bytes=MAX_CONFIG_BYTES, error=CheckpointError)
    content = parse_json(data, source=path, error=CheckpointError)
    if not isinstance(content, dict):
        raise CheckpointError(
            f"{path}: contains a {type(content).__name__}, but a config is a JSON object. Copy it again."
        )
    return content


# Sizes


def pretrained_options(folder: Path, model: str) -> dict[str, Any]:
    """Return the options of a model with the sizes of the folder; raise `CheckpointError` if they do not fit it."""
    return find_model(model).config.options_of_huggingface(_read_config(folder), str(folder / CONFIG_FILE))


def check_pretrained(config: TrainConfig) -> None:
    """Raise `CheckpointError` unless the weights that the run starts from fit its model. Reads no weights."""
    if config.init_from is None or not is_pretrained(Path(config.init_from)):
        return
    import torch

    from gristmill.lm.training.size_check import check_sizes

    folder = Path(config.init_from)
    with packages_for("init_from"):
        shapes = {name: tensor.get_shape() for _, name, tensor in _slices(folder)}
    tensors = {name: torch.empty(shape, device="meta") for name, shape in shapes.items()}
    network = find_model(config.model.name).network_class()
    weights = network.weights_of_huggingface(config.model, tensors, str(folder))
    check_sizes(lambda: build_model(config.model), weights, folder)


def check_vocabulary(config: TrainConfig, data: TrainingData) -> None:
    """Raise `OptionError` if the data has ids beyond the vocabulary of the model that the run starts from."""
    start, rows, needed = config.init_from, config.model.vocab_size, data.vocab_size
    if start is None or rows is None or needed is None or needed <= rows or not is_pretrained(Path(start)):
        return
    raise OptionError(
        f"init_from={str(start)!r}: the model there has {rows:,} tokens, but the {data.noun} need {needed:,}. Encode "
        f"the text with the tokenizer of that model."
    )


# Weights


def read_tensors(folder: Path) -> dict[str, Tensor]:
    """Return the weights in a folder, by their names in the files."""
    with packages_for("init_from"):
        return {name: tensor[:] if tensor.get_shape() else tensor[...] for _, name, tensor in _slices(folder)}


def _slices(folder: Path) -> Iterator[tuple[Path, str, Any]]:
    """Yield (file, name, slice) of each tensor. The shape of a slice is known without reading its data."""
    from safetensors import SafetensorError, safe_open

    for path in _weight_files(folder):
        try:
            with safe_open(path, framework="pt", device="cpu") as file:
                for name in file.keys():  # noqa: SIM118, not a mapping
                    found = file.get_slice(name)
                    if found.get_dtype() not in FLOATS:
                        raise CheckpointError(
                            f"{path}: {name!r:.100} has the type {found.get_dtype()}. Only {', '.join(FLOATS)} are "
                            f"supported. Pass a model that is not quantized."
                        )
                    yield path, name, found
        except SafetensorError as error:
            raise CheckpointError(f"{path}: damaged, or not a safetensors file: {error}. Copy it again.") from None


def _weight_files(folder: Path) -> list[Path]:
    """Return the weight files; raise `CheckpointError` if one is missing or not safetensors."""
    if (folder / INDEX_FILE).is_file():
        names = _names_in_index(folder / INDEX_FILE)
    elif (folder / WEIGHTS_FILE).exists():
        names = [WEIGHTS_FILE]
    else:
        raise CheckpointError(_why_no_weights(folder))
    for name in names:
        if not (folder / name).is_file():
            raise CheckpointError(f"{folder / name}: missing, or not a file. The folder is incomplete: copy it again.")
    return [folder / name for name in names]


def _names_in_index(path: Path) -> list[str]:
    data = read_small_file(path, what="an index of weights", max_bytes=MAX_INDEX_BYTES, error=CheckpointError)
    content = parse_json(data, source=path, error=CheckpointError)
    places = content.get("weight_map") if isinstance(content, dict) else None
    if not isinstance(places, dict) or not places:
        raise CheckpointError(f"{path}: damaged: it has no weight_map. Copy it again.")
    names = sorted({str(name) for name in places.values()})
    for name in names:
        if Path(name).name != name or "\\" in name or not name.endswith(".safetensors"):
            raise CheckpointError(
                f"{path}: names {name!r:.100}, which is not a safetensors file in this folder. Copy the folder again."
            )
    return names


def _why_no_weights(folder: Path) -> str:
    pickles = sorted(path.name for pattern in PICKLES for path in folder.glob(pattern))
    if pickles:
        return (
            f"{folder}: its weights are in {pickles[0]}, a pickle, which can run arbitrary code when it is loaded. "
            f"Only safetensors are supported. If you trust the file, load the model with transformers and save it with "
            f"save_pretrained."
        )
    return f"{folder}: has neither {WEIGHTS_FILE} nor {INDEX_FILE}. Pass a folder with both config and weights."


# Tokenizer


def tokenizer_difference(folder: Path, tokenizer: Tokenizer | None) -> str | None:
    """Return how the tokenizers of the folder and of the training data differ, as text; None if they are equal."""
    if tokenizer is None:
        return f"the tokenizer of the training data is unknown. Make sure that it is the tokenizer of {folder}."
    from gristmill.encode.tokenizer import Tokenizer

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about steps before and after encoding: only ids are compared here
            theirs = Tokenizer.from_pretrained(folder)
    except (GristmillError, OSError) as error:
        return f"the tokenizer of {folder} could not be compared with that of the training data: {error}"
    return _first_difference(folder, tokenizer, theirs)


def _first_difference(folder: Path, ours: Tokenizer, theirs: Tokenizer) -> str | None:
    known = theirs.vocab
    for id, token in ours.vocab.items():
        if known.get(id) != token:
            other = f"{known[id]!r:.40} there" if id in known else "no token there"
            return (
                f"the training data was not encoded with the tokenizer of {folder}: id {id} is {token!r:.40} in the "
                f"data and {other}. The pretrained weights will be of little use."
            )
    if ours.pattern != theirs.pattern:
        return (
            f"the tokenizer of {folder} splits text with a different pattern than the tokenizer of the training data."
        )
    return None
