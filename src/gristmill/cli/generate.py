"""gristmill generate: text from a trained model, as it comes."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from gristmill.cli.options import Flag, UsageError, plural
from gristmill.cli.plugins import Plugin, load_plugin
from gristmill.lm.training.config import DeviceName
from gristmill.packages import require_packages

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gristmill.lm.models.generation import TextStream


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
    """How many texts: unless given, one; 4 from the prior of a VAE, 5 between two texts."""

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

    plugin: Plugin = None

    def run(self) -> int:
        """Write the texts, each as it comes, with a line --- between them."""
        require_packages("gristmill generate", "torch", "safetensors")
        _check_device(self.device)
        load_plugin(self.plugin)
        from gristmill.lm.models.requests import TextRequest
        from gristmill.lm.use.generation import load_for_generation

        request = TextRequest(
            prompt=_read(self.prompt),
            reconstruct=None if self.reconstruct is None else _read(self.reconstruct),
            between=self.between,
            num_texts=self.num,
            max_tokens=self.max_tokens,
            temperature=self.temperature,
            top_k=self.top_k,
            top_p=self.top_p,
            seed=self.seed,
            use_cache=not self.no_cache,
        )
        model, tokenizer = load_for_generation(
            self.run_folder, which=self.checkpoint, device=self.device, tokenizer=self.tokenizer
        )
        _print_texts(model.write(tokenizer, request))
        return 0


def _read(text: str) -> str:
    return sys.stdin.buffer.read().decode("utf-8", "replace") if text == "-" else text


def _check_device(device: str) -> None:
    import torch

    if {"cuda": torch.cuda, "mps": torch.backends.mps}.get(device, torch.cpu).is_available():
        return
    raise UsageError(f"--device {device}: torch finds no such device here. Leave it out, or pass --device cpu.")


def _print_texts(streams: Iterator[TextStream]) -> None:
    """Print each text as its characters become complete, and how fast that was."""
    began, num_texts, num_tokens = time.perf_counter(), 0, 0
    try:
        for stream in streams:
            _write("---\n" * (num_texts > 0))
            num_texts += 1
            _write(stream.prompt)
            try:
                for text in stream:
                    _write(text)
            finally:
                num_tokens += stream.num_tokens
                _write("\n")  # what comes next, a prompt of the shell or a message, begins a line
    finally:
        seconds = time.perf_counter() - began
        texts = plural(num_texts, "text") if num_texts != 1 or not num_tokens else ""
        tokens = plural(num_tokens, "token") if num_tokens or (num_texts == 1 and not texts) else ""
        rate = f", {num_tokens / seconds:,.0f} tokens/s" if num_tokens and seconds > 0 else ""
        print(f"{', '.join(filter(None, [texts, tokens]))} in {seconds:.2f} s{rate}", file=sys.stderr)


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
