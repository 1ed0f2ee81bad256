"""Generations: the requests of the playground and the events that answer them."""

from __future__ import annotations

import contextlib
import math
import os
import secrets
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from gristmill.errors import GristmillError, OptionError
from gristmill.view.artefacts import Artefact
from gristmill.view.events import Event
from gristmill.view.loaded_models import LoadedModel, LoadedModels
from gristmill.view.replies import Refusal

if TYPE_CHECKING:
    from gristmill.lm.models.requests import TextRequest
    from gristmill.lm.models.token_stream import Token

__all__ = ["LATENT_MODES", "Generation", "check", "generate", "in_words"]

MAX_TEXT_BYTES = 100_000
MAX_MESSAGES = 64
MAX_TOKENS = 4096
MAX_STOP, MAX_STOP_CHARACTERS = 8, 200
MAX_SAMPLES, MAX_POINTS = 16, 32
NEW_SEEDS = 2**31  # fresh seeds are short enough to type
PRIORITY = 5  # "nice" value of the thread: training and the pages go first

LATENT_MODES = ("sample", "reconstruct", "interpolate")

Send = Callable[[Event], None]


class Message(msgspec.Struct, forbid_unknown_fields=True):
    """A message of a conversation."""

    role: Literal["system", "user", "assistant"]
    content: str


class Generation(msgspec.Struct, forbid_unknown_fields=True):
    """A request. `client` is a random name of the page."""

    client: str
    mode: Literal["continue", "chat", "sample", "reconstruct", "interpolate"] = "continue"
    checkpoint: str = "best"
    prompt: str = ""
    other: str = ""  # the second text of an interpolation
    messages: list[Message] = []
    num_texts: int = 4
    max_tokens: int | None = None  # None: of a model with latents, the length that it was trained on
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    seed: int | None = None
    stop: list[str] = []


def check(asked: Generation) -> None:
    """Raise `Refusal` for a request that is out of bounds."""
    _check_range("max_tokens", asked.max_tokens, 1, MAX_TOKENS)
    if asked.temperature is not None and not 0 <= asked.temperature <= 100:
        raise Refusal(f"temperature must be 0 to 100, got {asked.temperature}.")
    if asked.top_p is not None and not 0 < asked.top_p <= 1:
        raise Refusal(f"top_p must be > 0 and <= 1, got {asked.top_p}.")
    _check_range("top_k", asked.top_k, 1, 2**31)
    _check_range("seed", asked.seed, 0, 2**53)  # numbers that a browser represents exactly
    if asked.mode == "sample":
        _check_range("num_texts", asked.num_texts, 1, MAX_SAMPLES)
    if asked.mode == "interpolate":
        _check_range("num_texts", asked.num_texts, 2, MAX_POINTS)
    if len(asked.stop) > MAX_STOP or any(not 0 < len(stop) <= MAX_STOP_CHARACTERS for stop in asked.stop):
        raise Refusal(f"stop must be at most {MAX_STOP} strings of 1 to {MAX_STOP_CHARACTERS} characters.")
    if not 1 <= len(asked.client) <= 64:
        raise Refusal("client must have 1 to 64 characters.")
    _check_texts(asked)


def _check_texts(asked: Generation) -> None:
    if asked.mode == "chat" and (not asked.messages or asked.messages[-1].role != "user"):
        raise Refusal("A chat needs messages, and the last one must be of the user.")
    if len(asked.messages) > MAX_MESSAGES:
        raise Refusal(f"A chat can have at most {MAX_MESSAGES} messages, got {len(asked.messages)}. Start a new chat.")
    needed = {"reconstruct": (asked.prompt,), "interpolate": (asked.prompt, asked.other)}.get(asked.mode, ())
    if not all(needed):
        raise Refusal("A text is empty. Enter at least one character.")
    texts = [asked.prompt, asked.other, *(message.content for message in asked.messages), *asked.stop]
    try:
        num_bytes = sum(len(text.encode()) for text in texts)
    except UnicodeEncodeError:
        raise Refusal("The text contains an unpaired surrogate, which is not a character. Remove it.") from None
    if num_bytes > MAX_TEXT_BYTES:
        raise Refusal(f"The text has {num_bytes:,} bytes. At most {MAX_TEXT_BYTES:,} are allowed.")


def _check_range(name: str, value: int | None, least: int, most: int) -> None:
    if value is not None and not least <= value <= most:
        raise Refusal(f"{name} must be {least} to {most}, got {value}.")


def generate(
    models: LoadedModels, run: Artefact, asked: Generation, *, is_cancelled: Callable[[], bool], send: Send
) -> None:
    """Answer a request with events, in a thread of its own. Ends within a token after `is_cancelled()` is true.

    The events: `loading` (if needed), `started`, then `tokens`, `part` or `text`, then `end`; or `error` at any time.
    """
    try:
        _use_spare_time()
        loaded = models.get(
            run, asked.checkpoint, loading=lambda name, device: send(Event("loading", {"name": name, "device": device}))
        )
        if not is_cancelled():
            _answer(loaded, asked, is_cancelled, send)
    except (GristmillError, Refusal, OSError, MemoryError) as error:
        send(Event("error", {"message": in_words(error)}))
    except Exception as error:  # a model of the user may raise anything
        if type(error).__name__ == "OutOfMemoryError":
            text = "The device has too little free memory. Start gristmill view with --device cpu."
        else:
            traceback.print_exc()
            text = f"The generation failed: {type(error).__name__}: {' '.join(str(error).split())[:500]}"
        send(Event("error", {"message": text}))


