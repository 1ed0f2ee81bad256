"""The CUDA sources of this package as modules: one text without includes, or a binary that was compiled before."""

from __future__ import annotations

import hashlib
import re
from functools import cache
from pathlib import Path

KERNELS = Path(__file__).parent / "kernels"
# Binaries that `tools/build_cubins.py` puts there when a wheel is built on a machine with nvcc.
BUILT = KERNELS / "built"
STANDARD = "-std=c++20"

_INCLUDE = re.compile(r'^#include "(?P<name>[^"]+)"\n', re.MULTILINE)


@cache
def source_of(name: str) -> str:
    """Return the text of `kernels/<name>.cu` with each of its includes in place, once."""
    return _with_includes(f"{name}.cu", set())


def _with_includes(name: str, included: set[str]) -> str:
    included.add(name)
    text = (KERNELS / name).read_text("utf-8").replace("#pragma once\n", "")

    def replace(match: re.Match[str]) -> str:
        return "" if match["name"] in included else _with_includes(match["name"], included)

    return _INCLUDE.sub(replace, text)


def options_of(defines: dict[str, str]) -> tuple[str, ...]:
    """Return the options of the compiler, the same for nvcc and for the compiler of the driver."""
    return (STANDARD, *(f"-D{name}={value}" for name, value in sorted(defines.items())))


def find_binary(name: str, defines: dict[str, str], capability: tuple[int, int]) -> Path | None:
    """Return the binary of a module for a GPU, or None if the package has none.

    A binary also runs on GPUs with a higher minor capability. The macros for the size of shared memory are a part of
    its name, so a GPU of 8.9 never gets what was compiled for the larger shared memory of 8.0.
    """
    major, minor = capability
    paths = (path_of_binary(name, defines, (major, lower)) for lower in range(minor, -1, -1))
    return next((path for path in paths if path.exists()), None)


def path_of_binary(name: str, defines: dict[str, str], capability: tuple[int, int]) -> Path:
    """Return where the binary of a module would be. A binary of another source has another name."""
    digest = hashlib.sha256("\0".join((source_of(name), *options_of(defines))).encode()).hexdigest()[:16]
    return BUILT / f"{name}-{digest}-sm_{capability[0]}{capability[1]}.cubin"
