"""generate: text from a trained model, token by token.

`generate_text` (which is `gm.lm.generate`) is a prompt in and text out; `stream_text` gives the same text as it comes;
`generate` works on ids, with any model that has `config`, `forward` and `new_cache` as GPT has them.

When the context is full, the model goes on from the last half of it, which is read anew: a text of any length, and each
token is reckoned with at least half a context behind it.

Shapes: V tokens of the vocabulary; B sequences (here 1) of T tokens.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn

from gristmill.arguments import check_whole_number
from gristmill.encode import as_tokenizer
from gristmill.errors import CheckpointError, GristmillError, OptionError
from gristmill.lm.models.gpt.network import GPT, activation_dtype
from gristmill.lm.models.sampling import check_sampling, chosen, new_dice, token_probabilities

if TYPE_CHECKING:
    from gristmill.encode.stream_decoder import StreamDecoder
    from gristmill.encode.tokenizer import AnyTokenizer, Tokenizer

__all__ = ["generate", "generate_text", "load_for_generation", "stream_text", "token_probabilities"]

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
    """What the model in the folder `run` writes after `prompt`, without the prompt; options as in `generate`.

    which: the checkpoint: "best", "latest" or a name such as "step-000100".
    tokenizer: the tokenizer that made the training data, or its path, for a run that does not hold one: the data were
        token files of another program.

        gm.lm.generate("run/", "Once upon a time", max_tokens=100, seed=0)
    """
    model, tokenizer = load_for_generation(run, which=which, device=device, tokenizer=tokenizer)
    return "".join(
        stream_text(
            model,
            tokenizer,
            prompt,
            max_tokens=max_tokens,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            seed=seed,
        )
    )


def stream_text(
    model: GPT,
    tokenizer: Tokenizer,
    prompt: str,
    *,
    max_tokens: int = 200,
    temperature: float = 0.8,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int | None = None,
) -> Iterator[str]:
    """The text after `prompt`, in whole characters as they come, to the end of the document; options as in `generate`.

    A special token spelled out in the prompt becomes its id: the prompt is written by the user of the model. An empty
    prompt begins a new document, if the tokenizer has a token that ends one.
    """
    tokenizer = as_tokenizer(tokenizer)
    stop_id = end_of_text_id(tokenizer)
    prompt_ids = tokenizer.encode(prompt, allowed_special="all") or ([] if stop_id is None else [stop_id])
    ids = generate(
        model,
        prompt_ids,
        max_tokens=max_tokens,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        seed=seed,
        stop_id=stop_id,
    )
    return _texts(ids, tokenizer.stream_decoder())


def _texts(ids: Iterator[int], decoder: StreamDecoder) -> Iterator[str]:
    for id in ids:
        if text := decoder.push(id):
            yield text
    if rest := decoder.finish():
        yield rest


def generate(
    model: GPT,
    prompt_ids: Sequence[int],
    *,
    max_tokens: int,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int | None = None,
    stop_id: int | None = None,
    use_cache: bool = True,
) -> Iterator[int]:
    """The ids that follow `prompt_ids`, each as soon as it is chosen: at most `max_tokens`, and none from `stop_id` on.

    temperature: 0 takes the likeliest token each time; below 1 likely ones become likelier, above 1 less so.
    top_k, top_p: choose among the k likeliest only; among the fewest that have probability p together.
    seed: the same ids each time, on every device to rounding; None: others each time. Torch's own generators are left
        alone: samples in between do not change what a training run does.
    use_cache: False reckons all keys and values anew for each token: slower, the same ids.

    The model is in evaluation mode until the iterator ends or is closed, then in the mode it was in.

    >>> from gristmill.lm.models.gpt.network import GPTConfig
    >>> model = GPT(GPTConfig(vocab_size=10, context_length=8, num_layers=1, num_heads=1, d_model=8))
    >>> len(list(generate(model, [1, 2, 3], max_tokens=20, seed=0)))
    20
    """
    # Not a generator itself: what is wrong with the arguments is said at once, not when the first id is asked for.
    ids = _check_prompt(prompt_ids, model.config.vocab_size)
    if check_whole_number("max_tokens", max_tokens) < 0:
        raise OptionError(f"max_tokens={max_tokens} is negative. Pass max_tokens >= 0.")
    check_sampling(temperature, top_k, top_p)
    dice = new_dice(seed)

    def choose(logits_V: Tensor) -> int:
        return int(chosen(logits_V, dice, temperature=temperature, top_k=top_k, top_p=top_p))

    return _generate(model, ids, choose, max_tokens, stop_id, use_cache)


def _generate(
    model: GPT, ids: list[int], choose: Callable[[Tensor], int], max_tokens: int, stop_id: int | None, use_cache: bool
) -> Iterator[int]:
    reader = _Reader(model, use_cache)
    was_training = model.training
    model.eval()
    try:
        for _ in range(max_tokens):
            id = choose(reader.read(ids))
            if id == stop_id:
                return
            yield id
            ids = [id]
    finally:
        model.train(was_training)


class _Reader:
    """Reads ids, a few at a time, and gives the logits of the next one."""

    def __init__(self, model: GPT, use_cache: bool) -> None:
        self._model = model
        self._device = model.embedding.weight.device
        self._cache = model.new_cache(1, self._device, activation_dtype(model.embedding.weight)) if use_cache else None
        self._window: list[int] = []  # the ids that the next token sees

    @torch.no_grad()
    def read(self, ids: list[int]) -> Tensor:
        """The logits after all ids so far and these, in float32 in main memory."""
        self._window += ids
        context_length = self._model.config.context_length
        if len(self._window) > context_length:
            self._window = ids = self._window[-max(1, context_length // 2) :]
            if self._cache is not None:
                self._cache.length = 0
        tokens_BT = torch.tensor([self._window if self._cache is None else ids], device=self._device)
        logits_BTV = self._model(tokens_BT, cache=self._cache)
        return cast(Tensor, logits_BTV[0, -1].float().cpu())


def _check_prompt(prompt_ids: Sequence[int], vocab_size: int) -> list[int]:
    ids = [check_whole_number("an id of the prompt", id) for id in prompt_ids]
    if not ids:
        raise OptionError("the prompt is empty, and a model needs something to go on from. Pass at least one id.")
    for id in ids:
        if not 0 <= id < vocab_size:
            raise OptionError(
                f"the prompt has the id {id}, and the model knows 0 to {vocab_size - 1}. Encode it with the tokenizer "
                f"that the model was trained with."
            )
    return ids


def end_of_text_id(tokenizer: Tokenizer) -> int | None:
    """The id that ends a document, by the usual names; None if the tokenizer has none of them."""
    from gristmill.shards.end_of_text import KNOWN

    specials = tokenizer.special_tokens
    return next((specials[name] for name in KNOWN if name in specials), None)


def load_for_generation(
    run: str | os.PathLike[str],
    *,
    which: str = "best",
    device: str = "auto",
    tokenizer: AnyTokenizer | None = None,
) -> tuple[GPT, Tokenizer]:
    """(model, tokenizer) of the folder of a run, the model in evaluation mode on `device`.

    tokenizer: the tokenizer that made the training data, or its path, for a run that does not hold one.

    `CheckpointError` where there is no run or checkpoint, or the tokenizer is not the one it was trained with.
    """
    folder = Path(run)
    given = None if tokenizer is None else as_tokenizer(tokenizer)
    model, fingerprint = load_of_run(folder, which=which, device=device)
    if not isinstance(model, GPT):
        raise CheckpointError(
            f"{folder}: its model is a {type(model).__name__}, and only a GPT goes on from a prompt. A VAE makes texts "
            f"of latents: leave the prompt out, or call gm.lm.sample_texts()."
        )
    return model, find_tokenizer(folder, fingerprint, model, given)


def load_of_run(folder: Path, *, which: str, device: str) -> tuple[nn.Module, str | None]:
    """The model of a run, whichever it is, and the fingerprint of its tokenizer, if it has one."""
    from gristmill.lm.training.checkpoint import find_checkpoint, load_model, read_state

    checkpoint = find_checkpoint(folder, which)
    model, _ = load_model(folder, which=checkpoint.name, device=find_device(device))
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


def find_device(device: str) -> str:
    """`device`, or for "auto" a GPU of NVIDIA if there is one."""
    if device != "auto":
        return device
    return "cuda" if torch.cuda.is_available() else "cpu"
