"""Options of a resumed run: the saved options combined with those passed now."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gristmill.errors import CheckpointError, GristmillError
from gristmill.lm.explain import REPLACED_FOLDER, STATE_FILE
from gristmill.lm.training.base_run import with_own_files
from gristmill.lm.training.checkpoint import damage_error, list_checkpoints, read_state
from gristmill.lm.training.config import config_of_run, with_saved

__all__ = ["options_to_resume", "saved_options"]


def saved_options(run: Path) -> dict[str, Any]:
    """Return the options of the latest checkpoint in the folder of a run; {} without a checkpoint.

    Includes a run that an interrupted overwrite=True has set aside: it is put back before it is resumed.
    """
    aside = run / REPLACED_FOLDER
    there = list_checkpoints(aside if aside.is_dir() else run)
    if not there:
        return {}
    try:
        options = config_of_run(read_state(there[-1])["config"], source=str(there[-1])).to_json()
        if options["max_steps"] is None:  # a saved config has every number filled in
            raise ValueError("max_steps is missing")
        return options
    except GristmillError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise damage_error(there[-1] / STATE_FILE, f"invalid config ({error!s:.200})") from None


def options_to_resume(run: Path, saved: Mapping[str, Any], requested: Mapping[str, Any]) -> dict[str, Any]:
    """Return the saved options, replaced by those passed now; raise `CheckpointError` if the run would be shorter."""
    if "model" in requested and requested["model"] != saved["model"]:
        return dict(requested)  # a later comparison raises an error that names the difference
    max_steps = requested.get("max_steps")
    if isinstance(max_steps, int) and max_steps < saved["max_steps"]:
        raise CheckpointError(
            f"{run}: the run cannot be resumed: max_steps was {saved['max_steps']} and is now {max_steps}. Pass "
            f"max_steps >= {saved['max_steps']}, or start a new run in another folder."
        )
    options = with_saved(saved, requested)
    if not options.get("conversations"):
        return options
    own = {**options, **{name: requested.get(name) for name in ("tokenizer", "chat_template")}}
    return with_own_files(run / REPLACED_FOLDER if (run / REPLACED_FOLDER).is_dir() else run, own)
