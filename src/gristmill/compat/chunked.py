"""The interface of hand-written trainers: cut a file at its end tokens, count the chunks in a pool, learn merges.

    boundaries = find_chunk_boundaries("corpus.txt", 64)
    chunks = [("corpus.txt", start, end, "<|endoftext|>") for start, end in pairwise(boundaries)]
    with get_context("spawn").Pool(8) as pool:
        counts = pool.map(pretoken_chunk, chunks)

works as before, and `train_bpe` does all of it at once, in threads: it starts no process and pickles nothing, and the
merges are those of `gristmill.train_tokenizer` on the same file.

Differences from the usual script:

* of pairs with equal counts, the one with the greater bytes wins (`tie_break="greatest-bytes"`), not the one with the
  greater ids, so that the merges are those of the Stanford CS336 reference;
* an end token that spans two buffers is found;
* bytes that are not valid UTF-8 are counted; scripts that decode with errors="ignore" lose them.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO

from gristmill.arguments import check_num_threads, check_special_tokens, check_vocab_size, usable_cores
from gristmill.count.counting import count_words
from gristmill.errors import EmptyCorpusError, InputChangedError, OptionError
from gristmill.progress import bar_class
from gristmill.publish import publish
from gristmill.train import train_tokenizer

__all__ = ["find_chunk_boundaries", "pretoken_chunk", "train_bpe"]

END_TOKEN = "<|endoftext|>"
BUFFER_BYTES = 1 << 16

PathLike = str | os.PathLike[str]


def find_chunk_boundaries(file_path: PathLike, num_chunks: int, end_token: str = END_TOKEN) -> list[int]:
    """Return where to cut a file into about `num_chunks` chunks: 0, the beginnings of some end tokens, the file's size.

    The boundaries increase, so there are fewer chunks if end tokens are rare. An empty file gives [0].
    """
    num_chunks = check_num_chunks(num_chunks)
    (special,) = check_special_tokens([end_token])
    with Path(file_path).open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        boundaries = [0]
        for i in range(1, num_chunks):
            target = size * i // num_chunks
            if target > boundaries[-1]:  # otherwise the last search has already passed it
                boundaries.append(_find_end_token(file, special.encode(), target, size))
    return boundaries if boundaries[-1] == size else [*boundaries, size]


def check_num_chunks(num_chunks: int) -> int:
    """Return the number of chunks to cut a file into, checked."""
    if type(num_chunks) is not int or num_chunks < 1:
        raise OptionError(f"num_chunks must be an int >= 1, got {num_chunks!r}.")
    return num_chunks


def _find_end_token(file: BinaryIO, end_token: bytes, position: int, size: int) -> int:
    """Return the first position from `position` at which `end_token` begins; `size` if it does not occur.

    subtle: an end token such as "abab" can begin inside itself. Reading from the left, "ababab" has it once, at 0. So a
    position does not count if another match begins less than its length before.
    """
    start = max(0, position - len(end_token) + 1)
    last = start - len(end_token)
    file.seek(start)
    data = b""
    while block := file.read(BUFFER_BYTES):
        data += block
        found = data.find(end_token)
        while found != -1:
            place = start + found
            if place >= position and place - last >= len(end_token):
                return place
            last = place
            found = data.find(end_token, found + 1)
        # the rest may be the beginning of an end token that ends in the next block
        kept = min(len(data), len(end_token) - 1)
        start += len(data) - kept
        data = data[len(data) - kept :]
    return size


def pretoken_chunk(args: tuple[PathLike, int, int, str]) -> dict[str, int]:
    """Return how often each piece occurs in a range of a file, given as (file_path, start, end, end_token).

    It takes one argument, so that it works with `pool.map` and `pool.imap`, under fork and spawn. Pieces are those of
    GPT-2's pattern, in the order of their first occurrence. An invalid UTF-8 byte is a lone surrogate, as with
    `errors="surrogateescape"`.
    """
    file_path, start, end, end_token = args
    with Path(file_path).open("rb") as file:
        data = _read_range(file, start, end)
    try:
        words = count_words(iter([data]), special_tokens=[end_token], num_threads=1, progress=None)
    except EmptyCorpusError:  # nothing but end tokens
        return {}
    return {word.decode("utf-8", "surrogateescape"): count for word, count in words.items()}


def _read_range(file: BinaryIO, start: int, end: int) -> bytes:
    if not 0 <= start <= end:
        raise OptionError(f"a chunk must have 0 <= start <= end, got start={start}, end={end}.")
    file.seek(start)
    data = file.read(end - start)
    if len(data) < end - start:
        raise InputChangedError(
            f"{file.name}: the file ends at byte {start + len(data)}, before byte {end}, the end of the chunk. "
            f"The file changed; read it again from the beginning."
        )
    return data


def train_bpe(
    file_path: PathLike,
    vocab_size: int,
    end_token: str = END_TOKEN,
    num_processes: int = 8,
    num_chunks: int = 64,
    *,
    save_pickle: PathLike | None = None,
    progress: bool = True,
) -> dict[tuple[int, int], int]:
    """Return the merge rules of a file: (left id, right id) -> new id, in the order in which they were learned.

    Ids 0-255 are the bytes, the rules make 256, 257, …, and the end token has the last id of `vocab_size`. For a
    tokenizer: `gristmill.Tokenizer(np.array(list(rules)), special_tokens=[end_token])`.

    num_processes: number of threads that count and merge; at most the cores this process may use.
    num_chunks: number of steps of the progress bar; the merges do not depend on it.
    save_pickle: a path, such as "merge_rules.pkl", to write the rules to as a pickled dict. Gristmill never reads it.
    progress: whether to show a progress bar over the chunks, and one over the merges on a terminal.
    """
    check_vocab_size(vocab_size, 1)
    num_threads = min(check_num_threads(num_processes), usable_cores())
    boundaries = find_chunk_boundaries(file_path, num_chunks, end_token)
    chunks: Iterable[bytes] = _read_chunks(file_path, boundaries)
    if progress:
        chunks = bar_class()(chunks, total=len(boundaries) - 1, desc="Pretokenizing", unit="chunk")
    words = count_words(chunks, special_tokens=[end_token], num_threads=num_threads, progress=None)
    tokenizer = train_tokenizer(
        words, vocab_size=vocab_size, num_threads=num_threads, progress="auto" if progress else None
    )
    rules = {(left, right): 256 + i for i, (left, right) in enumerate(tokenizer.merge_ids.tolist())}
    if save_pickle is not None:
        with publish(save_pickle) as file:
            pickle.dump(rules, file)
    return rules


def _read_chunks(file_path: PathLike, boundaries: list[int]) -> Iterator[bytes]:
    with Path(file_path).open("rb") as file:
        for start, end in pairwise(boundaries):
            yield _read_range(file, start, end)
