"""Gristmill: raw text in, trained model out. Start with `train_tokenizer`.

>>> import gristmill as gm
>>> tok = gm.train_tokenizer(["low low low lower lowest"], vocab_size=261, progress=None)
>>> tok.encode("low lowers")
[257, 259, 114, 115]
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gristmill.corpus import Documents, Files
from gristmill.count import Words, count_words
from gristmill.encode import Offsets, Ragged, StreamDecoder, Tokenizer
from gristmill.errors import (
    CheckpointError,
    CorpusError,
    CorruptInputError,
    CountOverflowError,
    DamagedInputError,
    DeviceError,
    DeviceMemoryError,
    DeviceWarning,
    EarlyStopWarning,
    EmptyCorpusError,
    FormatError,
    FormatWarning,
    GristmillError,
    InputChangedError,
    MemoryLimitError,
    MissingPackageError,
    NotFiniteError,
    OptionError,
    PatternError,
    PieceTimeoutError,
    RemoteInputError,
    ShardsFormatError,
    ShardsMismatchError,
    SkippedInputWarning,
    SlowPatternWarning,
    SpecialTokenError,
    TextError,
    TokenizerFormatError,
    TrainingError,
    TruncatedInputError,
    UnknownTokenError,
    VocabSizeError,
    WordsFormatError,
    WorkerError,
)
from gristmill.executors import Executor, Local, Processes, Ray
from gristmill.pretokenize import pattern_names
from gristmill.profile import Profile
from gristmill.progress import Progress
from gristmill.shards import EncodeRun, Manifest, Shards, encode_corpus, verify_shards
from gristmill.trace import recording
from gristmill.train import extend_tokenizer, train_tokenizer
from gristmill.version import __version__

if TYPE_CHECKING:
    from gristmill import lm, posterior, reference, report

    # At run time this name is the package `gristmill.pretokenize`, which is callable.
    from gristmill.pretokenize.cutting import pretokenize

__all__ = [
    "CheckpointError",
    "CorpusError",
    "CorruptInputError",
    "CountOverflowError",
    "DamagedInputError",
    "DeviceError",
    "DeviceMemoryError",
    "DeviceWarning",
    "Documents",
    "EarlyStopWarning",
    "EmptyCorpusError",
    "EncodeRun",
    "Executor",
    "Files",
    "FormatError",
    "FormatWarning",
    "GristmillError",
    "InputChangedError",
    "Local",
    "Manifest",
    "MemoryLimitError",
    "MissingPackageError",
    "NotFiniteError",
    "Offsets",
    "OptionError",
    "PatternError",
    "PieceTimeoutError",
    "Processes",
    "Profile",
    "Progress",
    "Ragged",
    "Ray",
    "RemoteInputError",
    "Shards",
    "ShardsFormatError",
    "ShardsMismatchError",
    "SkippedInputWarning",
    "SlowPatternWarning",
    "SpecialTokenError",
    "StreamDecoder",
    "TextError",
    "Tokenizer",
    "TokenizerFormatError",
    "TrainingError",
    "TruncatedInputError",
    "UnknownTokenError",
    "VocabSizeError",
    "Words",
    "WordsFormatError",
    "WorkerError",
    "__version__",
    "count_words",
    "encode_corpus",
    "extend_tokenizer",
    "lm",
    "pattern_names",
    "posterior",
    "pretokenize",
    "recording",
    "reference",
    "report",
    "train_tokenizer",
    "verify_shards",
]

_LAZY = {name: f"{name}:" for name in ("lm", "posterior", "reference", "report")}

if not TYPE_CHECKING:  # with a module __getattr__, a type checker would accept every attribute

    def __getattr__(name: str) -> object:
        """Import `gm.lm`, `gm.posterior`, `gm.reference` or `gm.report` on first use."""
        from gristmill.packages import lazy_attribute

        return lazy_attribute(__name__, name, _LAZY)


def __dir__() -> list[str]:
    return sorted(__all__)
