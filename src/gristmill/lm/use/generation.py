"""generate: text from the model of a run.

`generate_text` (which is `gm.lm.generate`) is a prompt in and text out; `load_for_generation` gives the model and its
tokenizer, for `stream_text` or `model.write`.
"""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gristmill.encode import as_tokenizer
from gristmill.errors import CheckpointError, GristmillError
from gristmill.lm.models.requests import TextRequest
from gristmill.lm.training.checkpoint import find_checkpoint, load_model, read_state
from gristmill.lm.use.device import find_device

if TYPE_CHECKING:
    from gristmill.encode.tokenizer import AnyTokenizer, Tokenizer
    from gristmill.lm.models.model import Model

__all__ = ["find_tokenizer", "generate_text", "load_for_generation", "load_of_run"]

TOKENIZER_FILE = "tokenizer.json"


def generate_text(
    run: str | os.PathLike[str],
    prompt: str,
    *,
    max_tokens: int = 200,
    temperature: float = 0.8,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int | None = None,
    which: str = "best",
    device: str = "auto",
    tokenizer: AnyTokenizer | None = None,
) -> str:
    """The text that the model in the folder `run` writes after `prompt`, without the prompt.

    max_tokens: the most tokens to write; the text ends earlier where the model ends a document.
    temperature: 0 takes the likeliest token each time; below 1 likely ones become likelier, above 1 less so.
    top_k, top_p: choose among the k likeliest only; among the fewest that have probability p together.
    seed: the same text each time; None: another one each time.
    which: the checkpoint: "best", "latest" or a name such as "step-000100".
    tokenizer: the tokenizer that made the training data, or its path, for a run that does not hold one: the data were
        token files of another program.

        gm.lm.generate("run/", "Once upon a time", max_tokens=100, seed=0)
    """
    request = TextRequest(
        prompt=prompt, max_tokens=max_tokens, temperature=temperature, top_k=top_k, top_p=top_p, seed=seed
    )
    model, tokenizer = load_for_generation(run, which=which, device=device, tokenizer=tokenizer)
    return "".join(next(model.write(tokenizer, request)))


def load_for_generation(
    run: str | os.PathLike[str],
    *,
    which: str = "best",
    device: str = "auto",
    tokenizer: AnyTokenizer | None = None,
) -> tuple[Model, Tokenizer]:
    """(model, tokenizer) of the folder of a run, the model in evaluation mode on `device`.

    tokenizer: the tokenizer that made the training data, or its path, for a run that does not hold one.

    `CheckpointError` where there is no run or checkpoint, or the tokenizer is not the one it was trained with.
    """
    folder = Path(run)
    given = None if tokenizer is None else as_tokenizer(tokenizer)
    model, fingerprint = load_of_run(folder, which=which, device=device)
    if model.config.vocab_size is None:
        raise CheckpointError(
            f"{folder}: it was trained on vectors, and makes vectors, not text. Call encode and decode_vectors of its "
            f"model, which gristmill.lm.training.checkpoint.load_model gives."
        )
    return model, find_tokenizer(folder, fingerprint, model, given)


def load_of_run(folder: Path, *, which: str, device: str) -> tuple[Model, str | None]:
    """The model of a run, whichever it is, and the fingerprint of its tokenizer, if it has one."""
    target = find_device(device)
    checkpoint = find_checkpoint(folder, which)
    model, _ = load_model(folder, which=checkpoint.name, device=target)
    return model, read_state(checkpoint)["shards"].get("tokenizer_fingerprint")


def find_tokenizer(run: Path, fingerprint: str | None, model: Any, given: Tokenizer | None) -> Tokenizer:
    """The tokenizer of a run, or the given one; `model` takes over which of its rows are tokens.

    A model may have more rows than there are tokens: rows without a token are padding, and are never chosen. A model
    that was trained without a tokenizer may have fewer: its data may have lacked the last tokens.
    """
    tokenizer = given
    if fingerprint is None and tokenizer is None:
        raise CheckpointError(
            f"{run}: the model was trained on token ids, and the run does not hold the tokenizer that made them. Pass "
            f"tokenizer='tokenizer.json', the path of that tokenizer."
        )
    if tokenizer is None:
        tokenizer = _read_tokenizer(run)
    if fingerprint is not None:
        _check_tokenizer(run, tokenizer, fingerprint, model, is_given=given is not None)
    vocab_size = min(tokenizer.vocab_size, model.config.vocab_size)
    model.config = dataclasses.replace(model.config, vocab_size=vocab_size)
    return tokenizer


def _read_tokenizer(run: Path) -> Tokenizer:
    from gristmill.encode.tokenizer import Tokenizer

    try:
        return Tokenizer.load(run / TOKENIZER_FILE)
    except (OSError, GristmillError) as error:
        raise CheckpointError(f"the tokenizer of the run cannot be read: {error}") from error


def _check_tokenizer(run: Path, tokenizer: Tokenizer, fingerprint: str, model: Any, *, is_given: bool) -> None:
    """Raise `CheckpointError` unless it is the tokenizer that the model was trained with."""
    if tokenizer.fingerprint != fingerprint:
        place = "tokenizer" if is_given else str(run / TOKENIZER_FILE)
        advice = "Pass that one, or leave tokenizer out." if is_given else "Put the right file there."
        raise CheckpointError(
            f"{place}: it is not the tokenizer that the model was trained with: its fingerprint is "
            f"{tokenizer.fingerprint}, and the checkpoint has {fingerprint}. {advice}"
        )
    if tokenizer.vocab_size > model.config.vocab_size:
        raise CheckpointError(
            f"{run}: its tokenizer has {tokenizer.vocab_size:,} tokens, and the model knows "
            f"{model.config.vocab_size:,}. The files are of different runs."
        )
