"""The native core: corpus bytes -> words -> merges -> ids. Users call the functions of `gristmill`, not these."""

from collections.abc import Callable, Sequence
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Called on the calling thread about ten times per second, and once when the call ends:
# (stage, done, total); stage is "count", "spill", "join" or "encode" (bytes), "setup" (symbols) or "merge" (merges).
# An exception from it cancels the work and is raised again.
OnProgress = Callable[[str, int, int], object]

PATTERNS: tuple[str, ...]
MAX_VOCABULARY_BYTES: int
TIE_BREAKS: tuple[str, ...]
KERNELS: tuple[str, ...]
UNICODE_VERSION: str

# Any object with one contiguous buffer of bytes.
Buffer = bytes | bytearray | memoryview | NDArray[np.uint8]

def split_spans(text: Buffer, separator: bytes) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The begins and ends of the ranges between separators: one more range than there are separators."""

def last_separator(text: Buffer, separator: bytes) -> int:
    """The position of the last separator, or -1."""

def count_newlines(text: Buffer) -> int: ...
def xxh64(data: Buffer, seed: int = 0) -> int:
    """XXH64 of `data`."""

class Xxh64:
    """XXH64 of data that arrives in parts."""

    def __init__(self) -> None: ...
    def update(self, data: Buffer) -> None: ...
    def hexdigest(self) -> str:
        """16 digits, the most significant first."""

def hash_spans(
    text: Buffer, begins: NDArray[np.int64], ends: NDArray[np.int64], seed: int, max_bytes: int
) -> NDArray[np.uint64]:
    """XXH64 of the first `max_bytes` of each range."""

def extract_json(
    text: Buffer, field: bytes, kernel: str | None = None
) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64], int, tuple[int, int, str] | None]:
    """Extract member `field` of the JSON objects in `text`, one per line: (texts, begins, ends, nulls, problem).

    `texts` is their UTF-8, concatenated, with 64 more readable bytes. Lines of white space are skipped; objects whose
    member is null are skipped and counted. Stops at the first problem: (line from 0, byte in the line, kind), where
    kind is "bom", "syntax", "utf8", "surrogate", "control", "number", "depth", "not-object", "missing" or
    "not-string". Strict: RFC 8259, valid UTF-8, numbers of any size, at most 1,024 levels.
    """

def supported_kernels() -> list[str]: ...
def default_kernel() -> str: ...
def find_pieces(text: bytes, pattern: str, kernel: str | None = None) -> NDArray[np.uint64]:
    """The end position of each piece of `text`."""

def cut_pieces(text: str | bytes, pattern: str, special_tokens: Sequence[bytes]) -> list[Any]:
    """The pieces of `text`, of the same type as `text`; equal pieces may be one object. A special is one piece.

    Raises UnicodeEncodeError for a lone surrogate, and TypeError for anything but str and bytes.
    """

def find_cuts(text: bytes, pattern: str) -> NDArray[np.uint64]:
    """Every position where `text` may be cut in two."""

def class_tables() -> tuple[NDArray[np.uint16], NDArray[np.uint8]]:
    """The rows and the classes of all code points: those of c are classes[64 * rows[c // 64] + c % 64]."""

class TextRing:
    """Texts as one stream of bytes, with a gap of 0xFF after each, which threads read ahead into slots of `memory`."""

    @staticmethod
    def of_files(
        names: Sequence[str | bytes | PathLike[str]], memory: NDArray[np.uint8], *, slot_bytes: int, num_readers: int
    ) -> TextRing: ...
    @staticmethod
    def of_spans(
        text: Buffer,
        begins: NDArray[np.int64],
        ends: NDArray[np.int64],
        memory: NDArray[np.uint8],
        *,
        slot_bytes: int,
        num_readers: int,
    ) -> TextRing: ...
    @property
    def num_bytes(self) -> int:
        """Of the stream, gaps included."""

    def next(self) -> tuple[int, int, NDArray[np.uint32]] | None:
        """Where the next slot begins in `memory`, its size, and where it has gaps; None at the end of the stream."""

    def release(self) -> None:
        """Let the readers fill the oldest slot again."""

    def close(self) -> None: ...

class WordTable:
    """Distinct pieces with 64-bit counts, in the order of their first occurrence."""

    @staticmethod
    def from_arrays(
        data: NDArray[np.uint8],
        offsets: NDArray[np.uint64],
        counts: NDArray[np.uint64],
        firsts: NDArray[np.uint64],
        source_bytes: int,
    ) -> WordTable:
        """Make a table from its parts. Raises ValueError if they are inconsistent."""

    @staticmethod
    def from_counted(
        data: NDArray[np.uint8],
        offsets: NDArray[np.uint64],
        counts: NDArray[np.uint64],
        firsts: NDArray[np.uint64],
        source_bytes: int,
    ) -> WordTable:
        """Make a table from parts that a count has made: in order, and without equal words."""

    def __len__(self) -> int: ...
    @property
    def total(self) -> int: ...
    @property
    def source_bytes(self) -> int: ...
    @property
    def data(self) -> NDArray[np.uint8]: ...
    @property
    def offsets(self) -> NDArray[np.uint64]: ...
    @property
    def counts(self) -> NDArray[np.uint64]: ...
    @property
    def firsts(self) -> NDArray[np.uint64]: ...
    def joined(self, other: WordTable) -> WordTable:
        """The table of both corpora, `other` read after `self`. Raises CountOverflowError above 2^63 - 1 pieces."""

    def at_least(self, min_frequency: int) -> WordTable:
        """The table without words counted fewer than `min_frequency` times."""

class Counter:
    """Counts the pieces of files and texts on its own threads, with the GIL released."""

    def __init__(
        self,
        *,
        pattern: str,
        special_tokens: Sequence[bytes] = (),
        num_threads: int = 0,
        kernel: str | None = None,
        block_bytes: int = 0,
        memory_limit: int = 0,
        spill_folder: str | bytes | PathLike[str] = "",
        min_frequency: int = 1,
        num_partitions: int = 1,
        on_progress: OnProgress | None = None,
    ) -> None: ...
    def add_files(self, names: Sequence[str | bytes | PathLike[str]]) -> None: ...
    def add_file_ranges(self, ranges: Sequence[tuple[str | bytes | PathLike[str], int, int, int, int]]) -> None:
        """Add ranges of files, one text each: (path, begin, end, size of the file, modification time in ns)."""

    def add_texts(self, texts: Sequence[bytes]) -> None: ...
    def add_spans(self, text: Buffer, begins: NDArray[np.int64], ends: NDArray[np.int64]) -> None: ...
    def last_cut(self, text: Buffer, start: int = 0) -> int:
        """A position > start, near the end, where `text` may be cut whatever text follows, or 0."""

    def finish(self) -> tuple[WordTable, dict[str, Any]]:
        """The table, and source_bytes, num_pieces, num_words, num_spilled_runs, count_seconds, join_seconds."""

    def finish_runs(self, write: Callable[[bytes], object]) -> tuple[NDArray[np.uint64], dict[str, Any]]:
        """Write all words as `num_partitions` sorted runs: their (end, checksum, num_words, num_bytes), and stats."""

class RunMerger:
    """Merges sorted runs of words in bounded memory. A run that does not match its checksum raises DamagedPartError
    with the name of the run.
    """

    def __init__(
        self,
        *,
        by_first: bool,
        spill_folder: str | bytes | PathLike[str],
        memory_limit: int,
        on_progress: OnProgress | None = None,
    ) -> None: ...
    def add(
        self, *, name: str, path: str | bytes | PathLike[str], begin: int, end: int, checksum: int, base: int
    ) -> None: ...
    def reduce(self) -> None:
        """Merge the runs added since the last call into one run in a temporary file."""

    def write_by_first(self, min_frequency: int, write: Callable[[bytes], object]) -> tuple[NDArray[np.uint64], int]:
        """Write one run by first occurrence: its (end, checksum, num_words, num_bytes), and the number of words."""

    def make_table(self, *, num_words: int, num_bytes: int, source_bytes: int) -> WordTable: ...

def write_runs(words: WordTable, num_partitions: int, write: Callable[[bytes], object]) -> NDArray[np.uint64]:
    """Write the words of a table in the format of `Counter.finish_runs`."""

class MergeRun:
    @property
    def merges(self) -> NDArray[np.uint32]:
        """Shape (n, 2): the merged ids, in order; merge i makes id 256 + len(given) + i."""

    @property
    def counts(self) -> NDArray[np.uint64]: ...
    @property
    def stats(self) -> dict[str, Any]:
        """num_symbols, num_pairs, num_rounds, num_rebuilds, setup_seconds, loop_seconds."""

def learn_merges(
    words: WordTable,
    *,
    num_merges: int,
    tie_break: str = "greatest-bytes",
    max_token_bytes: int = 0,
    given: NDArray[np.uint32] | None = None,
    num_threads: int = 0,
    loop: str = "automatic",
    on_progress: OnProgress | None = None,
) -> MergeRun: ...
def build_tokens(merges: NDArray[np.uint32]) -> list[bytes]:
    """The bytes of every id: the 256 single bytes, then the tokens that the merges make."""

def build_pairs(merges: NDArray[np.uint32], tokens: list[bytes]) -> list[tuple[bytes, bytes]]:
    """The merges as pairs of `tokens`."""

def find_wrong_merge(merges: NDArray[np.uint32]) -> int:
    """The first merge that uses an id not made before it or repeats a pair; the number of merges if all are right."""

def find_merge_past_limit(merges: NDArray[np.uint32]) -> int:
    """The first merge at which the tokens exceed `MAX_VOCABULARY_BYTES`; the number of merges if none does."""

def format_rows(rows: NDArray[np.uint32]) -> str:
    """An (n, k) array as JSON, one row per line, without the outer brackets."""

def recover_merges(tokens: list[bytes], ids: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """For every token, the merge that makes it when ids are ranks: (n, 3), left id, right id, new id, by rank."""

class ForgedSpecial(ValueError):
    """A text contains a disallowed special. args: (index of the text, byte position, id of the special)."""

class SpecialRule:
    """Which specials become ids, and which are an error. Made by `Encoder.special_rule`; expensive, so reuse it."""

class Cancellation:
    """Cancels the work of other threads, where it soon raises InterruptedError."""

    def __init__(self) -> None: ...
    def cancel(self) -> None: ...
    @property
    def is_cancelled(self) -> bool: ...

class Encoder:
    """Encodes text with a vocabulary; immutable and safe to share between threads.

    A text is str or bytes. Raises UnicodeEncodeError for a lone surrogate, and TypeError for anything else.
    """

    def __init__(
        self,
        *,
        byte_ids: NDArray[np.uint32],
        merges: NDArray[np.uint32],
        other_tokens: Sequence[bytes] = (),
        other_ids: Sequence[int] = (),
        whole_pieces: bool = False,
        pattern: str | None,
        special_tokens: Sequence[bytes] = (),
        special_ids: Sequence[int] = (),
        cache_bytes: int = 0,
    ) -> None:
        """`merges`: (n, 3), left id, right id, new id, by rank. `cache_bytes` limits a thread's cache; 0: 64 MiB."""

    @property
    def dtype(self) -> str:
        """The type of the ids: "uint16" if all of them fit, otherwise "uint32"."""

    def special_rule(self, allowed: Sequence[int], disallowed: Sequence[int]) -> SpecialRule: ...
    def encode(self, text: str | bytes, rule: SpecialRule) -> list[int]:
        """Runs on the calling thread."""

    def encode_array(self, text: str | bytes, rule: SpecialRule, num_threads: int = 1) -> NDArray[Any]: ...
    def encode_batch(
        self, texts: list[str | bytes], rule: SpecialRule, num_threads: int = 1
    ) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """The ids of all texts, concatenated, and the offset of each text; the last offset is the number of ids."""

    def encode_documents(
        self,
        text: Buffer,
        begins: NDArray[np.int64],
        ends: NDArray[np.int64],
        rule: SpecialRule,
        *,
        end_of_text: int | None,
        before: bool,
        continued: bool,
        unfinished: bool,
        cancellation: Cancellation,
    ) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """The ids of documents that are ranges of `text`, each with `end_of_text`, and the end of each document's ids.

        Runs on the calling thread. `continued`: the first document continues one from an earlier call; `unfinished`:
        the last one continues in a later call.
        """

    def encode_file(
        self,
        path: str | bytes | PathLike[str],
        rule: SpecialRule,
        num_threads: int = 1,
        on_progress: OnProgress | None = None,
    ) -> NDArray[Any]: ...
    def count_tokens(self, text: str | bytes, rule: SpecialRule, num_threads: int = 1) -> int: ...
    def encode_dropout(self, text: str | bytes, rule: SpecialRule, dropout: float, seed: int) -> NDArray[np.uint32]: ...
    def encode_piece(self, piece: bytes) -> list[int]:
        """The ids of one piece, without pattern and specials."""

    def encode_piece_dropout(self, piece: bytes, dropout: float, seed: int) -> list[int]: ...
    def last_cut(self, text: Buffer, start: int, rule: SpecialRule) -> int:
        """A position > start, near the end, where `text` may be cut whatever text follows, or 0."""

    def decode_bytes(self, ids: NDArray[np.uint32]) -> bytes:
        """Raises KeyError with the first unknown id."""

    def decode_list(self, ids: list[int]) -> bytes: ...
    @property
    def token_lengths(self) -> NDArray[np.uint32]:
        """The number of bytes of every id; 0 for an id without a token."""

    @property
    def cache_stats(self) -> dict[str, int]:
        """num_caches, num_pieces, memory_bytes, limit_bytes."""

def set_recording(on: bool) -> None:
    """While on, every call of the core delivers the spans of its threads to `gristmill.trace.add_native`."""

def steady_nanoseconds() -> int:
    """The time now, on the clock of the spans."""
