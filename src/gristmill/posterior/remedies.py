"""Remedies: what helps against each alarm, in general terms for any training loop, or by the options of `gm.lm.train`.

Both say the same, best first. The monitor of a user's own loop, or of Lightning, speaks of what to do: it cannot know
what the options of that loop are called. The trainer of Gristmill names its options.
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
        "greater bag_of_words_weight; word_dropout=0.5 with free_bits=0.5 (also for this run: init_from with its "
        "folder); batch_norm_mu=0.5 from the start, with 16 sequences or more at once; a longer run."
    ),
    "few_units": (
        "free_bits=0.1 and free_bits_mode='dimension', batch_norm_mu=0.5, kl_schedule='cyclical', word_dropout=0.3; or "
        "do without the others: latent_dim={latent_dim}."
    ),
    "ignored": (
        "word_dropout=0.3, bag_of_words_weight=0.1, free_bits=0.1 and free_bits_mode='dimension' instead of a total, a "
        "smaller kl_weight."
    ),
    "prior": (
        "a greater kl_weight (1 is the evidence bound), kl_schedule='linear' up to it, a smaller free_bits, a smaller "
        "latent_dim."
    ),
}
GENERAL = {
    "not_finite": ("a lower learning rate, gradients clipped to a norm of 1, bfloat16 or float32 instead of float16."),
    "collapse": (
        "a second loss that predicts the words of a sequence from its latents alone, in any order (a bag of words), "
        "together with free bits of 0.25 nats per dimension, below which the KL costs nothing; a greater weight of "
        "that loss; half of the decoder's input tokens hidden in training (word dropout), with free bits of 0.5; batch "
        "normalization of mu to a deviation of 0.5 from the start, with 16 sequences or more at once; a weight of the "
        "KL that rises more slowly; a longer run."
    ),
    "few_units": (
        "free bits of 0.1 nats per dimension, batch normalization of mu to a deviation of 0.5, a weight of the KL that "
        "rises from 0 several times (a cyclical schedule), 30% of the decoder's input tokens hidden in training; or do "
        "without the others: {latent_dim} latent dimensions."
    ),
    "ignored": (
        "30% of the decoder's input tokens hidden in training (word dropout), a second loss that predicts the words of "
        "a sequence from its latents alone with a weight of 0.1, free bits of 0.1 nats per dimension instead of a "
        "total over all dimensions, a smaller weight of the KL."
    ),
    "prior": (
        "a greater weight of the KL (1 is the evidence bound), reached by a linear rise, fewer free bits, fewer latent "
        "dimensions."
    ),
}


def what_helps(kind: str, metrics: PosteriorMetrics, advice: Advice) -> str:
    """What helps against an alarm, best first, as the end of a message."""
    texts = {"general": GENERAL, "options": OPTIONS}[advice]
    return texts[kind].format(latent_dim=_fitting_dim(metrics))


def _fitting_dim(metrics: PosteriorMetrics) -> int:
    """A size of the latent for the units that are active: the next power of two above twice their number."""
    fitting: int = 2 ** math.ceil(math.log2(2 * (metrics.active_units or 0) + 1))
    return min(max(2, fitting), metrics.latent_dim)
