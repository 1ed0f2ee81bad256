"""Text generation from a model, token by token, for one text or several at once.

When the context is full, the model continues from the last half of it, which is read again. So texts may have any
length, and each token is computed with at least half a context before it.

Shapes: V vocabulary size; B sequences (here 1) of T tokens.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol, cast

import torch
from torch import Tensor

from gristmill.arguments import check_whole_number
from gristmill.encode import as_tokenizer
from gristmill.errors import OptionError, warn_user
from gristmill.lm.models.requests import TextRequest
from gristmill.lm.models.rows import Choice, Row, write_rows
from gristmill.lm.models.sampling import new_dice
from gristmill.lm.models.stop_strings import StopSearch, check_stop
from gristmill.shards.end_of_text import KNOWN
from gristmill.trace import span

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from gristmill.encode.stream_decoder import StreamDecoder
    from gristmill.encode.tokenizer import Tokenizer
    from gristmill.lm.data.chat_template import ChatTemplate
    from gristmill.lm.models.model import Model

__all__ = ["Reader", "TextStream", "WindowReader", "continued", "end_of_text_id", "generate", "stream_text"]

MAX_TOKENS = 200
TEMPERATURE = 0.8


class Reader(Protocol):
    """Reads ids, a few at a time, and returns the logits of the next id."""

    def read(self, ids: list[int]) -> Tensor:
        """Return the logits after all ids so far and these: V float32 numbers on the CPU."""


class WindowReader:
    """Computes the whole window for every token: slow, but correct for every model."""

    def __init__(self, model: Model) -> None:
        self.model: Any = model
        self.device = next(model.parameters()).device
        self.window: list[int] = []  # the context of the next token

    @torch.no_grad()
    def read(self, ids: list[int]) -> Tensor:
        """Return the logits after all ids so far and these, as float32 on the CPU."""
        self.window += ids
        length = self.model.config.sequence_length
        if len(self.window) > length:
            self.window = ids = self.window[-max(1, length // 2) :]
            self.restart()
        logits_BTV = self.logits(ids)
        return logits_BTV[0, -1, : self.model.config.vocab_size].float().cpu()

    def restart(self) -> None:
        """Reset state after the window was cut."""

    def logits(self, ids: list[int]) -> Tensor:
        """Return the logits of the window; `ids` are its part that was not computed yet."""
        return cast(Tensor, self.model(torch.tensor([self.window], device=self.device)))


class TextStream(Iterator[str]):
    """An iterator over the parts of a text; `num_tokens` counts the tokens so far."""

    def __init__(self, parts: Iterable[str], *, prompt: str = "", count: Callable[[], int] = int) -> None:
        """Wrap `parts`; `count` returns the number of tokens so far, or 0 for a text that is not counted."""
        self.prompt = prompt
        # Nothing refers back to the stream, so an unused stream is freed, and ends, immediately.
        self._parts, self._count = iter(parts), count

    @property
    def num_tokens(self) -> int:
        """Number of tokens so far."""
        return self._count()

    def __next__(self) -> str:
        return next(self._parts)


class _TextOfIds:
    """Converts ids to text in whole characters, and stops before a stop string."""

    def __init__(self, decoder: StreamDecoder, stop: Sequence[str]) -> None:
        self._decoder, self._search = decoder, StopSearch(stop)

    @property
    def is_over(self) -> bool:
        """Whether a stop string was found."""
        return self._search.is_over

    def push(self, id: int) -> list[str]:
        """Return the text that is final with this id, if any."""
        part = self._search.push(self._decoder.push(id))
        return [part] if part else []

    def finish(self) -> list[str]:
        """Return the rest of the text."""
        rest = self._search.push(self._decoder.finish()) + self._search.finish()
        return [rest] if rest else []


class _Text:
    """One of several texts, with its unread parts. Uses little memory until its first token."""

    def __init__(self) -> None:
        self.row: Row | None = None  # None: not started
        self.parts: deque[str] = deque()
        self.num_tokens = 0
        self.is_over = False
        self.is_given = False  # its stream was returned to the caller
        self.ids: _TextOfIds | None = None

    def count(self) -> int:
        """Return the number of tokens so far."""
        return self.num_tokens

    def end(self) -> None:
        """Stop computing this text."""
        self.is_over = True
        if self.ids is not None:
            self.parts += self.ids.finish()
        if self.row is not None:
            self.row.is_open = False


class _Texts:
    """Several texts that are generated together and read separately. Reading any text computes the next step.

    Only texts that have started, or whose stream was returned, use memory.
    """

    def __init__(
        self,
        rows: PromptRows,
        write: Callable[[Iterator[Row]], Generator[tuple[Row, int]]],
        new_ids: Callable[[], _TextOfIds],
    ) -> None:
        self._texts: dict[int, _Text] = {}  # by number
        self._ids, self._new_ids = write(_begun(rows, self._texts)), new_ids
        self._num_unfinished = len(rows)
        self._error: Exception | None = None
        self._lock = threading.RLock()  # several threads may read texts

    def stream(self, number: int, prompt: str) -> TextStream:
        """Return the stream of one text. Called once per text."""
        with self._lock:
            text = self._texts.setdefault(number, _Text())
            text.is_given = True
            self._forget(number, text)
        return TextStream(self._parts(number, text), prompt=prompt, count=text.count)

    def _parts(self, number: int, text: _Text) -> Iterator[str]:
        """Yield the parts of one text as they are generated."""
        parts = text.parts
        try:
            while parts or not text.is_over:
                while parts:
                    yield parts.popleft()
                with self._lock:
                    if not parts and not text.is_over:
                        self._advance()
                        if text.row is not None and not text.row.is_open:  # ended by a token that was not yielded
                            self._finish(number, text)
        finally:
            with self._lock:
                self._finish(number, text)  # the reader is gone

    def _advance(self) -> None:
        """Process the next id, of whichever text; after the last id, finish all texts."""
        if self._error is not None:
            raise self._error  # for every text, because none is complete
        try:
            with span("token"):
                row, id_of_token = next(self._ids)
        except StopIteration:
            for number, text in tuple(self._texts.items()):
                self._finish(number, text)
            return
        except Exception as error:
            self._error = error
            raise
        text = self._texts[row.number]
        text.num_tokens += 1
        text.ids = text.ids or self._new_ids()
        text.parts += text.ids.push(id_of_token)
        if text.ids.is_over or row.num_left == 0:
            self._finish(row.number, text)

    def _finish(self, number: int, text: _Text) -> None:
        """Stop computing this text. After the last text, restore the mode of the model."""
        if text.is_over:
            return
        text.end()
        self._forget(number, text)
        self._num_unfinished -= 1
        if not self._num_unfinished:
            self._ids.close()

    def _forget(self, number: int, text: _Text) -> None:
        """Drop a finished text, which its stream still holds.

        A text that ended before it started is kept, so that it does not start.
        """
        if text.is_over and text.is_given and text.row is not None:
            self._texts.pop(number, None)


def _begun(rows: Iterable[Row], texts: dict[int, _Text]) -> Iterator[Row]:
    """Yield the rows whose turn has come, except those of ended texts."""
    for row in rows:
        text = texts.setdefault(row.number, _Text())
        if text.is_over:
            del texts[row.number]
            continue
        text.row = row
        yield row


def continued(model: Model, tokenizer: Tokenizer, request: TextRequest) -> Iterator[TextStream]:
    """Return the texts that follow the prompts of `request`, `num_texts` per prompt, one by default.

    Several texts are generated at once. Text i, counted over all prompts, uses the seed `seed + i`.
    """
    tokenizer = as_tokenizer(tokenizer)
    stop_id, stop = ends_of(tokenizer, request)
    ids_of = {prompt: prompt_ids_of(tokenizer, prompt, request.chat) for prompt in dict.fromkeys(request.all_prompts)}
    rows = PromptRows(
        model,
        [ids_of[prompt] for prompt in request.all_prompts],
        num_texts=request.num_texts or 1,
        max_tokens=MAX_TOKENS if request.max_tokens is None else request.max_tokens,
        seed=request.seed,
    )
    temperature = TEMPERATURE if request.temperature is None else request.temperature
    choice = Choice(temperature, request.top_k, request.top_p)

    def write(begun: Iterator[Row]) -> Generator[tuple[Row, int]]:
        return write_ids(
            model,
            begun,
            choice,
            num_rows=len(rows),
            longest=rows.longest,
            stop_id=stop_id,
            batch_size=request.batch_size,
            use_cache=request.use_cache,
        )

    texts = _Texts(rows, write, lambda: _TextOfIds(tokenizer.stream_decoder(), stop))
    prompts = (prompt for prompt in request.all_prompts for _ in range(request.num_texts or 1))
    return (texts.stream(number, prompt) for number, prompt in enumerate(prompts))


def prompt_ids_of(tokenizer: Tokenizer, prompt: str, chat: ChatTemplate | None) -> list[int]:
    """Return the ids of a prompt; with a chat template, of a conversation with the prompt as the user's message."""
    if chat is None:
        return _encoded(tokenizer, prompt)
    return chat.prompt_ids([{"role": "user", "content": prompt}])


