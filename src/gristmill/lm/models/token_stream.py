"""One text as a stream of tokens, each with its probability, its rank and the likeliest alternatives.

The tokens are those of `gm.lm.generate` with the same options and seed: the same loop chooses them, and this module
only looks at the logits that each was chosen from.

Each token has two probabilities. The *model probability* is softmax(logits): what the model predicts. The *probability*
is the one that it was drawn with: after temperature, `top_k` and `top_p`. With temperature 0 it is 1.

Shapes: N rows (here 1), V vocabulary size, K alternatives.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from gristmill.encode import as_tokenizer
from gristmill.lm.models.generation import MAX_TOKENS, TEMPERATURE, PromptRows, ends_of, prompt_ids_of, write_ids
from gristmill.lm.models.rows import Choice
from gristmill.lm.models.sampling import token_weights
from gristmill.lm.models.stop_strings import StopSearch

if TYPE_CHECKING:
    from gristmill.encode.tokenizer import Tokenizer
    from gristmill.lm.data.chat_template import Message
    from gristmill.lm.models.model import Model
    from gristmill.lm.models.requests import TextRequest

__all__ = ["Alternative", "Token", "TokenStream"]

NUM_ALTERNATIVES = 10


@dataclass(frozen=True)
class Alternative:
    """A token that could have been chosen."""

    id: int
    data: bytes
    probability: float
    model_probability: float


@dataclass(frozen=True)
class Token:
    """A generated token.

    data: Its bytes.
    text: The characters that it completes: "" for the first bytes of a character.
    rank: 1 for the token that the model finds most likely.
    alternatives: The likeliest tokens by model probability, which include this one if its rank is high enough.
    """

    id: int
    data: bytes
    text: str
    probability: float
    model_probability: float
    rank: int
    alternatives: tuple[Alternative, ...]


class TokenStream(Iterator[Token]):
    """The tokens of one text, generated as they are read. Their joined texts and `rest` are the text.

    A token that may belong to a stop string is held back until this is certain. A token that contains the start of a
    stop string has the text before it.
    """

    def __init__(
        self,
        model: Model,
        tokenizer: Tokenizer,
        request: TextRequest,
        *,
        messages: Sequence[Message] = (),
        num_alternatives: int = NUM_ALTERNATIVES,
    ) -> None:
        """Prepare the text of a request with one prompt; wrong options raise `OptionError` here.

        messages: A conversation to respond to, instead of the prompt, if the request has a chat template.
        """
        tokenizer = self._tokenizer = as_tokenizer(tokenizer)
        self._stop_id, self._stop = ends_of(tokenizer, request)
        if request.chat is not None and messages:
            prompt_ids = request.chat.prompt_ids(messages)
        else:
            prompt_ids = prompt_ids_of(tokenizer, request.all_prompts[0], request.chat)
        max_tokens = MAX_TOKENS if request.max_tokens is None else request.max_tokens
        self._rows = PromptRows(model, [prompt_ids], max_tokens=max_tokens, seed=request.seed)
        temperature = TEMPERATURE if request.temperature is None else request.temperature
        self._choice = _WatchedChoice(temperature, request.top_k, request.top_p, num_alternatives=num_alternatives)
        self._model, self._use_cache = model, request.use_cache
        self.num_prompt_tokens = len(prompt_ids)
        self.num_tokens = 0  # generated so far, with tokens that are held back or belong to a stop string
        self.rest = ""  # text after the last token, if it ends inside a character
        self.reason = ""  # why the text ended: "end of text", "stop string" or "max tokens"; "" before its end
        self._tokens = self._generated()

    def __next__(self) -> Token:
        return next(self._tokens)

    def close(self) -> None:
        """Stop generating, and restore the mode of the model."""
        self._tokens.close()

    def _generated(self) -> Generator[Token]:
        written = write_ids(
            self._model,
            self._rows,
            self._choice,
            num_rows=1,
            longest=self._rows.longest,
            stop_id=self._stop_id,
            batch_size=1,
            use_cache=self._use_cache,
            use_graphs=False,
        )
        held = _HeldTokens(self._stop)
        decoder = self._tokenizer.stream_decoder()
        reason = "end of text"
        try:
            for row, id in written:
                self.num_tokens += 1
                yield from held.push(self._token(id, decoder.push(id)))
                if held.is_over:
                    break
                if row.num_left == 0:
                    reason = "max tokens"
            yield from held.finish(decoder.finish())
            self.rest = held.rest
            self.reason = "stop string" if held.is_over else reason
        finally:
            written.close()

    def _token(self, id: int, text: str) -> Token:
        look = self._choice.looks.popleft()
        alternatives = zip(look.ids_K.tolist(), look.probabilities_K.tolist(), look.model_K.tolist(), strict=True)
        return Token(
            id=id,
            data=self._tokenizer.decode_bytes([id]),
            text=text,
            probability=float(look.probability),
            model_probability=float(look.model_probability),
            rank=int(look.rank),
            alternatives=tuple(
                Alternative(other, self._tokenizer.decode_bytes([other]), probability, by_model)
                for other, probability, by_model in alternatives
            ),
        )


class _Look(NamedTuple):
    """What a token was chosen from, on the device of the logits."""

    probability: Tensor
    model_probability: Tensor
    rank: Tensor
    ids_K: Tensor
    probabilities_K: Tensor
    model_K: Tensor


@dataclass(frozen=True, kw_only=True, eq=False)
class _WatchedChoice(Choice):
    """A choice that keeps a look at the logits of each token of the first row, in order."""

    num_alternatives: int
    looks: deque[_Look] = field(default_factory=deque)

    def ids(self, logits_NV: Tensor, draws_N: Tensor) -> Tensor:
        """Return the id that each draw selects from its row of logits."""
        ids_N = super().ids(logits_NV, draws_N)
        self.looks.append(self._look(logits_NV[0], ids_N[0]))
        return ids_N

    def _look(self, logits_V: Tensor, id: Tensor) -> _Look:
        logits_V = (logits_V.cpu() if logits_V.device.type == "mps" else logits_V).float()
        id = id.clamp(min=0)  # -1 means that no token could be chosen, and becomes an error when it is fetched
        model_V = logits_V.double().softmax(-1)
        # Of equally likely tokens, the one with the smaller id comes first, as in top_k.
        is_before_V = (logits_V == logits_V[id]) & (torch.arange(len(logits_V), device=logits_V.device) < id)
        rank = 1 + (logits_V > logits_V[id]).sum() + is_before_V.sum()
        ids_K = logits_V.topk(min(self.num_alternatives, len(logits_V))).indices
        if self.temperature == 0:
            probability, probabilities_K = torch.ones((), dtype=torch.float64), (ids_K == id).double()
        else:
            weights_V = token_weights(logits_V, temperature=self.temperature, top_k=self.top_k, top_p=self.top_p)
            total = weights_V.sum()
            probability, probabilities_K = weights_V[id] / total, weights_V[ids_K] / total
        return _Look(probability, model_V[id], rank, ids_K, probabilities_K, model_V[ids_K])


class _HeldTokens:
    """Releases tokens as soon as their text cannot belong to a stop string."""

    def __init__(self, stop: Sequence[str]) -> None:
        self._search = StopSearch(stop)
        self._held: deque[tuple[Token, int]] = deque()  # each with the characters of the text up to its end
        self._length = 0  # characters of all tokens so far
        self._num_final = 0  # characters that belong to the text for certain
        self.rest = ""

    @property
    def is_over(self) -> bool:
        """Whether a stop string was found."""
        return self._search.is_over

    def push(self, token: Token) -> Iterator[Token]:
        """Yield the tokens that are final with this one."""
        self._length += len(token.text)
        self._held.append((token, self._length))
        self._num_final += len(self._search.push(token.text))
        while self._held and self._held[0][1] <= self._num_final:
            yield self._held.popleft()[0]

    def finish(self, rest: str) -> Iterator[Token]:
        """Yield the remaining tokens, the last one up to a stop string; `rest` is the text after all tokens."""
        self._num_final += len(self._search.push(rest) + self._search.finish())
        for token, end in self._held:
            begin = end - len(token.text)
            if end <= self._num_final and not (self.is_over and begin == self._num_final):
                yield token
            elif begin < self._num_final:
                yield replace(token, text=token.text[: self._num_final - begin])
        self.rest = rest[: max(0, self._num_final - self._length)]
