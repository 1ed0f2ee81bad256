"""The plot: drawn by one process at a time, while training continues."""

import json
import os
import struct
import subprocess
import sys
from typing import ClassVar

import pytest
import torch

from gristmill.posterior import drawing
from gristmill.posterior.draw import main, picture
from gristmill.posterior.drawing import read_figures
from gristmill.report.records import posterior_of
from posterior.posteriors import batches, metrics, quiet_monitor, squared


class Process:
    """Replaces a process that draws: it ends when the test says so."""

    started: ClassVar = []

    def __init__(self, command, **options):
        self.command, self.returncode = command, None
        Process.started.append(self)

    def poll(self):
        return self.returncode

    def wait(self, timeout=None):
        self.returncode = 0 if self.returncode is None else self.returncode
        return self.returncode


@pytest.fixture
def processes(monkeypatch):
    Process.started = []
    monkeypatch.setattr(drawing.subprocess, "Popen", Process)
    return Process.started


def updated(monitor, num_steps, *, first=1):
    for step, (mu, logvar, z) in enumerate(batches(num_steps, seed=first), start=first):
        monitor.update(mu, logvar, z, step=step, reconstruct=squared)
    return monitor


def steps_in(folder):
    return [record["step"] for record in read_figures(folder / "posterior.jsonl")]


def test_a_picture_and_its_figures_are_in_the_folder(tmp_path):
    folder = tmp_path / "new" / "folder"
    monitor = updated(quiet_monitor(2, 10, 2, gap_interval=2, plot_folder=folder), 30)
    monitor.close()
    assert monitor.messages == []
    data = (folder / "posterior.png").read_bytes()
    width, height = struct.unpack(">II", data[16:24])
    assert data.startswith(b"\x89PNG\r\n") and width > 1200 and height > 800
    assert {path.name for path in folder.iterdir()} == {"posterior.jsonl", "posterior.png"}
    records = list(read_figures(folder / "posterior.jsonl"))
    assert records == [metrics.to_record() for metrics in monitor.history]


def test_never_more_than_one_process_and_training_waits_for_none(tmp_path, processes):
    monitor = updated(quiet_monitor(1, 5, 1, plot_folder=tmp_path), 30)
    assert len(processes) == 1  # it has not ended, 30 steps later
    processes[0].returncode = 0
    updated(monitor, 1, first=31)
    assert len(processes) == 2  # the plot that became due meanwhile
    processes[1].returncode = 0
    updated(monitor, 2, first=32)
    assert len(processes) == 2
    monitor.close()
    assert len(processes) == 3  # with the last metrics


def test_without_a_folder_nothing_is_written_or_started(tmp_path, processes, monkeypatch):
    monkeypatch.chdir(tmp_path)
    updated(quiet_monitor(1, 1, 1), 5).close()
    assert processes == [] and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("status", "words"), [(3, "pip install 'gristmill[report]'"), (1, "To see why, run")])
def test_a_picture_that_cannot_be_drawn_is_reported_once_and_figures_are_kept(tmp_path, processes, status, words):
    monitor = quiet_monitor(1, 1, 1, plot_folder=tmp_path)
    for step in range(1, 6):
        updated(monitor, 1, first=step)
        for process in processes:
            process.returncode = status
    monitor.close()
    assert len(processes) == 1
    assert len(monitor.messages) == 1 and words in monitor.messages[0]
    assert steps_in(tmp_path) == [1, 2, 3, 4, 5]


