"""Display of a run: the bar, log lines, and the lines before the first step."""

import contextlib
import io
import re
import subprocess
import sys

import pytest

from gristmill import OptionError
from gristmill.lm.training import display as displays
from gristmill.lm.training.display import open_display, say_starting, spelled_by, starting
from gristmill.lm.training.run_status import Pace
from lm.tiny_runs import train

RECORD = {
    "kind": "train",
    "step": 10,
    "loss": 6.628,
    "lr": 6e-4,
    "tokens_per_second": 155.2,
    "mfu": None,
    "mfu_matmul": 0.12,
    "memory_bytes": 383_000_000,
}
VAL = {"kind": "val", "step": 10, "loss": 6.7, "bits_per_byte": 1.234, "full": False, "seconds": 3.0}
SAMPLE = {"kind": "sample", "step": 10, "prompt": "Once", "text": " more\nand\x1b[2J\r again"}


@pytest.fixture
def clock(monkeypatch):
    """A clock that moves only when it is set. clock[0] is the time in seconds."""
    seconds = [1000.0]
    monkeypatch.setattr(displays.time, "monotonic", lambda: seconds[0])
    return seconds


class Shown:
    """Collects everything written to stderr."""

    def __init__(self, capsys):
        self._capsys, self._text = capsys, ""

    def getvalue(self):
        self._text += self._capsys.readouterr().err
        return self._text


@pytest.fixture
def stderr(capsys):
    return Shown(capsys)


@contextlib.contextmanager
def bar(num_columns, *, total=40_000, initial=0, **options):
    with open_display("bar", total=total, initial=initial, **options) as display:
        display._bar.dynamic_ncols = lambda _: (num_columns, 24)
        yield display


def drawings(stderr):
    return [line for line in stderr.getvalue().replace("\r", "\n").splitlines() if line.strip()]


def test_the_bar_moves_without_a_record(stderr, clock):
    with bar(80, total=1000) as display:
        for step in range(1, 5):
            clock[0] += 0.6
            display.tick(step)
        assert [f"| {step}/1,000" in drawings(stderr)[step] for step in range(1, 5)] == [True] * 4


def test_quick_steps_do_not_draw_the_bar_each_time(stderr, clock):
    with bar(80, total=1000) as display:
        display.tick(1)
        before = len(drawings(stderr))
        for step in range(2, 500):
            clock[0] += 0.001
            display.tick(step)
        assert len(drawings(stderr)) == before
        clock[0] += 0.1
        display.tick(500)
        assert "500/1,000" in drawings(stderr)[-1]


def test_the_loop_of_a_run_moves_the_bar_between_records(tiny_shards, tmp_path, stderr, monkeypatch):
    monkeypatch.setattr(displays, "BAR_SECONDS", 0.0)
    train(tiny_shards, tmp_path / "run", progress="bar", log_interval=1000)
    shown = stderr.getvalue()
    assert all(f"| {step}/20" in shown for step in range(21))


@pytest.mark.parametrize(
    ("num_columns", "there", "not_there"),
    [
        (80, ["10/40,000", "loss 6.628", "val 6.700", "155 tokens/s", "ETA"], ["MFU"]),
        (50, ["10/40,000", "loss 6.628", "ETA"], ["tokens/s", "MFU"]),
        (130, ["val 6.700", "155 tokens/s", "MFU 12%", "383 MB", "500 ms/step", "ETA"], []),
    ],
)
def test_a_narrow_terminal_shows_what_matters_most_and_nothing_cut_off(stderr, clock, num_columns, there, not_there):
    with bar(num_columns) as display:
        for step in range(1, 11):
            clock[0] += 0.5
            display.tick(step)
        display.show(RECORD)
        display.show(VAL)
        last = drawings(stderr)[-1]
    assert [part for part in there if part not in last] == []
    assert [part for part in not_there if part in last] == []
    assert len(last) <= num_columns
    assert not last.rstrip().endswith(",")


@pytest.mark.parametrize(
    ("rate", "memory", "shown"),
    [(155.2, 383e6, "155 tokens/s, 383 MB"), (9_999.0, 12.34e9, "10k tokens/s, 12.3 GB"), (1.2345e6, 0, "1.23M tok")],
)
def test_units_fit_their_numbers(stderr, rate, memory, shown):
    with bar(200) as display:
        display.show({**RECORD, "tokens_per_second": rate, "memory_bytes": memory, "mfu_matmul": None})
        display.busy("validating")
    assert shown in drawings(stderr)[-2]


