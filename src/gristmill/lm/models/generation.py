"""Text from a model, token by token: one text or several at once, as they come.

When the context is full, the model resumes from the last half of it, which is read again: a text of any length, and
each token is computed with at least half a context before it.

Shapes: V tokens of the vocabulary; B sequences (here 1) of T tokens.
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

    def __init__(self, parts: Iterable[str], *, prompt: str = "", count: Callable[[], int] = int) -> None:
        """`count`: the number of tokens so far; 0 for a text that is not counted."""
        self.prompt = prompt  # what the text follows
        # Nothing here refers back to the stream: one that nobody needs any more is freed, and ends, at once.
        self._parts, self._count = iter(parts), count

    @property
    def num_tokens(self) -> int:
        """The tokens so far."""
        return self._count()

    def __next__(self) -> str:
        return next(self._parts)


class _TextOfIds:
    """Ids in, text out: in whole characters, and nothing from a stop string on."""

    def __init__(self, decoder: StreamDecoder, stop: Sequence[str]) -> None:
        self._decoder, self._search = decoder, StopSearch(stop)

    @property
    def is_over(self) -> bool:
        """Whether a stop string was found."""
        return self._search.is_over

    def push(self, id: int) -> list[str]:
        """The text that is certain with this id, if there is any."""
        part = self._search.push(self._decoder.push(id))
        return [part] if part else []

    def finish(self) -> list[str]:
        """The rest of the text."""
        rest = self._search.push(self._decoder.finish()) + self._search.finish()
        return [rest] if rest else []


class _Text:
    """One text of several: its parts that nobody has read yet. Small until its first token comes."""

    def __init__(self) -> None:
        self.row: Row | None = None  # None: it waits for its turn
        self.parts: deque[str] = deque()
        self.num_tokens = 0
        self.is_over = False
        self.is_given = False  # somebody has its stream
        self.ids: _TextOfIds | None = None

    def count(self) -> int:
        """The tokens so far."""
        return self.num_tokens

    def end(self) -> None:
        """Nothing more is computed for it."""
        self.is_over = True
        if self.ids is not None:
            self.parts += self.ids.finish()
        if self.row is not None:
            self.row.is_open = False


class _Texts:
    """Several texts that are written at once, each read by itself: whoever needs a part has the next step computed.

    Only texts that have begun, or that somebody has a stream of, take memory.
    """

    def __init__(
        self,
        rows: _Rows,
        write: Callable[[Iterator[Row]], Generator[tuple[Row, int]]],
        new_ids: Callable[[], _TextOfIds],
    ) -> None:
        self._texts: dict[int, _Text] = {}  # by number
        self._ids, self._new_ids = write(_begun(rows, self._texts)), new_ids
        self._num_unfinished = len(rows)
        self._error: Exception | None = None
        self._lock = threading.RLock()  # threads may read a text each

    def stream(self, number: int, prompt: str) -> TextStream:
        """One text. Each is asked for once."""
        with self._lock:
            text = self._texts.setdefault(number, _Text())
            text.is_given = True
            self._forget(number, text)
        return TextStream(self._parts(number, text), prompt=prompt, count=text.count)

    def _parts(self, number: int, text: _Text) -> Iterator[str]:
        """The parts of one text, as they come."""
        parts = text.parts
        try:
            while parts or not text.is_over:
                while parts:
                    yield parts.popleft()
                with self._lock:
                    if not parts and not text.is_over:
                        self._advance()
                        if text.row is not None and not text.row.is_open:  # the token that ended it was passed over
                            self._finish(number, text)
        finally:
            with self._lock:
                self._finish(number, text)  # nobody reads it any more

    def _advance(self) -> None:
        """Take the next id, whichever text it belongs to; without one, all texts are finished."""
        if self._error is not None:
            raise self._error  # for every text: none of them is complete
        try:
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
        """Nothing more is computed for this text; after the last one, the model has its mode back."""
        if text.is_over:
            return
        text.end()
        self._forget(number, text)
        self._num_unfinished -= 1
        if not self._num_unfinished:
            self._ids.close()

    def _forget(self, number: int, text: _Text) -> None:
        """Leave a text to its stream. One that ended before it began stays, so that it does not begin."""
        if text.is_over and text.is_given and text.row is not None:
            self._texts.pop(number, None)


def _begun(rows: Iterable[Row], texts: dict[int, _Text]) -> Iterator[Row]:
    """Rows whose turn has come, without those that nobody wants any more."""
    for row in rows:
        text = texts.setdefault(row.number, _Text())
        if text.is_over:
            del texts[row.number]
            continue
        text.row = row
        yield row


def continued(model: Model, tokenizer: Tokenizer, request: TextRequest) -> Iterator[TextStream]:
    """The texts that follow the prompts of `request`, as many of each as it asks for, one by default.

    Several texts are written at once. Text i, counted through all prompts, has the seed `seed + i`.
    """
    tokenizer = as_tokenizer(tokenizer)
    stop_id, stop = _ends(tokenizer, request)
    ids_of = {prompt: _prompt_ids(tokenizer, prompt, request.chat) for prompt in dict.fromkeys(request.all_prompts)}
    rows = _Rows(
        model,
        [ids_of[prompt] for prompt in request.all_prompts],
        num_texts=request.num_texts or 1,
        max_tokens=MAX_TOKENS if request.max_tokens is None else request.max_tokens,
        seed=request.seed,
    )
    temperature = TEMPERATURE if request.temperature is None else request.temperature
    choice = Choice(temperature, request.top_k, request.top_p)

    def write(begun: Iterator[Row]) -> Generator[tuple[Row, int]]:
        return _write(
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


def _prompt_ids(tokenizer: Tokenizer, prompt: str, chat: ChatTemplate | None) -> list[int]:
    """The ids of a prompt; with a chat template, those of a conversation that begins with it as a user's message."""
    if chat is None:
        return _encoded(tokenizer, prompt)
    return chat.prompt_ids([{"role": "user", "content": prompt}])


