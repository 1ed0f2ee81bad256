"""gristmill generate: text from a trained model, as it comes."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from gristmill.cli.options import Flag, UsageError, plural
from gristmill.errors import GristmillError
from gristmill.lm.training.config import DeviceName
from gristmill.packages import require_packages

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gristmill import StreamDecoder


@dataclass(frozen=True, kw_only=True)
class Command:
    """Write text with a trained model.

    The text goes to stdout as it comes, after the prompt; it ends where the model ends
    a document, or after --max-tokens. Speed and number of tokens go to stderr.

    A VAE makes texts of latents, with a line --- between them: of latents drawn from
    the prior, of the latent of a text (--reconstruct), or of those on the way from one
    text to another (--between).
    """

    run_folder: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """A folder that `gristmill train-model` wrote to."""

    prompt: Annotated[str, tyro.conf.arg(metavar="TEXT", help_behavior_hint="")] = ""
    """How the text begins; - reads it from stdin; without one, a document of its own."""

    num: Annotated[int | None, tyro.conf.arg(metavar="N", help_behavior_hint="")] = None
    """VAE: how many texts; 4 from the prior, 5 between two texts unless given."""

    reconstruct: Annotated[str | None, tyro.conf.arg(metavar="TEXT", help_behavior_hint="")] = None
    """VAE: give back this text from its latent; - reads it from stdin."""

    between: Annotated[tuple[str, str] | None, tyro.conf.arg(metavar="TEXT TEXT", help_behavior_hint="")] = None
    """VAE: the texts on the way from one to the other."""

    max_tokens: Annotated[int | None, tyro.conf.arg(metavar="N", help_behavior_hint="(default: 200)")] = None
    """The most tokens to write; a VAE: in each text, as many as it was trained on unless given."""

    temperature: Annotated[float | None, tyro.conf.arg(metavar="X", help_behavior_hint="(default: 0.8)")] = None
    """Below 1 the text is more likely, above 1 more varied; 0 (as --reconstruct and --between): the likeliest token."""

    top_k: Annotated[int | None, tyro.conf.arg(metavar="N", help_behavior_hint="")] = None
    """Choose among this many of the likeliest tokens only."""

    top_p: Annotated[float | None, tyro.conf.arg(metavar="X", help_behavior_hint="")] = None
    """Choose among the likeliest tokens that share this probability only."""

    seed: Annotated[int | None, tyro.conf.arg(metavar="N", help_behavior_hint="")] = None
    """The same seed, the same text; without one, another text each time."""

    checkpoint: Annotated[str, tyro.conf.arg(metavar="NAME")] = "best"
    """best (the lowest validation loss), latest, or a name such as step-000100."""

    device: Annotated[DeviceName, tyro.conf.arg(metavar="DEVICE")] = "auto"
    """Device to run on: auto (CUDA when available), cpu, cuda or mps."""

    tokenizer: Annotated[Path | None, tyro.conf.arg(aliases=["-t"], metavar="TOKENIZER", help_behavior_hint="")] = None
    """The tokenizer of the training data, a file or folder, for a run on token files of another program."""

    no_cache: Flag = False
    """Compute all keys and values again for each token: slower, the same text."""

    def run(self) -> int:
        require_packages("gristmill generate", "torch", "safetensors")
        _check_device(self.device)
        if _holds_a_vae(self.run_folder):
            self._write_texts_of_latents()
        else:
            self._continue_prompt()
        return 0

    def _continue_prompt(self) -> None:
        for name in ("num", "reconstruct", "between"):
            if getattr(self, name) is not None:
                raise UsageError(f"--{name} is for a VAE, and {self.run_folder} has none. Pass --prompt TEXT.")
        from gristmill.lm.use.generation import end_of_text_id, generate, load_for_generation

        prompt = _read(self.prompt)
        model, tokenizer = load_for_generation(
            self.run_folder, which=self.checkpoint, device=self.device, tokenizer=self.tokenizer
        )
        stop_id = end_of_text_id(tokenizer)
        # A special token in a prompt is most likely meant as one. Without a prompt, the text starts a new document.
        prompt_ids = tokenizer.encode(prompt, allowed_special="all") or ([] if stop_id is None else [stop_id])
        ids = generate(
            model,
            prompt_ids,
            max_tokens=200 if self.max_tokens is None else self.max_tokens,
            temperature=0.8 if self.temperature is None else self.temperature,
            top_k=self.top_k,
            top_p=self.top_p,
            seed=self.seed,
            stop_id=stop_id,
            use_cache=not self.no_cache,
        )
        _write(prompt)
        _print_stream(ids, tokenizer.stream_decoder())

    def _write_texts_of_latents(self) -> None:
        self._check_options_of_a_vae()
        from gristmill.lm.use.latent import Choice, between, load_vae, reconstructed, texts_from_prior

        choice: Choice = {"top_k": self.top_k, "top_p": self.top_p, "seed": self.seed, "max_tokens": self.max_tokens}
        if self.temperature is not None:
            choice["temperature"] = self.temperature
        model, tokenizer = load_vae(
            self.run_folder, which=self.checkpoint, device=self.device, tokenizer=self.tokenizer
        )
        began = time.perf_counter()
        if self.reconstruct is not None:
            texts = reconstructed(model, tokenizer, [_read(self.reconstruct)], **choice)
        elif self.between is not None:
            texts = between(model, tokenizer, *self.between, num_texts=5 if self.num is None else self.num, **choice)
        else:
            texts = texts_from_prior(model, tokenizer, num_texts=4 if self.num is None else self.num, **choice)
        _write("\n---\n".join(texts) + "\n")
        print(f"{plural(len(texts), 'text')} in {time.perf_counter() - began:.2f} s", file=sys.stderr)

    def _check_options_of_a_vae(self) -> None:
        if self.prompt:
            raise UsageError(
                f"--prompt: {self.run_folder} has a VAE, which makes whole texts of latents. Leave it out for samples, "
                f"or pass --reconstruct TEXT, or --between TEXT TEXT."
            )
        if self.no_cache:
            raise UsageError("--no-cache is for a GPT. Leave it out.")
        if self.reconstruct is not None and (self.between is not None or self.num is not None):
            other = "--num" if self.between is None else "--between"
            raise UsageError(f"--reconstruct and {other} exclude each other. Pass one of them.")


def _holds_a_vae(folder: Path) -> bool:
    from gristmill.lm.training.config import load_config

    try:
        return folder.is_dir() and load_config(folder).model == "vae"
    except GristmillError:
        return False  # loading the model reports what is wrong


def _read(text: str) -> str:
    return sys.stdin.buffer.read().decode("utf-8", "replace") if text == "-" else text


def _check_device(device: str) -> None:
    import torch

    if {"cuda": torch.cuda, "mps": torch.backends.mps}.get(device, torch.cpu).is_available():
        return
    raise UsageError(f"--device {device}: torch finds no such device here. Leave it out, or pass --device cpu.")


def _print_stream(ids: Iterator[int], decoder: StreamDecoder) -> None:
    """Print the text of the ids as its characters become complete, and how fast that was."""
    began, num_tokens = time.perf_counter(), 0
    try:
        for id in ids:
            num_tokens += 1
            _write(decoder.push(id))
        _write(decoder.finish())
    finally:
        _write("\n")  # what comes next, a prompt of the shell or a message, begins a line
        seconds = time.perf_counter() - began
        rate = f", {num_tokens / seconds:,.0f} tokens/s" if num_tokens and seconds > 0 else ""
        print(f"{plural(num_tokens, 'token')} in {seconds:.2f} s{rate}", file=sys.stderr)


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
