"""The configuration of a release agrees with the package: Python versions, and files that the smoke test expects."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_wheels_are_built_for_every_declared_python():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    prefix = "Programming Language :: Python :: 3."
    declared = {f"cp3{c.removeprefix(prefix)}" for c in project["project"]["classifiers"] if c.startswith(prefix)}
    built = {build.partition("-")[0] for build in project["tool"]["cibuildwheel"]["build"].split()}
    assert declared == built - {"cp314t"} and "cp314t" in built


def test_the_files_that_the_smoke_test_expects_exist(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import smoke_test

    assert all((ROOT / "src" / "gristmill" / name).is_file() for name in smoke_test.FILES)
    del sys.modules["smoke_test"]


def test_the_local_builder_knows_every_python_of_a_release(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import build_wheels

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    built = project["tool"]["cibuildwheel"]["build"].split()
    assert [f"python3.{build.removeprefix('cp3').partition('-')[0]}" for build in built] == list(build_wheels.PYTHONS)
