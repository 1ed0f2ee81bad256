"""Find, decompress and cache the named corpora of the benchmarks.

Real text is searched for in the folder named by GRISTMILL_DATA, then in ../shared/data next to the repository, as
NAME.txt or NAME.txt.xz. Decompressed and generated files are kept in data/ of the repository, which git ignores. If the
real text is missing, the sample corpus (`gristmill sample-corpus`) replaces it and the tables report this.

    python benchmarks/corpora.py english     prints the path, after decompressing it if necessary
"""

import argparse
import lzma
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import large_corpus

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / "data" / "benchmarks"
REAL = {
    "english": "english_90M",
    "code": "code_40M",
    "multilingual": "multilingual_45M",
    "tinystories": "tinystories_2M",
}
NAMES = (*REAL, "large", "sample")
SAMPLE_SIZES = {"sample": "50MB", "quick": "5MB"}


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


def resolve(name: str) -> Corpus:
    """Return the corpus of that name, or the file at that path; a missing corpus is made or replaced by the sample."""
    if name not in NAMES and name != "quick":
        return _from_path(Path(name))
    if name in REAL and (source := _find_real(REAL[name])):
        return Corpus(name, _unpacked(source), f"{REAL[name]}, real text")
    if name == "large" and (source := _find_real(REAL["english"])):
        return _large(_unpacked(source))
    if name in SAMPLE_SIZES:
        return _sample(name)
    print(f"{name}: no real text found (set GRISTMILL_DATA); using the sample corpus instead", file=sys.stderr)
    return _sample("sample")


def _from_path(path: Path) -> Corpus:
    if not path.is_file():
        raise SystemExit(f"{path}: no such file, and no corpus of that name. Known: {', '.join(NAMES)}.")
    return Corpus(path.stem, path, path.name)


def _find_real(stem: str) -> Path | None:
    folders = [Path(os.environ["GRISTMILL_DATA"])] if "GRISTMILL_DATA" in os.environ else []
    candidates = [f / (stem + end) for f in [*folders, ROOT.parent / "shared" / "data"] for end in (".txt", ".txt.xz")]
    return next((path for path in candidates if path.is_file()), None)


def _unpacked(source: Path) -> Path:
    if source.suffix != ".xz":
        return source
    target = CACHE / source.stem
    if not target.exists():
        print(f"unpacking {source.name}", file=sys.stderr)
        with _published(target) as out, lzma.open(source) as packed:
            shutil.copyfileobj(packed, out, 1 << 20)
    return target


def _large(base: Path) -> Corpus:
    target = CACHE / f"large_{large_corpus.VERSION}.txt"
    if not target.exists():
        print(f"making {target.name} from {base.name} (a minute, once)", file=sys.stderr)
        with _published(target) as out:
            large_corpus.write(base, out)
    what = f"synthetic extension of {base.stem}: shuffled copies with ever new rare words (see large_corpus.py)"
    return Corpus("large", target, what)


def _sample(name: str) -> Corpus:
    size = SAMPLE_SIZES[name]
    target = CACHE / f"sample_{size}.txt"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        call = "import sys; from gristmill.cli import main; sys.exit(main())"
        arguments = ["sample-corpus", "-o", str(target), "--size", size, "--seed", "0"]
        subprocess.run([sys.executable, "-c", call, *arguments], check=True, stdout=sys.stderr)
    return Corpus(name, target, f"gristmill sample-corpus --size {size} --seed 0 (generated stories)")


@contextmanager
def _published(target: Path) -> Iterator[BinaryIO]:
    """Write under another name and rename when done, so that an interrupted run leaves no truncated corpus."""
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}.tmp.{os.getpid()}")
    try:
        with partial.open("wb") as out:
            yield out
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


def _main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", help=f"{', '.join(NAMES)}, or a path")
    corpus = resolve(parser.parse_args().name)
    print(corpus.path)
    print(f"{corpus.num_bytes:,} bytes: {corpus.what}", file=sys.stderr)


if __name__ == "__main__":
    _main()
