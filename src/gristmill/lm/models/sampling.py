"""Which token comes next: probabilities from logits, and a choice among them.

Shapes: V tokens of the vocabulary; `...` stands for any dimensions before, such as sequences.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from gristmill.arguments import check_whole_number
from gristmill.errors import NotFiniteError, OptionError

__all__ = ["check_sampling", "chosen", "new_dice", "token_probabilities"]


def chosen(
    logits_V: Tensor, dice: torch.Generator, *, temperature: float = 1.0, top_k: int | None, top_p: float | None
) -> Tensor:
    """An id for each row of logits, in main memory."""
    if temperature == 0:
        _check_logits(logits_V)
        return logits_V.argmax(-1).cpu()
    # On the CPU: a generator of one kind gives the same numbers wherever the model is.
    probabilities_V = token_probabilities(logits_V.cpu(), temperature=temperature, top_k=top_k, top_p=top_p)
    return torch.multinomial(probabilities_V, 1, generator=dice).squeeze(-1)


def token_probabilities(
    logits_V: Tensor, *, temperature: float = 1.0, top_k: int | None = None, top_p: float | None = None
) -> Tensor:
    """The probability of each token to be chosen: softmax(logits / temperature), cut by `top_k`, then by `top_p`.

    top_k keeps the k likeliest, of equal ones those with smaller ids; top_p keeps of what is left the fewest, likeliest
    first, that have probability p together. What is kept is scaled to 1. Logits may have dimensions before the last.

    >>> logits_V = torch.tensor([0.5, 0.3, 0.2]).log()
    >>> token_probabilities(logits_V, top_p=0.6).round(decimals=4).tolist()
    [0.625, 0.375, 0.0]
    """
    check_sampling(temperature, top_k, top_p)
    _check_logits(logits_V)
    if temperature == 0:
        return torch.nn.functional.one_hot(logits_V.argmax(-1), logits_V.shape[-1]).to(torch.float32)
    probabilities_V = _scaled(logits_V, temperature).softmax(-1)
    if top_k is None and top_p is None:
        return probabilities_V.float()
    likeliest_V, ids_V = probabilities_V.sort(descending=True, stable=True)
    if top_k is not None:
        likeliest_V[..., top_k:] = 0
    if top_p is not None:
        before_V = likeliest_V.cumsum(-1) - likeliest_V  # the probability of all that are likelier
        likeliest_V[before_V >= top_p * likeliest_V.sum(-1, keepdim=True)] = 0
    kept_V = torch.zeros_like(probabilities_V).scatter(-1, ids_V, likeliest_V)
    return (kept_V / kept_V.sum(-1, keepdim=True)).float()


def _check_logits(logits_V: Tensor) -> None:
    """Raise `NotFiniteError` for logits that no token can be chosen by. Single ones may be -inf: never chosen."""
    if not bool(torch.isfinite(logits_V.amax(-1)).all()):
        raise NotFiniteError(
            "the model gives logits that are not finite, so no token can be chosen: its weights are not finite, or are "
            "so large that they overflow. Use another checkpoint, such as which='latest' or an earlier step."
        )


def _scaled(logits_V: Tensor, temperature: float) -> Tensor:
    """(logits - their maximum) / temperature; in float64 and in this order, a tiny temperature gives no NaN."""
    logits = logits_V.double()
    return (logits - logits.amax(-1, keepdim=True)) / temperature


def check_sampling(temperature: float, top_k: int | None, top_p: float | None) -> None:
    """Raise `OptionError` for a choice of tokens that makes no sense."""
    if not 0 <= temperature < math.inf:
        raise OptionError(f"temperature={temperature} is out of range. Pass 0 for the likeliest token, or more.")
    if top_k is not None and check_whole_number("top_k", top_k) < 1:
        raise OptionError(f"top_k={top_k} leaves no token to choose. Pass top_k >= 1, or leave it out.")
    if top_p is not None and not 0 < top_p <= 1:
        raise OptionError(f"top_p={top_p} is out of range. Pass 0 < top_p <= 1, or leave it out.")


def new_dice(seed: int | None) -> torch.Generator:
    """A generator of its own: torch's are left alone. The same numbers for a seed each time; others for None."""
    dice = torch.Generator()
    if seed is None:
        dice.seed()
        return dice
    if not 0 <= check_whole_number("seed", seed) < 2**63:
        raise OptionError(
            f"seed={seed} is out of range. Pass 0 <= seed < 2**63, or leave it out for another text each time."
        )
    return dice.manual_seed(seed)
