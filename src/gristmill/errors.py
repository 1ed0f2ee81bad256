"""Every error Gristmill raises, in one tree.

Each is also the built-in exception a caller would expect, so `except ValueError` and `except OSError` keep working.

    GristmillError
    ├── OptionError            (ValueError)    an argument outside its range: num_threads, memory_limit, tie_break, …
    │   ├── VocabSizeError                     vocab_size cannot hold what it must, or is larger than what there is
    │   ├── PatternError                       an unknown pattern name, or a regular expression that does not compile
    │   └── SpecialTokenError                  an empty, repeated or unknown special; one spelled out in user text
    ├── CorpusError            (ValueError)    a corpus that cannot be read as one
    │   ├── EmptyCorpusError                   there is nothing to learn from
    │   ├── TextError                          a `str` without a UTF-8 form (lone surrogates)
    │   └── DamagedInputError                  a file that cannot be read to its end; `.path`, `.offset`
    │       ├── TruncatedInputError (EOFError) a compressed or columnar file that ends too early
    │       └── CorruptInputError              a file whose bytes are damaged, by its own checksums or its syntax
    ├── FormatError            (ValueError)    a file that is not what it should be
    │   ├── TokenizerFormatError
    │   ├── WordsFormatError
    │   ├── ShardsFormatError                  a folder of shards that is unfinished, damaged or edited
    │   └── CheckpointError                    a checkpoint or run that is damaged, foreign or does not fit
    ├── UnknownTokenError      (KeyError)      no token with this id, no id for these bytes
    ├── InputChangedError      (OSError)       a file that changed while it was read
    ├── RemoteInputError       (OSError)       a URL that its file system cannot list, open or read
    ├── ShardsMismatchError    (FileExistsError)  shards that are there were made from something else
    ├── MissingPackageError    (ImportError)   an optional package that is not installed; the message names its extra
    ├── MemoryLimitError       (MemoryError)   memory_limit cannot hold even the result
    ├── CountOverflowError     (OverflowError) counts that together pass 2^63 - 1
    ├── PieceTimeoutError      (TimeoutError)  a user's pattern that does not come to an end on some document
    ├── TrainingError          (RuntimeError)  a model that cannot be trained as asked
    │   └── NotFiniteError                     a loss, gradient, weight or logit that is NaN or infinite
    └── WorkerError            (RuntimeError)  a worker process that died

    EarlyStopWarning           (UserWarning)   no pair was left to merge before vocab_size was reached
    SlowPatternWarning         (UserWarning)   a pattern without a native matcher: worker processes run it, slower
    SkippedInputWarning        (UserWarning)   inputs left out: unreadable (on_error="skip"), or of an unknown suffix
    FormatWarning              (UserWarning)   something of a tokenizer that a file does not hold, or is not applied

A missing or unreadable file is the `OSError` of the operating system: FileNotFoundError, PermissionError,
IsADirectoryError. Ctrl-C is KeyboardInterrupt.
"""

import sys
import warnings

__all__ = [
    "CheckpointError",
    "CorpusError",
    "CorruptInputError",
    "CountOverflowError",
    "DamagedInputError",
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
    """The root of the tree: catches everything that Gristmill itself raises."""


class OptionError(GristmillError, ValueError):
    """An argument outside its range."""


class VocabSizeError(OptionError):
    """`vocab_size` cannot hold what it must, or is larger than what there is."""


class PatternError(OptionError):
    """An unknown pattern name, or a regular expression that does not compile."""


class SpecialTokenError(OptionError):
    """A special token that is empty, repeated or unknown, or spelled out in text that may not hold it."""


class CorpusError(GristmillError, ValueError):
    """A corpus that cannot be read as one."""


class EmptyCorpusError(CorpusError):
    """A corpus in which there is nothing to learn from."""


class TextError(CorpusError):
    """A `str` without a UTF-8 form: it holds lone surrogates."""


class DamagedInputError(CorpusError):
    """A file of a corpus that cannot be read to its end; `path` and `offset` say where."""

    def __init__(self, message: str, *, path: str, offset: int) -> None:
        super().__init__(message)
        self.path = path
        self.offset = offset  # bytes of the file as it lies on the disk

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuilt, (type(self), str(self), self.path, self.offset)


def _rebuilt(kind: type[DamagedInputError], message: str, path: str, offset: int) -> DamagedInputError:
    return kind(message, path=path, offset=offset)


class TruncatedInputError(DamagedInputError, EOFError):
    """A compressed or columnar file that ends before its end; `path` and `offset` say where."""


class CorruptInputError(DamagedInputError):
    """A file whose bytes are damaged, by its own checksums or its syntax; `path` and `offset` say where."""


class FormatError(GristmillError, ValueError):
    """A file that is not what it should be."""


class TokenizerFormatError(FormatError):
    """A malformed tokenizer file, or merges that no training run can give."""


class WordsFormatError(FormatError):
    """A malformed file of counted words."""


class ShardsFormatError(FormatError):
    """A folder of shards that is unfinished, damaged or edited."""


class CheckpointError(FormatError):
    """A checkpoint, or the folder of a run, that is damaged, foreign or does not fit what it is used for."""


class UnknownTokenError(GristmillError, KeyError):
    """No token with this id, or no id for these bytes."""

    # KeyError prints the repr of its argument, which would put the whole message in quotes.
    __str__ = Exception.__str__


class InputChangedError(GristmillError, OSError):
    """A file that grew, shrank or was replaced while it was read."""


class RemoteInputError(GristmillError, OSError):
    """A URL that its file system cannot list, open or read; the message has the URL and the cause."""


class ShardsMismatchError(GristmillError, FileExistsError):
    """The shards that are already there were made by another tokenizer, from other inputs or with other options."""


class MissingPackageError(GristmillError, ImportError):
    """An optional package that is not installed, or cannot be imported; the message says how to install it."""


class MemoryLimitError(GristmillError, MemoryError):
    """`memory_limit` cannot hold even the result."""


class CountOverflowError(GristmillError, OverflowError):
    """Counts of words or pairs that together pass 2^63 - 1."""


class PieceTimeoutError(GristmillError, TimeoutError):
    """A user's pattern that does not come to an end on some document."""


class TrainingError(GristmillError, RuntimeError):
    """A model that cannot be trained as asked."""


class NotFiniteError(TrainingError):
    """A loss, a gradient, a weight or a logit that is not a number, or infinite."""


class WorkerError(GristmillError, RuntimeError):
    """A worker process that died before it answered."""


class EarlyStopWarning(UserWarning):
    """No pair was left to merge before `vocab_size` was reached."""


class SkippedInputWarning(UserWarning):
    """Inputs that were left out: unreadable ones, as on_error="skip" asks, or files of a folder by their suffix."""


class SlowPatternWarning(UserWarning):
    """A pattern without a native matcher: worker processes run it through the `regex` module, slower."""


class FormatWarning(UserWarning):
    """Something of a tokenizer that the file written does not hold, or that the file read asks for and is not done."""


def warn_user(message: str, category: type[Warning]) -> None:
    """Warn at the line that called into this package, however deep the caller is in it."""
    depth = 1
    # functools: a cached property that is read for the first time.
    while sys._getframe(depth).f_globals.get("__name__", "").partition(".")[0] in (__package__, "functools"):
        depth += 1
    warnings.warn(message, category, stacklevel=depth + 1)
