"""exports: formats of other programs for trained models.

A format is a module with

    DTYPES                          supported types of weights
    check_target(target, overwrite) raises if the target may not be written, before the model is loaded
    write(source, target)           writes the complete output or nothing, and returns `Written`

| module | writes |
|---|---|
| `huggingface.py` | a folder that transformers, vLLM and lm-evaluation-harness read |
| `gguf.py` | a file that llama.cpp, Ollama and LM Studio read |
| `source.py` | input and result of a format |
| `folders.py` | atomic creation of a folder |

To add a format, add the module, a line in `FORMATS`, its name in `EXPORTS` of the models that support it
(`Model.exported`), a row in ARCHITECTURE.md, and a line in `WRITTEN` of `tests/lm/test_export_files.py`.
"""

from __future__ import annotations

from types import ModuleType

from gristmill.lm.use.exports import gguf, huggingface

__all__ = ["ALIASES", "FORMATS", "all_dtypes"]

FORMATS: dict[str, ModuleType] = {"huggingface": huggingface, "gguf": gguf}

# Short names of types, as in llama.cpp.
ALIASES = {"f32": "float32", "bf16": "bfloat16", "f16": "float16"}


def all_dtypes() -> list[str]:
    """Return the types of all formats without duplicates, and their short names."""
    names = dict.fromkeys(dtype for module in FORMATS.values() for dtype in module.DTYPES)
    return [*names, *ALIASES]
