"""Report words that Gristmill's texts avoid, in the given files or in every tracked text file.

The list, with what to write instead and the phrases in which a word is right, is plain_words.toml beside this file.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIST = Path(__file__).with_suffix(".toml")
SUFFIXES = {
    ".py",
    ".pyi",
    ".cpp",
    ".hpp",
    ".h",
    ".txt",
    ".cmake",
    ".md",
    ".toml",
    ".yml",
    ".yaml",
    ".html",
    ".css",
    ".js",
    ".sh",
    "",
}
# Inputs of tests and fuzz targets, and records of past runs, are data; the list itself names the words.
DATA = (
    "tests/data/",
    "cpp/fuzz/regressions/",
    "benchmarks/results/",
    "src/gristmill/sample_corpus/",
    "tools/plain_words.toml",
    "LICENSE",
)


@dataclass(frozen=True)
class Word:
    """One entry of the list."""

    avoid: re.Pattern[str]
    instead: str
    allow: tuple[str, ...]

    def uses(self, text: str) -> Iterator[re.Match[str]]:
        """Yield the places where `text` uses the word outside of an allowed phrase."""
        allowed = [
            (phrase.start(), phrase.end())
            for each in self.allow
            for phrase in re.finditer(re.escape(each), text, re.IGNORECASE)
        ]
        for use in self.avoid.finditer(text):
            if not any(start <= use.start() and use.end() <= end for start, end in allowed):
                yield use


def read_list(path: Path = LIST) -> list[Word]:
    """Return the words of the list at `path`."""
    entries = tomllib.loads(path.read_text(encoding="utf-8"))["words"]
    return [
        Word(re.compile(rf"\b(?:{each['avoid']})\b", re.IGNORECASE), each["instead"], tuple(each.get("allow", ())))
        for each in entries
    ]


def tracked_texts() -> list[Path]:
    """Return the text files under version control that people read."""
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [
        ROOT / name
        for name in names.split("\0")
        if name and Path(name).suffix in SUFFIXES and not name.startswith(DATA) and (ROOT / name).is_file()
    ]


def findings(path: Path, words: Sequence[Word]) -> Iterator[str]:
    """Yield one line per use of a listed word in the file at `path`."""
    for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), start=1):
        for word in words:
            for use in word.uses(line):
                yield f"{path}:{number}: {use[0]!r}: write {word.instead}"


def main(arguments: Sequence[str]) -> int:
    """Print the findings and return 1 if there are any."""
    words = read_list()
    paths = [Path(each) for each in arguments] or tracked_texts()
    found = [line for path in paths for line in findings(path, words)]
    for line in found:
        print(line)
    if found:
        print(f"{len(found)} avoided words. Rewrite the sentence, or allow the phrase in {LIST.name}.", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
