"""The kernels compile with nvcc and with NVRTC, and tools/build_cubins.py puts binaries where the driver looks."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import nvrtc
import pytest

from gristmill import _core
from gristmill.gpu import modules, variants
from gristmill.gpu.cuda import LEAST_SHARED_BYTES

ROOT = Path(__file__).parents[2]
# Both types of symbols, the tie-breaks that differ most, and the patterns that differ most.
VARIANTS = [
    ("merge", variants.merge_defines(variants.SHAPES[0], "u16", "greatest-bytes")),
    ("merge", variants.merge_defines(variants.SHAPES[0], "u32", "first-seen")),
    ("count", variants.count_defines(variants.SHAPES[0], "o200k")),
    ("count", variants.count_defines(variants.SHAPES[0], "whitespace")),
]
ELF = b"\x7fELF"


@pytest.fixture
def build_cubins(monkeypatch, tmp_path):
    """tools/build_cubins.py, imported for one test, with another folder for the binaries."""
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    module = importlib.import_module("build_cubins")
    monkeypatch.setattr(module.modules, "BUILT", tmp_path / "built")
    yield module
    del sys.modules["build_cubins"]


@pytest.fixture
def false_nvcc(tmp_path):
    """Return a function that makes a compiler of this shell script. $OUT is the file after -o."""

    def make(script: str) -> str:
        path = tmp_path / "bin" / "nvcc"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f'#!/bin/sh\nfor OUT; do :; done\necho run >> "{tmp_path}/runs"\n{script}\n')
        path.chmod(0o755)
        return str(path)

    return make


def binaries_of(build_cubins, capability=(9, 0)):
    return [build_cubins.Binary(source, defines, capability) for source, defines in VARIANTS]


def test_every_pattern_and_every_tie_break_has_a_variant():
    assert variants.PATTERNS == _core.PATTERNS
    assert tuple(variants.TIE_BREAKS) == _core.TIE_BREAKS
    for shape in variants.SHAPES:
        made = [(source, tuple(defines.items())) for source, defines in variants.all_variants(shape)]
        needed = {
            ("merge", tuple(variants.merge_defines(shape, symbol, tie_break).items()))
            for symbol in variants.SYMBOLS
            for tie_break in _core.TIE_BREAKS
        } | {("count", tuple(variants.count_defines(shape, pattern).items())) for pattern in _core.PATTERNS}
        assert len(made) == len(set(made)) and set(made) == needed


def test_sources_have_no_includes_because_nvrtc_has_no_headers():
    for name in ("merge", "count"):
        assert "#include" not in modules.source_of(name)


def test_the_tool_leaves_the_imported_package_alone(build_cubins):
    assert sys.modules["gristmill.gpu.modules"] is modules
    assert build_cubins.modules is not modules and build_cubins.modules.KERNELS == ROOT / "src/gristmill/gpu/kernels"
    assert "gristmill" in sys.modules and sys.modules["gristmill"]._core is _core


def test_each_binary_has_a_name_of_its_own_and_a_shape_that_its_gpu_has(build_cubins):
    binaries = build_cubins.all_binaries()
    assert len({binary.path for binary in binaries}) == len(binaries)
    assert {binary.arch for binary in binaries} == {"sm_80", "sm_90", "sm_100"}
    assert all(shared_kib << 10 >= LEAST_SHARED_BYTES for _, shared_kib in build_cubins.TARGETS)


def test_binaries_are_where_the_driver_looks_and_those_of_other_sources_are_removed(build_cubins, false_nvcc, tmp_path):
    built = build_cubins.modules.BUILT
    built.mkdir()
    (built / "merge-0123456789abcdef-sm_90.cubin").touch()
    binaries = binaries_of(build_cubins)
    nvcc = false_nvcc('printf "%s" "$*" > "$OUT"')
    build_cubins.build(binaries, nvcc=nvcc, num_jobs=2)
    assert sorted(built.iterdir()) == sorted(binary.path for binary in binaries)
    for binary in binaries:
        found = build_cubins.modules.find_binary(binary.source, binary.defines, (9, 0))
        options = found.read_text().split()
        assert found == binary.path and {"-std=c++20", "-cubin", "-arch=sm_90"} <= set(options)
        assert {f"-D{name}={value}" for name, value in binary.defines.items()} <= set(options)
    build_cubins.build(binaries, nvcc=nvcc, num_jobs=2)
    assert (tmp_path / "runs").read_text().count("run") == len(binaries)  # none was compiled again


def test_a_failed_compilation_leaves_nothing_and_shows_the_error(build_cubins, false_nvcc):
    nvcc = false_nvcc('echo half > "$OUT"; echo "unsupported gpu architecture" >&2; exit 1')
    with pytest.raises(SystemExit, match=r"(?s)cannot compile merge\.cu .*unsupported gpu.*needs nvcc 12\.8"):
        build_cubins.build(binaries_of(build_cubins)[:1], nvcc=nvcc, num_jobs=1)
    assert list(build_cubins.modules.BUILT.iterdir()) == []


def test_without_nvcc_the_tool_says_what_to_do(build_cubins, monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setenv("CUDA_HOME", "/nowhere")
    with pytest.raises(SystemExit, match=r"nvcc is neither on PATH nor in CUDA_HOME/bin .*'/nowhere'.* set CUDA_HOME"):
        build_cubins.main([])
    assert not build_cubins.modules.BUILT.exists()


def test_nvcc_of_cuda_home_is_found(build_cubins, false_nvcc, monkeypatch):
    nvcc = false_nvcc("exit 1")
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setenv("CUDA_HOME", str(Path(nvcc).parents[1]))
    assert build_cubins.find_nvcc() == nvcc


def test_the_kernels_compile_with_nvcc(build_cubins):
    nvcc = build_cubins.find_nvcc()
    if nvcc is None:
        pytest.skip("nvcc is not installed")
    binaries = binaries_of(build_cubins)
    build_cubins.build(binaries, nvcc=nvcc, num_jobs=2)
    assert all(binary.path.read_bytes().startswith(ELF) for binary in binaries)


@pytest.mark.parametrize(("source", "defines"), VARIANTS)
def test_the_kernels_compile_with_nvrtc(source, defines):
    library = nvrtc.find_nvrtc()
    if library is None:
        pytest.skip("NVRTC is not installed")
    # As CuPy calls it.
    options = (*modules.options_of(defines), "-ftz=true", "-arch=sm_90", "--device-as-default-execution-space")
    assert nvrtc.compile_module(library, modules.source_of(source), options).startswith(ELF)
