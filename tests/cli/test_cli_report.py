"""gristmill report."""

import pytest

from recorded_runs import write_run


def test_it_says_what_it_wrote_and_where(gristmill, tmp_path):
    folder = write_run(tmp_path / "run", num_records=20)
    code, out, err = gristmill("report", folder)
    assert (code, err) == (0, "")
    assert [line.split()[0] for line in out.splitlines()] == ["page", "summary", "plots"]
    assert str(folder / "report.html") in out
    assert (folder / "report.html").is_file() and (folder / "report.md").is_file()
    assert f"8 in {folder / 'plots'}" in out


@pytest.mark.parametrize("name", ["missing", "."])
def test_a_folder_that_is_no_run_is_one_line_and_exit_code_1(gristmill, tmp_path, name):
    code, out, err = gristmill("report", tmp_path / name)
    assert (code, out) == (1, "")
    assert err.startswith("gristmill: error: ") and err.count("\n") == 1


def test_without_a_folder_it_is_wrong_usage(gristmill):
    code, _, err = gristmill("report")
    assert code == 2
    assert "RUN" in err
