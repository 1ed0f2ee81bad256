"""Texts from latents: what a trained VAE makes of the prior, of a text, and of the way from one text to another.

    gm.lm.sample_texts("run/", 4, seed=0)                              texts from latents of the prior
    gm.lm.reconstruct_texts("run/", ["Once upon a time …"])            each text through its latent and back
    gm.lm.interpolate_texts("run/", "The cat …", "The dog …", 5)       texts on the way between two latents
    gm.lm.encode_texts("run/", texts)                                  (mu, logvar) of each text

Each takes the folder of a run; gristmill.lm.models.vae.texts has the same with a model and its tokenizer in hand.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Unpack, cast

from torch import Tensor

from gristmill.arguments import check_option_names, show_options
from gristmill.errors import CheckpointError, warn_user
from gristmill.lm.models.vae.network import SequenceVAE
from gristmill.lm.models.vae.texts import Choice, between, encoded, reconstructed, texts_from_prior
from gristmill.lm.use.generation import load_for_generation

if TYPE_CHECKING:
    from gristmill.encode.tokenizer import AnyTokenizer, Tokenizer

__all__ = ["encode_texts", "interpolate_texts", "load_vae", "reconstruct_texts", "sample_texts"]

_SAMPLES: Choice = {"max_tokens": None, "temperature": 0.8, "top_k": None, "top_p": None, "seed": None}
_RECONSTRUCTIONS: Choice = {**_SAMPLES, "temperature": 0.0}


# From the folder of a run. `which` is the checkpoint: "best", "latest" or a name such as "step-000100".
# `tokenizer` is for a run that does not hold one: it was trained on token ids.


@show_options(Choice, _SAMPLES)
def sample_texts(
    run: str | os.PathLike[str],
    num_texts: int = 4,
    *,
    which: str = "best",
    device: str = "auto",
    tokenizer: AnyTokenizer | None = None,
    **choice: Unpack[Choice],
) -> list[str]:
    """`num_texts` texts that the VAE in the folder `run` makes of latents from the prior."""
    num_texts = _renamed_num(num_texts, choice)
    check_option_names("sample_texts", choice, Choice.__annotations__)
    return texts_from_prior(
        *load_vae(run, which=which, device=device, tokenizer=tokenizer), num_texts=num_texts, **choice
    )


@show_options(Choice, _RECONSTRUCTIONS)
def reconstruct_texts(
    run: str | os.PathLike[str],
    texts: Sequence[str],
    *,
    which: str = "best",
    device: str = "auto",
    tokenizer: AnyTokenizer | None = None,
    **choice: Unpack[Choice],
) -> list[str]:
    """What the VAE in the folder `run` makes of the latent of each text: the mean of its posterior."""
    check_option_names("reconstruct_texts", choice, Choice.__annotations__)
    return reconstructed(*load_vae(run, which=which, device=device, tokenizer=tokenizer), texts, **choice)


@show_options(Choice, _RECONSTRUCTIONS)
def interpolate_texts(
    run: str | os.PathLike[str],
    a: str,
    b: str,
    num_texts: int = 5,
    *,
    which: str = "best",
    device: str = "auto",
    tokenizer: AnyTokenizer | None = None,
    **choice: Unpack[Choice],
) -> list[str]:
    """`num_texts` texts on the way from `a` to `b`, the reconstructions of the two at its ends."""
    num_texts = _renamed_num(num_texts, choice)
    check_option_names("interpolate_texts", choice, Choice.__annotations__)
    return between(*load_vae(run, which=which, device=device, tokenizer=tokenizer), a, b, num_texts=num_texts, **choice)


def encode_texts(
    run: str | os.PathLike[str],
    texts: Sequence[str],
    *,
    which: str = "best",
    device: str = "auto",
    tokenizer: AnyTokenizer | None = None,
) -> tuple[Tensor, Tensor]:
    """(mu, logvar) of the posterior of each text, N x Z each, in main memory."""
    return encoded(*load_vae(run, which=which, device=device, tokenizer=tokenizer), texts)


def _renamed_num(num_texts: int, choice: Choice) -> int:
    """`num_texts`, or what was passed under its old name among the options, which is taken out of them."""
    options = cast(dict[str, Any], choice)
    if "num" not in options:
        return num_texts
    warn_user("num= is now called num_texts=.", DeprecationWarning)
    return cast(int, options.pop("num"))


def load_vae(
    run: str | os.PathLike[str],
    *,
    which: str = "best",
    device: str = "auto",
    tokenizer: AnyTokenizer | None = None,
) -> tuple[SequenceVAE, Tokenizer]:
    """(model, tokenizer) of the folder of a VAE's run, the model in evaluation mode on `device`.

    tokenizer: the tokenizer that made the training data, or its path, for a run that does not hold one.

    `CheckpointError` where there is no run or checkpoint, the model is not a VAE, or it has nothing to do with text.
    """
    model, tokenizer = load_for_generation(run, which=which, device=device, tokenizer=tokenizer)
    if not isinstance(model, SequenceVAE):
        raise CheckpointError(
            f"{run}: its model is a {type(model).__name__}, which has no latents. Call gm.lm.generate, or train "
            f"with model='vae'."
        )
    return model, tokenizer
