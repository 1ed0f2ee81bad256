"""gristmill export-model: convert a trained model to the format of another program."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

import tyro

from gristmill.cli.choices import ModelDtype, ModelFormat, listed
from gristmill.cli.examples import Examples
from gristmill.cli.options import Flag, ProfileOut, UsageError
from gristmill.cli.plugins import Plugin, load_plugin
from gristmill.cli.table import pairs
from gristmill.lm.use.exports import FORMATS
from gristmill.packages import require_packages


@dataclass(frozen=True, kw_only=True)
class Command:
    """Convert a trained model and its tokenizer to the format of another program.

    The exported model computes the same logits. An interrupted export leaves no partial output.
    """

    EXAMPLES: ClassVar[Examples] = (
        ("For transformers and vLLM.", "gristmill export-model run -f huggingface -o hf-model"),
        ("For llama.cpp, quantized to 8 bits.", "gristmill export-model run -f gguf -o model.gguf --dtype q8_0"),
    )

    run_folder: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """Run folder of `gristmill train-model`."""

    format: Annotated[
        ModelFormat,
        tyro.conf.arg(
            aliases=["-f"],
            metavar="FORMAT",
            help=f"Format to write: {listed(FORMATS)}. huggingface is for transformers, vLLM and tools built on them; "
            f"gguf is for llama.cpp and Ollama.",
        ),
    ]

    output: Annotated[Path, tyro.conf.arg(aliases=["-o"], metavar="PATH")]
    """Folder to write. gguf: file to write."""

    dtype: Annotated[ModelDtype, tyro.conf.arg(metavar="TYPE")] = "float32"
    """Type of the weights: float32, bfloat16, float16 (or f32, bf16, f16). gguf: also q8_0."""

    checkpoint: Annotated[str, tyro.conf.arg(metavar="NAME")] = "best"
    """Checkpoint: best (lowest validation loss), latest, or a name such as step-000100."""

    tokenizer: Annotated[Path | None, tyro.conf.arg(aliases=["-t"], metavar="TOKENIZER", help_behavior_hint="")] = None
    """Tokenizer file or folder, for a run trained on token files of another program."""

    overwrite: Flag = False
    """Replace an existing export. Other files, and folders that contain them, are never replaced."""

    plugin: Plugin = None

    profile_out: ProfileOut = None

    def run(self) -> int:
        """Export the model, and print the files and how to load them."""
        if str(self.output) == "-":
            raise UsageError("--output - (stdout) is not supported. Pass the name of a file or folder.")
        require_packages("gristmill export-model", "torch", "safetensors")
        load_plugin(self.plugin)
        from gristmill.lm.use.export import export

        written = export(
            self.run_folder,
            self.output,
            format=self.format,
            which=self.checkpoint,
            dtype=self.dtype,
            overwrite=self.overwrite,
            tokenizer=self.tokenizer,
        )
        print(pairs([("run", str(self.run_folder)), *written.rows()]))
        return 0
