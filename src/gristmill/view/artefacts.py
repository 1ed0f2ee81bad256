"""Artefacts: the tokenizers, shards and runs at the paths given to `gristmill view`."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gristmill.errors import GristmillError, OptionError, TokenizerFormatError
from gristmill.report.comparison import distinct_names
from gristmill.report.records import CONFIG_FILE, METRICS_FILE
from gristmill.shards.folder_kind import is_shard_folder

if TYPE_CHECKING:
    from gristmill.encode import Tokenizer

__all__ = ["Artefact", "Artefacts", "TokenizerArtefact", "find_artefacts"]

KNOWN = (
    "a tokenizer (file or folder), a folder of shards (gristmill encode), a run folder (gristmill train-model), or a "
    "folder that contains some of them"
)
MAX_ENTRIES = 200  # of a folder that contains artefacts


@dataclass(frozen=True)
class Artefact:
    """A run or a folder of shards, with the name that the pages show."""

    name: str
    path: Path


@dataclass(frozen=True)
class TokenizerArtefact(Artefact):
    """A tokenizer, loaded."""

    tokenizer: Tokenizer


@dataclass(frozen=True)
class Artefacts:
    """Everything that the pages may show. No request reads a file outside these paths."""

    tokenizers: tuple[TokenizerArtefact, ...] = ()
    shards: tuple[Artefact, ...] = ()
    runs: tuple[Artefact, ...] = ()

    def __len__(self) -> int:
        return len(self.tokenizers) + len(self.shards) + len(self.runs)


@dataclass(frozen=True)
class _Found:
    kind: str  # "tokenizer" | "shards" | "run"
    path: Path
    tokenizer: Tokenizer | None = None


def find_artefacts(paths: Iterable[str | os.PathLike[str]]) -> Artefacts:
    """Return the artefacts at `paths`; a folder that is none itself gives the artefacts directly inside it.

    Raises:
        OptionError: No path is given, or a path is nothing that Gristmill can show.
        FileNotFoundError: A path does not exist.
    """
    found: dict[Path, _Found] = {}
    for path in map(Path, paths):
        for each in _at(path):
            found.setdefault(each.path.resolve(), each)
    if not found:
        raise OptionError(f"no path is given. Pass {KNOWN}.")
    return _named(list(found.values()))


def _named(found: Sequence[_Found]) -> Artefacts:
    names = distinct_names([each.path for each in found])
    pairs = list(zip(names, found, strict=True))
    return Artefacts(
        tokenizers=tuple(
            TokenizerArtefact(name, each.path, each.tokenizer) for name, each in pairs if each.tokenizer is not None
        ),
        shards=tuple(Artefact(name, each.path) for name, each in pairs if each.kind == "shards"),
        runs=tuple(Artefact(name, each.path) for name, each in pairs if each.kind == "run"),
    )


def _at(path: Path) -> list[_Found]:
    if not path.exists():
        raise FileNotFoundError(errno.ENOENT, f"No such file or folder. Pass {KNOWN}", str(path))
    if path.is_dir():
        kind = _folder_kind(path)
        if kind is not None:
            return [_Found(kind, path)]
        inside = list(_inside(path))
        if any(each.tokenizer is None for each in inside):
            return inside
        # A folder of tokenizer files of another library, such as vocab.json and merges.txt, is one tokenizer.
        loaded = _tokenizer_at(path)
        if loaded is not None:
            return [_Found("tokenizer", path, loaded)]
        if inside:
            return inside
        raise OptionError(f"{path} contains nothing that can be shown. Pass {KNOWN}.")
    from gristmill.encode import Tokenizer

    try:
        return [_Found("tokenizer", path, Tokenizer.load(path))]
    except TokenizerFormatError as error:
        raise OptionError(f"{path} cannot be shown: {str(error).rstrip('.')}. Pass {KNOWN}.") from error


def _folder_kind(folder: Path) -> str | None:
    if is_run_folder(folder):
        return "run"
    return "shards" if is_shard_folder(folder) else None


def is_run_folder(folder: Path) -> bool:
    """Return whether a training run has started in this folder."""
    return (folder / METRICS_FILE).is_file() or ((folder / CONFIG_FILE).is_file() and (folder / "checkpoints").is_dir())


def _inside(folder: Path) -> Iterator[_Found]:
    """Yield the artefacts directly inside a folder, by name, without those that this user must not read."""
    for path in sorted(folder.iterdir())[:MAX_ENTRIES]:
        with contextlib.suppress(PermissionError):
            if path.is_dir():
                kind = _folder_kind(path)
                if kind is not None:
                    yield _Found(kind, path)
            elif path.suffix in (".json", ".tiktoken", ".model", ".gguf") and path.is_file():
                tokenizer = _tokenizer_at(path)
                if tokenizer is not None:
                    yield _Found("tokenizer", path, tokenizer)


def _tokenizer_at(path: Path) -> Tokenizer | None:
    from gristmill.encode import Tokenizer

    try:
        return Tokenizer.load(path)
    except (GristmillError, OSError):
        return None
