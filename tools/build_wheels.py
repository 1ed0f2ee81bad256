"""Build the sdist and the wheels of a release into dist/, and test each wheel in an empty virtual environment.

With Docker: cibuildwheel builds manylinux wheels for every Python in pyproject.toml, for x86-64 and aarch64 (the latter
under qemu, unless this machine is one). A missing wheel is an error. Without Docker: wheels for this platform and every
supported Python on PATH, built from the sdist and repaired by auditwheel. Their platform tag then depends on the C
library of this machine.

With nvcc: the wheels have the GPU kernels as binaries, which the sdist does not have. Without nvcc: they have only the
sources of the kernels, which are compiled when they are first used.
"""

import email
import json
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import build_cubins
import sbom

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
PYTHONS = ("python3.11", "python3.12", "python3.13", "python3.14", "python3.14t")


def main() -> int:
    """Build, repair, test, list."""
    shutil.rmtree(DIST, ignore_errors=True)
    build_cubins.remove_all()
    sdist = _build_sdist(DIST)
    _check_sdist(sdist)
    binaries = _build_binaries()
    has_docker = _has_docker()
    with tempfile.TemporaryDirectory() as folder:
        source = _build_sdist(Path(folder)) if binaries else sdist
        if has_docker:
            _run([sys.executable, "-m", "cibuildwheel", "--platform", "linux", "--output-dir", DIST, source])
        else:
            print("Docker is not running: building for this platform and the Pythons on PATH only.", flush=True)
            for python in _pythons():
                _build_here(python, source)
    wheels = sorted(DIST.glob("*.whl"))
    if has_docker:
        _check_complete(wheels)
    for wheel in wheels:
        _check_wheel(wheel, binaries)
        check_bill(wheel)
    for path in [sdist, *wheels]:
        print(f"{path.relative_to(ROOT)}  {path.stat().st_size / 1e6:.1f} MB")
    return 0 if wheels else 1


def _build_sdist(folder: Path) -> Path:
    """Build the sdist. It has the binaries of GPU kernels that exist, so that the wheels built from it have them."""
    _run([sys.executable, "-m", "build", "--sdist", "--outdir", folder, ROOT])
    (sdist,) = folder.glob("*.tar.gz")
    return sdist


def _build_binaries() -> list[str]:
    """Compile the GPU kernels if this machine has nvcc. Returns the names of the binaries in a wheel."""
    if build_cubins.find_nvcc() is None:
        print("nvcc is not installed: the wheels have no binaries of the GPU kernels.", flush=True)
        return []
    build_cubins.main([])
    return [str(binary.path.relative_to(ROOT / "src")) for binary in build_cubins.all_binaries()]


def _has_docker() -> bool:
    if shutil.which("docker") is None:
        return False
    return subprocess.run(["docker", "info"], capture_output=True, check=False).returncode == 0


def _pythons() -> list[str]:
    """Return the supported interpreters that start, such as python3.12; this one if there are no others."""
    found = []
    for name in PYTHONS:
        path = shutil.which(name)
        if path is None:
            continue
        check = subprocess.run([path, "-c", "import venv, ensurepip"], capture_output=True, check=False)
        if check.returncode == 0:  # a version manager may have a placeholder that does not start
            found.append(path)
    return found or [sys.executable]


def _check_sdist(sdist: Path) -> None:
    """Fail if the sdist lacks a tracked file of the package or of the core."""
    tracked = _output(["git", "ls-files", "src", "cpp/src", "cpp/include", "bindings"]).splitlines()
    needed = {*tracked, "LICENSE", "README.md", "CMakeLists.txt", "pyproject.toml"}
    contained = {name.partition("/")[2] for name in _output(["tar", "-tzf", str(sdist)]).splitlines()}
    if missing := sorted(needed - contained):
        raise SystemExit(f"{sdist.name} lacks {', '.join(missing[:10])}. Check [tool.scikit-build] in pyproject.toml.")


