"""Look up known vulnerabilities of the packages in constraints.txt, with pip-audit.

Fails only if a package has a known vulnerability without an entry in tools/audit_allowed.toml. Without a network, with
a package index that lists no vulnerabilities, or without pip-audit, the audit is not done: the script prints the reason
and passes, because a build must work offline.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
CONSTRAINTS = ROOT / "constraints.txt"
ALLOWED = Path(__file__).with_name("audit_allowed.toml")
# PyPI first: one small request per package. OSV has the same advisories, and works where only a mirror is in reach.
SERVICES = ("pypi", "osv")
MAX_SECONDS = 60  # of one service; PyPI usually answers for all packages in 15 s


class Finding(NamedTuple):
    """A known vulnerability of a package."""

    package: str
    version: str
    names: tuple[str, ...]  # its id and aliases, such as PYSEC-2024-60 and CVE-2024-3651
    fixed_in: tuple[str, ...]


class Audit(NamedTuple):
    """The answer of a service."""

    findings: list[Finding]
    num_audited: int
    skipped: list[str]  # packages that the service does not know


def main(arguments: Sequence[str] = ()) -> int:
    """Audit the constraints, or the file in `arguments`, and print one line or the findings."""
    constraints = Path(arguments[0]) if arguments else CONSTRAINTS
    allowed = read_allowed(ALLOWED)
    if importlib.util.find_spec("pip_audit") is None:
        print("Audit not done: pip-audit is not installed.")
        return 0
    reasons = []
    for service in SERVICES:
        audit = ask(service, constraints)
        if isinstance(audit, Audit) and audit.num_audited:
            return report(audit, allowed, service)
        reasons.append(f"{service}: {audit if isinstance(audit, str) else 'it knows none of the packages'}")
    print(f"Audit not done: no service with vulnerabilities is in reach ({'; '.join(reasons)}).")
    return 0


def ask(service: str, constraints: Path) -> Audit | str:
    """Return the answer of a service, or the reason for its absence."""
    # Nothing is installed or resolved: every version is pinned.
    what = ["--requirement", str(constraints), "--no-deps", "--disable-pip", "--vulnerability-service", service]
    how = ["--format", "json", "--progress-spinner", "off", "--timeout", "5"]
    command = [sys.executable, "-m", "pip_audit", *what, *how]
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=MAX_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return f"no answer within {MAX_SECONDS} s"
    try:
        found = json.loads(run.stdout)
    except ValueError:
        lines = run.stderr.strip().splitlines()
        return lines[-1][:200] if lines else f"exit code {run.returncode}"
    return parse(found)


def parse(found: Mapping[str, Any]) -> Audit:
    """Return the content of the JSON that pip-audit prints.

    >>> parse({"dependencies": [{"name": "a", "version": "1", "vulns": []}, {"name": "b", "skip_reason": "unknown"}]})
    Audit(findings=[], num_audited=1, skipped=['b'])
    """
    packages = found["dependencies"]
    audited = [package for package in packages if "skip_reason" not in package]
    findings = [
        Finding(
            package["name"],
            package["version"],
            (each["id"], *each.get("aliases", ())),
            tuple(each.get("fix_versions", ())),
        )
        for package in audited
        for each in package["vulns"]
    ]
    return Audit(findings, len(audited), [package["name"] for package in packages if "skip_reason" in package])


def read_allowed(path: Path) -> dict[str, str]:
    """Return the reason for each allowed vulnerability. Fails for an entry without a reason."""
    entries = tomllib.loads(path.read_text(encoding="utf-8")).get("allowed", [])
    for entry in entries:
        if set(entry) != {"id", "package", "reason"} or not all(str(value).strip() for value in entry.values()):
            raise SystemExit(f"{path}: an entry of [[allowed]] needs id, package and reason, got {entry}.")
    return {entry["id"]: entry["reason"] for entry in entries}


def report(audit: Audit, allowed: Mapping[str, str], service: str) -> int:
    """Print the outcome, and return the exit code."""
    open_findings = [finding for finding in audit.findings if not set(finding.names) & set(allowed)]
    known = {name for finding in audit.findings for name in finding.names}
    print("\n".join(_lines(audit, allowed, open_findings, service)))
    for name in sorted(set(allowed) - known):
        print(f"{ALLOWED.name} allows {name}, which no package has any more. Remove the entry.")
    return 1 if open_findings else 0


def _lines(audit: Audit, allowed: Mapping[str, str], findings: Sequence[Finding], service: str) -> Iterator[str]:
    skipped = f", unknown: {', '.join(audit.skipped)}" if audit.skipped else ""
    yield (
        f"Audit done ({service}). Packages of {CONSTRAINTS.name}: {audit.num_audited:,}, known vulnerabilities: "
        f"{len(findings)}, allowed: {len(audit.findings) - len(findings)}{skipped}."
    )
    for finding in findings:
        fixed = f"fixed in {', '.join(finding.fixed_in)}" if finding.fixed_in else "not fixed yet"
        yield f"  {finding.package} {finding.version}: {', '.join(finding.names)} ({fixed})"
    if findings:
        yield (
            f"Change the version in {CONSTRAINTS.name}. If a vulnerability cannot affect Gristmill, add it with the "
            f"reason to tools/{ALLOWED.name}."
        )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
