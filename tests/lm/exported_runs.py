"""Folders of runs for the tests of exports, made without training: every weight is random, also those of norms."""

from __future__ import annotations

import json

import torch

import gristmill as gm
from gristmill.lm.models.registry import build_model
from gristmill.lm.training.checkpoint import write_checkpoint
from gristmill.lm.training.config import TrainConfig

END = "<|endoftext|>"
# 16 numbers per head: rows in a wrong order give other logits, as heads of 2 would not.
SIZES = {"context_length": 256, "num_layers": 2, "num_heads": 4, "d_model": 64, "d_ff": 96, "rope_theta": 5000.0}

# The models of the Llama family, by what they are made of.
SHAPES = {
    "plain": {},
    "gqa": {"num_kv_heads": 2},
    "one-kv-head": {"num_kv_heads": 1},
    "window": {"sliding_window": 7},
    "window-gqa": {"sliding_window": 16, "num_kv_heads": 2},
    "qk-norm": {"qk_norm": True},
    "qk-norm-gqa": {"qk_norm": True, "num_kv_heads": 2},
    "qk-norm-window": {"qk_norm": True, "sliding_window": 7},
}


def new_tokenizer(special_tokens=(END,)):
    text = "the old cat sat on the mat and the old dog ran under the big tree at night, é ü"
    return gm.train_tokenizer([text], vocab_size=290, special_tokens=list(special_tokens), progress=None)


@torch.no_grad()
def random_model(config, seed=0):
    """A model whose text does not repeat at once: with initial weights every logit would be near 0."""
    model = build_model(config)
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        parameter.copy_(1 + 0.3 * noise if parameter.dim() < 2 else 0.15 * noise)
    model.embedding.weight[config.vocab_size :] = 0
    model.head_weight[config.vocab_size :] = 0
    return model.eval()


def write_run(folder, tokenizer, *, keeps_tokenizer=True, seed=0, weights=None, **options):
    """Write the folder of a run, and return its model."""
    folder.mkdir()
    config = TrainConfig.from_options({**SIZES, "vocab_size": tokenizer.vocab_size, **options})
    (folder / "config.json").write_text(json.dumps(config.to_json()), encoding="utf-8")
    if keeps_tokenizer:
        tokenizer.save(folder / "tokenizer.json")
    model = random_model(config.model, seed)
    shards = {"tokenizer_fingerprint": tokenizer.fingerprint if keeps_tokenizer else None}
    state = {"step": 1, "shards": shards, "val_loss": None, "config": config.to_json()}
    write_checkpoint(folder, state, {"model.safetensors": {**model.state_dict(), **(weights or {})}})
    return model
