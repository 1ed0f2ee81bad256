"""gristmill generate: generate text with a trained model, and stream it to stdout."""

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
from gristmill.cli.options import Flag, ProfileOut, UsageError, plural
from gristmill.cli.plugins import Plugin, load_plugin
from gristmill.lm.models.requests import PrecisionOfText
from gristmill.lm.training.config import DeviceName
from gristmill.packages import require_packages

if TYPE_CHECKING:
    from gristmill.lm.models.generation import TextStream


@dataclass(frozen=True, kw_only=True)
class Command:
    """Generate text with a trained model.

    The prompt and its continuation are streamed to stdout. A text ends at an end-of-text token, before a --stop
    string, or after --max-tokens. The number of tokens and the speed go to stderr. Several texts are generated in
    batches and separated by a line ---, or written as JSON Lines (--jsonl).

    A VAE decodes latents: samples from the prior, the latent of a text (--reconstruct), or latents interpolated
    between two texts (--between).
    """

    EXAMPLES: ClassVar[Examples] = (
        ("Continue a prompt.", "gristmill generate run --prompt 'Once upon a time'"),
        ("Write three reproducible texts.", "gristmill generate run --prompt 'Once upon a time' --num 3 --seed 0"),
        ("Continue each line of a file, and write JSON Lines.", "gristmill generate run --prompts prompts.txt --jsonl"),
        ("Sample four texts from the prior of a VAE.", "gristmill generate vae-run --num 4"),
    )

    run_folder: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """Run folder of `gristmill train-model`."""

    prompt: Annotated[
        tuple[str, ...], tyro.conf.UseAppendAction, tyro.conf.arg(metavar="TEXT", help_behavior_hint="(repeatable)")
    ] = ()
    """Start of the text. - reads it from stdin. By default, starts a new document."""

    prompts: Annotated[Path | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="")] = None
    """File of prompts: one per line, or .jsonl with objects that have "prompt". - reads lines from stdin."""

    num: Annotated[int | None, tyro.conf.arg(metavar="N", help_behavior_hint="")] = None
    """Texts per prompt. By default 1; 4 samples from the prior of a VAE, 5 texts for --between."""

    reconstruct: Annotated[str | None, tyro.conf.arg(metavar="TEXT", help_behavior_hint="")] = None
    """VAE: text to encode and decode again. - reads it from stdin."""

    between: Annotated[tuple[str, str] | None, tyro.conf.arg(metavar="TEXT TEXT", help_behavior_hint="")] = None
    """VAE: two texts to interpolate between."""

    max_tokens: Annotated[int | None, tyro.conf.arg(metavar="N", help_behavior_hint="(default: 200)")] = None
    """Maximum number of tokens per text. A VAE defaults to its training length."""

    temperature: Annotated[float | None, tyro.conf.arg(metavar="X", help_behavior_hint="(default: 0.8)")] = None
    """Sampling temperature. 0 always takes the most likely token, the default of --reconstruct and --between."""

    top_k: Annotated[int | None, tyro.conf.arg(metavar="N", help_behavior_hint="")] = None
    """Sample from the N most likely tokens only."""

    top_p: Annotated[float | None, tyro.conf.arg(metavar="X", help_behavior_hint="")] = None
    """Sample from the smallest set of tokens with total probability X only."""

    stop: Annotated[
        tuple[str, ...], tyro.conf.UseAppendAction, tyro.conf.arg(metavar="TEXT", help_behavior_hint="(repeatable)")
    ] = ()
    """String before which a text ends."""

    seed: Annotated[int | None, tyro.conf.arg(metavar="N", help_behavior_hint="")] = None
    """Random seed; text i uses seed N + i. By default, a fresh random seed."""

    batch_size: Annotated[int | None, tyro.conf.arg(metavar="N", help_behavior_hint="")] = None
    """Texts per batch. By default, as many as memory allows."""

    precision: Annotated[PrecisionOfText, tyro.conf.arg(metavar="NAME")] = "auto"
    """Precision: bf16 (bfloat16), 32 (float32), or auto (bf16 on CUDA, otherwise 32)."""

    checkpoint: Annotated[str, tyro.conf.arg(metavar="NAME")] = "best"
    """Checkpoint: best (lowest validation loss), latest, or a name such as step-000100."""

    device: Annotated[DeviceName, tyro.conf.arg(metavar="DEVICE")] = "auto"
    """Device to run on: auto (CUDA when available), cpu, cuda or mps."""

    tokenizer: Annotated[Path | None, tyro.conf.arg(aliases=["-t"], metavar="TOKENIZER", help_behavior_hint="")] = None
    """Tokenizer file or folder, for a run trained on token files of another program."""

    chat: Flag = False
    """Respond to the prompt, using the chat template of a run trained with --conversations."""

    jsonl: Flag = False
    """Write one JSON object per text, with prompt, text and num_tokens."""

    no_cache: Flag = False
    """Disable the key-value cache: slower, same text."""

    plugin: Plugin = None

    profile_out: ProfileOut = None

    def run(self) -> int:
        """Generate the texts and stream them to stdout."""
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
    """Return all prompts; without one, an empty prompt, which starts a new document."""
    if file is None:
        return tuple(map(_read, prompts)) or ("",)
    if prompts:
        raise UsageError("--prompt and --prompts exclude each other. Pass one of them.")
    text = _read("-") if str(file) == "-" else file.read_text(encoding="utf-8", errors="replace")
    text = text.removeprefix("\ufeff")  # byte order mark of editors on Windows
    # Not splitlines(), which splits at characters that a prompt may contain, such as a form feed.
    lines = [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")] if text else []
    found = lines if file.suffix != ".jsonl" else _prompts_of_json(lines, file)
    if not found:
        raise UsageError(f"--prompts {file} contains no prompt. Write one per line.")
    return tuple(found)


def _prompts_of_json(lines: list[str], file: Path) -> list[str]:
    numbered = enumerate(lines, start=1)
    return [_prompt_of(line, f"{file}:{number}") for number, line in numbered if line.strip()]


def _prompt_of(line: str, place: str) -> str:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UsageError(
            f'--prompts {place} is not valid JSON ({error}). Write one object per line: {{"prompt": "…"}}.'
        ) from None
    prompt = record.get("prompt") if isinstance(record, dict) else None
    if not isinstance(prompt, str):
        raise UsageError(f'--prompts {place} has no string "prompt". Write one object per line: {{"prompt": "…"}}.')
    if any("\ud800" <= letter <= "\udfff" for letter in prompt):
        raise UsageError(
            f"--prompts {place} has an unpaired surrogate (\\ud800 to \\udfff), which is not text. Remove it."
        )
    return prompt


def _check_device(device: str) -> None:
    import torch

    if {"cuda": torch.cuda, "mps": torch.backends.mps}.get(device, torch.cpu).is_available():
        return
    raise UsageError(f"--device {device} is not available to torch on this machine. Pass --device cpu or auto.")


def _print_texts(streams: Iterator[TextStream], *, with_prompts: bool) -> None:
    """Stream each text, with a line --- between texts, and print the speed."""
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
                _write("\n")  # so that the shell prompt or a message starts on a new line


def _print_json_lines(streams: Iterator[TextStream]) -> None:
    """Print one object per complete text."""
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
    """Print the counts and the speed, also after an error."""
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
