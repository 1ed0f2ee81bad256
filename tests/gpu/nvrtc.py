"""NVRTC, the compiler that CuPy uses at run time. It needs no GPU."""

from __future__ import annotations

import ctypes
import ctypes.util
import importlib.util
from pathlib import Path


def find_nvrtc() -> ctypes.CDLL | None:
    """Return the library of a CUDA installation or of the packages nvidia-cuda-nvrtc and -cu12, or None."""
    spec = importlib.util.find_spec("nvidia")
    folders = (spec.submodule_search_locations or ()) if spec else ()
    found = [str(path) for folder in folders for path in sorted(Path(folder).glob("*/lib/libnvrtc.so.*[0-9]"))]
    name = found[-1] if found else ctypes.util.find_library("nvrtc")
    try:
        return ctypes.CDLL(name) if name else None
    except OSError:
        return None


def compile_module(nvrtc: ctypes.CDLL, source: str, options: tuple[str, ...]) -> bytes:
    """Return the binary for one architecture. Fails with the messages of the compiler."""
    program = ctypes.c_void_p()
    assert nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"kernels.cu", 0, None, None) == 0
    try:
        listed = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
        status = nvrtc.nvrtcCompileProgram(program, len(options), listed)
        assert status == 0, _text(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog, program).decode()
        return _text(nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN, program)
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))


def _text(size_of, read, program: ctypes.c_void_p) -> bytes:
    size = ctypes.c_size_t()
    assert size_of(program, ctypes.byref(size)) == 0
    text = ctypes.create_string_buffer(size.value)
    assert read(program, text) == 0
    return text.raw
