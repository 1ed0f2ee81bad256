"""What a run is resumed with: the options it was saved with, and what is passed beside them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gristmill.errors import CheckpointError
from gristmill.lm.training.checkpoint import list_checkpoints, read_state
from gristmill.lm.training.config import config_of_run, with_saved

__all__ = ["options_to_resume"]


def options_to_resume(run: Path, asked: Mapping[str, Any]) -> dict[str, Any]:
    """The options of the latest checkpoint with those that are passed on top; as they are where there is none."""
    there = list_checkpoints(run)
    if not there:
        return dict(asked)
    saved = config_of_run(read_state(there[-1])["config"], source=str(there[-1])).to_json()
    if "model" in asked and asked["model"] != saved["model"]:
        return dict(asked)  # comparing them names the difference
    max_steps = asked.get("max_steps")
    if isinstance(max_steps, int) and max_steps < saved["max_steps"]:
        raise CheckpointError(
            f"{there[-1]}: the run cannot be resumed: max_steps was {saved['max_steps']} and is now {max_steps}. Pass "
            f"at least as many, or start a new run in another folder."
        )
    return with_saved(saved, asked)
