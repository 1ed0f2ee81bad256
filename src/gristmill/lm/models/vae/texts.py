"""Texts from latents: samples of the prior, reconstructions, and interpolations between two texts.

Samples use a temperature, for variety. Reconstructions use the mean of the posterior and always the most likely token,
to show what the latent encodes.

Shapes: N texts of T tokens, Z latent dimensions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypedDict, Unpack

import torch
from torch import Tensor

from gristmill.arguments import check_whole_number
from gristmill.errors import OptionError
from gristmill.lm.data.batch import IGNORED, Batch
from gristmill.lm.models.generation import end_of_text_id
from gristmill.lm.models.sampling import new_dice
from gristmill.lm.models.stop_strings import StopSearch

if TYPE_CHECKING:
    from gristmill.encode.tokenizer import Tokenizer
    from gristmill.lm.models.requests import TextRequest
    from gristmill.lm.models.vae.network import SequenceVAE

__all__ = ["Choice", "between", "encoded", "reconstructed", "requested_texts", "spherical", "texts_from_prior"]

TEXTS_AT_ONCE = 32


class Choice(TypedDict, total=False):
    """Options for choosing tokens, as in `gm.lm.generate` except for the defaults.

    max_tokens: maximum tokens per text; None: the maximum that the model was trained on.
    temperature: 0 picks the most likely token.
    top_k, top_p: choose among the k most likely tokens; among the fewest with a total probability of at least p.
    seed: the same seed gives the same texts; None: a fresh random seed. For samples it also determines the latents.
    """

    max_tokens: int | None
    temperature: float
    top_k: int | None
    top_p: float | None
    seed: int | None


def requested_texts(model: SequenceVAE, tokenizer: Tokenizer, request: TextRequest) -> list[str]:
    """Return the texts of a request, each up to its first stop string."""
    _check_request(request)
    return [StopSearch(request.stop).whole(text) for text in _whole_texts(model, tokenizer, request)]


def _whole_texts(model: SequenceVAE, tokenizer: Tokenizer, request: TextRequest) -> list[str]:
    """Return samples of the prior, the reconstruction of a text, or interpolations between two."""
    choice: Choice = {
        "top_k": request.top_k,
        "top_p": request.top_p,
        "seed": request.seed,
        "max_tokens": request.max_tokens,
    }
    if request.temperature is not None:
        choice["temperature"] = request.temperature
    if request.reconstruct is not None:
        return reconstructed(model, tokenizer, [request.reconstruct], **choice)
    if request.between is not None:
        return between(model, tokenizer, *request.between, num_texts=request.num_texts or 5, **choice)
    return texts_from_prior(model, tokenizer, num_texts=request.num_texts or 4, **choice)


def _check_request(request: TextRequest) -> None:
    if prompt := next(filter(None, request.all_prompts), ""):
        raise OptionError(
            f"prompt={prompt!r}: a VAE generates whole texts from latents and cannot continue a prompt. Leave it out "
            f"for samples, or pass reconstruct=… or between=…."
        )
    if not request.use_cache:
        raise OptionError("use_cache=False applies to models that continue a prompt, and this is a VAE. Leave it out.")
    if request.reconstruct is not None and (request.between is not None or request.num_texts is not None):
        other = "num_texts" if request.between is None else "between"
        raise OptionError(f"reconstruct and {other} exclude each other. Pass one of them.")


def texts_from_prior(
    model: SequenceVAE, tokenizer: Tokenizer, *, num_texts: int = 4, **choice: Unpack[Choice]
) -> list[str]:
    """Return `num_texts` texts from latents of the prior. Torch's global generators are not used."""
    if check_whole_number("num_texts", num_texts) < 1:
        raise OptionError(f"num_texts must be >= 1, got {num_texts}.")
    z_NZ = torch.randn(num_texts, model.config.latent_dim, generator=new_dice(choice.get("seed")))
    return _texts(model, tokenizer, z_NZ, {"temperature": 0.8, **choice})


def reconstructed(
    model: SequenceVAE, tokenizer: Tokenizer, texts: Sequence[str], **choice: Unpack[Choice]
) -> list[str]:
    """Return each text as the decoder reconstructs it from the mean of its posterior."""
    mu_NZ, _ = encoded(model, tokenizer, texts)
    return _texts(model, tokenizer, mu_NZ, {"temperature": 0.0, **choice})


