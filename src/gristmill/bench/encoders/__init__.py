"""The systems that `gristmill bench encode` compares: one module each, all with the same interface.

A module named after its system imports that system when it is imported and has

    DISTRIBUTION              its name for pip
    THREADS                   how the number of threads is set
    SLOW                      True if a pass is so slow that fewer are run
    APIS                      its functions from text to ids, by name; the first takes a whole text on one thread
    build(files, threads)     the tokenizer, from the files of `vocabularies.py`; raises `CannotLoad`
    short(tok)                the call that turns a short `str` into ids, for the latency
    cache_figures(tok)        statistics of its caches (optional)

Equal work: `<|endoftext|>` in the text becomes its special id in every system, and the ids are compared as one flat
array. Each system gets the text in its preferred form (bytes, str, or documents that end with their separator),
prepared before the clock starts. It returns its own form (array, list), which is converted to an array after the clock
stops.

To add one: write the module, add its name to `SYSTEMS`. A module outside this package works as well: pass its dotted
name to `gristmill bench encode --systems`.
"""

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from gristmill.bench.encoders.vocabularies import SPECIAL, VocabularyFiles

SYSTEMS = (
    "gristmill",
    "gigatoken",
    "fastokens",
    "tiktoken",
    "tokenizers",
    "tokie",
    "bpe_openai",
    "wordchipper",
    "quicktok",
)

Ids = npt.NDArray[np.integer[Any]]


class CannotLoad(Exception):
    """The system cannot represent the vocabulary, or refuses the text; the message gives the reason."""


class Takes(Enum):
    """The form in which an API takes its text."""

    BYTES = "bytes"
    TEXT = "str"
    DOCUMENTS = "documents as a list of str"
    PATH = "path"


def as_array(result: Any) -> Ids:
    """Return a list or an array of ids as an array."""
    return np.asarray(result)


def flattened(result: Iterable[Any]) -> Ids:
    """Return the ids of several documents as one array."""
    return np.concatenate([np.asarray(ids, dtype=np.uint32) for ids in result])


@dataclass(frozen=True)
class Api:
    """One way from text to ids: `encode(tokenizer, text, num_threads)` is timed, `ids` of its result is not."""

    takes: Takes
    encode: Callable[[Any, Any, int], Any]
    ids: Callable[[Any], Ids] = as_array
    one_thread: bool = False  # True: uses one thread only, so it is omitted from runs with several


class Encoder(Protocol):
    """The interface of an adapter module."""

    DISTRIBUTION: str
    THREADS: str
    SLOW: bool
    APIS: Mapping[str, Api]

    def build(self, files: VocabularyFiles, num_threads: int) -> Any:
        """Return the tokenizer."""

    def short(self, tok: Any) -> Callable[[str], Any]:
        """Return the call for a short text."""


def documents(text: str) -> list[str]:
    """Split after every separator, so that the concatenated ids of the parts are those of the whole.

    >>> documents("a<|endoftext|>b")
    ['a<|endoftext|>', 'b']
    """
    *closed, rest = text.split(SPECIAL)
    return [document + SPECIAL for document in closed] + ([rest] if rest else [])


def keep_to_cpus(num_threads: int) -> None:
    """Limit this process to `num_threads` CPUs, for systems that start one thread per visible CPU."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-num_threads:])