def in_words(error: Exception) -> str:
    """Return the message of an error for the page."""
    from gristmill.lm.training.config import PLUGIN_ADVICE

    if isinstance(error, FileNotFoundError):
        return f"{error.filename} no longer exists."
    advice = "Start gristmill view with --plugin FILE, the file that registers it."
    return " ".join(str(error).split()).replace(PLUGIN_ADVICE, advice) or "There is too little free memory."


def _use_spare_time() -> None:
    """Leave a core to the pages, and lower the priority of this thread below that of a training run."""
    import torch

    num_threads = max(1, (os.cpu_count() or 1) - 1)
    if torch.get_num_threads() > num_threads:
        torch.set_num_threads(num_threads)
    if sys.platform == "linux":
        thread = threading.get_native_id()
        with contextlib.suppress(OSError):
            if os.getpriority(os.PRIO_PROCESS, thread) < PRIORITY:
                os.setpriority(os.PRIO_PROCESS, thread, PRIORITY)


def _answer(loaded: LoadedModel, asked: Generation, is_cancelled: Callable[[], bool], send: Send) -> None:
    from gristmill.lm.models.model import Model
    from gristmill.lm.models.requests import TextRequest

    has_latents = type(loaded.model.config).HAS_LATENTS
    if has_latents != (asked.mode in LATENT_MODES):
        does = (
            "decodes latents and cannot continue a prompt" if has_latents else "continues a prompt and has no latents"
        )
        raise OptionError(f"mode {asked.mode!r} is not available: this model {does}.")
    if asked.mode == "chat" and loaded.chat is None:
        raise OptionError("The run has no chat template, because it was not trained on conversations.")
    seed = secrets.randbelow(NEW_SEEDS) if asked.seed is None else asked.seed
    request = TextRequest(
        prompt=asked.prompt if asked.mode == "continue" else "",
        reconstruct=asked.prompt if asked.mode == "reconstruct" else None,
        between=(asked.prompt, asked.other) if asked.mode == "interpolate" else None,
        num_texts=asked.num_texts if asked.mode in ("sample", "interpolate") else None,
        max_tokens=asked.max_tokens,
        temperature=asked.temperature,
        top_k=asked.top_k,
        top_p=asked.top_p,
        seed=seed,
        stop=tuple(asked.stop),
        chat=loaded.chat if asked.mode == "chat" else None,
    )
    started = {"seed": seed, "checkpoint": loaded.checkpoint, "device": loaded.device}
    messages = [{"role": message.role, "content": message.content} for message in asked.messages]
    if type(loaded.model).write is Model.write:
        _send_tokens(loaded, request, messages, started, is_cancelled, send)
    else:
        _send_texts(loaded, request, started, is_cancelled, send)


def _send_tokens(
    loaded: LoadedModel,
    request: TextRequest,
    messages: Sequence[dict[str, str]],
    started: dict[str, Any],
    is_cancelled: Callable[[], bool],
    send: Send,
) -> None:
    from gristmill.lm.models.token_stream import TokenStream

    began = time.perf_counter()
    stream = TokenStream(loaded.model, loaded.tokenizer, request, messages=messages)
    context = loaded.model.config.sequence_length
    prompt = {"num_prompt_tokens": stream.num_prompt_tokens, "context_length": context}
    send(Event("started", {**started, **prompt}))
    specials = frozenset(loaded.tokenizer.special_tokens.values())
    with contextlib.closing(stream):
        for token in stream:
            if is_cancelled():
                return
            send(Event("token", _record(token, specials)))
    seconds = time.perf_counter() - began
    send(Event("end", {"reason": stream.reason, "rest": stream.rest, "num": stream.num_tokens, "seconds": seconds}))


def _record(token: Token, specials: frozenset[int]) -> dict[str, Any]:
    """Return a token as the page gets it. An alternative is [id, text or null, bytes, probability, by the model]."""
    return {
        "id": token.id,
        "text": token.text,
        "bytes": token.data.hex(" "),
        "special": token.id in specials,
        "p": _rounded(token.probability),
        "q": _rounded(token.model_probability),
        "rank": token.rank,
        "others": [
            [
                each.id,
                _text(each.data),
                each.data.hex(" "),
                _rounded(each.probability),
                _rounded(each.model_probability),
            ]
            for each in token.alternatives
        ],
    }


def _text(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _rounded(probability: float) -> float:
    """Return the number with 4 significant digits, which is enough to show it."""
    return float(f"{probability:.4g}") if math.isfinite(probability) else 0.0


def _send_texts(
    loaded: LoadedModel,
    request: TextRequest,
    started: dict[str, Any],
    is_cancelled: Callable[[], bool],
    send: Send,
) -> None:
    """Send the texts of a model with its own `write`, such as one with latents. It has no probabilities to show."""
    from gristmill.lm.use.generation import written_texts
    from gristmill.lm.use.interruption import Interrupted, interruptible

    began = time.perf_counter()
    send(Event("started", started))
    num_tokens = 0
    with contextlib.suppress(Interrupted), interruptible(loaded.model, is_cancelled):
        for number, stream in enumerate(written_texts(loaded.model, loaded.tokenizer, request)):
            send(Event("text", {"number": number}))
            for part in stream:
                if is_cancelled():
                    return
                send(Event("part", {"number": number, "text": part}))
            num_tokens += stream.num_tokens  # 0 for texts that are decoded from latents
        seconds = time.perf_counter() - began
        send(Event("end", {"reason": "", "rest": "", "num": num_tokens, "seconds": seconds}))
