"""Kernels run on a GPU if there is one, and otherwise on Triton's interpreter, which executes them with NumPy."""

import os

import pytest
import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # read when a kernel is defined, so before its module is imported

pytest.importorskip("triton")


@pytest.fixture(autouse=True, scope="session")
def rounding_of_the_interpreter():
    """Round as a GPU does. The interpreter loses the carry from the fraction of a number to its exponent."""
    if torch.cuda.is_available():
        yield
        return
    import numpy as np
    from triton.runtime import interpreter

    formats = {
        "fp8e4nv": (torch.float8_e4m3fn, np.uint8),
        "fp8e5": (torch.float8_e5m2, np.uint8),
        "bf16": (torch.bfloat16, np.uint16),
        "fp32": (torch.float32, np.uint32),
    }

    def converted(numbers, of_type, to_type, rounding):
        (before, of_bits), (after, to_bits) = formats[str(of_type)], formats[str(to_type)]
        bits = np.ascontiguousarray(numbers).view(of_bits).copy()
        floats = torch.from_numpy(bits).view(before).to(after)
        return floats.contiguous().view(getattr(torch, to_bits.__name__)).numpy().reshape(numbers.shape)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interpreter, "_convert_float", converted)
        yield


@pytest.fixture(scope="session")
def device():
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")
