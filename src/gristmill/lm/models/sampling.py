"""Which token comes next: probabilities from logits, and a choice among them.

Shapes: V tokens of the vocabulary; `...` stands for any dimensions before, such as sequences.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence

import torch
from torch import Tensor

from gristmill.arguments import check_whole_number
from gristmill.errors import NotFiniteError, OptionError

__all__ = ["check_chosen", "check_sampling", "chosen", "chosen_by", "draw", "new_dice", "token_probabilities"]

LOW_BITS = 0xFFFF_FFFF
NOT_FINITE = (
    "the model gives logits that are not finite, so no token can be chosen: its weights are not finite, or are so "
    "large that they overflow. Use another checkpoint, such as which='latest' or an earlier step."
)


def chosen(
    logits_V: Tensor, dice: torch.Generator, *, temperature: float = 1.0, top_k: int | None, top_p: float | None
) -> Tensor:
    """An id for each row of logits, in main memory. `NotFiniteError` for logits that no token can be chosen by."""
    draws = torch.empty(logits_V.shape[:-1]) if temperature == 0 else draw(dice, logits_V.shape[:-1])
    ids = chosen_by(logits_V, draws, temperature=temperature, top_k=top_k, top_p=top_p).cpu()
    check_chosen(int(ids.min()) if ids.numel() else 0)
    return ids


def draw(dice: torch.Generator, shape: Sequence[int]) -> Tensor:
    """Uniform numbers in float64, in main memory: from 0 on, and so far below 1 that no product with them rounds up."""
    return torch.rand(*shape, generator=dice, dtype=torch.float64) * (1 - 2**-32)


def chosen_by(
    logits_V: Tensor, draws: Tensor, *, temperature: float = 1.0, top_k: int | None = None, top_p: float | None = None
) -> Tensor:
    """The id that each uniform number of `draws` chooses from its row of logits, by inversion of the CDF in id order.

    Nothing waits for the device, so a wrong row is not an error here: it gets the id -1 (`check_chosen`). The
    probabilities are those of `token_probabilities`, which sorts the vocabulary; here `top_k` finds the k likeliest
    without a sort. The result is on the device of the logits, but for devices without float64: in main memory.

    >>> logits_V = torch.tensor([0.5, 0.3, 0.2]).log()
    >>> [int(chosen_by(logits_V, torch.tensor(share))) for share in (0.0, 0.49, 0.51, 0.79, 0.81)]
    [0, 0, 1, 1, 2]
    """
    logits_V = (logits_V.cpu() if logits_V.device.type == "mps" else logits_V).float()
    is_fine = logits_V.amax(-1).isfinite()
    if temperature == 0:
        return torch.where(is_fine, logits_V.argmax(-1), -1)
    weights_V = _scaled(logits_V, temperature).exp()
    if top_k is not None or top_p is not None:
        weights_V = _cut(logits_V, weights_V, top_k, top_p)
    cdf_V = weights_V.cumsum(-1)
    points = draws.to(logits_V.device, torch.float64, non_blocking=True)[..., None] * cdf_V[..., -1:]
    ids = torch.searchsorted(cdf_V, points, right=True).squeeze(-1).clamp(max=logits_V.shape[-1] - 1)
    return torch.where(is_fine, ids, -1)


def check_chosen(smallest: int) -> None:
    """Raise `NotFiniteError` if the smallest of the chosen ids is the -1 of `chosen_by`."""
    if smallest < 0:
        raise NotFiniteError(NOT_FINITE)


def _cut(logits_V: Tensor, weights_V: Tensor, top_k: int | None, top_p: float | None) -> Tensor:
    """The weights with those that `top_k` and `top_p` leave out set to 0."""
    num_tokens = logits_V.shape[-1]
    keys_V = _keys(logits_V)
    if top_k is not None and top_k < num_tokens:
        keys_K = keys_V.topk(top_k).values
    elif top_p is None:
        return weights_V
    else:
        keys_K = keys_V.sort(descending=True).values
    ids_K = LOW_BITS - (keys_K & LOW_BITS)
    likeliest_K = weights_V.gather(-1, ids_K)
    if top_p is not None:
        sums_K = likeliest_K.cumsum(-1)
        is_kept_K = sums_K - likeliest_K < top_p * sums_K[..., -1:]
        likeliest_K = torch.where(is_kept_K, likeliest_K, 0)
    return torch.zeros_like(weights_V).scatter(-1, ids_K, likeliest_K)


def _keys(logits_V: Tensor) -> Tensor:
    """A number for each token, greater for likelier ones and, of equal ones, for smaller ids: no two are equal.

    The upper half is the bits of the logit, in an order that integers have too; the lower half is made of the id.
    """
    bits_V = (logits_V + 0.0).view(torch.int32).long()  # + 0.0: of the two zeros, the positive one
    ordered_V = torch.where(bits_V < 0, bits_V ^ 0x7FFF_FFFF, bits_V)
    return (ordered_V << 32) | (LOW_BITS - torch.arange(logits_V.shape[-1], device=logits_V.device))


def token_probabilities(
    logits_V: Tensor, *, temperature: float = 1.0, top_k: int | None = None, top_p: float | None = None
) -> Tensor:
    """The probability of each token to be chosen: softmax(logits / temperature), cut by `top_k`, then by `top_p`.

    This is the definition; `chosen_by` draws from it without computing it.

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
        raise NotFiniteError(NOT_FINITE)


def _scaled(logits_V: Tensor, temperature: float) -> Tensor:
    """(logits - their maximum) / temperature; in float64 and in this order, a tiny temperature gives no NaN."""
    logits = logits_V.double()
    return (logits - logits.amax(-1, keepdim=True)) / temperature


def check_sampling(temperature: float, top_k: int | None, top_p: float | None) -> None:
    """Raise `OptionError` for a choice of tokens that makes no sense."""
    for name, value in (("temperature", temperature), ("top_p", top_p)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, numbers.Real)):
            raise OptionError(f"{name}={value!r} is a {type(value).__name__}. Pass a number.")
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
