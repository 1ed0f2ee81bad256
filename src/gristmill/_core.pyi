"""The native core: corpus bytes -> words -> merges -> ids. Users call the functions of `gristmill`, not these."""

from collections.abc import Callable, Sequence
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Called from the calling thread about ten times a second, and once when the call ends:
# (stage, done, total); stage is "count" | "spill" | "join" (bytes), "setup" (symbols) or "merge" (merges).
# What it raises cancels the work and is raised again.
OnProgress = Callable[[str, int, int], object]

PATTERNS: tuple[str, ...]
TIE_BREAKS: tuple[str, ...]
KERNELS: tuple[str, ...]
UNICODE_VERSION: str

def supported_kernels() -> list[str]: ...
def default_kernel() -> str: ...
def find_pieces(text: bytes, pattern: str, kernel: str | None = None) -> NDArray[np.uint64]:
    """The end position of each piece of `text`."""

def find_cuts(text: bytes, pattern: str) -> NDArray[np.uint64]:
    """Every position where `text` may be cut in two."""

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
        """A table from its parts; ValueError when they do not fit together (offsets, duplicate words, zero counts)."""

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
        """The table of both corpora, `other` read after `self`. OverflowError when a count would pass 2^63 - 1."""

    def at_least(self, min_frequency: int) -> WordTable:
        """The table without words counted fewer than `min_frequency` times."""

class Counter:
    """Counts the pieces of files and texts on its own threads, the GIL released."""

    def __init__(
        self,
        *,
        pattern: str,
        special_tokens: Sequence[bytes] = (),
        num_threads: int = 0,
        kernel: str | None = None,
        block_bytes: int = 0,
        memory_limit: int = 0,
        spill_folder: str = "",
        min_frequency: int = 1,
        on_progress: OnProgress | None = None,
    ) -> None: ...
    def add_files(self, names: Sequence[str | bytes | PathLike[str]]) -> None: ...
    def add_texts(self, texts: Sequence[bytes]) -> None: ...
    def finish(self) -> tuple[WordTable, dict[str, Any]]:
        """The table and figures: source_bytes, num_pieces, num_words, num_spilled_runs, count_seconds, join_seconds."""

class MergeRun:
    @property
    def merges(self) -> NDArray[np.uint32]:
        """Shape (n, 2): the ids merged, in order; merge i makes id 256 + len(given) + i."""

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
    """The bytes of every id: the 256 single bytes, then what the merges make."""

def build_pairs(merges: NDArray[np.uint32], tokens: list[bytes]) -> list[tuple[bytes, bytes]]:
    """The merges as pairs of `tokens`."""

def find_wrong_merge(merges: NDArray[np.uint32]) -> int:
    """The first merge of ids not made before it, or of a pair merged before; the number of merges if there is none."""

class Encoder:
    """Ids of text under a list of merges; immutable and safe to share between threads."""

    def __init__(
        self,
        merges: NDArray[np.uint32],
        pattern: str | None,
        special_tokens: Sequence[bytes] = (),
        special_ids: Sequence[int] = (),
    ) -> None: ...
    def encode(self, text: bytes, allowed_special: Sequence[int] = ()) -> NDArray[np.uint32]:
        """Ids of `text`; only the specials whose ids are given are recognised. `pattern` must be a native one."""

    def encode_piece(self, piece: bytes) -> NDArray[np.uint32]:
        """Ids of one piece: no pattern, no specials."""

    def find_special(self, text: bytes, special_ids: Sequence[int]) -> tuple[int, int] | None:
        """(position, id) of the first special of `special_ids` spelled out in `text`."""

    def decode_bytes(self, ids: NDArray[np.uint32]) -> bytes:
        """KeyError for an unknown id, naming it."""

    def token_bytes(self, id: int) -> bytes: ...