def ends_of(tokenizer: Tokenizer, request: TextRequest) -> tuple[int | None, tuple[str, ...]]:
    """Return (id, strings) at which a text ends: those of the request, and the end of a document or of a turn."""
    end_of_text = end_of_text_id(tokenizer)
    if request.chat is None:
        return end_of_text, request.stop
    end_of_turn, text = request.chat.end_of_turn
    if end_of_turn is None:
        return end_of_text, (*request.stop, *filter(None, [text]))
    if end_of_text in (None, end_of_turn):
        return end_of_turn, request.stop
    # A model that was fine-tuned only briefly may still end a response with the end-of-text token.
    return end_of_turn, (*request.stop, tokenizer.decode([end_of_text]))


def stream_text(
    model: Model,
    tokenizer: Tokenizer,
    prompt: str,
    *,
    max_tokens: int = MAX_TOKENS,
    temperature: float = TEMPERATURE,
    top_k: int | None = None,
    top_p: float | None = None,
    stop: str | Sequence[str] | None = None,
    seed: int | None = None,
    use_cache: bool = True,
) -> TextStream:
    """Return the text after `prompt` as a stream of its parts, up to the end of the document.

    Parts are whole characters, available as soon as they are generated. A special token spelled out in the prompt
    becomes its id, because the prompt comes from the user of the model. An empty prompt starts a new document, if the
    tokenizer has an end-of-text token. A prompt longer than the context is truncated to its end, with a warning.

    Args:
        model: The model.
        tokenizer: Its tokenizer.
        prompt: Text to continue.
        max_tokens: Maximum number of tokens to generate.
        temperature: 0 picks the most likely token. Below 1 favors likely tokens, above 1 flattens their distribution.
        top_k: Choose among the k most likely tokens. None: all.
        top_p: Choose among the fewest tokens with a total probability of at least p. None: all.
        stop: One or more strings. The text ends before the first of them.
        seed: Seed of the random choices. None: a fresh random seed.
        use_cache: Keep the keys and values of earlier tokens. False is slower and gives the same text.

    Raises:
        OptionError: An option is out of range, or the prompt is empty and the tokenizer has no end-of-text token.

    Examples:
        ```python
        model, tokenizer = gm.lm.load_for_generation("run/")
        for part in gm.lm.stream_text(model, tokenizer, "Once upon a time", max_tokens=100):
            print(part, end="", flush=True)
        ```
    """
    request = TextRequest(
        prompt=prompt,
        max_tokens=max_tokens,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        stop=check_stop(stop),
        seed=seed,
        use_cache=use_cache,
    )
    return next(continued(model, tokenizer, request))


