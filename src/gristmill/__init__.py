"""Gristmill: raw text in, trained model out. Start with `train_tokenizer`.

>>> import gristmill as gm
>>> tok = gm.train_tokenizer(["low low low lower lowest"], vocab_size=261, progress=None)
>>> tok.encode("low lowers")
[257, 259, 114, 115]
"""

from typing import TYPE_CHECKING

from gristmill.count import Words, count_words
from gristmill.encode import Offsets, Ragged, StreamDecoder, Tokenizer
from gristmill.errors import (
    CheckpointError,
    CorpusError,
    CorruptInputError,
    CountOverflowError,
    DamagedInputError,
    EarlyStopWarning,
    EmptyCorpusError,
    FormatError,
    FormatWarning,
    GristmillError,
    InputChangedError,
    MemoryLimitError,
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
from gristmill.pretokenize import pattern_names
from gristmill.profile import Profile
from gristmill.progress import Progress
from gristmill.shards import EncodeRun, Manifest, Shards, encode_corpus
from gristmill.train import extend_tokenizer, train_tokenizer
from gristmill.version import __version__

if TYPE_CHECKING:
    # At run time this name is the package of that stage, which can be called (see there).
    from gristmill.pretokenize.cutting import pretokenize

__all__ = [
    "CheckpointError",
    "CorpusError",
    "CorruptInputError",
    "CountOverflowError",
    "DamagedInputError",
    "EarlyStopWarning",
    "EmptyCorpusError",
    "EncodeRun",
    "FormatError",
    "FormatWarning",
    "GristmillError",
    "InputChangedError",
    "Manifest",
    "MemoryLimitError",
    "NotFiniteError",
    "Offsets",
    "OptionError",
    "PatternError",
    "PieceTimeoutError",
    "Profile",
    "Progress",
    "Ragged",
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
    "pattern_names",
    "pretokenize",
    "train_tokenizer",
]


def __getattr__(name: str) -> object:
    """`gristmill.lm` and `.posterior`, loaded when first used: they need torch, and nothing else here does."""
    if name in ("lm", "posterior"):
        import importlib

        return importlib.import_module(f"gristmill.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
