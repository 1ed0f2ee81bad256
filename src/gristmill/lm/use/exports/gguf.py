"""GGUF: model and tokenizer in one file, for llama.cpp, Ollama and LM Studio.

Vectors, such as the weights of norms, are always float32: llama.cpp supports no other type for them.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gristmill.lm.use.exports.folders import named_errors
from gristmill.lm.use.exports.source import Source, Written, converted
from gristmill.packages import load_package
from gristmill.publish import publish
from gristmill.tokenizer.formats import gguf as tokenizer_format

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

DTYPES = ("float32", "bfloat16", "float16", "q8_0")

# Names in the gguf package: of the type of a tensor, and of a file in which most tensors have this type.
KINDS = {
    "float32": ("F32", "ALL_F32"),
    "float16": ("F16", "MOSTLY_F16"),
    "bfloat16": ("BF16", "MOSTLY_BF16"),
    "q8_0": ("Q8_0", "MOSTLY_Q8_0"),
}
MAGIC = b"GGUF"
QUANTIZATION_VERSION = 2
BLOCK = 32  # numbers of a row that share one scale in q8_0


def check_target(target: Path, *, overwrite: bool) -> None:
    """Raise unless the file may be written and the gguf package is installed."""
    _package()
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, "is a folder. Pass the name of a file, such as model.gguf", str(target))
    if not target.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "output folder does not exist. Create it first", str(target.parent))
    if not overwrite and os.path.lexists(target):
        raise FileExistsError(
            errno.EEXIST, "already exists. Pass overwrite=True to replace it, or another name", str(target)
        )
    if target.exists() and not _is_gguf(target):
        raise FileExistsError(errno.EEXIST, "exists and is not a GGUF file. Pass another name", str(target))


def _is_gguf(path: Path) -> bool:
    """Return whether a file may be replaced: it is an export, or empty."""
    if not path.is_file():  # a pipe or device cannot be replaced by a file
        return False
    with path.open("rb") as file:
        return file.read(len(MAGIC)) in (MAGIC, b"")


def write(source: Source, target: Path) -> Written:
    """Write the file."""
    package = _package()
    architecture = str(source.model.config["general.architecture"])
    writer = package.GGUFWriter(None, architecture)
    for key, value in metadata(source).items():
        _add(package, writer, key, value)
    mixed = [name for name, tensor in source.model.weights.items() if _falls_back(tuple(tensor.shape), source.dtype)]
    for name, tensor in source.model.weights.items():
        dtype = "float32" if tensor.dim() < 2 else "float16" if name in mixed else source.dtype
        array = converted(name, tensor, "float16" if dtype == "float16" else "float32").numpy()
        kind = package.GGMLQuantizationType[KINDS[dtype][0]]
        writer.add_tensor(name, _quantized(package, array, kind), raw_dtype=kind)
    with named_errors(target), publish(target, overwrite=source.overwrite) as file:
        writer.fout = [file]  # replaces `open_output_file`, so that the file appears only when complete
        writer.state = package.gguf_writer.WriterState.EMPTY
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
    note = f"{len(mixed)} tensors are float16, because q8_0 needs rows of a multiple of {BLOCK} numbers"
    return Written(
        files=[target],
        architecture=architecture,
        how_to_load=f"llama-server -m {target}",
        notes=(note,) if mixed else (),
    )


def metadata(source: Source) -> dict[str, Any]:
    """Return all metadata by key, without the tensors."""
    return {
        **{key: value for key, value in source.model.config.items() if key != "general.architecture"},
        "general.name": source.name,
        "general.file_type": int(_package().LlamaFileType[KINDS[source.dtype][1]]),
        "general.quantization_version": QUANTIZATION_VERSION,
        **tokenizer_format.metadata(source.tokenizer.parts, eos_token=source.eos_token),
        **_chat_metadata(source),
    }


def _chat_metadata(source: Source) -> dict[str, Any]:
    if source.chat is None:
        return {}
    found: dict[str, Any] = {"tokenizer.chat_template": source.chat.template}
    # llama.cpp stops at this token as well as at eos_token_id.
    return (
        found if source.chat.end_of_turn is None else {**found, "tokenizer.ggml.eot_token_id": source.chat.end_of_turn}
    )


def _package() -> Any:
    return load_package("gguf", needed_by="exporting a model to GGUF")


def _falls_back(shape: tuple[int, ...], dtype: str) -> bool:
    return dtype == "q8_0" and len(shape) > 1 and shape[-1] % BLOCK != 0


def _quantized(package: Any, array: NDArray[np.floating[Any]], kind: Any) -> NDArray[Any]:
    if kind.name in ("F32", "F16"):
        return array
    quantized: NDArray[Any] = package.quants.quantize(array, kind)
    return quantized


def _add(package: Any, writer: Any, key: str, value: Any) -> None:
    kinds = package.GGUFValueType
    if isinstance(value, list):
        element = kinds.STRING if key in tokenizer_format.LISTS_OF_TEXT else kinds.INT32
        writer.add_key_value(key, value, kinds.ARRAY, sub_type=element)
        return
    by_type = {bool: kinds.BOOL, int: kinds.UINT32, float: kinds.FLOAT32, str: kinds.STRING}
    writer.add_key_value(key, value, by_type[type(value)])
