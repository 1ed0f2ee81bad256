"""Drawing: the picture of the monitor, made by a process of its own so that training never waits for it.

The figures lie beside the picture in posterior.jsonl, a line a look; `draw.py` makes the picture from them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from gristmill.errors import CheckpointError
from gristmill.posterior.metrics import PosteriorMetrics
from gristmill.publish import publish
from gristmill.report.records import MAX_METRICS_BYTES
from gristmill.small_files import read_json_lines

__all__ = ["FIGURES_FILE", "NO_MATPLOTLIB", "PICTURE_FILE", "Drawing"]

FIGURES_FILE = "posterior.jsonl"
PICTURE_FILE = "posterior.png"
NO_MATPLOTLIB = 3  # the exit status of the process that cannot import it
PATIENCE = 60.0  # seconds that the end of a run waits for the last picture


class Drawing:
    """Writes the figures of a run down, and has them drawn every `frequency` steps."""

    def __init__(self, folder: str | os.PathLike[str], frequency: int, tell: Callable[[str], object]) -> None:
        self._folder, self._frequency, self._tell = Path(folder), frequency, tell
        self._file: BinaryIO | None = None
        self._kept_step = 0  # the figures of earlier steps stay, those of a run that is resumed
        self._drawn_step = self._last_step = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._can_write = self._can_draw = True  # what fails once is reported, and not tried again

    def resume_after(self, step: int) -> None:
        """Keep what an earlier process wrote about the steps up to this one."""
        self._kept_step = self._drawn_step = self._last_step = step
        if self._file is not None:
            self._file.close()
        self._file = None

    def add(self, metrics: PosteriorMetrics) -> None:
        """Write these figures down."""
        if not self._can_write:
            return
        try:
            if self._file is None:
                self._file = self._opened()
            self._file.write(_line(metrics.to_record()))
            self._file.flush()
        except OSError as error:
            self._can_write = self._can_draw = False
            self._tell(f"the figures of the posterior cannot be written: {error}")
        self._last_step = metrics.step
        self.draw_if_due()

    def draw_if_due(self) -> None:
        """Start a drawing that is due, unless one is being made."""
        if self._process is not None and self._process.poll() is not None:
            self._judge(self._process.returncode)
        due = self._frequency and self._last_step // self._frequency > self._drawn_step // self._frequency
        if due and self._process is None and self._can_draw:
            self._start()

    def close(self) -> None:
        """Draw what is not drawn yet, and wait for it."""
        self._wait()
        if self._frequency and self._last_step > self._drawn_step and self._can_draw:
            self._start()
            self._wait()
        if self._file is not None:
            self._file.close()
            self._file = None
        self._kept_step = self._last_step  # should there be more, after all

    def _opened(self) -> BinaryIO:
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / FIGURES_FILE
        kept = [record for record in read_figures(path) if record["step"] <= self._kept_step]
        with publish(path) as file:
            file.writelines(map(_line, kept))
        return path.open("ab")

    def _start(self) -> None:
        self._drawn_step = self._last_step
        # Its own folder is not on its path (-P): a file of the user's there must not stand in for a library.
        command = [sys.executable or "python", "-P", "-m", "gristmill.posterior.draw", str(self._folder)]
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
                start_new_session=True,  # Ctrl-C is for the training, which saves; its last picture comes after that
            )
        except OSError as error:
            self._give_up(f"the picture of the posterior cannot be drawn: {error}")

    def _wait(self) -> None:
        if self._process is None:
            return
        try:
            self._judge(self._process.wait(PATIENCE))
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _judge(self, status: int) -> None:
        self._process = None
        if status == NO_MATPLOTLIB:
            self._give_up("the posterior is not drawn: matplotlib is not there. Run: pip install 'gristmill[report]'")
        elif status > 0:
            self._give_up(
                f"the posterior could not be drawn. To see why, run: {sys.executable} -m gristmill.posterior.draw "
                f"{self._folder}"
            )

    def _give_up(self, message: str) -> None:
        self._can_draw = False
        self._tell(message)


def read_figures(path: Path) -> Iterator[dict[str, Any]]:
    """The figures of a file, without a line that is not whole."""
    if not path.exists():
        return
    for record in read_json_lines(
        path, what="a file of figures", max_bytes=MAX_METRICS_BYTES, error=CheckpointError, skip_damaged=True
    ):
        if isinstance(record.get("step"), int):
            yield record


def _line(record: dict[str, Any]) -> bytes:
    return json.dumps(record, allow_nan=False).encode() + b"\n"