def _check_complete(wheels: Sequence[Path]) -> None:
    """Fail if a wheel is missing that cibuildwheel was configured to build."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["cibuildwheel"]
    if missing := missing_wheels([wheel.name for wheel in wheels], settings):
        raise SystemExit(
            f"dist/ lacks wheels for {', '.join(missing)}, which [tool.cibuildwheel] in pyproject.toml lists. Read the "
            f"output of cibuildwheel above. To build for aarch64 on x86-64, Docker needs qemu (docs/releasing.md)."
        )


def missing_wheels(names: Iterable[str], settings: Mapping[str, Any]) -> list[str]:
    """Return each Python and platform of `settings`, the table [tool.cibuildwheel], without a wheel among `names`.

    >>> settings = {"build": "cp313-* cp314t-*", "linux": {"archs": ["x86_64", "aarch64"]}}
    >>> manylinux = "manylinux_2_27_{0}.manylinux_2_28_{0}"
    >>> x86, arm = (manylinux.format(machine) for machine in settings["linux"]["archs"])
    >>> missing_wheels([f"gristmill-1-cp313-cp313-{x86}.whl", f"gristmill-1-cp314-cp314t-{arm}.whl"], settings)
    ['cp313 on aarch64', 'cp314t on x86_64']
    """
    tags = [name.removesuffix(".whl").split("-")[-2:] for name in names]  # ABI and platform: cp314t has its own ABI
    wanted = [
        (build.partition("-")[0], machine)
        for build in settings["build"].split()
        for machine in settings["linux"]["archs"]
    ]
    return [
        f"{abi} on {machine}"
        for abi, machine in wanted
        if not any(tag[0] == abi and _is_manylinux(tag[1], machine) for tag in tags)
    ]


def _is_manylinux(platform: str, machine: str) -> bool:
    return any(part.startswith("manylinux") and part.endswith(f"_{machine}") for part in platform.split("."))


def _check_wheel(wheel: Path, binaries: Sequence[str]) -> None:
    """Fail if the wheel lacks a binary or a tracked file of the package, such as a page or a type stub."""
    tracked = _output(["git", "ls-files", "src"]).splitlines()
    needed = {*(name.removeprefix("src/") for name in tracked), *binaries}
    if missing := sorted(needed - set(zipfile.ZipFile(wheel).namelist())):
        raise SystemExit(f"{wheel.name} lacks {', '.join(missing[:10])}. Check [tool.scikit-build] in pyproject.toml.")


def check_bill(wheel: Path) -> None:
    """Fail unless the wheel has a bill of materials of this version that lists all that the wheel declares."""
    with zipfile.ZipFile(wheel) as archive:
        folder = next(name.partition("/")[0] for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        place = f"{folder}/sboms/{sbom.NAME}"
        if place not in archive.namelist():
            raise SystemExit(f"{wheel.name} lacks {place}. CMakeLists.txt installs it when it builds a wheel.")
        bill = json.loads(archive.read(place))
        metadata = email.message_from_bytes(archive.read(f"{folder}/METADATA"))
    recorded = bill["metadata"]["component"]["version"]
    if recorded != metadata["Version"]:
        raise SystemExit(f"{wheel.name}: {place} is of version {recorded}.")
    listed = {component["name"] for component in bill["components"]}
    requirements = metadata.get_all("Requires-Dist") or []
    needed = {"nanobind", *(sbom.normalized(requirement) for requirement in requirements)} - {"gristmill"}
    if missing := sorted(needed - listed):
        raise SystemExit(f"{wheel.name}: {place} does not list {', '.join(missing)}.")


def _build_here(python: str, sdist: Path) -> None:
    """Build a wheel from the sdist in a new virtual environment of `python`, repair it, and test it in another one."""
    with tempfile.TemporaryDirectory() as folder:
        raw, repaired = Path(folder, "raw"), Path(folder, "repaired")
        builder = _environment(python, Path(folder, "builder"))
        _run([builder, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", raw, sdist])
        (wheel,) = raw.glob("*.whl")
        _run([sys.executable, "-m", "auditwheel", "repair", "--strip", "--wheel-dir", repaired, wheel])
        (wheel,) = repaired.glob("*.whl")
        tester = _environment(python, Path(folder, "tester"))
        _run([tester, "-m", "pip", "install", "--quiet", wheel])
        _run([tester, ROOT / "tools" / "smoke_test.py"], cwd=Path(folder))
        shutil.copy(wheel, DIST / wheel.name)


def _environment(python: str, folder: Path) -> Path:
    _run([python, "-m", "venv", folder])
    return folder / "bin" / "python"


def _run(command: Sequence[object], cwd: Path = ROOT) -> None:
    subprocess.run(list(map(str, command)), check=True, cwd=cwd)


def _output(command: Sequence[str], cwd: Path = ROOT) -> str:
    return subprocess.run(command, check=True, cwd=cwd, capture_output=True, text=True).stdout


if __name__ == "__main__":
    sys.exit(main())
