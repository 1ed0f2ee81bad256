"""Drawing: the plot of the monitor, drawn in a separate process so that training never waits for it.

The metrics are beside the plot in posterior.jsonl, one line per measurement; `draw.py` draws the plot from them.
"""

from __future__ import annotations

import errno
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
NO_MATPLOTLIB = 3  # exit status if matplotlib cannot be imported
PATIENCE = 60.0  # seconds to wait for the last plot at the end of a run


class Drawing:
    """Records the metrics of a run, and has them drawn every `frequency` steps."""

    def __init__(self, folder: str | os.PathLike[str], frequency: int, tell: Callable[[str], object]) -> None:
        self._folder, self._frequency, self._tell = Path(folder), frequency, tell
        self._file: BinaryIO | None = None
        self._kept_step = 0  # the records up to this step, of a resumed run, are kept
        self._drawn_step = self._last_step = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._can_write = self._can_draw = True  # a failure is reported once and not retried

    def resume_after(self, step: int) -> None:
        """Keep the records of an earlier process up to this step."""
        self._kept_step = self._last_step = step
        self._drawn_step = step if self._is_drawn() else 0
        if self._file is not None:
            self._file.close()
        self._file = None

    def _is_drawn(self) -> bool:
        """Whether the plot shows the records on disk. The process that was to draw them may have been killed."""
        try:
            times = [(self._folder / name).stat().st_mtime_ns for name in (FIGURES_FILE, PICTURE_FILE)]
        except OSError:
            return not (self._folder / FIGURES_FILE).exists()
        return times[0] <= times[1]

    def add(self, metrics: PosteriorMetrics) -> None:
        """Record these metrics."""
        if not self._can_write:
            return
        try:
            if self._file is None:
                self._file = self._opened()
            self._check_still_there(self._file)
            self._file.write(_line(metrics.to_record()))
            self._file.flush()
        except OSError as error:
            self._can_write = self._can_draw = False
            self._tell(f"cannot write the posterior metrics: {error}")
        self._last_step = metrics.step
        self.draw_if_due()

    def draw_if_due(self) -> None:
        """Start drawing if a plot is due and none is being drawn."""
        if self._process is not None and self._process.poll() is not None:
            self._judge(self._process.returncode)
        due = self._frequency and self._last_step // self._frequency > self._drawn_step // self._frequency
        if due and self._process is None and self._can_draw:
            self._start()

    def close(self) -> None:
        """Draw the remaining metrics, and wait for it."""
        self._wait()
        if self._frequency and self._last_step > self._drawn_step and self._can_draw:
            self._start()
            self._wait()
        if self._file is not None:
            self._file.close()
            self._file = None
        self._kept_step = self._last_step  # in case `add` is called again

    def _opened(self) -> BinaryIO:
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / FIGURES_FILE
        kept = [record for record in read_figures(path) if record["step"] <= self._kept_step]
        with publish(path) as file:
            file.writelines(map(_line, kept))
        return path.open("ab")

    def _check_still_there(self, file: BinaryIO) -> None:
        """Raise if the file has no name any more: what is written to it would be lost."""
        if os.fstat(file.fileno()).st_nlink == 0:
            message = "Was removed, or replaced by another process that records here. Pass another folder"
            raise FileNotFoundError(errno.ENOENT, message, str(self._folder / FIGURES_FILE))

    def _start(self) -> None:
        self._drawn_step = self._last_step
        # -P: the working directory is not on the path, so a user's file there cannot shadow a library.
        command = [sys.executable or "python", "-P", "-m", "gristmill.posterior.draw", str(self._folder)]
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
                start_new_session=True,  # Ctrl-C must reach only the training, which then draws its last plot
            )
        except OSError as error:
            self._give_up(f"cannot draw the posterior plot: {error}")

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
            self._give_up(
                "cannot draw the posterior plot: matplotlib is not installed. Run: pip install 'gristmill[report]'"
            )
        elif status > 0:
            self._give_up(
                f"drawing the posterior plot failed. To see why, run: {sys.executable} -m gristmill.posterior.draw "
                f"{self._folder}"
            )

    def _give_up(self, message: str) -> None:
        self._can_draw = False
        self._tell(message)


def read_figures(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the records of a file, without an incomplete line."""
    if not path.exists():
        return
    for record in read_json_lines(
        path, what="a file of metrics", max_bytes=MAX_METRICS_BYTES, error=CheckpointError, skip_damaged=True
    ):
        if isinstance(record.get("step"), int):
            yield record


def _line(record: dict[str, Any]) -> bytes:
    return json.dumps(record, allow_nan=False).encode() + b"\n"
