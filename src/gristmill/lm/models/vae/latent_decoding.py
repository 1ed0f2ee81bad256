"""Decoding of latents to sequences: the decoder of a VAE with a cache, step by step, for many latents at once.

Shapes: N latents of Z numbers, D d_model, V vocabulary size, E size of a vector.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from gristmill.arguments import check_whole_number
from gristmill.errors import OptionError
from gristmill.lm.models.gpt.cache import Cache, activation_dtype
from gristmill.lm.models.sampling import check_sampling, chosen, new_dice

if TYPE_CHECKING:
    from gristmill.lm.models.vae.network import SequenceVAE

__all__ = ["decode_vectors", "generate_ids"]


@torch.no_grad()
def generate_ids(
    model: SequenceVAE,
    z_NZ: Tensor,
    *,
    max_tokens: int,
    temperature: float,
    top_k: int | None,
    top_p: float | None,
    seed: int | None,
    stop_id: int | None,
) -> list[list[int]]:
    """Implement `SequenceVAE.generate`."""
    if model.config.vocab_size is None:
        raise OptionError("the model generates vectors, not tokens. Call decode_vectors.")
    if check_whole_number("max_tokens", max_tokens) < 0:
        raise OptionError(f"max_tokens must be >= 0, got {max_tokens}.")
    check_sampling(temperature, top_k, top_p)
    dice = new_dice(seed)
    rows: list[list[int]] = [[] for _ in range(len(z_NZ))]
    is_open = [True] * len(rows)
    num_steps = min(max_tokens, model.config.max_sequence_length)
    decoder = _StepByStep(model, z_NZ, num_steps)
    x_N1D = model.starts(len(rows))
    for _ in range(num_steps if rows else 0):
        logits_NV = model.logits(decoder.step(x_N1D))
        # Choose for finished rows too, so that a row does not depend on the lengths of the others.
        ids_N = chosen(logits_NV, dice, temperature=temperature, top_k=top_k, top_p=top_p)
        for row, id in enumerate(ids_N.tolist()):
            is_open[row] = is_open[row] and id != stop_id
            if is_open[row]:
                rows[row].append(id)
        if not any(is_open):
            break
        x_N1D = model.embedding(ids_N.to(logits_NV.device))[:, None]
    return rows


@torch.no_grad()
def decode_vectors(model: SequenceVAE, z_NZ: Tensor, length: int) -> Tensor:
    """Implement `SequenceVAE.decode_vectors`."""
    if model.config.embedding_dim is None or model.head is None:
        raise OptionError("the model generates tokens, not vectors. Call generate.")
    if not 1 <= check_whole_number("length", length) <= model.config.max_sequence_length:
        raise OptionError(f"length must be 1 to {model.config.max_sequence_length}, got {length}.")
    decoder = _StepByStep(model, z_NZ, length)
    x_N1D = model.starts(len(z_NZ))
    vectors = []
    for _ in range(length):
        vectors.append(model.head(decoder.step(x_N1D)).float())
        x_N1D = model.embedding(vectors[-1])[:, None]
    return torch.stack(vectors, dim=1)


class _StepByStep:
    """The decoder with a cache, one input per sequence at a time."""

    def __init__(self, model: SequenceVAE, z_NZ: Tensor, num_steps: int) -> None:
        c, weight = model.config, model.start_D
        self._model = model
        self._z_NZ = z_NZ.to(weight.device, torch.float32)
        shape = (c.num_layers, len(z_NZ), c.num_heads, c.num_memory + num_steps, c.d_model // c.num_heads)
        keys, values = (torch.empty(shape, device=weight.device, dtype=activation_dtype(weight)) for _ in range(2))
        self._cache = Cache(keys, values)

    def step(self, x_N1D: Tensor) -> Tensor:
        """Return the stream after this input: N x D."""
        return self._model.decoded(x_N1D, self._z_NZ, self._cache)[:, -1]
