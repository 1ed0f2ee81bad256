"""Find, decompress and cache the corpora of the benchmarks.

A corpus is a file, or one of these names:

    sample       50 MB of generated stories (`gristmill sample-corpus`), always available
    english, code, multilingual, tinystories
                 real text from the folder named by GRISTMILL_DATA: NAME.txt, NAME_*.txt, or the same with .xz
    large        1.5 GB made from `english` (`large_corpus.py`): a synthetic extension

NAME:5MB is the first 5 MB of a corpus. Decompressed and generated files are kept in `cache_folder()`.
"""

from __future__ import annotations

import errno
import lzma
import os
import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

from gristmill.bench import large_corpus
from gristmill.errors import OptionError
from gristmill.publish import publish
from gristmill.sample_corpus import write_sample_corpus

__all__ = ["NAMES", "Corpus", "cache_folder", "data_file", "resolve"]

REAL = ("english", "code", "multilingual", "tinystories")
NAMES = ("sample", *REAL, "large")
SAMPLE_BYTES = 50_000_000
UNITS = {"kB": 10**3, "MB": 10**6, "GB": 10**9}
SLICED = re.compile(r"(.+):(\d+)(kB|MB|GB)")


@dataclass(frozen=True)
class Corpus:
    """A file to measure, and its description for the table."""

    name: str
    path: Path
    what: str

    @property
    def num_bytes(self) -> int:
        """Size of the file."""
        return self.path.stat().st_size

    @property
    def megabytes(self) -> float:
        """Size in units of 10^6 bytes."""
        return self.num_bytes / 1e6

    def distinct_byte_values(self) -> int:
        """Return how many of the 256 byte values occur. Reads the whole file into the page cache."""
        seen: set[int] = set()
        with self.path.open("rb") as file:
            while block := file.read(1 << 20):
                seen.update(block.translate(None, bytes(seen)))
        return len(seen)


def cache_folder() -> Path:
    """Return the folder for generated files: $GRISTMILL_CACHE, else gristmill/bench in the user's cache folder."""
    if folder := os.environ.get("GRISTMILL_CACHE"):
        return Path(folder)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gristmill" / "bench"


def resolve(name: str | os.PathLike[str]) -> Corpus:
    """Return the corpus of that name, or the file at that path; makes generated text if it is not in the cache.

    Args:
        name: One of `NAMES`, or the path of a text file; with `:5MB` at its end, only the start of the text.

    Raises:
        OptionError: There is neither such a corpus nor such a file, or the file is empty.
    """
    text = os.fspath(name)
    sliced = SLICED.fullmatch(text)
    if sliced is not None and not Path(text).exists():
        base, number, unit = sliced.groups()
        num_bytes = int(number) * UNITS[unit]
        if num_bytes == 0:
            raise OptionError(f"{text} is empty. Pass a size > 0, such as {base}:5MB.")
        if base == "sample":  # a smaller sample is the start of a larger one, so the larger one is not needed
            return replace(_sample(num_bytes, number + unit), name=f"sample_{number}{unit}")
        return _start(resolve_whole(base), num_bytes, f"{number}{unit}")
    return resolve_whole(text)


def resolve_whole(name: str) -> Corpus:
    """Return the corpus of that name or path."""
    if name == "sample":
        return _sample(SAMPLE_BYTES, "50MB")
    if name in REAL:
        return Corpus(name, _unpacked(_real(name)), "real text")
    if name == "large":
        return _large(_unpacked(_real("english")))
    path = Path(name)
    if not path.is_file():
        raise OptionError(f"{name}: no such file, and no corpus of that name. Pass a file, or {', '.join(NAMES)}.")
    if not path.stat().st_size:
        raise OptionError(f"{name}: the file is empty. Pass a corpus with text.")
    return Corpus(path.name.partition(".")[0] or path.name, path.absolute(), path.name)


def data_file(*patterns: str) -> Path | None:
    """Return the first file in the folder named by GRISTMILL_DATA that matches a pattern, else None."""
    folder = os.environ.get("GRISTMILL_DATA")
    if not folder:
        return None
    found = (path for pattern in patterns for path in sorted(Path(folder).glob(pattern)) if path.is_file())
    return next(found, None)


def _real(name: str) -> Path:
    found = data_file(f"{name}.txt", f"{name}_*.txt", f"{name}.txt.xz", f"{name}_*.txt.xz")
    if found is None:
        where = os.environ.get("GRISTMILL_DATA") or "GRISTMILL_DATA, which is not set"
        raise OptionError(
            f"{name}: no {name}.txt or {name}_*.txt in {where}. Set GRISTMILL_DATA to a folder of real text, or pass "
            "a file, or 'sample'."
        )
    return found


def _unpacked(source: Path) -> Path:
    if source.suffix != ".xz":
        return source.absolute()

    def unpack(out: BinaryIO) -> None:
        with lzma.open(source) as packed:
            shutil.copyfileobj(packed, out, 1 << 20)

    return _cached(source.stem, f"decompressing {source.name}", unpack)


def _large(base: Path) -> Corpus:
    made = _cached(
        f"large_{large_corpus.VERSION}.txt",
        f"making 1.5 GB from {base.name}, which takes a minute",
        lambda out: large_corpus.write(base, out),
    )
    what = f"synthetic extension of {base.stem}: shuffled copies with ever new rare words (see large_corpus.py)"
    return Corpus("large", made, what)


def _sample(num_bytes: int, size: str) -> Corpus:
    target = cache_folder() / f"sample_{size}.txt"
    if not target.exists():
        _make_folder(target.parent)
        print(f"generating the sample corpus ({size})", file=sys.stderr)
        write_sample_corpus(target, num_bytes, 0, overwrite=True)
    return Corpus("sample", target, f"gristmill sample-corpus --size {size} --seed 0 (generated stories)")


def _start(base: Corpus, num_bytes: int, size: str) -> Corpus:
    """Return the first megabytes of a corpus, without an incomplete character at the end."""
    if num_bytes >= base.num_bytes:
        return base
    with base.path.open("rb") as file:
        data = file.read(num_bytes).decode(errors="ignore").encode()
    # A file of the user may change under the same name, so its size and time are part of the cached name.
    status = base.path.stat()
    stamp = "" if base.path.parent == cache_folder() else f"_{status.st_size}_{status.st_mtime_ns}"
    name = f"{base.name}_{size}"
    path = _cached(f"slices/{name}{stamp}.txt", f"taking the first {size} of {base.name}", lambda out: out.write(data))
    return Corpus(name, path, f"the first {size} of {base.what}")


def _cached(name: str, message: str, write: Callable[[BinaryIO], object]) -> Path:
    """Return the file of that name in the cache; `write` makes it if it is missing."""
    target = cache_folder() / name
    if not target.exists():
        _make_folder(target.parent)
        print(message, file=sys.stderr)
        with publish(target) as out:
            write(out)
    return target


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OSError(
            error.errno or errno.EIO,
            f"{error.strerror}: cannot create the cache folder. Set GRISTMILL_CACHE to a folder that can be written",
            str(folder),
        ) from error
