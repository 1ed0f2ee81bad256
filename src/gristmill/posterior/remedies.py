"""Remedies against each alarm, in general terms for any training loop, or as options of `gm.lm.train`.

Both lists have the same content, best first. The monitor in a user's own loop, or in Lightning, uses general terms,
because it cannot know the option names of that loop. Gristmill's trainer names its options.
"""

from __future__ import annotations

import math
from typing import Literal, TypeAlias

from gristmill.posterior.metrics import PosteriorMetrics

__all__ = ["ADVICE", "Advice", "what_helps"]

Advice: TypeAlias = Literal["general", "options"]
ADVICE: tuple[Advice, ...] = ("general", "options")

OPTIONS = {
    "not_finite": "a lower learning_rate, clip_norm=1, precision='bf16-mixed' or '32' instead of '16-mixed'.",
    "collapse": (
        "bag_of_words_weight=1 together with free_bits=0.25 and free_bits_mode='dimension', the defaults for tokens; a "
        "larger bag_of_words_weight; word_dropout=0.5 with free_bits=0.5 (can continue this run: init_from with its "
        "folder); batch_norm_mu=0.5 from the start, with at least 16 sequences per batch; a longer run."
    ),
    "few_units": (
        "free_bits=0.1 and free_bits_mode='dimension', batch_norm_mu=0.5, kl_schedule='cyclical', word_dropout=0.3; or "
        "remove the unused dimensions: latent_dim={latent_dim}."
    ),
    "ignored": (
        "word_dropout=0.3, bag_of_words_weight=0.1, free_bits=0.1 and free_bits_mode='dimension' instead of a total, a "
        "smaller kl_weight."
    ),
    "prior": (
        "a larger kl_weight (1 is the evidence lower bound), kl_schedule='linear' up to it, a smaller free_bits, a "
        "smaller latent_dim."
    ),
}
GENERAL = {
    "not_finite": ("a lower learning rate, gradient clipping to a norm of 1, bfloat16 or float32 instead of float16."),
    "collapse": (
        "a second loss that predicts the words of a sequence, in any order, from its latents alone (a bag of words), "
        "together with free bits of 0.25 nats per dimension, below which the KL costs nothing; a larger weight of "
        "that loss; hiding half of the decoder's input tokens in training (word dropout), with free bits of 0.5; batch "
        "normalization of mu to a standard deviation of 0.5 from the start, with at least 16 sequences per batch; a "
        "KL weight that rises more slowly; a longer run."
    ),
    "few_units": (
        "free bits of 0.1 nats per dimension, batch normalization of mu to a standard deviation of 0.5, a KL weight "
        "that rises from 0 several times (a cyclical schedule), hiding 30% of the decoder's input tokens in training; "
        "or remove the unused dimensions: {latent_dim} latent dimensions."
    ),
    "ignored": (
        "hiding 30% of the decoder's input tokens in training (word dropout), a second loss that predicts the words of "
        "a sequence from its latents alone with a weight of 0.1, free bits of 0.1 nats per dimension instead of a "
        "total over all dimensions, a smaller KL weight."
    ),
    "prior": (
        "a larger KL weight (1 is the evidence lower bound), reached by a linear increase, fewer free bits, fewer "
        "latent dimensions."
    ),
}


def what_helps(kind: str, metrics: PosteriorMetrics, advice: Advice) -> str:
    """Return the remedies against an alarm, best first, as the end of a message."""
    texts = {"general": GENERAL, "options": OPTIONS}[advice]
    return texts[kind].format(latent_dim=_fitting_dim(metrics))


def _fitting_dim(metrics: PosteriorMetrics) -> int:
    """Return a latent size for the active units: the next power of two above twice their number."""
    fitting: int = 2 ** math.ceil(math.log2(2 * (metrics.active_units or 0) + 1))
    return min(max(2, fitting), metrics.latent_dim)
