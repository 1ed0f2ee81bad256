"""Progress: bars, JSON lines, a callable, silence."""

import dataclasses
import io
import json
import subprocess
import sys
from types import SimpleNamespace

import pytest

import gristmill
from gristmill.errors import OptionError
from gristmill.progress import Progress, open_progress, resident_bytes


class Terminal(io.StringIO):
    def isatty(self):
        return True


def report_all(on_progress):
    for stage, total in (("count", 1000), ("join", 1000), ("setup", 77), ("merge", 30)):
        on_progress(stage, 0, total)
        if stage != "setup":  # the core does not report the end of setup
            on_progress(stage, total, total)


def set_stderr(monkeypatch, stderr):
    # Not sys.stderr, because pytest replaces it between the set-up of a test and the test.
    monkeypatch.setattr("gristmill.progress.sys", SimpleNamespace(stderr=stderr, modules={}))
    return stderr


@pytest.fixture
def terminal(monkeypatch):
    return set_stderr(monkeypatch, Terminal())


@pytest.fixture
def pipe(monkeypatch):
    return set_stderr(monkeypatch, io.StringIO())


def test_silent_progress_gives_the_core_no_function_to_call():
    with open_progress(None) as on_progress:
        assert on_progress is None


@pytest.mark.usefixtures("pipe")
def test_auto_is_silent_where_stderr_is_no_terminal():
    with open_progress("auto") as on_progress:
        assert on_progress is None


def test_auto_is_silent_where_there_is_no_stderr_at_all(monkeypatch):
    set_stderr(monkeypatch, None)
    with open_progress("auto") as on_progress:
        assert on_progress is None


def test_auto_does_not_flash_a_bar_for_work_that_lasts_a_moment(terminal):
    with open_progress("auto") as on_progress:
        report_all(on_progress)
    assert terminal.getvalue() == ""


def test_auto_shows_bars_once_the_work_has_lasted_a_while(terminal, monkeypatch):
    monkeypatch.setattr("gristmill.progress.AUTO_DELAY_SECONDS", 0.0)
    with open_progress("auto") as on_progress:
        report_all(on_progress)
    assert "merge: 100%" in terminal.getvalue()


def test_bar_is_shown_even_where_stderr_is_no_terminal(pipe):
    with open_progress("bar") as on_progress:
        report_all(on_progress)
    for stage in ("count", "join", "setup", "merge"):
        assert f"{stage}: 100%" in pipe.getvalue()  # including setup, whose end is not reported
    assert "CPU" in pipe.getvalue()
    assert "merges/s" in pipe.getvalue()
    assert "B/s" in pipe.getvalue()


def test_a_stage_that_is_interrupted_by_another_continues_in_its_own_bar(terminal):
    with open_progress("bar") as on_progress:
        on_progress("count", 400, 1000)
        on_progress("spill", 10, 10)
        on_progress("count", 1000, 1000)
    assert terminal.getvalue().count("count:   0%") <= 1
    assert "count: 100%" in terminal.getvalue()


def test_an_unknown_total_is_no_division_by_zero(terminal):
    with open_progress("bar") as on_progress:
        on_progress("count", 0, 0)
        on_progress("count", 500, 0)
    assert "500" in terminal.getvalue()


def test_an_error_in_the_work_leaves_the_cursor_on_a_new_line(terminal):
    with pytest.raises(RuntimeError), open_progress("bar") as on_progress:
        on_progress("count", 400, 1000)
        raise RuntimeError
    assert terminal.getvalue().endswith("\n")


def test_json_lines_hold_every_field_of_a_report(pipe):
    with open_progress("jsonl") as on_progress:
        report_all(on_progress)
    reports = [json.loads(line) for line in pipe.getvalue().splitlines()]
    assert [report["stage"] for report in reports] == ["count", "count", "join", "join", "setup", "merge", "merge"]
    assert {frozenset(report) for report in reports} == {
        frozenset(field.name for field in dataclasses.fields(Progress))
    }


def test_a_callable_is_given_rates_that_follow_from_its_own_figures():
    reports = []
    with open_progress(reports.append) as on_progress:
        report_all(on_progress)
    for report in reports:
        assert report.seconds >= 0
        assert report.rate == pytest.approx(report.done / report.seconds if report.seconds else 0)
        assert report.unit == {"setup": "symbols", "merge": "merges"}.get(report.stage, "bytes")


def test_time_of_a_stage_starts_at_zero_with_the_stage(monkeypatch):
    clock = iter([0.0, 1.0, 2.0, 5.0])
    monkeypatch.setattr("gristmill.progress.time.perf_counter", lambda: next(clock))
    reports = []
    with open_progress(reports.append) as on_progress:
        on_progress("count", 1, 2)
        on_progress("count", 2, 2)
        on_progress("merge", 3, 3)
    assert [report.seconds for report in reports] == [1.0, 2.0, 3.0]


def test_what_a_callable_raises_cancels_the_training_and_comes_out():
    class Enough(Exception):
        pass

    def stop(report):
        raise Enough(report.stage)

    with pytest.raises(Enough, match="count"):
        gristmill.train_tokenizer(["low low low lower lowest"], vocab_size=260, progress=stop, special_tokens=())


def test_training_reports_the_end_of_every_stage_that_counts_something(tmp_path):
    path = tmp_path / "corpus.txt"
    path.write_text("low low low lower lowest")
    reports = []
    gristmill.train_tokenizer(path, vocab_size=260, progress=reports.append, special_tokens=())
    last = {report.stage: report for report in reports}
    for stage in ("count", "merge"):
        assert last[stage].done == last[stage].total > 0


def test_result_does_not_depend_on_who_watches():
    quiet = gristmill.train_tokenizer(["low low low lower lowest"], vocab_size=260, progress=None, special_tokens=())
    watched = gristmill.train_tokenizer(
        ["low low low lower lowest"], vocab_size=260, progress=lambda report: None, special_tokens=()
    )
    assert quiet == watched


@pytest.mark.parametrize("wrong", ["bars", True, 3, ""])
def test_an_unknown_progress_is_named_before_any_work(wrong):
    with (
        pytest.raises(OptionError, match=r"progress=.*'auto', 'bar', 'jsonl', a callable, or None"),
        open_progress(wrong),
    ):
        pass


def test_memory_is_given_or_none_but_never_a_guess():
    memory = resident_bytes()
    assert memory is None or 1_000_000 < memory < 1 << 40


def test_importing_gristmill_does_not_import_tqdm_or_tyro():
    code = "import sys, gristmill, gristmill.progress; print(sorted({'tqdm', 'tyro'} & set(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


class Full(Terminal):
    def write(self, text):
        raise OSError(28, "No space left on device")


@pytest.mark.parametrize("progress", ["bar", "jsonl"])
def test_a_stderr_that_cannot_be_written_to_does_not_end_the_work(monkeypatch, progress):
    set_stderr(monkeypatch, Full())
    with open_progress(progress) as on_progress:
        report_all(on_progress)
