"""Text from a model, token by token: reading ids, choosing the next one, and the text as it comes.

When the context is full, the model resumes from the last half of it, which is read again: a text of any length, and
each token is computed with at least half a context before it.

Shapes: V tokens of the vocabulary; B sequences (here 1) of T tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol, cast

import torch
from torch import Tensor

from gristmill.arguments import check_whole_number
from gristmill.encode import as_tokenizer
from gristmill.errors import OptionError, warn_user
from gristmill.lm.models.sampling import check_sampling, chosen, new_dice
from gristmill.shards.end_of_text import KNOWN

if TYPE_CHECKING:
    from gristmill.encode.stream_decoder import StreamDecoder
    from gristmill.encode.tokenizer import Tokenizer
    from gristmill.lm.models.model import Model
    from gristmill.lm.models.requests import TextRequest

__all__ = ["Reader", "TextStream", "WindowReader", "continued", "end_of_text_id", "generate", "stream_text"]

MAX_TOKENS = 200
TEMPERATURE = 0.8


class Reader(Protocol):
    """Reads ids, a few at a time, and gives the logits of the next one."""

    def read(self, ids: list[int]) -> Tensor:
        """The logits after all ids so far and these: V numbers in float32 in main memory."""


class WindowReader:
    """Computes the whole window for every token: slow, and right for every model."""

    def __init__(self, model: Model) -> None:
        self.model: Any = model
        self.device = next(model.parameters()).device
        self.window: list[int] = []  # the ids that the next token sees

    @torch.no_grad()
    def read(self, ids: list[int]) -> Tensor:
        """The logits after all ids so far and these, in float32 in main memory."""
        self.window += ids
        length = self.model.config.sequence_length
        if len(self.window) > length:
            self.window = ids = self.window[-max(1, length // 2) :]
            self.restart()
        logits_BTV = self.logits(ids)
        return logits_BTV[0, -1, : self.model.config.vocab_size].float().cpu()

    def restart(self) -> None:
        """The window was cut, and starts again."""

    def logits(self, ids: list[int]) -> Tensor:
        """The logits of the window, of which `ids` were not computed yet."""
        return cast(Tensor, self.model(torch.tensor([self.window], device=self.device)))


class TextStream(Iterator[str]):
    """A text in parts as they come; `num_tokens` counts the tokens so far."""

    def __init__(self, parts: Iterable[str], *, prompt: str = "") -> None:
        self.prompt = prompt  # what the text follows
        self.num_tokens = 0
        self._parts = iter(parts)

    @classmethod
    def of_ids(cls, ids: Iterator[int], decoder: StreamDecoder, *, prompt: str = "") -> TextStream:
        """The text of ids, in whole characters."""
        stream = cls((), prompt=prompt)
        stream._parts = stream._decoded(ids, decoder)
        return stream

    def _decoded(self, ids: Iterator[int], decoder: StreamDecoder) -> Iterator[str]:
        for id in ids:
            self.num_tokens += 1
            if text := decoder.push(id):
                yield text
        if rest := decoder.finish():
            yield rest

    def __next__(self) -> str:
        return next(self._parts)


def continued(model: Model, tokenizer: Tokenizer, request: TextRequest) -> Iterator[TextStream]:
    """The texts that follow the prompt of `request`, as many as it asks for, one by default."""
    streams = [
        stream_text(
            model,
            tokenizer,
            request.prompt,
            max_tokens=MAX_TOKENS if request.max_tokens is None else request.max_tokens,
            temperature=TEMPERATURE if request.temperature is None else request.temperature,
            top_k=request.top_k,
            top_p=request.top_p,
            seed=None if request.seed is None else request.seed + number,
            use_cache=request.use_cache,
        )
        for number in range(request.num_texts or 1)
    ]
    return iter(streams)


def stream_text(
    model: Model,
    tokenizer: Tokenizer,
    prompt: str,
    *,
    max_tokens: int = MAX_TOKENS,
    temperature: float = TEMPERATURE,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int | None = None,
    use_cache: bool = True,
) -> TextStream:
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
        use_cache=use_cache,
    )
    return TextStream.of_ids(ids, tokenizer.stream_decoder(), prompt=prompt)


def generate(
    model: Model,
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
    use_cache: False computes all keys and values again for each token: slower, the same ids.

    A prompt longer than the context is cut to its end, with a warning. The model is in evaluation mode until the
    iterator ends or is closed, then in the mode it was in.

    >>> from gristmill.lm.models.gpt.network import GPT, GPTConfig
    >>> model = GPT(GPTConfig(vocab_size=10, context_length=8, num_layers=1, num_heads=1, d_model=8))
    >>> len(list(generate(model, [1, 2, 3], max_tokens=20, seed=0)))
    20
    """
    # Not a generator itself: wrong arguments raise at once, not when the first id is asked for.
    ids = _check_prompt(prompt_ids, model.config.required_vocab_size)
    if check_whole_number("max_tokens", max_tokens) < 0:
        raise OptionError(f"max_tokens={max_tokens} is negative. Pass max_tokens >= 0.")
    check_sampling(temperature, top_k, top_p)
    _warn_of_long_prompt(len(ids), model.config.sequence_length)
    dice = new_dice(seed)

    def choose(logits_V: Tensor) -> int:
        return int(chosen(logits_V, dice, temperature=temperature, top_k=top_k, top_p=top_p))

    return _generate(model, ids, choose, max_tokens, stop_id, use_cache)


def _generate(
    model: Model, ids: list[int], choose: Callable[[Tensor], int], max_tokens: int, stop_id: int | None, use_cache: bool
) -> Iterator[int]:
    reader = model.new_reader(use_cache=use_cache)
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


def _check_prompt(prompt_ids: Sequence[int], vocab_size: int) -> list[int]:
    ids = [check_whole_number("an id of the prompt", id) for id in prompt_ids]
    if not ids:
        raise OptionError("the prompt is empty, and a model needs something to continue. Pass at least one id.")
    for id in ids:
        if not 0 <= id < vocab_size:
            raise OptionError(
                f"the prompt has the id {id}, and the model knows 0 to {vocab_size - 1}. Encode it with the tokenizer "
                f"that the model was trained with."
            )
    return ids


def _warn_of_long_prompt(num_tokens: int, context_length: int) -> None:
    if num_tokens > context_length:
        warn_user(
            f"the prompt has {num_tokens:,} tokens, and the context of the model {context_length:,}: only the last "
            f"{max(1, context_length // 2):,} tokens of the prompt are read.",
            UserWarning,
        )


def end_of_text_id(tokenizer: Tokenizer) -> int | None:
    """The id that ends a document, by the usual names; None if the tokenizer has none of them."""
    specials = tokenizer.special_tokens
    return next((specials[name] for name in KNOWN if name in specials), None)
