"""generate: text from the model of a run.

`generate_text` (which is `gm.lm.generate`) is a prompt in and text out; `load_for_generation` gives the model and its
tokenizer, for `stream_text` or `model.write`.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack, get_args, overload

from gristmill.encode import as_tokenizer
from gristmill.errors import CheckpointError, GristmillError, OptionError
from gristmill.lm.models.requests import PrecisionOfText, TextRequest
from gristmill.lm.models.stop_strings import check_stop
from gristmill.lm.training.checkpoint import find_checkpoint, load_model, read_state
from gristmill.lm.use.device import find_device

if TYPE_CHECKING:
    from gristmill.encode.tokenizer import AnyTokenizer, Tokenizer
    from gristmill.lm.data.chat_template import ChatTemplate
    from gristmill.lm.models.generation import TextStream
    from gristmill.lm.models.model import Model

__all__ = ["chat_template_of", "find_tokenizer", "generate_text", "load_for_generation", "load_of_run", "written_texts"]

TOKENIZER_FILE = "tokenizer.json"


class TextOptions(TypedDict, total=False):
    """The options of `generate_text` but for the number of texts, for type checkers."""

    max_tokens: int
    temperature: float
    top_k: int | None
    top_p: float | None
    stop: str | Sequence[str] | None
    seed: int | None
    batch_size: int | None
    precision: PrecisionOfText
    chat: bool
    which: str
    device: str
    tokenizer: AnyTokenizer | None


@overload
def generate_text(
    run: str | os.PathLike[str], prompt: str, *, num_texts: None = None, **options: Unpack[TextOptions]
) -> str: ...


@overload
def generate_text(
    run: str | os.PathLike[str], prompt: str, *, num_texts: int, **options: Unpack[TextOptions]
) -> list[str]: ...


@overload
def generate_text(
    run: str | os.PathLike[str],
    prompt: list[str] | tuple[str, ...],
    *,
    num_texts: int | None = None,
    **options: Unpack[TextOptions],
) -> list[str]: ...


def generate_text(
    run: str | os.PathLike[str],
    prompt: str | list[str] | tuple[str, ...],
    *,
    num_texts: int | None = None,
    max_tokens: int = 200,
    temperature: float = 0.8,
    top_k: int | None = None,
    top_p: float | None = None,
    stop: str | Sequence[str] | None = None,
    seed: int | None = None,
    batch_size: int | None = None,
    precision: PrecisionOfText = "auto",
    chat: bool = False,
    which: str = "best",
    device: str = "auto",
    tokenizer: AnyTokenizer | None = None,
) -> str | list[str]:
    """The text that the model in the folder `run` writes after `prompt`, without the prompt.

    A list of prompts gives a list of texts, and so does `num_texts`: so many of each prompt, those of the first prompt
    first. Many texts at once take little more time than one.

    max_tokens: the most tokens of a text; it ends earlier where the model ends a document.
    temperature: 0 takes the likeliest token each time; below 1 likely ones become likelier, above 1 less so.
    top_k, top_p: choose among the k likeliest only; among the fewest that have probability p together.
    stop: a string or several: the text ends before the first of them.
    seed: the same texts each time: text i, counted through all prompts, is the one that the seed `seed + i` gives
        alone, up to rounding. None: other texts each time.
    batch_size: the texts that are written at once; None: as many as memory allows.
    precision: "bf16" computes in bfloat16, "32" in float32; "auto": bfloat16 on CUDA, otherwise float32.
    chat: the prompt is what a user says, in the chat template of a run that was trained on conversations, and the text
        is the response. Special tokens that are spelled out in the prompt stay plain text.
    which: the checkpoint: "best", "latest" or a name such as "step-000100".
    tokenizer: the tokenizer that made the training data, or its path, for a run that does not hold one: the data were
        token files of another program.

        gm.lm.generate("run/", "Once upon a time", max_tokens=100, seed=0)
        gm.lm.generate("run/", ["Once upon a time", "The cat"], num_texts=3, stop="The end")
    """
    is_one = isinstance(prompt, str) and num_texts is None
    request = TextRequest(
        prompts=_check_prompts(prompt),
        num_texts=1 if num_texts is None else num_texts,
        max_tokens=max_tokens,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        stop=check_stop(stop),
        seed=seed,
        batch_size=batch_size,
    )
    model, tokenizer = load_for_generation(run, which=which, device=device, tokenizer=tokenizer, precision=precision)
    request = dataclasses.replace(request, chat=chat_template_of(run, tokenizer) if chat else None)
    texts = ["".join(stream) for stream in written_texts(model, tokenizer, request)]
    return texts[0] if is_one else texts


def _check_prompts(prompt: str | list[str] | tuple[str, ...]) -> tuple[str, ...]:
    prompts = tuple(prompt) if isinstance(prompt, list | tuple) else (prompt,)
    if not prompts:
        raise OptionError("prompt=[] has no prompt to continue. Pass at least one; '' begins a new document.")
    for each in prompts:
        if not isinstance(each, str):
            raise OptionError(f"prompt={each!r} is a {type(each).__name__}. Pass a str, or a list of them.")
    return prompts


def chat_template_of(run: str | os.PathLike[str], tokenizer: Tokenizer) -> ChatTemplate:
    """The chat template of a run that was trained on conversations; `CheckpointError` where it has none."""
    from gristmill.lm.data.chat_jinja import CHAT_TEMPLATE_FILE
    from gristmill.lm.data.chat_template import ChatTemplate

    path = Path(run) / CHAT_TEMPLATE_FILE
    if not path.is_file():
        raise CheckpointError(
            f"{run}: chat=True needs a chat template, and the run holds no {CHAT_TEMPLATE_FILE}: it was not trained "
            f"on conversations. Pass a run that was, or call this without chat=True."
        )
    return ChatTemplate.load(path, tokenizer)


def written_texts(model: Model, tokenizer: Tokenizer, request: TextRequest) -> Iterator[TextStream]:
    """The texts that `request` asks for, of any model: one with a `write` of its own knows one prompt at a time."""
    from gristmill.lm.models.model import Model as AnyModel

    if type(model).write is AnyModel.write:
        return model.write(tokenizer, request)
    num_texts = request.num_texts or 1
    requests = [
        dataclasses.replace(
            request,
            prompt=prompt,
            prompts=(),
            seed=None if request.seed is None else request.seed + number * num_texts,
        )
        for number, prompt in enumerate(request.all_prompts)
    ]
    return (stream for each in requests for stream in model.write(tokenizer, each))


def load_for_generation(
    run: str | os.PathLike[str],
    *,
    which: str = "best",
    device: str = "auto",
    tokenizer: AnyTokenizer | None = None,
    precision: PrecisionOfText = "32",
) -> tuple[Model, Tokenizer]:
    """(model, tokenizer) of the folder of a run, the model in evaluation mode on `device`.

    tokenizer: the tokenizer that made the training data, or its path, for a run that does not hold one.
    precision: "bf16" makes a model that writes text in bfloat16; a GPT then holds its weights in it.

    `CheckpointError` where there is no run or checkpoint, or the tokenizer is not the one it was trained with.
    """
    folder = Path(run)
    if precision not in get_args(PrecisionOfText):
        raise OptionError(f"precision={precision!r} is not known. Pass 'auto', 'bf16' or '32'.")
    given = None if tokenizer is None else as_tokenizer(tokenizer)
    model, fingerprint = load_of_run(folder, which=which, device=device)
    if model.config.vocab_size is None:
        raise CheckpointError(
            f"{folder}: it was trained on vectors, and makes vectors, not text. Call encode and decode_vectors of its "
            f"model, which gristmill.lm.training.checkpoint.load_model gives."
        )
    is_cuda = next(model.parameters()).device.type == "cuda"
    if precision == "bf16" or (precision == "auto" and is_cuda):
        model.use_bfloat16()
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
