"""gristmill generate: text from a trained model, as it comes."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

import tyro

from gristmill.cli.examples import Examples
from gristmill.cli.options import Flag, UsageError, plural
from gristmill.cli.plugins import Plugin, load_plugin
from gristmill.lm.models.requests import PrecisionOfText
from gristmill.lm.training.config import DeviceName
from gristmill.packages import require_packages

if TYPE_CHECKING:
    from gristmill.lm.models.generation import TextStream


@dataclass(frozen=True, kw_only=True)
class Command:
    """Write text with a trained model.

    The text goes to stdout as it comes, after the prompt; it ends where the model ends
    a document, before a --stop string, or after --max-tokens. Speed and number of
    tokens go to stderr. Several texts are written at once, and appear one after the
    other with a line --- between them, or as JSON lines (--jsonl).

    A VAE makes texts of latents: of latents drawn from the prior, of the latent of a
    text (--reconstruct), or of those on the way from one text to another (--between).
    """

    EXAMPLES: ClassVar[Examples] = (
        ("Continue a prompt.", "gristmill generate run --prompt 'Once upon a time'"),
        ("Write three reproducible texts.", "gristmill generate run --prompt 'Once upon a time' --num 3 --seed 0"),
        ("Continue each line of a file, and write JSON lines.", "gristmill generate run --prompts prompts.txt --jsonl"),
        ("Sample four texts from the prior of a VAE.", "gristmill generate vae-run --num 4"),
    )

    run_folder: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """A folder that `gristmill train-model` wrote to."""

    prompt: Annotated[
        tuple[str, ...], tyro.conf.UseAppendAction, tyro.conf.arg(metavar="TEXT", help_behavior_hint="(repeatable)")
    ] = ()
    """How the text begins; - reads it from stdin; without one, a document of its own."""

    prompts: Annotated[Path | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="")] = None
    """A file of prompts: one per line, or, if it ends in .jsonl, objects with "prompt"; - reads lines from stdin."""

    num: Annotated[int | None, tyro.conf.arg(metavar="N", help_behavior_hint="")] = None
    """How many texts of each prompt: unless given, one; 4 from the prior of a VAE, 5 between two texts."""

    reconstruct: Annotated[str | None, tyro.conf.arg(metavar="TEXT", help_behavior_hint="")] = None
    """VAE: give back this text from its latent; - reads it from stdin."""

    between: Annotated[tuple[str, str] | None, tyro.conf.arg(metavar="TEXT TEXT", help_behavior_hint="")] = None
    """VAE: the texts on the way from one to the other."""

    max_tokens: Annotated[int | None, tyro.conf.arg(metavar="N", help_behavior_hint="(default: 200)")] = None
    """The most tokens of a text; a VAE: as many as it was trained on unless given."""

    temperature: Annotated[float | None, tyro.conf.arg(metavar="X", help_behavior_hint="(default: 0.8)")] = None
    """Below 1 the text is more likely, above 1 more varied; 0 (as --reconstruct and --between): the likeliest token."""

    top_k: Annotated[int | None, tyro.conf.arg(metavar="N", help_behavior_hint="")] = None
    """Choose among this many of the likeliest tokens only."""

    top_p: Annotated[float | None, tyro.conf.arg(metavar="X", help_behavior_hint="")] = None
    """Choose among the likeliest tokens that share this probability only."""

    stop: Annotated[
        tuple[str, ...], tyro.conf.UseAppendAction, tyro.conf.arg(metavar="TEXT", help_behavior_hint="(repeatable)")
    ] = ()
    """End a text before this string."""

    seed: Annotated[int | None, tyro.conf.arg(metavar="N", help_behavior_hint="")] = None
    """The same seed, the same text; text i has the seed N + i. Without one, other texts each time."""

    batch_size: Annotated[int | None, tyro.conf.arg(metavar="N", help_behavior_hint="")] = None
    """Texts that are written at once: unless given, as many as memory allows."""

    precision: Annotated[PrecisionOfText, tyro.conf.arg(metavar="NAME")] = "auto"
    """bf16 computes in bfloat16, 32 in float32; auto: bf16 on CUDA, otherwise 32."""

    checkpoint: Annotated[str, tyro.conf.arg(metavar="NAME")] = "best"
    """best (the lowest validation loss), latest, or a name such as step-000100."""

    device: Annotated[DeviceName, tyro.conf.arg(metavar="DEVICE")] = "auto"
    """Device to run on: auto (CUDA when available), cpu, cuda or mps."""

    tokenizer: Annotated[Path | None, tyro.conf.arg(aliases=["-t"], metavar="TOKENIZER", help_behavior_hint="")] = None
    """The tokenizer of the training data, a file or folder, for a run on token files of another program."""

    chat: Flag = False
    """Answer the prompt, in the chat template of a run that was trained with --conversations."""

    jsonl: Flag = False
    """Write a JSON object per text: its prompt, text and num_tokens."""

    no_cache: Flag = False
    """Compute all keys and values again for each token: slower, the same text."""

    plugin: Plugin = None

    def run(self) -> int:
        """Write the texts, each as it comes."""
        require_packages("gristmill generate", "torch", "safetensors")
        _check_device(self.device)
        load_plugin(self.plugin)
        from gristmill.lm.models.requests import TextRequest
        from gristmill.lm.use.generation import chat_template_of, load_for_generation, written_texts

        request = TextRequest(
            prompts=_prompts(self.prompt, self.prompts),
            reconstruct=None if self.reconstruct is None else _read(self.reconstruct),
            between=self.between,
            num_texts=self.num,
            max_tokens=self.max_tokens,
            temperature=self.temperature,
            top_k=self.top_k,
            top_p=self.top_p,
            stop=self.stop,
            seed=self.seed,
            batch_size=self.batch_size,
            use_cache=not self.no_cache,
        )
        model, tokenizer = load_for_generation(
            self.run_folder,
            which=self.checkpoint,
            device=self.device,
            tokenizer=self.tokenizer,
            precision=self.precision,
        )
        if self.chat:
            request = dataclasses.replace(request, chat=chat_template_of(self.run_folder, tokenizer))
        streams = written_texts(model, tokenizer, request)
        _print_json_lines(streams) if self.jsonl else _print_texts(streams, with_prompts=not self.chat)
        return 0


def _read(text: str) -> str:
    return sys.stdin.buffer.read().decode("utf-8", "replace") if text == "-" else text


def _prompts(prompts: tuple[str, ...], file: Path | None) -> tuple[str, ...]:
    """All prompts of the command line; none is one that begins a document."""
    if file is None:
        return tuple(map(_read, prompts)) or ("",)
    if prompts:
        raise UsageError("--prompt and --prompts exclude each other. Pass one of them.")
    text = _read("-") if str(file) == "-" else file.read_text(encoding="utf-8", errors="replace")
    text = text.removeprefix("\ufeff")  # the mark that editors on Windows begin a file with
    # Not splitlines(), which cuts at characters that a prompt may hold, such as a form feed.
    lines = [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")] if text else []
    found = lines if file.suffix != ".jsonl" else _prompts_of_json(lines, file)
    if not found:
        raise UsageError(f"--prompts {file}: there is no prompt in it. Write one per line.")
    return tuple(found)


def _prompts_of_json(lines: list[str], file: Path) -> list[str]:
    numbered = enumerate(lines, start=1)
    return [_prompt_of(line, f"{file}:{number}") for number, line in numbered if line.strip()]


def _prompt_of(line: str, place: str) -> str:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UsageError(
            f'--prompts {place}: no JSON ({error}). Write an object per line: {{"prompt": "…"}}.'
        ) from None
    prompt = record.get("prompt") if isinstance(record, dict) else None
    if not isinstance(prompt, str):
        raise UsageError(f'--prompts {place}: no text "prompt" in it. Write an object per line: {{"prompt": "…"}}.')
    if any("\ud800" <= letter <= "\udfff" for letter in prompt):
        raise UsageError(f"--prompts {place}: half of a surrogate pair (\\ud800 to \\udfff) is no text. Correct it.")
    return prompt


def _check_device(device: str) -> None:
    import torch

    if {"cuda": torch.cuda, "mps": torch.backends.mps}.get(device, torch.cpu).is_available():
        return
    raise UsageError(f"--device {device}: torch finds no such device here. Leave it out, or pass --device cpu.")


def _print_texts(streams: Iterator[TextStream], *, with_prompts: bool) -> None:
    """Print each text as its characters become complete, with a line --- between texts, and how fast that was."""
    with _measured() as counts:
        for stream in streams:
            _write("---\n" * (counts.num_texts > 0))
            counts.num_texts += 1
            _write(stream.prompt * with_prompts)
            try:
                for text in stream:
                    _write(text)
            finally:
                counts.num_tokens += stream.num_tokens
                _write("\n")  # what comes next, a prompt of the shell or a message, begins a line


def _print_json_lines(streams: Iterator[TextStream]) -> None:
    """Print an object per text when it is complete."""
    with _measured() as counts:
        for stream in streams:
            text = "".join(stream)
            record = {"prompt": stream.prompt, "text": text, "num_tokens": stream.num_tokens}
            _write(json.dumps(record, ensure_ascii=False) + "\n")
            counts.num_texts += 1
            counts.num_tokens += stream.num_tokens


@dataclass
class _Counts:
    num_texts: int = 0
    num_tokens: int = 0


@contextlib.contextmanager
def _measured() -> Iterator[_Counts]:
    """Print what was counted and how fast it was, also after an error."""
    began, counts = time.perf_counter(), _Counts()
    try:
        yield counts
    finally:
        seconds = time.perf_counter() - began
        num_texts, num_tokens = counts.num_texts, counts.num_tokens
        texts = plural(num_texts, "text") if num_texts != 1 or not num_tokens else ""
        tokens = plural(num_tokens, "token") if num_tokens or (num_texts == 1 and not texts) else ""
        rate = f", {num_tokens / seconds:,.0f} tokens/s" if num_tokens and seconds > 0 else ""
        print(f"{', '.join(filter(None, [texts, tokens]))} in {seconds:.2f} s{rate}", file=sys.stderr)


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
