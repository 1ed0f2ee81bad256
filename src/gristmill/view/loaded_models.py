"""LoadedModels: the checkpoints that the playground has loaded, at most two at a time."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gristmill.errors import CheckpointError
from gristmill.lm.explain import STATE_FILE
from gristmill.packages import require_packages
from gristmill.view.artefacts import Artefact, Artefacts

if TYPE_CHECKING:
    from gristmill.encode import Tokenizer
    from gristmill.lm.data.chat_template import ChatTemplate
    from gristmill.lm.models.model import Model

__all__ = ["LoadedModel", "LoadedModels", "device_for", "require_torch"]

MAX_KEPT = 2
TRIES = 3  # the run may remove the checkpoint that was found, while it is being read


def require_torch() -> None:
    """Raise `MissingPackageError` with the install command if torch is missing."""
    require_packages("The playground", "torch", "safetensors")


@dataclass(frozen=True)
class LoadedModel:
    """A model that can generate text."""

    model: Model
    tokenizer: Tokenizer
    chat: ChatTemplate | None
    checkpoint: str  # name, such as "step-000100"
    device: str


class LoadedModels:
    """Loads checkpoints and keeps the last ones used. Used in one thread at a time.

    device: "auto": a GPU, if there is one and no viewed run is being trained; else the CPU.
    """

    def __init__(self, artefacts: Artefacts, *, device: str = "auto", max_kept: int = MAX_KEPT) -> None:
        self._artefacts, self._device, self._max_kept = artefacts, device, max_kept
        self._kept: dict[tuple[Any, ...], LoadedModel] = {}  # the least recently used first

    def get(self, run: Artefact, which: str, *, loading: Callable[[str, str], None]) -> LoadedModel:
        """Return the model of a checkpoint: "best", "latest" or its name.

        loading: Called with the names of the checkpoint and the device, if the model must be loaded first.
        """
        require_torch()
        from gristmill.lm.training.checkpoint import find_checkpoint

        device = device_for(self._device, self._artefacts.runs)
        for number in range(1, TRIES + 1):
            folder = find_checkpoint(run.path, which)
            try:
                return self._loaded(run, folder, device, loading)
            except (CheckpointError, OSError):
                if folder.exists() or number == TRIES:
                    raise
        raise AssertionError("the last try returns or raises")

    def _loaded(self, run: Artefact, folder: Path, device: str, loading: Callable[[str, str], None]) -> LoadedModel:
        status = (folder / STATE_FILE).stat()
        key = (run.path, folder.name, status.st_ino, status.st_mtime_ns, device)
        found = self._kept.pop(key, None)
        if found is None:
            loading(folder.name, device)
            self._make_room(device)
            found = self._load(run, folder, device)
        self._kept[key] = found
        return found

    def _make_room(self, device: str) -> None:
        """Free the least recently used models, and all on another device: that device has other work now."""
        others = [key for key, kept in self._kept.items() if kept.device != device]
        oldest = list(self._kept)[: max(0, len(self._kept) + 1 - self._max_kept)]
        for key in {*others, *oldest}:
            del self._kept[key]
        gc.collect()
        if any(key[-1] != "cpu" for key in {*others, *oldest}):
            import torch

            if torch.cuda.is_available():
                torch.cuda.empty_cache()

    def _load(self, run: Artefact, folder: Path, device: str) -> LoadedModel:
        from gristmill.lm.data.chat_jinja import CHAT_TEMPLATE_FILE
        from gristmill.lm.use.generation import chat_template_of, load_for_generation

        model, tokenizer = load_for_generation(
            run.path,
            which=folder.name,
            device=device,
            tokenizer=_tokenizer_for(run, folder, self._artefacts),
            precision="auto",
        )
        has_template = (run.path / CHAT_TEMPLATE_FILE).is_file()
        chat = chat_template_of(run.path, tokenizer) if has_template else None
        return LoadedModel(model, tokenizer, chat, folder.name, device)


def _tokenizer_for(run: Artefact, folder: Path, artefacts: Artefacts) -> Tokenizer | None:
    """Return a viewed tokenizer for a run that does not store its own; None if it does."""
    from gristmill.lm.training.checkpoint import read_state
    from gristmill.lm.use.generation import TOKENIZER_FILE

    if (run.path / TOKENIZER_FILE).is_file():
        return None
    fingerprint = read_state(folder)["shards"].get("tokenizer_fingerprint")
    viewed = [each.tokenizer for each in artefacts.tokenizers]
    fitting = [each for each in viewed if fingerprint in (None, each.fingerprint)]
    if len(fitting) == 1 or (fitting and fingerprint is not None):
        return fitting[0]
    several = "Several tokenizers are viewed, and the run does not name its own. " if fitting else ""
    raise CheckpointError(
        f"{run.name}: the run does not store the tokenizer of its data. {several}Start gristmill view with the run and "
        f"that tokenizer: gristmill view RUN TOKENIZER."
    )


def device_for(device: str, runs: Sequence[Artefact]) -> str:
    """Return the device to generate on; see `LoadedModels`."""
    from gristmill.lm.training.run_lock import is_trained_here
    from gristmill.lm.use.device import find_device

    if device == "auto" and any(is_trained_here(run.path) for run in runs):
        return "cpu"
    return str(find_device(device))
