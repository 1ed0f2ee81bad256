"""Text generation with the model of a run.

`generate_text` (public as `gm.lm.generate`) returns the text after a prompt. `load_for_generation` returns the model
and its tokenizer, for `stream_text` or `model.write`.
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
    """Options of `generate_text` except `num_texts`, for type checkers."""

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
    """Return the text that a trained model generates after `prompt`, without the prompt.

    A list of prompts, or `num_texts`, gives a list of texts: all texts of the first prompt, then those of the next.
    A batch of texts takes little more time than one text.

    Args:
        run: Folder of the run.
        prompt: Start of the text, or a list of them. "" starts a new document.
        num_texts: Texts per prompt. None: one.
        max_tokens: Maximum number of tokens per text. A text ends earlier at an end-of-text token.
        temperature: Sampling temperature. 0 always takes the most likely token. Below 1 favors likely tokens, above 1
            flattens their distribution.
        top_k: Sample from the k most likely tokens only.
        top_p: Sample from the smallest set of tokens with total probability p only.
        stop: One or more strings. A text ends before the first of them.
        seed: Random seed. Text i, counted over all prompts, equals up to rounding the text that `seed + i` gives alone.
            None: a fresh random seed.
        batch_size: Texts per batch. None: as many as memory allows.
        precision: "bf16" (bfloat16), "32" (float32), or "auto" (bfloat16 on CUDA, otherwise float32).
        chat: Return the response to `prompt` as the message of a user, in the chat template of a run trained on
            conversations. Special tokens in the prompt stay plain text.
        which: Checkpoint: "best", "latest" or a name such as "step-000100".
        device: "auto" (CUDA when available), "cpu", "cuda" or "mps".
        tokenizer: Tokenizer of the training data, or its path, for a run trained on token files of another program,
            which does not store one.

    Returns:
        The text, or a list of texts.

    Raises:
        OptionError: An option is invalid, or the device is not available.
        CheckpointError: The run or checkpoint does not exist, the tokenizer does not match, or `chat` needs a chat
            template that the run does not have.

    Examples:
        ```python
        gm.lm.generate("run", "Once upon a time", max_tokens=100, seed=0)
        gm.lm.generate("run", ["Once upon a time", "The cat"], num_texts=3, stop="The end")
        ```
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
        raise OptionError("prompt=[] contains no prompt. Pass at least one; '' starts a new document.")
    for each in prompts:
        if not isinstance(each, str):
            raise OptionError(f"prompt={each!r} is of type {type(each).__name__}. Pass a str or a list of str.")
    return prompts


def chat_template_of(run: str | os.PathLike[str], tokenizer: Tokenizer) -> ChatTemplate:
    """Return the chat template of a run trained on conversations. Raise `CheckpointError` if it has none."""
    from gristmill.lm.data.chat_jinja import CHAT_TEMPLATE_FILE
    from gristmill.lm.data.chat_template import ChatTemplate

    path = Path(run) / CHAT_TEMPLATE_FILE
    if not path.is_file():
        raise CheckpointError(
            f"{run}: chat=True needs a chat template, but the run has no {CHAT_TEMPLATE_FILE}, because it was not "
            f"trained on conversations. Pass a run trained on conversations, or omit chat=True."
        )
    return ChatTemplate.load(path, tokenizer)


def written_texts(model: Model, tokenizer: Tokenizer, request: TextRequest) -> Iterator[TextStream]:
    """Return the texts of `request` for any model. A model that overrides `write` gets one prompt at a time."""
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
    """Return the model of a run, in evaluation mode on `device`, and its tokenizer.

    Args:
        run: Folder of the run.
        which: Checkpoint: "best", "latest" or a name such as "step-000100".
        device: "auto" (CUDA when available), "cpu", "cuda" or "mps".
        tokenizer: Tokenizer of the training data, or its path, for a run that does not store one.
        precision: "bf16" generates text in bfloat16; a GPT then stores its weights in bfloat16. "32" uses float32,
            "auto" bfloat16 on CUDA.

    Raises:
        OptionError: An option is invalid, or the device is not available.
        CheckpointError: The run or checkpoint does not exist, the tokenizer does not match, or the model was trained on
            vectors.

    Examples:
        ```python
        model, tokenizer = gm.lm.load_for_generation("run")
        for piece in gm.lm.stream_text(model, tokenizer, "Once upon a time"):
            print(piece, end="", flush=True)
        ```
    """
    folder = Path(run)
    if precision not in get_args(PrecisionOfText):
        raise OptionError(f"precision={precision!r} is not valid. Pass 'auto', 'bf16' or '32'.")
    given = None if tokenizer is None else as_tokenizer(tokenizer)
    model, fingerprint = load_of_run(folder, which=which, device=device)
    if model.config.vocab_size is None:
        raise CheckpointError(
            f"{folder}: the model was trained on vectors and generates vectors, not text. Load it with "
            f"gristmill.lm.training.checkpoint.load_model, and call its encode and decode_vectors."
        )
    is_cuda = next(model.parameters()).device.type == "cuda"
    if precision == "bf16" or (precision == "auto" and is_cuda):
        model.use_bfloat16()
    return model, find_tokenizer(folder, fingerprint, model, given)


def load_of_run(folder: Path, *, which: str, device: str) -> tuple[Model, str | None]:
    """Return the model of a run, of any kind, and the fingerprint of its tokenizer, if it has one."""
    target = find_device(device)
    checkpoint = find_checkpoint(folder, which)
    model, _ = load_model(folder, which=checkpoint.name, device=target)
    return model, read_state(checkpoint)["shards"].get("tokenizer_fingerprint")


def find_tokenizer(run: Path, fingerprint: str | None, model: Any, given: Tokenizer | None) -> Tokenizer:
    """Return the tokenizer of a run, or the given one, and set the vocabulary size of `model` to match.

    A model may have more rows than tokens: the other rows are padding, and are never sampled. A model trained without a
    tokenizer may have fewer rows, if the last tokens did not occur in its data.
    """
    tokenizer = given
    if fingerprint is None and tokenizer is None:
        raise CheckpointError(
            f"{run}: the model was trained on token ids, and the run does not store their tokenizer. Pass "
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
        raise CheckpointError(f"cannot read the tokenizer of the run: {error}") from error


def _check_tokenizer(run: Path, tokenizer: Tokenizer, fingerprint: str, model: Any, *, is_given: bool) -> None:
    """Raise `CheckpointError` unless the model was trained with this tokenizer."""
    if tokenizer.fingerprint != fingerprint:
        place = "the given tokenizer" if is_given else f"the tokenizer {run / TOKENIZER_FILE}"
        advice = "Pass the tokenizer of the training data, or none." if is_given else "Restore the original file."
        raise CheckpointError(
            f"{place} is not the one that the model was trained with: its fingerprint is "
            f"{tokenizer.fingerprint}, but the checkpoint has {fingerprint}. {advice}"
        )
    if tokenizer.vocab_size > model.config.vocab_size:
        raise CheckpointError(
            f"{run}: the tokenizer has {tokenizer.vocab_size:,} tokens, but the model has "
            f"{model.config.vocab_size:,}. The files belong to different runs. Restore the original tokenizer.json."
        )