def test_the_bar_names_what_takes_long(stderr, clock):
    with bar(80, compiles=True) as display:
        display.busy("validating")
        display.tick(1)
    shown = drawings(stderr)
    assert "compiling the model" in shown[0]
    assert "validating" in shown[1]
    assert "validating" not in shown[-1]


def test_the_time_left_after_a_resume_counts_only_steps_made_since():
    pace = Pace(total=1000)
    for step in range(901, 911):
        pace.tick(step, now=3.0 * step)
    assert pace.seconds_left() == pytest.approx(90 * 3)


def test_the_first_step_which_compiles_says_nothing_about_the_others():
    pace = Pace(total=100)
    pace.tick(1, now=300.0)
    assert pace.seconds_left() is None
    for step in range(2, 12):
        pace.tick(step, now=300.0 + step - 1)
    assert pace.seconds_per_step() == pytest.approx(1)
    assert pace.seconds_left() == pytest.approx(89)


def test_a_validation_does_not_make_steps_look_slow_and_its_cost_is_expected_again():
    pace, now = Pace(total=401), 0.0
    for step in range(1, 202):
        now += 0.5
        if step in (102, 200):
            pace.pause()
            now += 60
        pace.tick(step, now)
    assert pace.seconds_per_step() == pytest.approx(0.5, rel=0.02)
    assert pace.seconds_left() == pytest.approx(200 * 0.5 + 2 * 60, rel=0.02)


def test_the_pace_follows_a_machine_that_slows_down():
    pace, now = Pace(total=10_000), 0.0
    for step in range(1, 2001):
        now += 1.0 if step <= 1000 else 5.0
        pace.tick(step, now)
    assert pace.seconds_per_step() == pytest.approx(5)


def log_lines(stderr):
    shown = stderr.getvalue()
    assert "\r" not in shown
    assert "\x1b" not in shown
    assert shown.endswith("\n")
    assert all(line.startswith("gristmill: ") for line in shown.splitlines())
    return [line.removeprefix("gristmill: ") for line in shown.splitlines()]


def test_off_a_terminal_there_is_a_line_for_the_first_record_then_by_time(stderr, clock):
    with open_display("auto", total=100, initial=0) as display:
        for step in range(1, 101):
            clock[0] += 1.0
            display.tick(step)
            display.show({**RECORD, "step": step})
    lines = log_lines(stderr)
    assert lines[0] == "training from step 0/100"
    assert [int(line.split("/")[0].split()[1]) for line in lines[1:-1]] == [1, *range(11, 100, 10), 100]
    assert lines[2] == ("step 11/100: loss 6.628, lr 6.00e-04, 155 tokens/s, 1 s/step, MFU 12%, 383 MB, ETA 1:29")
    assert lines[-1] == "finished at step 100/100 after 1:40"


def test_off_a_terminal_rare_records_do_not_make_a_run_silent(stderr, clock):
    with open_display("auto", total=1000, initial=0) as display:
        for step in range(1, 101):
            clock[0] += 1.0
            display.tick(step)
    assert [line.split(":")[0] for line in log_lines(stderr)[1:-1]] == [
        "step 30/1,000",
        "step 60/1,000",
        "step 90/1,000",
    ]


def test_off_a_terminal_validations_samples_and_messages_are_one_line_each(stderr, clock):
    with open_display("auto", total=100, initial=10, compiles=True) as display:
        display.show(VAL)
        display.show({**VAL, "full": True})
        display.show(SAMPLE)
        display.say("a message")
    assert log_lines(stderr) == [
        "training from step 10/100, compiling the model first",
        "step 10/100: val loss 6.700, 1.234 bits per byte, in 3 s",
        "step 10/100: val loss 6.700, on the whole validation split, 1.234 bits per byte, in 3 s",
        "step 10/100: sample: Once more and\ufffd[2J\ufffd again",
        "a message",
        "finished at step 10/100 after 0:00",
    ]