def between(
    model: SequenceVAE, tokenizer: Tokenizer, a: str, b: str, *, num_texts: int = 5, **choice: Unpack[Choice]
) -> list[str]:
    """Return `num_texts` texts that interpolate from `a` to `b`."""
    if check_whole_number("num_texts", num_texts) < 2:
        raise OptionError(f"num_texts must be >= 2, got {num_texts}: an interpolation includes both ends.")
    mu_NZ, _ = encoded(model, tokenizer, [a, b])
    return _texts(model, tokenizer, spherical(mu_NZ[0], mu_NZ[1], num_texts), {"temperature": 0.0, **choice})


def spherical(a_Z: Tensor, b_Z: Tensor, num: int) -> Tensor:
    """Return `num` points on the arc from `a` to `b`, including both.

    Latents of the prior are close to a sphere. A straight line would pass through its center, where no text has its
    latent. If there is no arc (same or opposite directions), the line is straight.

    >>> a_Z, b_Z = torch.eye(2, dtype=torch.float64)
    >>> spherical(a_Z, b_Z, 3).round(decimals=4).tolist()
    [[1.0, 0.0], [0.7071, 0.7071], [0.0, 1.0]]
    """
    shares_N1 = torch.linspace(0, 1, num, dtype=torch.float64)[:, None]
    a, b = a_Z.double(), b_Z.double()
    cosine = torch.nn.functional.cosine_similarity(a, b, dim=0).clamp(-1, 1)
    angle = torch.arccos(cosine)
    if torch.sin(angle) < 1e-6 or not a.any() or not b.any():
        return ((1 - shares_N1) * a + shares_N1 * b).to(a_Z.dtype)
    arc_NZ = (torch.sin((1 - shares_N1) * angle) * a + torch.sin(shares_N1 * angle) * b) / torch.sin(angle)
    return arc_NZ.to(a_Z.dtype)


@torch.no_grad()
def encoded(model: SequenceVAE, tokenizer: Tokenizer, texts: Sequence[str]) -> tuple[Tensor, Tensor]:
    """Return (mu, logvar) of each text, N x Z each, on the CPU. Texts longer than the model supports are truncated."""
    if isinstance(texts, str):
        raise OptionError("texts is a str. Pass a list of str.")
    rows = [_sequence(model, tokenizer, text) for text in texts]
    found = [torch.zeros(2, 0, model.config.latent_dim)]
    with model.evaluating():
        for begin in range(0, len(rows), TEXTS_AT_ONCE):
            batch = _padded(rows[begin : begin + TEXTS_AT_ONCE]).to(model.start_D.device)
            found.append(torch.stack(model.encode(batch)).cpu())
    mu_NZ, logvar_NZ = torch.cat(found, dim=1)
    return mu_NZ, logvar_NZ


def _sequence(model: SequenceVAE, tokenizer: Tokenizer, text: str) -> list[int]:
    """Return the ids of a text as in training: with the end-of-text id, truncated to the maximum length."""
    stop_id = end_of_text_id(tokenizer)
    ids = tokenizer.encode(text) + ([] if stop_id is None else [stop_id])
    if not ids:
        raise OptionError("a text is empty. Pass texts of at least one character.")
    return ids[: model.config.max_sequence_length]


def _padded(rows: list[list[int]]) -> Batch:
    longest = max(map(len, rows))
    inputs_BT = torch.tensor([row + [0] * (longest - len(row)) for row in rows])
    targets_BT = torch.tensor([row + [IGNORED] * (longest - len(row)) for row in rows])
    return Batch(inputs_BT, targets_BT)


def _texts(model: SequenceVAE, tokenizer: Tokenizer, z_NZ: Tensor, choice: Choice) -> list[str]:
    dice = new_dice(choice.get("seed"))
    max_tokens = choice.get("max_tokens")
    rows: list[list[int]] = []
    for z_CZ in torch.split(z_NZ, TEXTS_AT_ONCE):
        rows += model.generate(
            z_CZ,
            max_tokens=model.config.max_sequence_length if max_tokens is None else max_tokens,
            temperature=choice["temperature"],
            top_k=choice.get("top_k"),
            top_p=choice.get("top_p"),
            seed=int(torch.randint(2**62, (), generator=dice)),
            stop_id=end_of_text_id(tokenizer),
        )
    return [tokenizer.decode(row) for row in rows]
