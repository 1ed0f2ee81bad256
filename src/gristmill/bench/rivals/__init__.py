"""The systems that `gristmill bench train` compares: one module each, all with the same interface.

A module named after its system imports that system when it is imported (so that import time is never measured) and has

    JOB            TrainJob, the argument of `run`
    DISTRIBUTION   its name for pip
    FOLLOWS        which run of gristmill (text feed, tie-break) must give the same merges
    THREADS        how the number of threads is set
    TIMED          description of the timed region
    SLOW           True if a round is so slow that fewer are run
    run(job)       trains; only this is timed
    describe(r)    the number of merges and their digest, from the result of `run`; not timed

To add one: write the module, add its name to `SYSTEMS`. A module outside this package works as well: pass its dotted
name to `gristmill bench train --systems`.
"""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

SYSTEMS = ("gristmill", "gigabpe", "gigatoken", "rustbpe", "tokenizers")
SPECIAL = "<|endoftext|>"
GPT2_PATTERN = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"

Merges = Iterable[tuple[bytes, bytes]]


@dataclass(frozen=True)
class Follows:
    """Which run of gristmill has the same merges as another system; it may differ from the timed one."""

    tie_break: str = "huggingface"
    feed: str = "documents"  # "lines": each line is a separate text, and the special token is plain text

    def __str__(self) -> str:
        return f"{self.tie_break}, fed with {self.feed}"


@dataclass(frozen=True)
class TrainJob:
    """The same work for every system: `num_merges` merges of the gpt2 pattern on one file."""

    path: str
    num_merges: int
    num_threads: int
    num_byte_values: int  # distinct bytes in the file: the initial alphabet of trainers without all 256 bytes
    tie_break: str = "huggingface"
    feed: str = "documents"


def merges_digest(merges: Merges) -> dict[str, object]:
    """Return the number of merges and a digest that is equal only for the same merges in the same order.

    >>> merges_digest([(b"a", b"b")])["num_merges"]
    1
    """
    digest, num_merges = hashlib.sha256(), 0
    for left, right in merges:
        digest.update(b"%d:%b%d:%b" % (len(left), left, len(right), right))
        num_merges += 1
    return {"num_merges": num_merges, "digest": digest.hexdigest()}


def byte_of_letter() -> dict[str, int]:
    """Return the byte of each character of Hugging Face's byte-level alphabet."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in shown]
    return {chr(byte): byte for byte in shown} | {chr(256 + i): byte for i, byte in enumerate(hidden)}


def spelled_merges(merges: Iterable[tuple[str, str]]) -> Iterator[tuple[bytes, bytes]]:
    """Return merges in the byte-level alphabet as bytes.

    >>> list(spelled_merges([("Ġ", "t")]))
    [(b' ', b't')]
    """
    byte = byte_of_letter()
    for left, right in merges:
        yield bytes(byte[letter] for letter in left), bytes(byte[letter] for letter in right)


def documents(path: str, *, block_bytes: int = 1 << 24) -> Iterator[str]:
    """Yield the texts between special tokens, for systems that take documents and not files."""
    separator, rest = SPECIAL.encode(), b""
    with Path(path).open("rb") as file:
        while block := file.read(block_bytes):
            *whole, rest = (rest + block).split(separator)
            for document in whole:
                yield document.decode()
    yield rest.decode()