def test_a_run_that_fails_is_not_called_finished(stderr):
    with contextlib.suppress(KeyboardInterrupt), open_display("auto", total=100, initial=0):
        raise KeyboardInterrupt
    assert log_lines(stderr) == ["training from step 0/100"]


def test_a_run_off_a_terminal_writes_log_lines_and_none_is_silent(tiny_shards, tmp_path, capfd):
    train(tiny_shards, tmp_path / "quiet", progress=None)
    assert capfd.readouterr().err == ""
    train(tiny_shards, tmp_path / "run", progress="auto")
    shown = capfd.readouterr().err
    assert "\r" not in shown
    for line in ("opening the data", "building the model", r"step 4/20: loss .*", r"step 20/20: loss .* val loss .*"):
        assert re.search(f"^gristmill: {line}$", shown, re.MULTILINE), line
    assert shown.splitlines()[-1].startswith("gristmill: finished at step 20/20 after")


def test_what_a_model_writes_cannot_steer_the_terminal(stderr):
    with bar(80) as display:
        display.show(SAMPLE)
    assert "Once more\nand\ufffd[2J\ufffd again\n" in stderr.getvalue()
    assert "\x1b" not in stderr.getvalue()


class Broken(io.StringIO):
    def write(self, text):
        raise OSError(28, "No space left on device")


@pytest.mark.parametrize("progress", ["auto", "bar", "jsonl"])
def test_a_stderr_on_a_full_disk_does_not_end_a_run(monkeypatch, progress):
    monkeypatch.setattr(sys, "stderr", Broken())
    say_starting(progress)
    with open_display(progress, total=10, initial=0) as display:
        display.tick(1)
        for record in (RECORD, VAL, SAMPLE):
            display.show(record)
        display.say("a message")
        display.busy("validating")


START = "import sys; sys.path.insert(0, sys.argv[1]); from gristmill.cli import main; sys.exit(main(sys.argv[2:]))"


@pytest.mark.parametrize(("options", "first"), [([], "gristmill: loading torch"), (["--progress", "none"], None)])
def test_the_command_shows_a_line_before_it_imports_torch(tmp_path, options, first):
    (tmp_path / "torch.py").write_text("raise ModuleNotFoundError(name='torch')")  # an import that takes no time
    arguments = [tmp_path, "train-model", tmp_path, "-o", tmp_path / "run", *options]
    done = subprocess.run([sys.executable, "-c", START, *arguments], capture_output=True, text=True, timeout=60)
    lines = done.stderr.splitlines()
    assert done.returncode != 0
    assert "torch" in lines[-1]
    assert lines[:-1] == ([first] if first else [])


def test_only_the_first_of_several_processes_says_that_it_starts(stderr, monkeypatch):
    monkeypatch.setenv("LOCAL_RANK", "1")
    say_starting("auto")
    assert stderr.getvalue() == ""


def test_the_line_of_the_start_is_gone_before_an_error_is_shown(stderr):
    with pytest.raises(OptionError), starting("bar"):
        say_starting("bar", "opening the data")
        raise OptionError("no")
    shown = stderr.getvalue()
    assert "opening the data" in shown
    assert shown.endswith(" \r")
    assert "\n" not in shown


def test_messages_name_keyword_arguments_unless_the_caller_spells_options_otherwise(stderr):
    with open_display("auto", total=10, initial=0) as display:
        display.say("Pass resume='auto' to resume.")
        with spelled_by(lambda message: message.replace("resume='auto'", "--resume auto")):
            display.say("Pass resume='auto' to resume.")
    assert log_lines(stderr)[1:-1] == ["Pass resume='auto' to resume.", "Pass --resume auto to resume."]


def test_an_unknown_display_is_refused():
    with pytest.raises(OptionError, match="progress='loud' is not valid"), open_display("loud", total=1, initial=0):
        pass


def test_the_bar_and_json_lines_go_to_stderr(capsys):
    for progress in ("bar", "jsonl"):
        with open_display(progress, total=5, initial=0) as display:
            for record in (RECORD, VAL, SAMPLE):
                display.show(record)
            display.say("hello")
    out, err = capsys.readouterr()
    assert out == ""
    assert "loss 6.628" in err
    assert '"tokens_per_second": 155.2' in err
    assert "Once more" in err
