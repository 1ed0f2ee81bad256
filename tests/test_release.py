"""The configuration of a release agrees with the package: Python versions, and files that the smoke test expects."""

from __future__ import annotations

import importlib
import json
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
    for name in ("build_wheels", "sbom"):
        del sys.modules[name]


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


@pytest.fixture
def bill(build_wheels):
    """The bill of materials of a wheel that is built here."""
    pytest.importorskip("nanobind")
    return build_wheels.sbom.bill_of_materials(build_wheels.sbom.nanobind_folder())


def test_the_bill_of_materials_lists_what_is_compiled_into_the_wheel(bill):
    import nanobind

    from gristmill import _core

    versions = {component["name"]: component.get("version") for component in bill["components"]}
    assert versions["nanobind"] == nanobind.__version__
    assert versions["Unicode Character Database"] == _core.UNICODE_VERSION
    assert versions["robin-map"].count(".") == 2
    assert (
        bill["metadata"]["component"]["purl"]
        == f"pkg:pypi/gristmill@{importlib.import_module('gristmill').__version__}"
    )


def test_the_bill_of_materials_lists_every_declared_dependency_and_whether_it_is_optional(bill):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = {
        component["name"]: (component["scope"], [each["value"] for each in component["properties"]])
        for component in bill["components"]
        if "version" not in component  # all that is compiled into the wheel has one
    }
    required = {name for name, (scope, _) in declared.items() if scope == "required"}
    assert required == {requirement.partition(">")[0] for requirement in project["dependencies"]}
    assert declared["ray"] == ("optional", ["ray>=2.40 (extra ray)"])
    assert {"torch", "pyarrow", "backports-zstd", "nvidia-cuda-nvrtc-cu12"} <= set(declared)
    assert "gristmill" not in declared


def test_references_in_the_bill_of_materials_exist_and_are_unique(bill):
    references = [bill["metadata"]["component"]["bom-ref"], *(each["bom-ref"] for each in bill["components"])]
    assert len(references) == len(set(references))
    used = {each["ref"] for each in bill["dependencies"]}
    used |= {reference for each in bill["dependencies"] for reference in each.get("dependsOn", ())}
    used |= {reference for each in bill["compositions"] for reference in each["assemblies"]}
    assert used <= set(references)
    assert (bill["bomFormat"], bill["specVersion"], bill["version"]) == ("CycloneDX", "1.6", 1)


METADATA = """\
Metadata-Version: 2.4
Name: gristmill
Version: {}
Requires-Dist: numpy>=1.26
Requires-Dist: torch>=2.11; extra == 'train'
"""


def wheel_with(tmp_path, bill, *, version="0.1.0", more=""):
    wheel = tmp_path / f"gristmill-{version}-cp313-cp313-linux_x86_64.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(f"gristmill-{version}.dist-info/METADATA", METADATA.format(version) + more)
        if bill is not None:
            archive.writestr(f"gristmill-{version}.dist-info/sboms/gristmill.cdx.json", json.dumps(bill))
    return wheel


def test_a_wheel_without_a_fitting_bill_of_materials_fails(build_wheels, bill, tmp_path):
    own = bill["metadata"]["component"]["version"]
    build_wheels.check_bill(wheel_with(tmp_path, bill, version=own))
    with pytest.raises(SystemExit, match=r"lacks gristmill-\S+\.dist-info/sboms/gristmill\.cdx\.json"):
        build_wheels.check_bill(wheel_with(tmp_path, None, version=own))
    with pytest.raises(SystemExit, match=f"is of version {own}"):
        build_wheels.check_bill(wheel_with(tmp_path, bill, version="7.7.7"))
    with pytest.raises(SystemExit, match="does not list left-pad"):
        build_wheels.check_bill(wheel_with(tmp_path, bill, version=own, more="Requires-Dist: Left_Pad>=1\n"))


def test_a_build_of_a_wheel_installs_the_bill_of_materials(build_wheels):
    cmake = (ROOT / "CMakeLists.txt").read_text()
    assert "tools/sbom.py" in cmake
    assert f"{build_wheels.sbom.NAME} DESTINATION ${{SKBUILD_METADATA_DIR}}/sboms" in cmake
