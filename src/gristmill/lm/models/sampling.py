"""The choice of the next token: probabilities from logits, and sampling.

Shapes: V vocabulary size; `...` means any leading dimensions, such as sequences.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence

import torch
from torch import Tensor

from gristmill.arguments import check_whole_number
from gristmill.errors import NotFiniteError, OptionError

__all__ = [
    "check_chosen",
    "check_sampling",
    "chosen",
    "chosen_by",
    "draw",
    "new_dice",
    "token_probabilities",
    "token_weights",
]

LOW_BITS = 0xFFFF_FFFF
NOT_FINITE = (
    "the logits of the model are not finite, so no token can be chosen. Its weights are not finite, or so large that "
    "they overflow. Use another checkpoint, such as which='latest' or an earlier step."
)


def chosen(
    logits_V: Tensor, dice: torch.Generator, *, temperature: float = 1.0, top_k: int | None, top_p: float | None
) -> Tensor:
    """Return an id for each row of logits, on the CPU. `NotFiniteError` if a row of logits is not finite."""
    draws = torch.empty(logits_V.shape[:-1]) if temperature == 0 else draw(dice, logits_V.shape[:-1])
    ids = chosen_by(logits_V, draws, temperature=temperature, top_k=top_k, top_p=top_p).cpu()
    check_chosen(int(ids.min()) if ids.numel() else 0)
    return ids


def draw(dice: torch.Generator, shape: Sequence[int]) -> Tensor:
    """Return uniform float64 numbers on the CPU, from 0 to so far below 1 that no product with them rounds up."""
    return torch.rand(*shape, generator=dice, dtype=torch.float64) * (1 - 2**-32)


def chosen_by(
    logits_V: Tensor, draws: Tensor, *, temperature: float = 1.0, top_k: int | None = None, top_p: float | None = None
) -> Tensor:
    """Return the id that each uniform number of `draws` selects from its row of logits.

    Inverts the CDF in id order. Does not wait for the device, so an invalid row is no error here; its id is -1 (see
    `check_chosen`). The probabilities are those of `token_probabilities`, which sorts the vocabulary; here `top_k`
    finds the k most likely tokens without a sort. The result is on the device of the logits, or on the CPU for devices
    without float64.

    >>> logits_V = torch.tensor([0.5, 0.3, 0.2]).log()
    >>> [int(chosen_by(logits_V, torch.tensor(share))) for share in (0.0, 0.49, 0.51, 0.79, 0.81)]
    [0, 0, 1, 1, 2]
    """
    logits_V = (logits_V.cpu() if logits_V.device.type == "mps" else logits_V).float()
    is_fine = logits_V.amax(-1).isfinite()
    if temperature == 0:
        return torch.where(is_fine, logits_V.argmax(-1), -1)
    cdf_V = token_weights(logits_V, temperature=temperature, top_k=top_k, top_p=top_p).cumsum(-1)
    points = draws.to(logits_V.device, torch.float64, non_blocking=True)[..., None] * cdf_V[..., -1:]
    ids = torch.searchsorted(cdf_V, points, right=True).squeeze(-1).clamp(max=logits_V.shape[-1] - 1)
    return torch.where(is_fine, ids, -1)


def token_weights(logits_V: Tensor, *, temperature: float, top_k: int | None, top_p: float | None) -> Tensor:
    """Return float64 weights proportional to the probabilities of the tokens. `temperature` must be > 0."""
    weights_V = _scaled(logits_V, temperature).exp()
    if top_k is None and top_p is None:
        return weights_V
    return _cut(logits_V, weights_V, top_k, top_p)


def check_chosen(smallest: int) -> None:
    """Raise `NotFiniteError` if the smallest of the chosen ids is the -1 of `chosen_by`."""
    if smallest < 0:
        raise NotFiniteError(NOT_FINITE)


def _cut(logits_V: Tensor, weights_V: Tensor, top_k: int | None, top_p: float | None) -> Tensor:
    """Return the weights, with 0 for tokens that `top_k` and `top_p` exclude."""
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
    """Return a distinct number per token, larger for likelier tokens and, among equally likely ones, for smaller ids.

    The upper half has the bits of the logit, in an order that integers preserve; the lower half is derived from the id.
    """
    bits_V = (logits_V + 0.0).view(torch.int32).long()  # + 0.0 turns -0.0 into 0.0
    ordered_V = torch.where(bits_V < 0, bits_V ^ 0x7FFF_FFFF, bits_V)
    return (ordered_V << 32) | (LOW_BITS - torch.arange(logits_V.shape[-1], device=logits_V.device))


def token_probabilities(
    logits_V: Tensor, *, temperature: float = 1.0, top_k: int | None = None, top_p: float | None = None
) -> Tensor:
    """Return the probability of each token: softmax(logits / temperature), restricted by `top_k`, then by `top_p`.

    This is the definition; `chosen_by` samples from it without computing it.

    top_k keeps the k most likely tokens, and among equally likely ones those with smaller ids. top_p then keeps the
    fewest of the remaining tokens, most likely first, with a total probability of at least p. The result is scaled to
    sum 1. Logits may have leading dimensions.

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
        before_V = likeliest_V.cumsum(-1) - likeliest_V  # total probability of all likelier tokens
        likeliest_V[before_V >= top_p * likeliest_V.sum(-1, keepdim=True)] = 0
    kept_V = torch.zeros_like(probabilities_V).scatter(-1, ids_V, likeliest_V)
    return (kept_V / kept_V.sum(-1, keepdim=True)).float()


def _check_logits(logits_V: Tensor) -> None:
    """Raise `NotFiniteError` for invalid logits. Single logits may be -inf: those tokens are never chosen."""
    if not bool(torch.isfinite(logits_V.amax(-1)).all()):
        raise NotFiniteError(NOT_FINITE)


def _scaled(logits_V: Tensor, temperature: float) -> Tensor:
    """Return (logits - maximum) / temperature. In float64 and in this order, a tiny temperature gives no NaN."""
    logits = logits_V.double()
    return (logits - logits.amax(-1, keepdim=True)) / temperature


def check_sampling(temperature: float, top_k: int | None, top_p: float | None) -> None:
    """Raise `OptionError` for sampling options that are out of range."""
    for name, value in (("temperature", temperature), ("top_p", top_p)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, numbers.Real)):
            raise OptionError(f"{name}={value!r} is of type {type(value).__name__}. Pass a number.")
    if not 0 <= temperature < math.inf:
        raise OptionError(f"temperature must be >= 0, got {temperature}. Pass 0 to pick the most likely token.")
    if top_k is not None and check_whole_number("top_k", top_k) < 1:
        raise OptionError(f"top_k must be >= 1, got {top_k}. Leave it out to choose from all tokens.")
    if top_p is not None and not 0 < top_p <= 1:
        raise OptionError(f"top_p must be > 0 and <= 1, got {top_p}. Leave it out to choose from all tokens.")


def new_dice(seed: int | None) -> torch.Generator:
    """Return a new generator, independent of torch's global ones; with a fresh random seed if `seed` is None."""
    dice = torch.Generator()
    if seed is None:
        dice.seed()
        return dice
    if not 0 <= check_whole_number("seed", seed) < 2**63:
        raise OptionError(f"seed must be >= 0 and < 2**63, got {seed}. Leave it out for a different text each time.")
    return dice.manual_seed(seed)
