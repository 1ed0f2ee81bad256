"""formats: the file formats of tokenizers.

A format is a module with

    OPTIONS                              names of the options of `files`
    recognizes(path, head) -> bool       whether a file with this name and these first bytes may have this format
    read(path, given) -> parts           the tokenizer; `given` has the pattern and special tokens from the caller
    files(parts, path, **options)        the bytes to write, by path, the main file last

| module | file |
|---|---|
| `gristmill_json.py` | Gristmill's own format |
| `huggingface.py` | `tokenizer.json` of Hugging Face; in a folder with `tokenizer_config.json` |
| `gpt2.py` | `vocab.json` and `merges.txt` of GPT-2 |
| `tiktoken.py` | `.tiktoken` |
| `minbpe.py` | `.model` of minbpe |
| `gguf.py` | GGUF of llama.cpp; write only |
| `pre_tokenizer.py` | the pattern in a `tokenizer.json` |
| `content.py`, `given.py`, `byte_alphabet.py`, `tokenizer_config.py` | shared code |

To add a format, add the module, a line in `FORMATS`, a test file, and the rows that ARCHITECTURE.md names.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from gristmill.arguments import check_choice, check_tie_break
from gristmill.errors import GristmillError, OptionError, TokenizerFormatError, warn_user
from gristmill.lock import waiting_lock
from gristmill.publish import publish, temporary_name
from gristmill.tokenizer.formats import gguf, gpt2, gristmill_json, huggingface, minbpe, tiktoken
from gristmill.tokenizer.formats.content import check_there, checked_path, read_content
from gristmill.tokenizer.formats.given import Given
from gristmill.tokenizer.parts import TokenizerParts

__all__ = ["FORMATS", "TokenizerParts", "may_be_tokenizer", "read_tokenizer", "write_tokenizer"]

# In the order in which they are tried on a file.
FORMATS: dict[str, ModuleType] = {
    "gristmill": gristmill_json,
    "minbpe": minbpe,
    "gguf": gguf,
    "huggingface": huggingface,
    "gpt2": gpt2,
    "tiktoken": tiktoken,
}

READ = [name for name in FORMATS if name != "gguf"]  # GGUF is write only

# The tokenizer files of a folder, by format, in the order in which they are tried. The reader of GPT-2's two files
# finds them itself.
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
    """Return the tokenizer in the file or folder at `path`. Raises TokenizerFormatError if it is not valid.

    pattern, special_tokens: for formats that do not store them. Special tokens come with their ids, or as a list: then
        they get the ids in the file, or the ids after the last one. For other formats they must agree with the file.
    tie_break: rule of a file that does not record one. Raises OptionError if the file records another one.
    name: name of the path in messages. Default: the path.
    """
    given = Given.from_options(pattern, special_tokens)
    if tie_break is not None:
        check_tie_break(tie_break)
    module = None if format == "auto" else FORMATS[_checked(format, ["auto", *READ])]
    source = checked_path(path, "path")
    name = os.fspath(path) if name is None else name
    check_there(path)  # a missing file raises FileNotFoundError for every format
    try:
        if format in IN_FOLDER and source.is_dir():
            source = _find_in_folder(source, format)
            name = str(Path(name, source.name))
        if module is None:
            module = _recognized(source)
        parts: TokenizerParts = module.read(source, given)
    except (GristmillError, ValueError, TypeError, RecursionError) as error:
        message = str(error).removeprefix(f"{name}: ") or type(error).__name__
        raise TokenizerFormatError(f"{name}: {message:.2000}") from error  # a file may have names of any length
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
    """Write `parts` to `path` and return the paths of the files written. Each file is written atomically.

    Warns with FormatWarning if the format cannot store part of the tokenizer. Raises TokenizerFormatError if the ids
    would differ.

    options: options of the format: `bos_token` and `eos_token` for "huggingface" and "gguf"; `pad_token`,
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
    folder = Path(path)
    if folder.is_symlink() and any(target.parent == folder for target in contents):
        raise FileExistsError(errno.EEXIST, "Is a symbolic link, which is not followed. Pass a folder", str(folder))
    for target in contents:
        if not overwrite and os.path.lexists(target):
            message = "Already exists. Pass overwrite=True to replace it, or another name"
            raise FileExistsError(errno.EEXIST, message, str(target))
    with contextlib.ExitStack() as undo:
        for target in contents:
            if target.parent == folder and not folder.exists():
                folder.mkdir(exist_ok=True)  # the path of a format of several files is their folder
                undo.callback(_remove_if_empty, folder)
        if len(contents) > 1:
            # Two processes that rename in turn would leave files of both.
            place = next(iter(contents)).parent
            undo.enter_context(waiting_lock(place, on_wait=partial(_warn_of_wait, place)))
        _publish_together(contents, overwrite=overwrite)
    return list(contents)[::-1]


