"""Replacing a run: the old run is kept until the new one has a checkpoint.

    run/.replaced/    the complete old run while the new one is set up; a valid run folder
    run/.aside/       a part of the old run while it is moved to `.replaced` or back; the rest is still in `run/`
    run/.removed.*    an old run that is being deleted

Any failure before the first checkpoint puts the old run back. A process that is killed during that time leaves one of
these folders. The next run in the folder takes its lock and starts with `put_back`.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from gristmill.lm.data.chat_jinja import CHAT_TEMPLATE_FILE
from gristmill.lm.explain import CHECKPOINTS, CONFIG_FILE, REPLACED_FOLDER
from gristmill.lm.training.checkpoint import TOKENIZER_FILE
from gristmill.lm.training.records import METRICS_FILE
from gristmill.lm.training.writers import LOGGER_FILES
from gristmill.posterior.drawing import FIGURES_FILE
from gristmill.publish import flush_folder

__all__ = ["ASIDE_FOLDER", "MACHINE_FILE", "PLOT_FOLDER", "Replacement", "put_back", "remove_entry", "replacing"]

MACHINE_FILE = "machine.json"
PLOT_FOLDER = "plots"
ASIDE_FOLDER = ".aside"

# All files that a run or its report writes to its folder. Other files in the folder are never touched.
OWN = (
    *(CONFIG_FILE, MACHINE_FILE, TOKENIZER_FILE, CHAT_TEMPLATE_FILE, METRICS_FILE, CHECKPOINTS),
    *("report.html", "report.md", *LOGGER_FILES, f"{PLOT_FOLDER}/{FIGURES_FILE}", f"{PLOT_FOLDER}/*.png"),
)


class Replacement:
    """Moves the run in a folder aside while a new one starts. Does nothing unless `overwrite`."""

    def __init__(self, run: Path, *, overwrite: bool) -> None:
        self.overwrite = overwrite
        self._run = run
        self.is_aside = False  # whether the old run is in `.replaced`, to be deleted or put back

    def set_aside(self) -> None:
        """Move the old run to `.replaced`. Only the first process calls this, just before it writes the new run."""
        if not self.overwrite or not (names := _own_names(self._run)):
            return
        self.is_aside = True
        _move(self._run, self._run / ASIDE_FOLDER, names)
        (self._run / ASIDE_FOLDER).rename(self._run / REPLACED_FOLDER)
        flush_folder(self._run)

    def drop(self) -> None:
        """Delete the old run if it is aside. Called when the new run has a checkpoint."""
        if self.is_aside:
            self.is_aside = False
            removed = self._run / f".removed.{os.getpid()}"
            (self._run / REPLACED_FOLDER).rename(removed)
            remove_entry(removed)

    def put_back(self) -> None:
        """Remove the new run and restore the old one, if the old one is aside."""
        if self.is_aside:
            self.is_aside = False
            put_back(self._run)


@contextlib.contextmanager
def replacing(run: Path, *, overwrite: bool) -> Iterator[Replacement]:
    """Yield the `Replacement` for a folder. An error before the old run is deleted restores it."""
    replacement = Replacement(run, overwrite=overwrite)
    try:
        yield replacement
    except BaseException:
        replacement.put_back()
        raise
    replacement.drop()


def put_back(run: Path) -> None:
    """Restore a run that was set aside and not deleted. If this is killed at any moment, the next call completes it."""
    replaced, aside = run / REPLACED_FOLDER, run / ASIDE_FOLDER
    if replaced.is_dir():
        # The files in the folder now belong to the new run: the old one was moved completely.
        for name in _own_names(run):
            remove_entry(run / name)
        replaced.rename(aside)
    if aside.is_dir():
        _move(aside, run, _own_names(aside))
        shutil.rmtree(aside)
        flush_folder(run)


def _own_names(folder: Path) -> list[str]:
    return [str(path.relative_to(folder)) for pattern in OWN for path in sorted(folder.glob(pattern))]


def _move(source: Path, target: Path, names: list[str]) -> None:
    for name in names:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).rename(target / name)


def remove_entry(path: Path) -> None:
    """Remove a file, link or folder tree. Errors are ignored."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink()
