"""exports: files of other programs that hold a trained model.

A format is a module with

    DTYPES                          the types it can hold weights in
    check_target(target, overwrite) raises where nothing may be written, before the model is loaded
    write(source, target)           writes it whole or not at all, and returns what it wrote: `Written`

| module | writes |
|---|---|
| `huggingface.py` | a folder that transformers, vLLM and lm-evaluation-harness read |
| `gguf.py` | a file that llama.cpp, Ollama and LM Studio read |
| `source.py` | what a format gets, and what it returns |
| `folders.py` | a folder that appears whole or not at all |

Adding one is the module, a line in `FORMATS`, its name in `EXPORTS` of the models that know it (`Model.exported`), a
row in ARCHITECTURE.md, and a line in `WRITTEN` of `tests/lm/test_export_files.py`.
"""

from __future__ import annotations

from types import ModuleType

from gristmill.lm.use.exports import gguf, huggingface

__all__ = ["ALIASES", "FORMATS", "all_dtypes"]

FORMATS: dict[str, ModuleType] = {"huggingface": huggingface, "gguf": gguf}

# Short names of types, as llama.cpp has them.
ALIASES = {"f32": "float32", "bf16": "bfloat16", "f16": "float16"}


def all_dtypes() -> list[str]:
    """The types that some format can hold, each once, and their short names."""
    names = dict.fromkeys(dtype for module in FORMATS.values() for dtype in module.DTYPES)
    return [*names, *ALIASES]