def _publish_together(contents: Mapping[Path, bytes], *, overwrite: bool) -> None:
    """Write files that belong together, the main file last. Readers never find files of two tokenizers.

    All files are on disk under temporary names before the first one appears, so a full disk changes nothing. Earlier
    files are moved aside first, beginning with the main file, without which readers report an error. They are moved
    back if an error occurs. After SIGKILL they stay under their hidden names until the next write.
    """
    aside: list[tuple[Path, Path]] = []
    try:
        with contextlib.ExitStack() as stack:
            for target, data in reversed(list(contents.items())):  # the stack renames the last one first
                file = stack.enter_context(publish(target, overwrite=overwrite))
                file.write(data)
                file.flush()
                if len(contents) > 1:
                    os.fsync(file.fileno())
            for target in reversed(list(contents)) if overwrite and len(contents) > 1 else ():
                if os.path.lexists(target):
                    aside.append((target, temporary_name(target)))
                    target.rename(aside[-1][1])
    except BaseException:
        for target, hidden in reversed(aside):
            with contextlib.suppress(FileNotFoundError):
                hidden.replace(target)
        raise
    for _, hidden in aside:
        hidden.unlink(missing_ok=True)


def _warn_of_wait(place: Path, holder: str) -> None:
    warn_user(f"{place}: waiting until {holder} has written its files to this folder.", UserWarning)


def _remove_if_empty(folder: Path) -> None:
    with contextlib.suppress(OSError):  # the folder is not empty
        folder.rmdir()


def _check_path(path: str | os.PathLike[str], *, may_be_folder: bool) -> None:
    """Raise if `path` is empty, or ends in a slash where a file is needed. pathlib would drop the slash."""
    name = os.fspath(path)
    if not name:
        raise OptionError("path='' is empty. Pass the name of the file or folder to write.")
    if not may_be_folder and (name.endswith((os.sep, os.altsep or os.sep)) or not Path(name).name):
        raise IsADirectoryError(errno.EISDIR, "Is the name of a folder. Pass the name of a file", name)


def _checked(format: str, offered: Iterable[str]) -> str:
    return format if format in FORMATS else check_choice("format", format, offered)


def _find_in_folder(folder: Path, format: str) -> Path:
    """Return the tokenizer file of a folder. Raises TokenizerFormatError if there is no such file, or several."""
    for pattern in IN_FOLDER[format]:
        found = [path for path in sorted(folder.glob(pattern)) if "*" not in pattern or may_be_tokenizer(path, format)]
        if len(found) > 1:
            raise TokenizerFormatError(
                f"has {len(found)} files that may be tokenizers: {', '.join(path.name for path in found[:4])}"
                f"{', …' * (len(found) > 4)}. Pass the path of one of them."
            )
        if found:
            return found[0]
    if format != "auto":
        raise TokenizerFormatError(f"has no file of format {format!r} ({', '.join(IN_FOLDER[format])}).")
    raise TokenizerFormatError(
        "the folder has no tokenizer file that Gristmill reads: tokenizer.json, vocab.json with merges.txt, "
        "*.tiktoken, *.model of minbpe, or Gristmill's own format."
    )


def may_be_tokenizer(path: Path, format: str = "auto") -> bool:
    """Return whether `path` is a file that looks like a tokenizer. Only its first bytes are read.

    Most `.json` files in the folder of a model, and many `.model` files, do not look like one.
    """
    modules = FORMATS.values() if format == "auto" else [FORMATS[format]]
    if not path.is_file():
        return False
    with path.open("rb") as file:
        head = file.read(HEAD_BYTES)
    # GPT-2's files are recognized only by name, because any table of numbers, such as a config.json, looks like one.
    return any(module.recognizes(path, b"" if module is gpt2 else head) for module in modules)


def _recognized(path: Path) -> ModuleType:
    head = read_content(path, HEAD_BYTES)
    for module in FORMATS.values():
        if module.recognizes(path, head):
            return module
    if head.lstrip().startswith((b"{", b"\xef\xbb\xbf{")) or not head:
        return gristmill_json  # its reader reports what is missing
    raise TokenizerFormatError("not a tokenizer file. Train one with train_tokenizer().")
