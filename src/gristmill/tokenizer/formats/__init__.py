"""formats: files that hold a tokenizer.

A format is a module with

    OPTIONS                              the names of the options that `files` takes
    recognizes(path, head) -> bool       whether a file with this name and these first bytes looks like one
    read(path, given) -> parts           what it holds; `given` is what the caller says of it
    files(parts, path, **options)        the bytes to write, by their paths, the main file last

| module | file |
|---|---|
| `gristmill_json.py` | our own |
| `huggingface.py` | `tokenizer.json` of Hugging Face; in a folder with `tokenizer_config.json` |
| `gpt2.py` | `vocab.json` and `merges.txt` of GPT-2 |
| `tiktoken.py` | `.tiktoken` |
| `minbpe.py` | `.model` of minbpe |
| `gguf.py` | llama.cpp; written, not read |
| `pre_tokenizer.py` | the pattern in such a `tokenizer.json` |
| `content.py`, `given.py`, `byte_alphabet.py`, `tokenizer_config.py` | what they share |

Adding one is the module, a line in `FORMATS`, a test file, and the rows that ARCHITECTURE.md names.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from gristmill.arguments import check_choice
from gristmill.errors import GristmillError, OptionError, TokenizerFormatError
from gristmill.publish import publish
from gristmill.tokenizer.formats import gguf, gpt2, gristmill_json, huggingface, minbpe, tiktoken
from gristmill.tokenizer.formats.content import read_content
from gristmill.tokenizer.formats.given import Given
from gristmill.tokenizer.parts import TokenizerParts

__all__ = ["FORMATS", "TokenizerParts", "read_tokenizer", "write_tokenizer"]

# In the order in which a file is held against them.
FORMATS: dict[str, ModuleType] = {
    "gristmill": gristmill_json,
    "minbpe": minbpe,
    "gguf": gguf,
    "huggingface": huggingface,
    "gpt2": gpt2,
    "tiktoken": tiktoken,
}

READ = [name for name in FORMATS if name != "gguf"]  # which is only written

HEAD_BYTES = 4096


def read_tokenizer(
    path: str | os.PathLike[str],
    format: str = "auto",
    *,
    pattern: str | None = None,
    special_tokens: Mapping[str, int] | Iterable[str] | None = None,
) -> TokenizerParts:
    """What the file or folder at `path` holds; `TokenizerFormatError`, naming it, when it is not a sound tokenizer.

    pattern, special_tokens: what the format does not hold. Specials come with their ids, or as a list: then they have
        those of the file, or the ones behind the last. For a format that holds them they must be what the file says.
    """
    given = Given.of(pattern, special_tokens)
    module = None if format == "auto" else FORMATS[_checked(format, ["auto", *READ])]
    name = os.fspath(path)
    source = Path(path)
    source.stat()  # a missing file is FileNotFoundError, whatever the format
    try:
        if source.is_dir() and module not in (gpt2, gguf):
            source = _find_in_folder(source)
        if module is None:
            module = _recognized(source)
        parts: TokenizerParts = module.read(source, given)
    except (GristmillError, ValueError, TypeError, RecursionError) as error:
        message = str(error).removeprefix(f"{name}: ") or type(error).__name__
        raise TokenizerFormatError(f"{name}: {message}") from error
    return parts


def write_tokenizer(
    parts: TokenizerParts,
    path: str | os.PathLike[str],
    *,
    format: str = "gristmill",
    overwrite: bool = True,
    **options: Any,
) -> list[Path]:
    """Write `parts` to `path` and return the paths of what was written, each whole or not at all.

    What the format cannot hold is a `FormatWarning`; where it would give other ids, a `TokenizerFormatError`.

    options: of some formats only: `bos_token` and `eos_token` for "huggingface" and "gguf"; `pad_token`,
        `model_max_length` and `legacy_merges` for "huggingface"; `pre` for "gguf".
    """
    module = FORMATS[_checked(format, FORMATS)]
    _check_path(path, may_be_folder=module in (gpt2, huggingface))
    unknown = sorted(set(options) - module.OPTIONS)
    if unknown:
        known = ", ".join(sorted(module.OPTIONS)) or "none"
        raise OptionError(f"the format {format!r} has no option {unknown[0]!r}. Its options: {known}.")
    try:
        contents: dict[Path, bytes] = module.files(parts, Path(path), **options)
    except TokenizerFormatError as error:
        raise TokenizerFormatError(f"{os.fspath(path)}: {error}") from None
    for target in contents:
        if not overwrite and os.path.lexists(target):
            message = "Is already there; choose another name or pass overwrite=True"
            raise FileExistsError(errno.EEXIST, message, str(target))
    with contextlib.ExitStack() as undo:
        for target, data in contents.items():
            if target.parent == Path(path) and not target.parent.exists():
                target.parent.mkdir()  # a format of several files: the path is their folder
                undo.callback(_remove_if_empty, target.parent)
            with publish(target, overwrite=overwrite) as file:
                file.write(data)
    return list(contents)[::-1]


def _remove_if_empty(folder: Path) -> None:
    with contextlib.suppress(OSError):  # there is something in it
        folder.rmdir()


def _check_path(path: str | os.PathLike[str], *, may_be_folder: bool) -> None:
    """Raise if `path` has no name, or is spelled as a folder's and must be a file's: pathlib would drop the slash."""
    name = os.fspath(path)
    if not name:
        raise OptionError("path is empty. Pass the name of what is to be written.")
    if not may_be_folder and (name.endswith((os.sep, os.altsep or os.sep)) or not Path(name).name):
        raise IsADirectoryError(errno.EISDIR, "Is the name of a folder; pass that of a file", name)


def _checked(format: str, offered: Iterable[str]) -> str:
    return format if format in FORMATS else check_choice("format", format, offered)


def _find_in_folder(folder: Path) -> Path:
    for name in ("tokenizer.json", "vocab.json", "encoder.json"):
        if (folder / name).exists():
            return folder / name
    raise TokenizerFormatError("is a folder that has neither a tokenizer.json nor a vocab.json. Pass a file.")


def _recognized(path: Path) -> ModuleType:
    head = read_content(path, HEAD_BYTES)
    for module in FORMATS.values():
        if module.recognizes(path, head):
            return module
    if head.lstrip().startswith((b"{", b"\xef\xbb\xbf{")) or not head:
        return gristmill_json  # whose reader says what is missing
    raise TokenizerFormatError("is not a tokenizer file. Pass one; to make one of a text, run train_tokenizer().")
