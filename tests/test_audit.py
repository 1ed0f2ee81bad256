"""tools/audit.py: `make check` fails for a known vulnerability, and never because there is no network."""

from __future__ import annotations

import importlib
import json
import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CLEAN = {"dependencies": [{"name": "numpy", "version": "2.4.6", "vulns": []}], "fixes": []}
SKIPPED = {"dependencies": [{"name": "numpy", "skip_reason": "not found on PyPI"}], "fixes": []}
KNOWN = {
    "dependencies": [
        {"name": "numpy", "version": "2.4.6", "vulns": []},
        {
            "name": "idna",
            "version": "3.6",
            "vulns": [
                {"id": "PYSEC-2024-60", "fix_versions": ["3.7"], "aliases": ["CVE-2024-3651"], "description": ""}
            ],
        },
        {"name": "torch", "skip_reason": "not found on PyPI"},
    ],
    "fixes": [],
}
# A program in place of pip-audit: prints what the test has prepared for the service, or hangs.
FAKE = """
import os, sys, time
service = sys.argv[sys.argv.index("--vulnerability-service") + 1]
answer = os.path.join(os.environ["ANSWERS"], service)
if not os.path.exists(answer):
    sys.exit("ConnectionError: no network")
if open(answer).read() == "hang":
    time.sleep(600)
print(open(answer).read())
"""


@pytest.fixture
def audit(monkeypatch, tmp_path):
    """tools/audit.py with a program in place of pip-audit, and an empty list of allowed vulnerabilities."""
    (tmp_path / "fake").mkdir()
    (tmp_path / "fake" / "pip_audit.py").write_text(FAKE)
    (tmp_path / "allowed.toml").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path / "fake"))
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path / 'fake'}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.setenv("ANSWERS", str(tmp_path))
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    module = importlib.import_module("audit")
    monkeypatch.setattr(module, "ALLOWED", tmp_path / "allowed.toml")
    yield module
    del sys.modules["audit"]


def answer(tmp_path, service, content):
    (tmp_path / service).write_text(content if isinstance(content, str) else json.dumps(content))


def test_a_known_vulnerability_fails_with_its_package_its_names_and_the_fixed_version(audit, tmp_path, capsys):
    answer(tmp_path, "pypi", KNOWN)
    assert audit.main() == 1
    output = capsys.readouterr().out
    assert "Packages of constraints.txt: 2, known vulnerabilities: 1, allowed: 0, unknown: torch." in output
    assert "idna 3.6: PYSEC-2024-60, CVE-2024-3651 (fixed in 3.7)" in output


@pytest.mark.parametrize("name", ["PYSEC-2024-60", "CVE-2024-3651"])
def test_a_vulnerability_with_a_reason_passes_and_is_counted(name, audit, tmp_path, capsys):
    answer(tmp_path, "pypi", KNOWN)
    audit.ALLOWED.write_text(f'[[allowed]]\nid = "{name}"\npackage = "idna"\nreason = "not used with foreign input"\n')
    assert audit.main() == 0
    assert "known vulnerabilities: 0, allowed: 1" in capsys.readouterr().out


def test_an_entry_without_a_reason_is_refused(audit, tmp_path):
    answer(tmp_path, "pypi", KNOWN)
    audit.ALLOWED.write_text('[[allowed]]\nid = "PYSEC-2024-60"\npackage = "idna"\nreason = " "\n')
    with pytest.raises(SystemExit, match="needs id, package and reason"):
        audit.main()


def test_an_entry_that_is_no_longer_needed_is_reported(audit, tmp_path, capsys):
    answer(tmp_path, "pypi", CLEAN)
    audit.ALLOWED.write_text('[[allowed]]\nid = "PYSEC-2024-60"\npackage = "idna"\nreason = "was needed once"\n')
    assert audit.main() == 0
    assert "which no package has any more. Remove the entry." in capsys.readouterr().out


def test_packages_without_vulnerabilities_pass(audit, tmp_path, capsys):
    answer(tmp_path, "pypi", CLEAN)
    assert audit.main() == 0
    assert capsys.readouterr().out == (
        "Audit done (pypi). Packages of constraints.txt: 1, known vulnerabilities: 0, allowed: 0.\n"
    )


def test_without_a_network_the_check_passes_and_says_that_nothing_was_audited(audit, capsys):
    assert audit.main() == 0
    output = capsys.readouterr().out
    assert output.startswith("Audit not done:") and "ConnectionError: no network" in output


def test_a_mirror_that_knows_no_package_is_not_taken_for_an_audit_without_findings(audit, tmp_path, capsys):
    answer(tmp_path, "pypi", SKIPPED)
    assert audit.main() == 0
    assert capsys.readouterr().out.startswith("Audit not done:")
    answer(tmp_path, "osv", KNOWN)  # the second service is asked then
    assert audit.main() == 1
    assert capsys.readouterr().out.startswith("Audit done (osv).")


def test_a_service_that_hangs_ends_at_the_time_limit(audit, tmp_path, capsys, monkeypatch):
    answer(tmp_path, "pypi", "hang")
    monkeypatch.setattr(audit, "MAX_SECONDS", 1)
    assert audit.main() == 0
    assert "no answer within 1 s" in capsys.readouterr().out


def test_a_machine_without_pip_audit_passes_and_says_so(audit, capsys, monkeypatch):
    monkeypatch.setattr(audit.importlib.util, "find_spec", lambda _: None)
    assert audit.main() == 0
    assert capsys.readouterr().out == "Audit not done: pip-audit is not installed.\n"


def test_make_check_runs_the_audit_and_installs_a_pinned_version():
    makefile = (ROOT / "Makefile").read_text()
    static = makefile.partition("\ncheck-static:")[2].partition("\n\n")[0]
    assert static.rstrip().endswith("$(BIN)/python tools/audit.py")
    assert "$(PIP) pip-audit ||" in makefile
    assert "\npip_audit==" in (ROOT / "constraints.txt").read_text()


def test_the_list_of_allowed_vulnerabilities_can_be_read(audit):
    audit.read_allowed(ROOT / "tools" / "audit_allowed.toml")