def _encoded(tokenizer: Tokenizer, prompt: str) -> list[int]:
    stop_id = end_of_text_id(tokenizer)
    return tokenizer.encode(prompt, allowed_special="all") or ([] if stop_id is None else [stop_id])


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
    """Yield the ids that follow `prompt_ids`: at most `max_tokens`, and none from `stop_id` on.

    temperature: 0 picks the most likely token. Below 1 favors likely tokens, above 1 flattens their distribution.
    top_k, top_p: choose among the k most likely tokens; among the fewest with a total probability of at least p.
    seed: the same seed gives the same ids, on every device up to rounding; None: a fresh random seed. Torch's global
    generators are not used, so samples do not change a training run.
    use_cache: False computes all keys and values again for each token: slower, the same ids.

    A prompt longer than the context is truncated to its end, with a warning. The model is in evaluation mode until the
    iterator ends or is closed, then in its previous mode.

    >>> from gristmill.lm.models.gpt.network import GPT, GPTConfig
    >>> model = GPT(GPTConfig(vocab_size=10, context_length=8, num_layers=1, num_heads=1, d_model=8))
    >>> len(list(generate(model, [1, 2, 3], max_tokens=20, seed=0)))
    20
    """
    # Not a generator function, so that wrong arguments raise at the call instead of at the first id.
    rows = PromptRows(model, [prompt_ids], max_tokens=max_tokens, seed=seed)
    choice = Choice(temperature, top_k, top_p)
    written = write_ids(
        model, rows, choice, num_rows=1, batch_size=1, longest=rows.longest, stop_id=stop_id, use_cache=use_cache
    )
    return _ids_of(written)


