"""Training on text instead of shards: `gristmill train-model corpus.txt -o run` trains a tokenizer and encodes first.

Both are saved in the folder `run-shards` next to the run. Its manifest records the corpus: shards are reused for the
same corpus, and another corpus is an error. --overwrite replaces the folder together with the run.
"""

from __future__ import annotations

import glob
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from gristmill.cli.values import UsageError
from gristmill.lm.data.mixture import find_mixture
from gristmill.lm.explain import is_run
from gristmill.shards.explain import TEXT_ENDINGS, TOKEN_ENDINGS
from gristmill.shards.manifest import MANIFEST_FILE

__all__ = ["TextCorpus", "check_mixture", "is_corpus"]

TextProgress: TypeAlias = Literal["auto", "bar", "jsonl"] | None

TOKENIZER_FILE = "tokenizer.json"
# Vocabulary size of the tokenizer: one token per BYTES_PER_TOKEN bytes of the corpus, within limits.
BYTES_PER_TOKEN, MIN_VOCABULARY, MAX_VOCABULARY = 100, 512, 8192
# Size of the validation split: about VAL_BYTES, within limits.
VAL_BYTES, MIN_VAL_FRACTION, MAX_VAL_FRACTION = 500_000, 0.01, 0.1


def is_corpus(data: str, *, takes_parquet: bool) -> bool:
    """Return whether `data` names text files (file, folder or glob). Parquet is not text if the model reads it."""
    path = Path(data)
    if path.is_dir():
        names = [entry.name for entry in path.iterdir()]
        if MANIFEST_FILE in names or is_run(path) or any(name.lower().endswith(TOKEN_ENDINGS) for name in names):
            return False
    else:
        names = [data] if path.is_file() else glob.glob(data)  # noqa: PTH207 - a pattern with a root
    texts = [name.lower() for name in names if name.lower().endswith(TEXT_ENDINGS)]
    return bool(texts) and not (takes_parquet and any(name.endswith(".parquet") for name in texts))


def check_mixture(data: Sequence[str], *, tokenizer: str | None, takes_parquet: bool) -> None:
    """Raise `UsageError` for text in a mixture, with the commands to encode it: all sources need the same tokenizer."""
    mixture = find_mixture(list(data))
    if mixture is None:
        missing = ", ".join(data)
        raise UsageError(f"not found: {missing}. Pass folders written by `gristmill encode`, such as a:0.7 b:0.3.")
    if takes_parquet:
        return  # the model rejects every mixture with its own message
    sources = [str(source) for source in mixture.sources]
    texts = [source for source in sources if is_corpus(source, takes_parquet=False)]
    if texts:
        commands = " && ".join(_encoding(texts, [source for source in sources if source not in texts], tokenizer))
        raise UsageError(f"a mixture needs token shards, but {texts[0]} is text. Run: {commands}")
    if tokenizer is not None:
        raise UsageError("--tokenizer applies to text, but a mixture needs token shards. Omit --tokenizer.")


def _encoding(texts: Sequence[str], shards: Sequence[str], tokenizer: str | None) -> list[str]:
    """Return the commands that encode text with the tokenizer of the shards, or with a new one."""
    there = [Path(folder) / TOKENIZER_FILE for folder in shards if (Path(folder) / TOKENIZER_FILE).exists()]
    chosen = shlex.quote(tokenizer or str(there[0] if there else TOKENIZER_FILE))
    commands = []
    if tokenizer is None and not there:
        names = " ".join(map(shlex.quote, texts))
        commands.append(f"gristmill train-tokenizer {names} --vocab-size {MAX_VOCABULARY} -o {chosen}")
    for text in texts:
        folder = Path(text).with_name(f"{Path(text).name.partition('.')[0]}-shards")
        commands.append(
            f"gristmill encode {shlex.quote(text)} -t {chosen} -o {shlex.quote(str(folder))} --val-fraction 0.01"
        )
    return commands


@dataclass(frozen=True, kw_only=True)
class TextCorpus:
    """A text corpus to train on, and the folder for its shards."""

    corpus: str
    run: Path
    tokenizer: str | None  # tokenizer to encode with; None: train one
    vocab_size: int | None  # of the trained tokenizer; None: depends on the size of the corpus

    @property
    def folder(self) -> Path:
        """Folder of the shards, next to the run."""
        return self.run.with_name(f"{self.run.name}-shards")

    @property
    def is_encoded(self) -> bool:
        """Whether the shards exist."""
        return (self.folder / MANIFEST_FILE).exists()

    def shards(self, *, overwrite: bool, progress: TextProgress) -> Path:
        """Return the folder of the shards; encodes the corpus if they do not exist."""
        from gristmill.encode.tokenizer import Tokenizer
        from gristmill.shards.run import encode_corpus
        from gristmill.train import train_tokenizer

        tokenizer: str | Path | Tokenizer
        if self.tokenizer is not None:
            tokenizer = self.tokenizer
        elif self.is_encoded and not overwrite:
            tokenizer = self.folder / TOKENIZER_FILE
        else:
            size = self.vocab_size or self._default_vocab_size()
            _say(f"training a tokenizer with {size:,} tokens on {self.corpus}", progress)
            tokenizer = train_tokenizer(self.corpus, vocab_size=size, progress=progress)
        if not self.is_encoded:
            _say(f"encoding {self.corpus} into {self.folder}", progress)
        encode_corpus(
            self.corpus,
            tokenizer,
            out=self.folder,
            val_fraction=self._val_fraction(),
            overwrite=overwrite,
            progress=progress,
        )
        return self.folder

    def check_encoded(self, flag: str) -> None:
        """Raise `UsageError` with the commands to run if the shards do not exist."""
        if not self.is_encoded:
            commands = " && ".join(self.commands())
            raise UsageError(f"{flag} needs token shards, but {self.corpus} is text. Run: {commands}")

    def commands(self) -> list[str]:
        """Return the separate commands with the same result."""
        corpus, folder, run = (shlex.quote(str(name)) for name in (self.corpus, self.folder, self.run))
        tokenizer = shlex.quote(self.tokenizer or "tokenizer.json")
        size = self.vocab_size or self._default_vocab_size()
        first = [f"gristmill train-tokenizer {corpus} --vocab-size {size} -o {tokenizer}"] * (self.tokenizer is None)
        return [
            *first,
            f"gristmill encode {corpus} -t {tokenizer} -o {folder} --val-fraction {self._val_fraction()}",
            f"gristmill train-model {folder} -o {run}",
        ]

    def _default_vocab_size(self) -> int:
        return max(MIN_VOCABULARY, min(MAX_VOCABULARY, self._num_bytes() // BYTES_PER_TOKEN))

    def _val_fraction(self) -> float:
        wanted = VAL_BYTES / max(1, self._num_bytes())
        return round(max(MIN_VAL_FRACTION, min(MAX_VAL_FRACTION, wanted)), 3)

    def _num_bytes(self) -> int:
        from gristmill.corpus import Reading, find_files

        found = find_files([self.corpus], Reading.checked({}, documents="file"))
        return sum(Path(path).stat().st_size for path in found.paths)


def _say(message: str, progress: TextProgress) -> None:
    if progress in ("auto", "bar"):
        print(f"gristmill: {message}", file=sys.stderr)
