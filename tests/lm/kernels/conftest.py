"""Kernels run on a GPU if there is one, and otherwise on Triton's interpreter, which executes them with NumPy."""

import importlib.util
import pkgutil

import numpy as np
import pytest
import torch

HAS_TRITON = importlib.util.find_spec("triton") is not None
collect_ignore_glob = [] if HAS_TRITON else ["test_*.py"]


def interpret_kernels():
    """Import the kernels so that the interpreter runs them, without an effect on later users of Triton.

    Triton decides this when a function is defined. Another test may have imported Triton before, so the functions of
    its library are converted too.
    """
    import triton.experimental.gluon  # noqa: F401  imported by the interpreter, and refuses converted functions
    import triton.language as tl
    from triton.language import standard
    from triton.runtime.interpreter import InterpretedFunction
    from triton.runtime.jit import JITFunction

    for module in (tl, standard):
        for name, value in vars(module).copy().items():
            if isinstance(value, JITFunction):
                setattr(module, name, InterpretedFunction(value.fn))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_INTERPRET", "1")
        from gristmill.lm import kernels

        for module in pkgutil.iter_modules(kernels.__path__):
            importlib.import_module(f"{kernels.__name__}.{module.name}")


if HAS_TRITON and not torch.cuda.is_available():
    interpret_kernels()


@pytest.fixture(autouse=True, scope="module")
def interpreter():
    """Make the interpreter round as a GPU does, and prepare Triton's language once instead of in every call."""
    if torch.cuda.is_available():
        yield
        return
    import triton.language as tl
    from triton.runtime import interpreter

    of_both = type("", (), {"__globals__": {"tl": tl, "core": tl.core}})
    scope = interpreter._patch_lang(of_both)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interpreter, "_patch_lang", lambda function: interpreter._LangPatchScope())
        patch.setattr(interpreter, "_convert_float", converted)
        yield
    scope.restore()


def converted(numbers, of_type, to_type, rounding):
    """Convert floats with torch. The interpreter loses the carry from the fraction of a number to its exponent."""
    formats = {
        "fp8e4nv": (torch.float8_e4m3fn, np.uint8),
        "fp8e5": (torch.float8_e5m2, np.uint8),
        "bf16": (torch.bfloat16, np.uint16),
        "fp32": (torch.float32, np.uint32),
    }
    (before, of_bits), (after, to_bits) = formats[str(of_type)], formats[str(to_type)]
    bits = np.ascontiguousarray(numbers).view(of_bits).copy()
    floats = torch.from_numpy(bits).view(before).to(after)
    return floats.contiguous().view(getattr(torch, to_bits.__name__)).numpy().reshape(numbers.shape)


@pytest.fixture(autouse=True)
def same_random_numbers():
    torch.manual_seed(0)
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def shards(tmp_path_factory):
    """Without a validation split, because validation would take longer than a few steps."""
    from lm.tiny_runs import build_shards

    return build_shards(tmp_path_factory.mktemp("shards") / "shards", number=40, val=False)


@pytest.fixture(scope="session")
def device():
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")
