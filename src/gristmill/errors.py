"""All errors that Gristmill raises, in one tree.

Each error is also a subclass of the built-in exception shown, so `except ValueError` and `except OSError` work.

    GristmillError
    ├── OptionError            (ValueError)    an argument is out of range: num_threads, memory_limit, tie_break, …
    │   ├── VocabSizeError                     vocab_size is too small for its tokens, or larger than the tokenizer
    │   ├── PatternError                       unknown pattern name, or a regular expression that does not compile
    │   └── SpecialTokenError                  empty, repeated or unknown special token, or one found in user text
    ├── CorpusError            (ValueError)    the corpus cannot be read
    │   ├── EmptyCorpusError                   the corpus has no text to learn from
    │   ├── TextError                          a `str` that cannot be encoded as UTF-8 (lone surrogates)
    │   └── DamagedInputError                  a file that cannot be read to its end; `.path`, `.offset`
    │       ├── TruncatedInputError (EOFError) a compressed or columnar file that ends too early
    │       └── CorruptInputError              a file that fails its own checksums or has invalid syntax
    ├── FormatError            (ValueError)    a file in the wrong format, or damaged
    │   ├── TokenizerFormatError               a malformed tokenizer file
    │   ├── WordsFormatError                   a malformed file of counted words
    │   ├── ShardsFormatError                  a folder of shards that is unfinished, damaged or edited
    │   └── CheckpointError                    a checkpoint or run folder that is damaged or does not match the run
    ├── UnknownTokenError      (KeyError)      no token with this id, or no id for these bytes
    ├── InputChangedError      (OSError)       a file changed while it was read
    ├── RemoteInputError       (OSError)       a URL cannot be listed, opened or read
    ├── ShardsMismatchError    (FileExistsError)  existing shards were made from other inputs or options
    ├── MissingPackageError    (ImportError)   an optional package is not installed; the message names its extra
    ├── MemoryLimitError       (MemoryError)   the result does not fit in memory_limit
    ├── CountOverflowError     (OverflowError) the sum of the counts exceeds 2^63 - 1
    ├── PieceTimeoutError      (TimeoutError)  a user's pattern takes too long on a document
    ├── TrainingError          (RuntimeError)  the model cannot be trained with these settings
    │   └── NotFiniteError                     a loss, gradient, weight or logit is NaN or infinite
    ├── WorkerError            (RuntimeError)  a worker process died
    └── DeviceError            (RuntimeError)  no GPU can be used, or a GPU failed; the message has the reason
        └── DeviceMemoryError  (MemoryError)   the memory of the GPU is too small for the work

    DeviceWarning              (UserWarning)   a GPU failed, and the CPU does its work
    EarlyStopWarning           (UserWarning)   no pair was left to merge before vocab_size was reached
    SlowPatternWarning         (UserWarning)   the pattern has no native matcher and runs in slower worker processes
    SkippedInputWarning        (UserWarning)   inputs were skipped: unreadable (on_error="skip") or unknown suffix
    FormatWarning              (UserWarning)   a tokenizer file omits something, or a setting in it is not applied

A missing or unreadable file raises the `OSError` of the operating system: FileNotFoundError, PermissionError or
IsADirectoryError. Ctrl-C raises KeyboardInterrupt.
"""

import sys
import warnings

__all__ = [
    "CheckpointError",
    "CorpusError",
    "CorruptInputError",
    "CountOverflowError",
    "DamagedInputError",
    "DeviceError",
    "DeviceMemoryError",
    "DeviceWarning",
    "EarlyStopWarning",
    "EmptyCorpusError",
    "FormatError",
    "FormatWarning",
    "GristmillError",
    "InputChangedError",
    "MemoryLimitError",
    "MissingPackageError",
    "NotFiniteError",
    "OptionError",
    "PatternError",
    "PieceTimeoutError",
    "RemoteInputError",
    "ShardsFormatError",
    "ShardsMismatchError",
    "SkippedInputWarning",
    "SlowPatternWarning",
    "SpecialTokenError",
    "TextError",
    "TokenizerFormatError",
    "TrainingError",
    "TruncatedInputError",
    "UnknownTokenError",
    "VocabSizeError",
    "WordsFormatError",
    "WorkerError",
]


class GristmillError(Exception):
    """Base class of all errors that Gristmill raises."""


class OptionError(GristmillError, ValueError):
    """An argument is out of range, or does not apply."""


class VocabSizeError(OptionError):
    """`vocab_size` is too small for the tokens it must hold, or larger than the tokenizer."""


