"""The configuration of a release agrees with the package: Python versions, and files that the smoke test expects."""

from __future__ import annotations

import importlib
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture
def build_wheels(monkeypatch):
    """tools/build_wheels.py, imported for one test."""
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    yield importlib.import_module("build_wheels")
    del sys.modules["build_wheels"]


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


def test_the_local_builder_knows_every_python_of_a_release(build_wheels):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    built = project["tool"]["cibuildwheel"]["build"].split()
    assert [f"python3.{build.removeprefix('cp3').partition('-')[0]}" for build in built] == list(build_wheels.PYTHONS)


def wheels_of_a_release(settings):
    """The file names that cibuildwheel gives the wheels."""
    for build in settings["build"].split():
        abi = build.partition("-")[0]
        for machine in settings["linux"]["archs"]:
            platform = f"manylinux_2_27_{machine}.manylinux_2_28_{machine}"
            yield f"gristmill-0.1.0-{abi.rstrip('t')}-{abi}-{platform}.whl"


def test_every_missing_wheel_of_a_release_is_named(build_wheels):
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["cibuildwheel"]
    names = list(wheels_of_a_release(settings))
    assert len(names) == 10 and build_wheels.missing_wheels(names, settings) == []
    for i, name in enumerate(names):
        abi, platform = name.removesuffix(".whl").split("-")[-2:]
        machine = "x86_64" if platform.endswith("x86_64") else "aarch64"
        # The wheel of this machine only, without a manylinux tag, must not count.
        others = [*names[:i], *names[i + 1 :], f"gristmill-0.1.0-{abi}-{abi}-linux_{machine}.whl"]
        assert build_wheels.missing_wheels(others, settings) == [f"{abi} on {machine}"]
    assert len(build_wheels.missing_wheels([], settings)) == 10


def test_a_release_with_a_missing_wheel_fails(build_wheels):
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["cibuildwheel"]
    wheels = [Path(name) for name in wheels_of_a_release(settings)]
    build_wheels._check_complete(wheels)
    with pytest.raises(SystemExit, match="lacks wheels for cp314t on aarch64, which"):
        build_wheels._check_complete(wheels[:-1])


def test_make_wheel_installs_the_group_of_pyproject():
    makefile = (ROOT / "Makefile").read_text()
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    pinned = (ROOT / "constraints.txt").read_text().lower()
    assert "$(PIP) --group release\n" in makefile
    for requirement in groups["release"]:
        assert f"\n{requirement.partition('>')[0]}==" in pinned, requirement


def test_a_wheel_without_the_binaries_of_the_gpu_kernels_fails(build_wheels, tmp_path):
    wheel = tmp_path / "gristmill-0.1.0-cp313-cp313-linux_x86_64.whl"
    binaries = ["gristmill/gpu/kernels/built/count-0-sm_80.cubin", "gristmill/gpu/kernels/built/merge-0-sm_80.cubin"]
    tracked = build_wheels._output(["git", "ls-files", "src"]).splitlines()
    with zipfile.ZipFile(wheel, "w") as archive:
        for name in (*(name.removeprefix("src/") for name in tracked), binaries[0]):
            archive.writestr(name, "")
    build_wheels._check_wheel(wheel, binaries[:1])
    with pytest.raises(SystemExit, match=r"lacks gristmill/gpu/kernels/built/merge-0-sm_80\.cubin"):
        build_wheels._check_wheel(wheel, binaries)


def test_without_nvcc_the_builder_says_that_wheels_have_no_binaries(build_wheels, monkeypatch, capsys):
    monkeypatch.setattr(build_wheels.build_cubins, "find_nvcc", lambda: None)
    assert build_wheels._build_binaries() == []
    assert "the wheels have no binaries of the GPU kernels" in capsys.readouterr().out


def test_binaries_of_the_gpu_kernels_are_no_sources_but_parts_of_a_wheel(build_wheels):
    (pattern,) = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["scikit-build"]["sdist"]["include"]
    for binary in build_wheels.build_cubins.all_binaries():
        assert binary.path.relative_to(ROOT).match(pattern)
    assert "/src/gristmill/gpu/kernels/built/" in (ROOT / ".gitignore").read_text().splitlines()
