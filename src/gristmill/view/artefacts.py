"""Artefacts: the tokenizers, shards and runs at the paths given to `gristmill view`."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from gristmill.analysis.named_tokenizers import NAMES, find_tokenizer, may_be_published
from gristmill.encode.tokenizer import Tokenizer
from gristmill.errors import GristmillError, OptionError, TokenizerFormatError
from gristmill.report.comparison import distinct_names
from gristmill.report.kinds import KNOWN, Kind, kind_of

__all__ = ["Artefact", "Artefacts", "TokenizerArtefact", "find_artefacts"]

SHOWN = f"{KNOWN}, or a folder that contains some of them"
MAX_INSIDE = 200  # artefacts of one folder: the page polls each run
# Other files inside a folder are not opened: it may hold a corpus of millions of files.
SUFFIXES = (".json", ".tiktoken", ".model")


@dataclass(frozen=True)
class Artefact:
    """A run or a folder of shards, with the name that the pages show."""

    name: str
    path: Path


@dataclass(frozen=True)
class TokenizerArtefact(Artefact):
    """A tokenizer, loaded. `pattern` is that of a file whose format does not store one."""

    tokenizer: Tokenizer
    pattern: str | None = None


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
    kind: Kind
    path: Path
    tokenizer: Tokenizer | None = None


def find_artefacts(
    paths: Iterable[str | os.PathLike[str]], *, pattern: str | None = None, download: bool = False
) -> Artefacts:
    """Return the artefacts at `paths`; a folder that is none itself gives the artefacts directly inside it.

    paths: may also have names of published tokenizers, such as "gpt2" or "owner/name".
    pattern: pattern of tokenizer files whose format does not store one.
    download: whether a published tokenizer that is not on this machine may be downloaded.

    Raises:
        OptionError: No path is given, or a path is nothing that Gristmill can show.
        FileNotFoundError: A path does not exist.
    """
    found: dict[Path, _Found] = {}
    for path in map(Path, paths):
        for each in _at(path, pattern) if path.exists() else [_published(str(path), pattern, download)]:
            found.setdefault(each.path.resolve(), each)
    if not found:
        raise OptionError(f"no path is given. Pass {SHOWN}.")
    return _named(list(found.values()), pattern)


def _named(found: Sequence[_Found], pattern: str | None) -> Artefacts:
    pairs = list(zip(distinct_names([each.path for each in found]), found, strict=True))
    return Artefacts(
        tokenizers=tuple(
            TokenizerArtefact(name, each.path, each.tokenizer, pattern)
            for name, each in pairs
            if each.tokenizer is not None
        ),
        shards=tuple(Artefact(name, each.path) for name, each in pairs if each.kind == "shards"),
        runs=tuple(Artefact(name, each.path) for name, each in pairs if each.kind == "run"),
    )


def _published(name: str, pattern: str | None, download: bool) -> _Found:
    """Return a tokenizer by its name."""
    try:
        return _Found("tokenizer", Path(name), find_tokenizer(name, pattern=pattern, download=download))
    except FileNotFoundError:
        if name in NAMES or (download and may_be_published(name)):
            raise
    advice = f"Pass {SHOWN}"
    if may_be_published(name):
        advice += f". To download the tokenizer {name} from the Hugging Face Hub, pass download=True"
    raise FileNotFoundError(errno.ENOENT, f"No such file or folder. {advice}", name)


def _at(path: Path, pattern: str | None) -> list[_Found]:
    kind = kind_of(path)
    if kind in ("run", "shards"):
        return [_Found(kind, path)]
    if not path.is_dir():
        try:
            return [_Found("tokenizer", path, find_tokenizer(path, pattern=pattern))]
        except TokenizerFormatError as error:
            raise OptionError(f"{path} cannot be shown: {str(error).rstrip('.')}. Pass {SHOWN}.") from error
    inside = list(islice(_inside(path, pattern), MAX_INSIDE + 1))
    if len(inside) > MAX_INSIDE:
        raise OptionError(
            f"{path} contains more than {MAX_INSIDE} runs, folders of shards and tokenizers. Pass some of them."
        )
    if any(each.kind != "tokenizer" for each in inside):
        return inside
    # A folder of tokenizer files of another library, such as vocab.json and merges.txt, is one tokenizer.
    loaded = _tokenizer_at(path, pattern) if kind == "tokenizer" else None
    if loaded is not None:
        return [_Found("tokenizer", path, loaded)]
    if inside:
        return inside
    raise OptionError(f"{path} contains nothing that can be shown. Pass {SHOWN}.")


def _inside(folder: Path, pattern: str | None) -> Iterator[_Found]:
    """Yield the artefacts directly inside a folder, by name. What cannot be read is left out."""
    for path in sorted(folder.iterdir()):
        try:
            kind = kind_of(path) if path.is_dir() or path.suffix in SUFFIXES else None
        except OSError:
            continue
        tokenizer = _tokenizer_at(path, pattern) if kind == "tokenizer" else None
        if kind is not None and (kind != "tokenizer" or tokenizer is not None):
            yield _Found(kind, path, tokenizer)


def _tokenizer_at(path: Path, pattern: str | None) -> Tokenizer | None:
    try:
        return find_tokenizer(path, pattern=pattern)
    except (GristmillError, OSError):
        return None