class PromptRows:
    """One row per text of each prompt, with its own seed, created when its turn comes.

    Wrong arguments raise `OptionError` in the constructor.
    """

    def __init__(
        self,
        model: Model,
        prompts: Sequence[Sequence[int]],
        *,
        num_texts: int = 1,
        max_tokens: int,
        seed: int | None,
    ) -> None:
        if check_whole_number("max_tokens", max_tokens) < 0:
            raise OptionError(f"max_tokens must be >= 0, got {max_tokens}.")
        self._prompts = [_check_prompt(ids, model.config.required_vocab_size) for ids in prompts]
        longest = max(map(len, self._prompts))
        _warn_of_long_prompt(longest, model.config.sequence_length)
        self._num_texts, self._max_tokens = num_texts, max_tokens
        self._seed = None if seed is None else check_whole_number("seed", seed)
        self.longest = longest + max_tokens  # maximum tokens of a text with its prompt
        for number in (0, len(self) - 1):  # if the first and the last seed are valid, all are
            self._dice(number)

    def __len__(self) -> int:
        return len(self._prompts) * self._num_texts

    def __iter__(self) -> Iterator[Row]:
        for number in range(len(self) if self._max_tokens else 0):
            prompt_ids = list(self._prompts[number // self._num_texts])
            yield Row(prompt_ids, self._dice(number), self._max_tokens, number=number)

    def _dice(self, number: int) -> torch.Generator:
        return new_dice(None if self._seed is None else self._seed + number)


def _ids_of(written: Iterator[tuple[Row, int]]) -> Iterator[int]:
    for _, id in written:
        yield id


def write_ids(
    model: Model,
    rows: Iterable[Row],
    choice: Choice,
    *,
    num_rows: int,
    longest: int,
    stop_id: int | None,
    batch_size: int | None,
    use_cache: bool,
    use_graphs: bool = True,
) -> Generator[tuple[Row, int]]:
    """Yield (row, id) as ids are generated, with the model in evaluation mode.

    use_graphs: allow CUDA graphs. A step that is replayed as a graph does not call `choice`.
    """
    was_training = model.training
    is_autocast = torch.is_autocast_enabled(next(model.parameters()).device.type)
    reader = model.new_row_reader(
        use_cache=use_cache,
        max_rows=batch_size,
        num_rows=num_rows,
        longest=longest,
        use_graphs=use_graphs and not was_training and not is_autocast,
    )
    model.eval()
    try:
        yield from write_rows(reader, rows, choice, stop_id=stop_id)
    finally:
        model.train(was_training)


def _check_prompt(prompt_ids: Sequence[int], vocab_size: int) -> list[int]:
    ids = [check_whole_number("an id of the prompt", id) for id in prompt_ids]
    if not ids:
        raise OptionError("the prompt is empty. Pass at least one id to continue from.")
    for id in ids:
        if not 0 <= id < vocab_size:
            raise OptionError(
                f"the prompt has the id {id}, but the ids of the model are 0 to {vocab_size - 1}. Encode the prompt "
                f"with the tokenizer that the model was trained with."
            )
    return ids


def _warn_of_long_prompt(num_tokens: int, context_length: int) -> None:
    if num_tokens > context_length:
        warn_user(
            f"the prompt has {num_tokens:,} tokens, more than the context of the model ({context_length:,}). Only the "
            f"last {max(1, context_length // 2):,} tokens of the prompt are used.",
            UserWarning,
        )


def end_of_text_id(tokenizer: Tokenizer) -> int | None:
    """Return the id of the end-of-text token, found by its usual names; None if the tokenizer has none of them."""
    specials = tokenizer.special_tokens
    return next((specials[name] for name in KNOWN if name in specials), None)
