"""A tiny sequence VAE and batches for its tests."""

from __future__ import annotations

import dataclasses

import torch
from torch.nn import functional as F

from gristmill.lm.data.batch import IGNORED, Batch
from gristmill.lm.models.vae.network import SequenceVAE
from gristmill.lm.models.vae.options import VAEConfig

torch.set_num_threads(1)

V, T, E, Z = 70, 12, 5, 6
# All options are off, so that a test turns on only those it tests.
PLAIN = {"free_bits": 0.0, "free_bits_mode": "total"}
SIZES = {"vocab_size": V, "max_sequence_length": T, "num_layers": 2, "num_heads": 2, "d_model": 16, "latent_dim": Z}
CONFIG = VAEConfig(**SIZES, **PLAIN)
OF_VECTORS = dataclasses.replace(CONFIG, vocab_size=None, embedding_dim=E)
INJECTIONS = ("memory", "embedding")
SWITCHES = {"word_dropout": 0.3, "batch_norm_mu": 0.5, "free_bits": 2.0, "bag_of_words_weight": 0.1}


def make(config=CONFIG, *, std=0.3, **changes):
    """A model with weights large enough that attention matters."""
    model = SequenceVAE(dataclasses.replace(config, **changes)).eval()
    if std:
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if not name.startswith("posterior"):
                    parameter.normal_(std=std)
    return model


def batch_of(*lengths, width=None):
    """Random sequences of these lengths, padded as a dataset pads them."""
    width = width or max(lengths)
    inputs_BT = torch.zeros(len(lengths), width, dtype=torch.int64)
    targets_BT = torch.full((len(lengths), width), IGNORED)
    for row, length in enumerate(lengths):
        inputs_BT[row, :length] = targets_BT[row, :length] = torch.randint(V, (length,))
    return Batch(inputs_BT, targets_BT)


def vectors_of(*lengths):
    width = max(lengths)
    vectors_BTE, targets_BT = torch.zeros(len(lengths), width, E), torch.full((len(lengths), width), IGNORED)
    for row, length in enumerate(lengths):
        vectors_BTE[row, :length], targets_BT[row, :length] = torch.randn(length, E), 0
    return Batch(torch.zeros_like(targets_BT), targets_BT, vectors_BTE=vectors_BTE)


def wider(batch, width):
    """The same sequences, padded further."""
    more = width - batch.inputs_BT.shape[1]
    vectors = None if batch.vectors_BTE is None else F.pad(batch.vectors_BTE, (0, 0, 0, more))
    inputs, targets = F.pad(batch.inputs_BT, (0, more)), F.pad(batch.targets_BT, (0, more), value=IGNORED)
    return Batch(inputs, targets, vectors_BTE=vectors)


def with_empty_row(batch):
    fields = {name: value for name, value in vars(batch).items() if value is not None}
    rows = {name: torch.cat([value, torch.zeros_like(value[:1])]) for name, value in fields.items()}
    rows["targets_BT"][-1] = IGNORED
    return Batch(**rows)


def rows_of(batch, *rows):
    return Batch(**{name: None if value is None else value[list(rows)] for name, value in vars(batch).items()})


def loss_of(model, batch, kl_weight=1.0, seed=7):
    torch.manual_seed(seed)
    return model.loss(batch, {"kl_weight": kl_weight})
