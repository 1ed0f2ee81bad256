"""lm: train a language model on token shards, and write text with it.

    gm.lm.train("shards/", out="run/", preset="quickstart")
    gm.lm.generate("run/", "Once upon a time")

In reading order:

    functional.py                         each part of a language model and of its training as a plain function
    models/gpt.py                         the model as it is trained, in one file
    batch.py, dataset.py, schedule.py     what goes into a step: pure functions of (config, step, rank)
    optim.py, muon.py                     AdamW and Muon
    config.py                             every option of a run
    trainer.py                            the loop
    checkpoint.py, records.py, meters.py  what it saves, what it records, what it measures
    evaluate.py, generate.py              what the trained model is good for

Importing this package imports torch; Lightning Fabric is imported when `train` is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

# These two at once, the rest when it is asked for: later, the import of the submodule `generate` or `evaluate` would
# put the module under the name of the function.
from gristmill.lm.evaluate import evaluate
from gristmill.lm.generate import generate_text as generate

if TYPE_CHECKING:
    from gristmill.lm import functional
    from gristmill.lm.batch import Batch
    from gristmill.lm.config import TrainConfig
    from gristmill.lm.dataset import TokenDataset
    from gristmill.lm.evaluate import Evaluation
    from gristmill.lm.generate import load_for_generation, stream_text
    from gristmill.lm.models import MODELS
    from gristmill.lm.models.gpt import GPT, GPTConfig
    from gristmill.lm.trainer import TrainResult, train

__all__ = [
    "GPT",
    "MODELS",
    "Batch",
    "Evaluation",
    "GPTConfig",
    "TokenDataset",
    "TrainConfig",
    "TrainResult",
    "evaluate",
    "functional",
    "generate",
    "load_for_generation",
    "stream_text",
    "train",
]

_MODULE_OF = {
    "GPT": "models.gpt",
    "MODELS": "models",
    "Batch": "batch",
    "Evaluation": "evaluate",
    "GPTConfig": "models.gpt",
    "TokenDataset": "dataset",
    "TrainConfig": "config",
    "TrainResult": "trainer",
    "load_for_generation": "generate",
    "stream_text": "generate",
    "train": "trainer",
}


def __getattr__(name: str) -> object:
    """What is in `__all__`, loaded when it is first used."""
    if name == "functional":
        return importlib.import_module(f"{__name__}.functional")
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULE_OF[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