class PatternError(OptionError):
    """The pattern name is unknown, or the regular expression does not compile."""


class SpecialTokenError(OptionError):
    """A special token is empty, repeated or unknown, or occurs in text where it is not allowed."""


class CorpusError(GristmillError, ValueError):
    """The corpus cannot be read."""


class EmptyCorpusError(CorpusError):
    """The corpus has no text to learn from."""


class TextError(CorpusError):
    """A `str` cannot be encoded as UTF-8 because it holds lone surrogates."""


class DamagedInputError(CorpusError):
    """A file of the corpus cannot be read to its end.

    Attributes:
        path: Path or URL of the file.
        offset: Position of the damage, in bytes of the file as stored (compressed bytes for a compressed file).
    """

    def __init__(self, message: str, *, path: str, offset: int) -> None:
        super().__init__(message)
        self.path = path
        self.offset = offset

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuilt, (type(self), str(self), self.path, self.offset)


def _rebuilt(kind: type[DamagedInputError], message: str, path: str, offset: int) -> DamagedInputError:
    return kind(message, path=path, offset=offset)


class TruncatedInputError(DamagedInputError, EOFError):
    """A compressed or columnar file ends too early; `path` and `offset` give the position."""


class CorruptInputError(DamagedInputError):
    """A file fails its own checksums or has invalid syntax; `path` and `offset` give the position."""


class FormatError(GristmillError, ValueError):
    """A file has the wrong format, or is damaged."""


class TokenizerFormatError(FormatError):
    """A tokenizer file is malformed, or its merges cannot come from BPE training."""


class WordsFormatError(FormatError):
    """A file of counted words is malformed."""


class ShardsFormatError(FormatError):
    """A folder of shards is unfinished, damaged or edited."""


class CheckpointError(FormatError):
    """A checkpoint or run folder is damaged, or does not match the run that uses it."""


class UnknownTokenError(GristmillError, KeyError):
    """No token with this id, or no id for these bytes."""

    # KeyError.__str__ returns the repr of its argument, which would put the message in quotes.
    __str__ = Exception.__str__


class InputChangedError(GristmillError, OSError):
    """A file grew, shrank or was replaced while it was read."""


class RemoteInputError(GristmillError, OSError):
    """A URL cannot be listed, opened or read; the message has the URL and the cause."""


class ShardsMismatchError(GristmillError, FileExistsError):
    """The existing shards were made with another tokenizer, other inputs or other options."""


class MissingPackageError(GristmillError, ImportError):
    """An optional package is not installed or cannot be imported; the message has the install command."""


class MemoryLimitError(GristmillError, MemoryError):
    """The result does not fit in `memory_limit`."""


class CountOverflowError(GristmillError, OverflowError):
    """The sum of the counts of words or pairs exceeds 2^63 - 1."""


class PieceTimeoutError(GristmillError, TimeoutError):
    """A user's pattern takes too long on a document."""


class TrainingError(GristmillError, RuntimeError):
    """The model cannot be trained with these settings."""


class NotFiniteError(TrainingError):
    """A loss, gradient, weight or logit is NaN or infinite."""


class WorkerError(GristmillError, RuntimeError):
    """A worker process died before it returned its result."""


class DeviceError(GristmillError, RuntimeError):
    """No GPU can be used, or a GPU failed; the message has the reason."""


class DeviceMemoryError(DeviceError, MemoryError):
    """The memory of the GPU is too small for the work, or other programs use it."""


class DeviceWarning(UserWarning):
    """A GPU failed, and the CPU does its work. The result is the same."""


class EarlyStopWarning(UserWarning):
    """No pair was left to merge before `vocab_size` was reached."""


class SkippedInputWarning(UserWarning):
    """Inputs were skipped: unreadable ones with `on_error="skip"`, or files in a folder with an unknown suffix."""


class SlowPatternWarning(UserWarning):
    """The pattern has no native matcher, so worker processes run it with the `regex` module, which is slower."""


class FormatWarning(UserWarning):
    """The written tokenizer file omits something, or a setting in the file that was read is not applied."""


def warn_user(message: str, category: type[Warning]) -> None:
    """Issue a warning that points at the line outside this package that led to it."""
    depth = 1
    # functools is skipped because a cached property computes its value from there.
    while sys._getframe(depth).f_globals.get("__name__", "").partition(".")[0] in (__package__, "functools"):
        depth += 1
    warnings.warn(message, category, stacklevel=depth + 1)