def _ends(tokenizer: Tokenizer, request: TextRequest) -> tuple[int | None, tuple[str, ...]]:
    """(id, strings) at which a text ends: those of the request, and the end of a document or of a turn."""
    end_of_text = end_of_text_id(tokenizer)
    if request.chat is None:
        return end_of_text, request.stop
    end_of_turn, text = request.chat.end_of_turn
    if end_of_turn is None:
        return end_of_text, (*request.stop, *filter(None, [text]))
    if end_of_text in (None, end_of_turn):
        return end_of_turn, request.stop
    return end_of_turn, (
        *request.stop,
        tokenizer.decode([end_of_text]),
    )  # a model that was tuned little still writes it


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
    """The text after `prompt`, in whole characters as they come, to the end of the document; options as in `generate`.

    stop: the text ends before the first of these strings, no part of which is ever given.

    A special token spelled out in the prompt becomes its id: the prompt is written by the user of the model. An empty
    prompt begins a new document, if the tokenizer has a token that ends one.
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
    """The ids that follow `prompt_ids`, each as soon as it is known: at most `max_tokens`, and none from `stop_id` on.

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
    rows = _Rows(model, [prompt_ids], max_tokens=max_tokens, seed=seed)
    choice = Choice(temperature, top_k, top_p)
    alone = {"num_rows": 1, "batch_size": 1}
    written = _write(model, rows, choice, **alone, longest=rows.longest, stop_id=stop_id, use_cache=use_cache)
    return _ids_of(written)


class _Rows:
    """A row for each text of each prompt, with a seed of its own, made when its turn comes.

    `OptionError` at once for what makes no sense.
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
            raise OptionError(f"max_tokens={max_tokens} is negative. Pass max_tokens >= 0.")
        self._prompts = [_check_prompt(ids, model.config.required_vocab_size) for ids in prompts]
        longest = max(map(len, self._prompts))
        _warn_of_long_prompt(longest, model.config.sequence_length)
        self._num_texts, self._max_tokens = num_texts, max_tokens
        self._seed = None if seed is None else check_whole_number("seed", seed)
        self.longest = longest + max_tokens  # tokens of a text with its prompt
        for number in (0, len(self) - 1):  # the seeds between them are fine if both are
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


def _write(
    model: Model,
    rows: Iterable[Row],
    choice: Choice,
    *,
    num_rows: int,
    longest: int,
    stop_id: int | None,
    batch_size: int | None,
    use_cache: bool,
) -> Generator[tuple[Row, int]]:
    """(row, id) as ids are known, with the model in evaluation mode."""
    was_training = model.training
    reader = model.new_row_reader(
        use_cache=use_cache,
        max_rows=batch_size,
        num_rows=num_rows,
        longest=longest,
        use_graphs=not was_training and not torch.is_autocast_enabled(next(model.parameters()).device.type),
    )
    model.eval()
    try:
        yield from write_rows(reader, rows, choice, stop_id=stop_id)
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
