"""The table in docs/reliability.md: every row has tests, these passed when they last ran, and the page is current."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from faults.rows.fault import files_of_rows, read_faults, read_record, row_of

ROWS = range(1, 29)
SCRIPT = Path(__file__).parents[2] / "tools" / "reliability.py"


@pytest.fixture(scope="module")
def reliability():
    spec = importlib.util.spec_from_file_location("reliability", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_row_has_one_file_of_tests_that_are_named_after_it():
    assert sorted(row_of(path) for path in files_of_rows()) == list(ROWS)
    for path in files_of_rows():
        names = re.findall(r"^def (test_\w*)", path.read_text(encoding="utf-8"), re.MULTILINE)
        assert names and all(name.startswith(f"test_row_{row_of(path):02}_") for name in names), path


def test_a_file_declares_the_row_of_its_name_and_the_tests_it_refers_to_exist():
    for path, fault in read_faults().items():
        assert fault.row == row_of(path)
        for other in fault.see_also:
            assert (SCRIPT.parents[1] / other).is_file(), f"{path}: {other}"


@pytest.mark.parametrize("row", ROWS)
def test_the_recorded_run_of_each_row_passed(row):
    run = read_record()[str(row)]
    assert run["passed"] > 0 and run["failed"] == 0


def test_the_page_has_the_table_of_these_declarations(reliability):
    page = reliability.PAGE.read_text(encoding="utf-8")
    assert reliability.page_with_table(page) == page, "run `make faults`, or python tools/reliability.py"
