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
    assert "run folder" in err


def test_two_runs_are_compared_on_one_page(gristmill, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b"):
        write_run(tmp_path / name, num_records=5)
    assert gristmill("report", "a", "b") == (0, "  page  comparison.html\n  runs  2\n", "")
    assert (tmp_path / "comparison.html").is_file() and not (tmp_path / "a" / "report.html").exists()
    code, _, err = gristmill("report", "a", "b")
    assert code == 1 and "comparison.html" in err and "--overwrite" in err
    assert gristmill("report", "a", "b", "--overwrite")[0] == 0
    assert gristmill("report", "a", "b", "-o", "other.html")[0] == 0
    assert (tmp_path / "other.html").is_file()


def test_the_report_of_one_run_takes_no_name_of_a_page(gristmill, tmp_path):
    write_run(tmp_path / "a", num_records=5)
    code, _, err = gristmill("report", tmp_path / "a", "-o", tmp_path / "page.html")
    assert code == 2 and "written to its folder" in err