def test_a_full_disk_is_reported_once_and_training_continues(tmp_path, processes, monkeypatch):
    def fail(*args, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(drawing, "publish", fail)
    monitor = updated(quiet_monitor(1, 1, 1, plot_folder=tmp_path), 5)
    monitor.close()
    assert len(monitor.history) == 5
    assert len(monitor.messages) == 1 and "No space left" in monitor.messages[0]


def test_a_new_run_forgets_the_figures_of_an_old_one_and_a_resumed_one_those_beyond_its_step(tmp_path, processes):
    options = {"update_frequency": 2, "plot_frequency": 100, "window_size": 2, "plot_folder": tmp_path}
    updated(quiet_monitor(**options), 30).close()
    monitor = updated(quiet_monitor(**options), 11)
    state = monitor.state_tensors()
    updated(monitor, 8, first=12).close()
    assert steps_in(tmp_path) == [2, 4, 6, 8, 10, 12, 14, 16, 18]
    resumed = quiet_monitor(**options)
    resumed.load_state_tensors(*state)
    updated(resumed, 3, first=12).close()
    assert steps_in(tmp_path) == [2, 4, 6, 8, 10, 12, 14]


def test_a_resumed_run_draws_the_picture_that_a_killed_one_did_not_and_no_other(tmp_path, processes):
    options = {"update_frequency": 2, "plot_frequency": 100, "window_size": 2, "plot_folder": tmp_path}
    monitor = updated(quiet_monitor(**options), 10)
    state = monitor.state_tensors()
    assert not processes  # killed here, after the last step

    def num_drawn_by_a_resumed_run():
        processes.clear()
        resumed = quiet_monitor(**options)
        resumed.load_state_tensors(*state)
        resumed.close()
        return len(processes)

    assert num_drawn_by_a_resumed_run() == 1
    main(tmp_path)
    assert num_drawn_by_a_resumed_run() == 0
    os.utime(tmp_path / "posterior.jsonl")  # a record that the picture does not show
    assert num_drawn_by_a_resumed_run() == 1


def test_without_matplotlib_the_process_says_so(tmp_path):
    fake = tmp_path / "fake" / "matplotlib"
    fake.mkdir(parents=True)
    (fake / "__init__.py").write_text("raise ImportError('none here')")
    command = [sys.executable, "-P", "-m", "gristmill.posterior.draw", str(tmp_path)]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(fake.parent)})
    assert done.returncode == drawing.NO_MATPLOTLIB
    assert not (tmp_path / "posterior.png").exists()


def records_of(*figures):
    return [metrics(step, **each).to_record() for step, each in enumerate(figures, start=1)]


DEAD = {
    "kl": 0.0,
    "mutual_information": -0.001,
    "kl_per_dimension": (0.0,),
    "active_units": 0,
    "active_units_strict": 0,
    "gap_shuffled": 0.0,
    "gap_prior": 0.0,
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "records",
    [
        [],
        records_of({}),
        records_of(*[{}] * 3),
        records_of(*[{"gap_shuffled": None, "gap_prior": None}] * 5),
        records_of(*[{"kl": None, "mutual_information": None, "kl_per_dimension": (None,) * 30}] * 5),
        records_of(*[DEAD] * 5),
        records_of(*[{"kl_per_dimension": (0.1,) * 500}] * 200),
    ],
    ids=["nothing", "one", "three", "no gaps", "not a number", "collapsed", "many"],
)
def test_a_picture_can_be_made_of_whatever_is_known(records):
    assert picture(posterior_of(records)).startswith(b"\x89PNG")


def test_half_a_line_at_the_end_is_left_out(tmp_path):
    text = "".join(json.dumps(record) + "\n" for record in records_of({}, {}))
    (tmp_path / "posterior.jsonl").write_text(text + '{"kind": "posterior", "st', encoding="utf-8")
    assert steps_in(tmp_path) == [1, 2]
    assert main(tmp_path) == 0
    assert (tmp_path / "posterior.png").exists()


def test_alarms_are_in_the_picture_from_when_they_were_raised_until_they_were_cleared():
    monitor = quiet_monitor(2, 0, 2)
    for step in range(1, 41):
        is_dead = 10 < step <= 20 or step > 32
        mu = torch.randn(16, 4, generator=torch.Generator().manual_seed(step)) * (0.0 if is_dead else 1.0)
        monitor.update(mu, torch.zeros_like(mu))
    monitor.close()
    spans = posterior_of([metrics.to_record() for metrics in monitor.history]).spans
    assert [(span.kind, span.first, span.last, span.is_over) for span in spans] == [
        ("collapse", 14, 24, True),
        ("collapse", 36, 40, False),
    ]
