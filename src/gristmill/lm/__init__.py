"""lm: train a language model on token shards and generate text, or train a sequence VAE and monitor its posterior.

    gm.lm.train("shards/", out="run/", preset="quickstart")
    gm.lm.generate("run/", "Once upon a time")
    gm.lm.train("stories.parquet", out="vae/", model="vae", tokenizer="tokenizer.json")
    gm.lm.interpolate_texts("vae/", "A cat sat.", "The sun rose.")

In reading order:

    functional.py     the parts of a language model and of its training as plain functions
    data/             batches: pure functions of (config, step, rank)
    kernels/          Triton kernels of a training step on a GPU
    models/           the models that can be trained, one folder each
    training/         the training loop, its options, checkpoints and records
    use/              evaluation, text generation and export of trained models
    option_types.py   types and ranges of options, as annotations of a config
    registry.py       functions by name: built in, or added by a user's file
    explain.py        error messages for paths that are not the folder of a run

Importing this package does not import torch; the first use of a name that needs torch does. `train` also imports
Lightning Fabric. If one of them is missing, the error names the extra to install.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gristmill.packages import lazy_attribute

if TYPE_CHECKING:
    from gristmill.lm import functional
    from gristmill.lm.data.batch import Batch
    from gristmill.lm.data.sequences import SequenceData, SequenceDataset, open_sequences
    from gristmill.lm.data.token_dataset import TokenDataset
    from gristmill.lm.models.config import DocumentModelConfig, ModelConfig, WindowModelConfig
    from gristmill.lm.models.foreign import ForeignModel
    from gristmill.lm.models.generation import stream_text
    from gristmill.lm.models.gpt.network import GPT
    from gristmill.lm.models.gpt.options import GPTConfig
    from gristmill.lm.models.model import Model
    from gristmill.lm.models.registry import MODELS, register_model
    from gristmill.lm.models.vae.network import SequenceVAE
    from gristmill.lm.models.vae.options import VAEConfig
    from gristmill.lm.training.config import TrainConfig
    from gristmill.lm.training.dry_run import TrainPlan, plan
    from gristmill.lm.training.registries import register_optimizer, register_schedule
    from gristmill.lm.training.result import TrainResult
    from gristmill.lm.training.trainer import train
    from gristmill.lm.use.evaluation import Evaluation, evaluate
    from gristmill.lm.use.export import ModelExport, export
    from gristmill.lm.use.generation import generate_text as generate
    from gristmill.lm.use.generation import load_for_generation
    from gristmill.lm.use.latent import encode_texts, interpolate_texts, load_vae, reconstruct_texts, sample_texts

__all__ = [
    "GPT",
    "MODELS",
    "Batch",
    "DocumentModelConfig",
    "Evaluation",
    "ForeignModel",
    "GPTConfig",
    "Model",
    "ModelConfig",
    "ModelExport",
    "SequenceData",
    "SequenceDataset",
    "SequenceVAE",
    "TokenDataset",
    "TrainConfig",
    "TrainPlan",
    "TrainResult",
    "VAEConfig",
    "WindowModelConfig",
    "encode_texts",
    "evaluate",
    "export",
    "functional",
    "generate",
    "interpolate_texts",
    "load_for_generation",
    "load_vae",
    "open_sequences",
    "plan",
    "reconstruct_texts",
    "register_model",
    "register_optimizer",
    "register_schedule",
    "sample_texts",
    "stream_text",
    "train",
]

_PLACES = {
    "GPT": "models.gpt.network",
    "MODELS": "models.registry",
    "Batch": "data.batch",
    "DocumentModelConfig": "models.config",
    "Evaluation": "use.evaluation",
    "ForeignModel": "models.foreign",
    "GPTConfig": "models.gpt.options",
    "Model": "models.model",
    "ModelConfig": "models.config",
    "ModelExport": "use.export",
    "SequenceData": "data.sequences",
    "SequenceDataset": "data.sequences",
    "SequenceVAE": "models.vae.network",
    "TokenDataset": "data.token_dataset",
    "TrainConfig": "training.config",
    "TrainPlan": "training.dry_run",
    "TrainResult": "training.result",
    "VAEConfig": "models.vae.options",
    "WindowModelConfig": "models.config",
    "encode_texts": "use.latent",
    "evaluate": "use.evaluation",
    "export": "use.export",
    "functional": "functional:",
    "generate": "use.generation:generate_text",
    "interpolate_texts": "use.latent",
    "load_for_generation": "use.generation",
    "load_vae": "use.latent",
    "open_sequences": "data.sequences",
    "plan": "training.dry_run",
    "reconstruct_texts": "use.latent",
    "register_model": "models.registry",
    "register_optimizer": "training.registries",
    "register_schedule": "training.registries",
    "sample_texts": "use.latent",
    "stream_text": "models.generation",
    "train": "training.trainer",
}


if not TYPE_CHECKING:  # a type checker would accept every attribute

    def __getattr__(name: str) -> object:
        """Return a name of `__all__`, loaded on first use."""
        return lazy_attribute(__name__, name, _PLACES)


def __dir__() -> list[str]:
    return sorted(__all__)
