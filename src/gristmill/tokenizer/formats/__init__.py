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

from gristmill.arguments import check_choice, check_tie_break
from gristmill.errors import GristmillError, OptionError, TokenizerFormatError
from gristmill.publish import publish
from gristmill.tokenizer.formats import gguf, gpt2, gristmill_json, huggingface, minbpe, tiktoken
from gristmill.tokenizer.formats.content import check_there, checked_path, read_content
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

# The files of a folder that may hold its tokenizer, by format, in the order in which they are looked for. The reader of
# GPT-2's two files finds them itself.
IN_FOLDER: dict[str, tuple[str, ...]] = {
    "auto": ("tokenizer.json", "vocab.json", "encoder.json", "*.tiktoken", "*.tiktoken.gz", "*.model", "*.json"),
    "gristmill": ("tokenizer.json", "*.json"),
    "minbpe": ("*.model",),
    "huggingface": ("tokenizer.json", "*.json"),
    "tiktoken": ("*.tiktoken", "*.tiktoken.gz"),
}

HEAD_BYTES = 4096


def read_tokenizer(
    path: str | os.PathLike[str],
    format: str = "auto",
    *,
    pattern: str | None = None,
    special_tokens: Mapping[str, int] | Iterable[str] | None = None,
    tie_break: str | None = None,
    name: str | None = None,
) -> TokenizerParts:
    """What the file or folder at `path` holds; `TokenizerFormatError`, naming it, when it is not a sound tokenizer.

    pattern, special_tokens: what the format does not hold. Specials come with their ids, or as a list: then they have
        those of the file, or the ones after the last. For a format that holds them they must be what the file says.
    tie_break: the rule of a file that records none; another one than the file records is an `OptionError`.
    name: what messages call the path; by default the path itself.
    """
    given = Given.from_options(pattern, special_tokens)
    if tie_break is not None:
        check_tie_break(tie_break)
    module = None if format == "auto" else FORMATS[_checked(format, ["auto", *READ])]
    source = checked_path(path, "path")
    name = os.fspath(path) if name is None else name
    check_there(path)  # a missing file is FileNotFoundError, whatever the format
    try:
        if format in IN_FOLDER and source.is_dir():
            source = _find_in_folder(source, format)
            name = str(Path(name, source.name))
        if module is None:
            module = _recognized(source)
        parts: TokenizerParts = module.read(source, given)
    except (GristmillError, ValueError, TypeError, RecursionError) as error:
        message = str(error).removeprefix(f"{name}: ") or type(error).__name__
        raise TokenizerFormatError(f"{name}: {message}") from error
    try:
        return parts.with_tie_break(tie_break)
    except OptionError as error:
        raise OptionError(f"{name}: {error}") from None


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


def _find_in_folder(folder: Path, format: str) -> Path:
    """The file of a folder that holds its tokenizer; `TokenizerFormatError` if there is none, or no way to choose."""
    for pattern in IN_FOLDER[format]:
        found = [path for path in sorted(folder.glob(pattern)) if "*" not in pattern or _may_be(path, format)]
        if len(found) > 1:
            raise TokenizerFormatError(
                f"has {len(found)} files that may be tokenizers: {', '.join(path.name for path in found[:4])}"
                f"{', …' * (len(found) > 4)}. Pass the path of one."
            )
        if found:
            return found[0]
    if format != "auto":
        raise TokenizerFormatError(f"has no file of the format {format!r} ({', '.join(IN_FOLDER[format])}).")
    raise TokenizerFormatError(
        "has no tokenizer that can be read. It needs a tokenizer.json, vocab.json and merges.txt, .tiktoken, "
        ".model of minbpe, or a file of Gristmill."
    )


def _may_be(path: Path, format: str) -> bool:
    """Whether a file looks like a tokenizer: most `.json` files of a model's folder, and many `.model`, are none."""
    modules = FORMATS.values() if format == "auto" else [FORMATS[format]]
    if not path.is_file():
        return False
    with path.open("rb") as file:
        head = file.read(HEAD_BYTES)
    # Of GPT-2's files only the name: any table of numbers, such as a config.json, has their content.
    return any(module.recognizes(path, b"" if module is gpt2 else head) for module in modules)


def _recognized(path: Path) -> ModuleType:
    head = read_content(path, HEAD_BYTES)
    for module in FORMATS.values():
        if module.recognizes(path, head):
            return module
    if head.lstrip().startswith((b"{", b"\xef\xbb\xbf{")) or not head:
        return gristmill_json  # whose reader says what is missing
    raise TokenizerFormatError("not a tokenizer file. Train one with train_tokenizer().")
