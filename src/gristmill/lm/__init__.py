"""lm: train a language model on token shards, and write text with it; or a sequence VAE, and watch its posterior.

    gm.lm.train("shards/", out="run/", preset="quickstart")
    gm.lm.generate("run/", "Once upon a time")
    gm.lm.train("stories.parquet", out="vae/", model="vae", tokenizer="tokenizer.json")
    gm.lm.interpolate_texts("vae/", "A cat sat.", "The sun rose.")

In reading order:

    functional.py                         each part of a language model and of its training as a plain function
    models/gpt.py, models/vae.py          the models as they are trained, each in one file
    batch.py, dataset.py, sequences/, schedule.py     what goes into a step: pure functions of (config, step, rank)
    optim.py, muon.py                     AdamW and Muon
    config.py, options.py, presets.py     every option of a run
    trainer.py, run.py                    the loop, and what it works on
    checkpoint.py, records.py, meters.py  what it saves, what it records, what it measures
    posterior_watch.py, advice.py, explain.py   what is wrong with it, or with what was passed, and what helps
    evaluation.py, generation.py, latent.py   what the trained model is good for

Importing this package imports no torch; the first use of a name that needs torch does. `train` also imports Lightning
Fabric. Where they are missing, the error names the extra to install.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gristmill.packages import lazy_attribute

if TYPE_CHECKING:
    from gristmill.lm import functional
    from gristmill.lm.batch import Batch
    from gristmill.lm.config import TrainConfig
    from gristmill.lm.dataset import TokenDataset
    from gristmill.lm.evaluation import Evaluation, evaluate
    from gristmill.lm.generation import generate_text as generate
    from gristmill.lm.generation import load_for_generation, stream_text
    from gristmill.lm.latent import encode_texts, interpolate_texts, load_vae, reconstruct_texts, sample_texts
    from gristmill.lm.models import MODELS
    from gristmill.lm.models.gpt import GPT, GPTConfig
    from gristmill.lm.models.vae import SequenceVAE, VAEConfig
    from gristmill.lm.result import TrainResult
    from gristmill.lm.sequences import SequenceData, SequenceDataset, open_sequences
    from gristmill.lm.trainer import train

__all__ = [
    "GPT",
    "MODELS",
    "Batch",
    "Evaluation",
    "GPTConfig",
    "SequenceData",
    "SequenceDataset",
    "SequenceVAE",
    "TokenDataset",
    "TrainConfig",
    "TrainResult",
    "VAEConfig",
    "encode_texts",
    "evaluate",
    "functional",
    "generate",
    "interpolate_texts",
    "load_for_generation",
    "load_vae",
    "open_sequences",
    "reconstruct_texts",
    "sample_texts",
    "stream_text",
    "train",
]

_PLACES = {
    "GPT": "models.gpt",
    "MODELS": "models",
    "Batch": "batch",
    "Evaluation": "evaluation",
    "GPTConfig": "models.gpt",
    "SequenceData": "sequences",
    "SequenceDataset": "sequences",
    "SequenceVAE": "models.vae",
    "TokenDataset": "dataset",
    "TrainConfig": "config",
    "TrainResult": "result",
    "VAEConfig": "models.vae",
    "encode_texts": "latent",
    "evaluate": "evaluation",
    "functional": "functional:",
    "generate": "generation:generate_text",
    "interpolate_texts": "latent",
    "load_for_generation": "generation",
    "load_vae": "latent",
    "open_sequences": "sequences",
    "reconstruct_texts": "latent",
    "sample_texts": "latent",
    "stream_text": "generation",
    "train": "trainer",
}


if not TYPE_CHECKING:  # for a type checker, every attribute would be there

    def __getattr__(name: str) -> object:
        """What is in `__all__`, loaded when it is first used."""
        return lazy_attribute(__name__, name, _PLACES)


def __dir__() -> list[str]:
    return sorted(__all__)
