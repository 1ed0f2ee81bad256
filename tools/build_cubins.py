"""Compile the GPU kernels with nvcc to src/gristmill/gpu/kernels/built/, so that a wheel has them.

Without a binary for its GPU, Gristmill compiles the kernels when they are first used, which takes seconds. The names of
the binaries depend on the sources: binaries of other sources are removed, and those that exist are not compiled again.

Needs neither a GPU nor an installed Gristmill.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import types
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
# The sources of this checkout, whose core is perhaps not compiled: the `__init__.py` of the package would load it.
_package = types.ModuleType("gristmill")
_package.__path__ = [str(ROOT / "src" / "gristmill")]
_installed = {name: sys.modules.pop(name) for name in list(sys.modules) if name.partition(".")[0] == "gristmill"}
sys.modules["gristmill"] = _package
try:
    from gristmill.gpu import modules, variants
finally:
    for _name in [name for name in sys.modules if name.partition(".")[0] == "gristmill"]:
        del sys.modules[_name]
    sys.modules.update(_installed)

# Compute capabilities, and the shared memory of a block in KiB. A binary also runs on GPUs with a higher minor
# capability: 8.0 with 163 KiB is for A100, with 96 KiB for 8.6 and 8.9 (A10, L4, L40, RTX 30 and 40), 9.0 for H100,
# H200 and GH200, 10.0 for B200 and B300.
TARGETS = (((8, 0), 163), ((8, 0), 96), ((9, 0), 227), ((10, 0), 227))


class Binary(NamedTuple):
    """What to compile."""

    source: str
    defines: dict[str, str]
    capability: tuple[int, int]

    @property
    def path(self) -> Path:
        """Where `modules.find_binary` looks for it."""
        return modules.path_of_binary(self.source, self.defines, self.capability)

    @property
    def arch(self) -> str:
        """The name of the GPU for nvcc."""
        return "sm_{}{}".format(*self.capability)


def all_binaries() -> list[Binary]:
    """Return every variant for every target."""
    shapes = {shape.shared_kib: shape for shape in variants.SHAPES}
    return [
        Binary(source, defines, capability)
        for capability, shared_kib in TARGETS
        for source, defines in variants.all_variants(shapes[shared_kib])
    ]


def find_nvcc() -> str | None:
    """Return the compiler on PATH or of CUDA_HOME, or None."""
    home = os.environ.get("CUDA_HOME")
    return shutil.which("nvcc") or (shutil.which("nvcc", path=str(Path(home, "bin"))) if home else None)


def build(binaries: Sequence[Binary], *, nvcc: str, num_jobs: int) -> None:
    """Compile the binaries that do not exist, and remove all other files of their folder."""
    modules.BUILT.mkdir(exist_ok=True)
    wanted = {binary.path for binary in binaries}
    for path in modules.BUILT.iterdir():
        if path not in wanted:
            path.unlink()
    with ThreadPoolExecutor(num_jobs) as pool:
        list(pool.map(lambda binary: _compile(nvcc, binary), [b for b in binaries if not b.path.exists()]))


def remove_all() -> None:
    """Remove the folder of the binaries."""
    shutil.rmtree(modules.BUILT, ignore_errors=True)


def _compile(nvcc: str, binary: Binary) -> None:
    with tempfile.TemporaryDirectory(dir=modules.BUILT, prefix=".compiling-") as folder:
        text, cubin = Path(folder, f"{binary.source}.cu"), Path(folder, "cubin")
        text.write_text(modules.source_of(binary.source), "utf-8")
        options = [*modules.options_of(binary.defines), "-cubin", f"-arch={binary.arch}"]
        run = subprocess.run(
            [nvcc, *options, text, "-o", cubin], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
        )
        if run.returncode:
            raise SystemExit(
                f"{nvcc} cannot compile {binary.source}.cu with {' '.join(options)}:\n{run.stderr.strip()}\n"
                f"Gristmill needs nvcc 12.8 or newer, the first with {TARGETS[-1][0][0]}.0 as a compute capability."
            )
        cubin.rename(binary.path)


def main(arguments: Sequence[str] | None = None) -> int:
    """Compile all binaries, and print their number and size."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("-j", "--jobs", type=int, default=os.cpu_count() or 1, help="number of compilers at a time")
    num_jobs = parser.parse_args(arguments).jobs
    if num_jobs < 1:
        parser.error(f"--jobs must be >= 1, got {num_jobs}")
    nvcc = find_nvcc()
    if nvcc is None:
        raise SystemExit(
            f"nvcc is neither on PATH nor in CUDA_HOME/bin (CUDA_HOME={os.environ.get('CUDA_HOME', '')!r}). Version "
            f"12.8 or newer compiles the GPU kernels. Install the CUDA toolkit, or set CUDA_HOME to its folder. "
            f"Gristmill also works without the binaries: it then compiles the kernels when they are first used."
        )
    binaries = all_binaries()
    build(binaries, nvcc=nvcc, num_jobs=num_jobs)
    size = sum(binary.path.stat().st_size for binary in binaries)
    print(f"{modules.BUILT.relative_to(ROOT)}: {len(binaries)} binaries, {size / 1e6:.1f} MB", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
