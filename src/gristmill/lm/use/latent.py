"""Texts from latents of a trained VAE: samples, reconstructions and interpolations.

    gm.lm.sample_texts("run/", 4, seed=0)                              samples from the prior
    gm.lm.reconstruct_texts("run/", ["Once upon a time …"])            texts encoded and decoded again
    gm.lm.interpolate_texts("run/", "The cat …", "The dog …", 5)       texts between two latents
    gm.lm.encode_texts("run/", texts)                                  (mu, logvar) of each text

Each takes a run folder; gristmill.lm.models.vae.texts has the same functions for a model and its tokenizer.
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
    """Return `num_texts` texts that a trained VAE decodes from latents sampled from the prior.

    Args:
        run: Folder of the run.
        num_texts: Number of texts.
        which: Checkpoint: "best", "latest" or a name such as "step-000100".
        device: "auto" (CUDA when available), "cpu", "cuda" or "mps".
        tokenizer: Tokenizer of the training data, or its path, for a run that does not store one.
        **choice: Sampling options: max_tokens, temperature, top_k, top_p and seed.

    Raises:
        OptionError: An option is invalid, or the device is not available.
        CheckpointError: The run or checkpoint does not exist, the model is not a VAE, or it was trained on vectors.

    Examples:
        ```python
        gm.lm.sample_texts("run", 4, temperature=0.8, seed=0)
        ```
    """
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
    """Return each text encoded and decoded again by a trained VAE. The latent is the mean of the posterior.

    Args:
        run: Folder of the run.
        texts: Texts to reconstruct.
        which: Checkpoint: "best", "latest" or a name such as "step-000100".
        device: "auto" (CUDA when available), "cpu", "cuda" or "mps".
        tokenizer: Tokenizer of the training data, or its path, for a run that does not store one.
        **choice: Sampling options: max_tokens, temperature, top_k, top_p and seed.

    Raises:
        OptionError: An option is invalid, or the device is not available.
        CheckpointError: The run or checkpoint does not exist, the model is not a VAE, or it was trained on vectors.

    Examples:
        ```python
        gm.lm.reconstruct_texts("run", ["Once upon a time there was a cat."])
        ```
    """
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
    """Return `num_texts` texts decoded from latents interpolated between `a` and `b`.

    The first and last text are the reconstructions of `a` and `b`.

    Args:
        run: Folder of the run.
        a: First text.
        b: Last text.
        num_texts: Number of texts, including both ends.
        which: Checkpoint: "best", "latest" or a name such as "step-000100".
        device: "auto" (CUDA when available), "cpu", "cuda" or "mps".
        tokenizer: Tokenizer of the training data, or its path, for a run that does not store one.
        **choice: Sampling options: max_tokens, temperature, top_k, top_p and seed.

    Raises:
        OptionError: An option is invalid, or the device is not available.
        CheckpointError: The run or checkpoint does not exist, the model is not a VAE, or it was trained on vectors.

    Examples:
        ```python
        gm.lm.interpolate_texts("run", "The cat sat down.", "The dog ran away.", 5)
        ```
    """
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
    """Return (mu, logvar) of the posterior of each text, as CPU tensors of shape (texts, latent dimensions).

    Args:
        run: Folder of the run.
        texts: Texts to encode.
        which: Checkpoint: "best", "latest" or a name such as "step-000100".
        device: "auto" (CUDA when available), "cpu", "cuda" or "mps".
        tokenizer: Tokenizer of the training data, or its path, for a run that does not store one.

    Raises:
        OptionError: An option is invalid, or the device is not available.
        CheckpointError: The run or checkpoint does not exist, the model is not a VAE, or it was trained on vectors.

    Examples:
        ```python
        mu, logvar = gm.lm.encode_texts("run", ["Once upon a time there was a cat."])
        ```
    """
    return encoded(*load_vae(run, which=which, device=device, tokenizer=tokenizer), texts)


def _renamed_num(num_texts: int, choice: Choice) -> int:
    """Return `num_texts`, or the value of its old name `num`, which is removed from the options."""
    options = cast(dict[str, Any], choice)
    if "num" not in options:
        return num_texts
    warn_user("num= is deprecated. Pass num_texts= instead.", DeprecationWarning)
    return cast(int, options.pop("num"))


def load_vae(
    run: str | os.PathLike[str],
    *,
    which: str = "best",
    device: str = "auto",
    tokenizer: AnyTokenizer | None = None,
) -> tuple[SequenceVAE, Tokenizer]:
    """Return the VAE of a run, in evaluation mode on `device`, and its tokenizer.

    Args:
        run: Folder of the run.
        which: Checkpoint: "best", "latest" or a name such as "step-000100".
        device: "auto" (CUDA when available), "cpu", "cuda" or "mps".
        tokenizer: Tokenizer of the training data, or its path, for a run that does not store one.

    Raises:
        OptionError: An option is invalid, or the device is not available.
        CheckpointError: The run or checkpoint does not exist, the model is not a VAE, or it was trained on vectors.

    Examples:
        ```python
        model, tokenizer = gm.lm.load_vae("run")
        ```
    """
    model, tokenizer = load_for_generation(run, which=which, device=device, tokenizer=tokenizer)
    if not isinstance(model, SequenceVAE):
        raise CheckpointError(
            f"{run}: the model is a {type(model).__name__}, which has no latents. Call gm.lm.generate, or train "
            f"with model='vae'."
        )
    return model, tokenizer
