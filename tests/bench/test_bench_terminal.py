"""The tables of `gristmill bench` on a terminal."""

import io
import os

import pytest

from gristmill.bench import pages
from gristmill.bench.tables import markdown_table
from gristmill.bench.terminal import for_terminal

HEADER = ["system", "median s", "time / ours", "outcome"]
ROWS = [["gristmill", "0.018", "1.00x", "equal"], ["rival", "–", "–", "not installed: rival, which is a long reason"]]


def test_a_long_reason_does_not_widen_the_columns_of_the_measured_rows():
    lines = for_terminal(markdown_table(HEADER, ROWS), 44).split("\n")
    assert lines[:2] == ["  system     median s  time / ours  outcome", "  gristmill     0.018        1.00x    equal"]
    assert lines[2].startswith("  rival      not installed: rival")
    assert max(map(len, lines)) <= 44


def test_a_header_that_is_too_wide_takes_two_lines_and_keeps_every_number():
    text = for_terminal(markdown_table(HEADER, ROWS), 36)
    assert text.split("\n")[:3] == [
        "             median  time /",
        "  system          s    ours  outcome",
        "  gristmill   0.018   1.00x    equal",
    ]


def test_a_last_column_that_is_too_wide_is_wrapped_under_itself():
    rows = [["guide", "131", "16 processes, CPU not reported"]]
    assert for_terminal(markdown_table(["source", "s", "hardware"], rows), 36) == (
        "  source    s  hardware\n  guide   131  16 processes, CPU not\n               reported"
    )


@pytest.mark.parametrize("is_terminal", [False, True])
def test_a_pipe_gets_markdown_and_a_terminal_a_plain_table(is_terminal, tmp_path, monkeypatch):
    class Stdout(io.StringIO):
        def isatty(self):
            return is_terminal

    stdout = Stdout()
    monkeypatch.setattr("sys.stdout", stdout)
    monkeypatch.setattr(pages.shutil, "get_terminal_size", lambda: os.terminal_size((80, 24)))
    page = pages.Page("one", "One", {}, [markdown_table(HEADER, ROWS)], {})
    written = pages.publish_page(page, tmp_path)
    assert ("| gristmill |" in stdout.getvalue()) is not is_terminal
    assert "| gristmill |" in written.read_text()
