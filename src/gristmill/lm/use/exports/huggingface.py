"""Hugging Face folder: config.json, safetensors, the tokenizer, generation_config.json.

`AutoModelForCausalLM` and `AutoTokenizer` of transformers, and tools built on them, load it directly.
`tokenizer_config.json` is always written: without it, transformers guesses the tokenizer class from the folder name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gristmill.lm.data.chat_jinja import CHAT_TEMPLATE_FILE
from gristmill.lm.explain import INDEX_FILE, WEIGHTS_FILE
from gristmill.lm.use.exports.folders import check_folder, flush_file, named_errors, published_folder
from gristmill.lm.use.exports.source import Source, Written, converted, num_bytes
from gristmill.packages import packages_for
from gristmill.tokenizer.formats import huggingface
from gristmill.tokenizer.formats.tokenizer_config import chosen_roles

if TYPE_CHECKING:
    from torch import Tensor

DTYPES = ("float32", "bfloat16", "float16")

MAX_SHARD_BYTES = 5_000_000_000  # default of transformers
_OURS = re.compile(
    r"config\.json|generation_config\.json|model(-\d{5}-of-\d{5})?\.safetensors|model\.safetensors\.index\.json|"
    r"tokenizer\.json|tokenizer_config\.json|chat_template\.jinja"
)


def check_target(target: Path, *, overwrite: bool) -> None:
    """Raise unless the folder may be written."""
    check_folder(target, overwrite=overwrite, is_ours=lambda name: _OURS.fullmatch(name) is not None)


def write(source: Source, target: Path) -> Written:
    """Write the folder."""
    files = small_files(source)
    with packages_for("exporting a model"):
        from safetensors import SafetensorError
    with named_errors(target, SafetensorError), published_folder(target, overwrite=source.overwrite) as folder:
        weights = list(_write_weights(folder, source.model.weights, source.dtype))
        for name, content in files.items():
            (folder / name).write_bytes(content)
            flush_file(folder / name)
    return Written(
        files=[target / name for name in (*weights, *files)],
        architecture=source.model.config["architectures"][0],
        how_to_load=f"transformers.AutoModelForCausalLM.from_pretrained({str(target)!r})",
    )


def small_files(source: Source) -> dict[str, bytes]:
    """Return the content of all files except the weights, by file name."""
    specials = source.tokenizer.special_tokens
    roles = chosen_roles(specials, {"eos_token": source.eos_token})
    # Always explicit, also as None: the classes of transformers have other ids as defaults.
    ids = {f"{role}_id": specials.get(roles.get(role, "")) for role in ("bos_token", "eos_token", "pad_token")}
    # "torch_dtype" is the name in transformers 4 and vLLM, "dtype" in transformers 5.
    config = {**source.model.config, **ids, "torch_dtype": source.dtype, "dtype": source.dtype}
    tokenizer = huggingface.files(
        source.tokenizer.parts,
        Path("tokenizer"),
        eos_token=source.eos_token,
        model_max_length=source.context_length,
    )
    generation: dict[str, Any] = {name: id for name, id in ids.items() if id is not None}
    if source.chat is not None and source.chat.end_of_turn not in (None, ids["eos_token_id"]):
        # Generation stops at each of these tokens. config.json keeps only the end-of-text token.
        ends = [source.chat.end_of_turn, ids["eos_token_id"]]
        generation["eos_token_id"] = [id for id in ends if id is not None]
    files = {
        "config.json": _json(config),
        "generation_config.json": _json(generation),
        **{path.name: content for path, content in tokenizer.items()},
    }
    if source.chat is not None:
        files[CHAT_TEMPLATE_FILE] = source.chat.template.encode()
    return files


def _json(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, indent=2).encode() + b"\n"


def _write_weights(folder: Path, weights: Mapping[str, Tensor], dtype: str) -> Iterator[str]:
    """Write the weights and yield the file names: one file, or several and an index."""
    with packages_for("exporting a model"):
        from safetensors.torch import save_file

    shards = list(_shards(weights, dtype))
    names = [WEIGHTS_FILE] if len(shards) == 1 else _shard_names(len(shards))
    for file, shard in zip(names, shards, strict=True):
        tensors = {name: converted(name, weights[name], dtype) for name in shard}
        (folder / file).touch()
        mode = (folder / file).stat().st_mode
        save_file(tensors, folder / file, metadata={"format": "pt"})
        (folder / file).chmod(mode)  # safetensors creates files that only the owner can read
        flush_file(folder / file)
        yield file
    if len(shards) > 1:
        total = {"total_size": num_bytes(weights.values(), dtype)}
        places = {name: file for file, shard in zip(names, shards, strict=True) for name in shard}
        (folder / INDEX_FILE).write_bytes(_json({"metadata": total, "weight_map": places}))
        flush_file(folder / INDEX_FILE)
        yield INDEX_FILE


def _shard_names(number: int) -> list[str]:
    return [f"model-{index:05d}-of-{number:05d}.safetensors" for index in range(1, number + 1)]


def _shards(weights: Mapping[str, Tensor], dtype: str) -> Iterator[list[str]]:
    """Yield the tensor names of each file. A file is at most `MAX_SHARD_BYTES`, unless a single tensor is larger."""
    shard: list[str] = []
    size = 0
    for name, tensor in weights.items():
        added = num_bytes([tensor], dtype)
        if shard and size + added > MAX_SHARD_BYTES:
            yield shard
            shard, size = [], 0
        shard.append(name)
        size += added
    yield shard
