"""gristmill evaluate: compute the loss of a trained model on shards."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import tyro

from gristmill.cli.examples import Examples
from gristmill.cli.options import Flag, ProfileOut
from gristmill.cli.plugins import Plugin, load_plugin
from gristmill.cli.table import pairs
from gristmill.lm.training.config import DeviceName, PrecisionName
from gristmill.packages import require_packages


@dataclass(frozen=True, kw_only=True)
class Command:
    """Compute loss, perplexity and bits per byte of a trained model on token shards.

    Bits per byte are comparable between tokenizers; loss and perplexity are not. A VAE has no perplexity, because its
    loss is a bound.
    """

    EXAMPLES: ClassVar[Examples] = (
        ("Evaluate the best checkpoint on the validation split.", "gristmill evaluate run shards"),
        (
            "Evaluate the latest checkpoint on 100 batches, as JSON.",
            "gristmill evaluate run shards --checkpoint latest --limit-batches 100 --json",
        ),
    )

    run_folder: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """Run folder of `gristmill train-model`."""

    data: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DATA")]
    """Folder written by `gristmill encode` with the same tokenizer. VAE: also Parquet files."""

    split: Annotated[Literal["val", "train"], tyro.conf.arg(metavar="{val,train}")] = "val"
    """Split of the data."""

    checkpoint: Annotated[str, tyro.conf.arg(metavar="WHICH")] = "best"
    """Checkpoint: best (lowest validation loss), latest, or a name such as step-000100."""

    batch_size: Annotated[int | None, tyro.conf.arg(metavar="N", help_behavior_hint="(default: as in training)")] = None
    """Sequences per batch."""

    limit_batches: Annotated[int | float | None, tyro.conf.arg(metavar="N|X", help_behavior_hint="(default: all)")] = (
        None
    )
    """Number of batches to evaluate, or their share. The subset is fixed."""

    device: Annotated[DeviceName, tyro.conf.arg(metavar="DEVICE")] = "auto"
    """Device to run on: auto (CUDA when available), cpu, cuda or mps."""

    precision: Annotated[PrecisionName, tyro.conf.arg(metavar="PRECISION")] = "auto"
    """Precision: auto (as in training), bf16-mixed, 16-mixed or 32."""

    json: Flag = False
    """Print a JSON object instead of a table."""

    plugin: Plugin = None

    profile_out: ProfileOut = None

    def run(self) -> int:
        """Evaluate the model and print the result."""
        require_packages("gristmill evaluate", "torch", "safetensors")
        load_plugin(self.plugin)
        from gristmill.lm.training.checkpoint import find_checkpoint
        from gristmill.lm.use.evaluation import evaluate

        result = evaluate(
            self.run_folder,
            self.data,
            split=self.split,
            which=self.checkpoint,
            batch_size=self.batch_size,
            limit_batches=self.limit_batches,
            device=self.device,
            precision=self.precision,
        )
        checkpoint = str(find_checkpoint(self.run_folder, self.checkpoint))
        if self.json:
            content = {"checkpoint": checkpoint, "split": self.split, **result.to_json()}
            print(json.dumps(content, ensure_ascii=False, allow_nan=False))
        else:
            print(pairs([("checkpoint", checkpoint), ("split", self.split), *result.rows()]))
        return 0
