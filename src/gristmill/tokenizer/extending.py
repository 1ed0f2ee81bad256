"""Learn merges from a corpus, after the merges that a tokenizer already has."""

from __future__ import annotations

import dataclasses
import time
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gristmill.arguments import MAX_TOKEN_BYTES, check_max_token_bytes, check_tie_break, check_vocab_size
from gristmill.corpus import Corpus
from gristmill.count import CountOptions, Words, count
from gristmill.errors import DeviceError, EarlyStopWarning, FormatWarning, VocabSizeError, warn_user
from gristmill.merge import MergeIds, learn_merges
from gristmill.profile import Profile, Stage, TaskTime, peak_memory_bytes
from gristmill.progress import ProgressOption, open_progress
from gristmill.tokenizer.parts import TokenizerParts
from gristmill.tokenizer.vocabulary import extended, plain_merges
from gristmill.trace import memory_since

__all__ = ["extended_parts", "learn"]


def extended_parts(
    parts: TokenizerParts,
    corpus: Corpus | Words,
    *,
    vocab_size: int,
    tie_break: str | None,
    max_token_bytes: int | None,
    progress: ProgressOption,
    **counting: Any,
) -> tuple[TokenizerParts, Profile]:
    """Return `parts` extended with merges from `corpus` up to `vocab_size`, and the profile of the run.

    counting: options of `count_words`, except the pattern and special tokens, which are those of `parts`.
    """
    specials = list(parts.vocabulary.special_tokens)
    options = CountOptions.checked(corpus, pattern=str(parts.pattern), special_tokens=specials, **counting)
    size = check_vocab_size(vocab_size, len(specials))
    if size < parts.vocabulary.size:
        raise VocabSizeError(
            f"vocab_size={size} is smaller than the vocab_size of the tokenizer, {parts.vocabulary.size}. "
            f"Pass a larger vocab_size, or call tokenizer.truncated({size})."
        )
    limit = check_max_token_bytes(max_token_bytes)
    ruled = _with_rule(parts, tie_break)
    return learn(ruled, corpus, options, vocab_size=size, max_token_bytes=limit, progress=progress)


def _with_rule(parts: TokenizerParts, tie_break: str | None) -> TokenizerParts:
    """Return `parts` with the rule to extend them with. Warns if the rule is only assumed."""
    if tie_break is not None:
        return dataclasses.replace(parts, tie_break=check_tie_break(tie_break), states_tie_break=True)
    if not parts.states_tie_break:
        warn_user(
            f"this tokenizer does not record tie_break; assuming {parts.tie_break!r}. "
            f"Pass tie_break='huggingface' if `tokenizers` trained it, otherwise tie_break={parts.tie_break!r}.",
            FormatWarning,
        )
    return parts


class _Learned(NamedTuple):
    merges: MergeIds
    counts: NDArray[np.uint64]
    stages: tuple[Stage, ...]
    tasks: tuple[TaskTime, ...]


def learn(
    parts: TokenizerParts,
    corpus: Corpus | Words,
    options: CountOptions,
    *,
    vocab_size: int,
    max_token_bytes: int,
    progress: ProgressOption,
) -> tuple[TokenizerParts, Profile]:
    """Count the corpus, learn merges up to `vocab_size`, and return the extended parts."""
    start = time.perf_counter()
    vocabulary = parts.vocabulary
    given = plain_merges(vocabulary)

    def count_and_merge() -> _Learned:
        counted = count(corpus, options, on_progress, keep_on_gpu=True)
        learned, merge_counts, merge_stages = learn_merges(
            counted.words,
            num_merges=vocab_size - vocabulary.size,
            tie_break=parts.tie_break,
            max_token_bytes=max_token_bytes,
            given=given,
            num_threads=options.num_threads,
            on_progress=on_progress,
            device=options.device,
        )
        return _Learned(learned, merge_counts, (*counted.stages, *merge_stages), counted.tasks)

    def unless_words_are_lost() -> _Learned | None:
        try:
            return count_and_merge()
        except DeviceError as error:
            if not options.device.can_do_without(error):
                raise
            return None

    with open_progress(progress) as on_progress, options.device.released():
        # If a GPU fails and its words are lost, the CPU counts them again.
        learned, merge_counts, stages, tasks = unless_words_are_lost() or count_and_merge()
    if vocabulary.size + len(learned) < vocab_size:
        _warn_of_early_stop(len(learned), vocabulary.size, vocab_size, max_token_bytes)
    profile = Profile(
        stages=stages,
        seconds=time.perf_counter() - start,
        num_threads=options.num_threads,
        peak_memory_bytes=peak_memory_bytes(),
        tasks=tasks,
        merge_counts=merge_counts,
        memory=memory_since(start),
    )
    return dataclasses.replace(parts, vocabulary=extended(vocabulary, given, learned)), profile


def _warn_of_early_stop(num_learned: int, size_before: int, size_asked: int, max_token_bytes: int) -> None:
    bound = f" that gives a token of at most {max_token_bytes} bytes" if max_token_bytes < MAX_TOKEN_BYTES else ""
    warn_user(
        f"learned {num_learned:,} of {size_asked - size_before:,} merges: no pair{bound} is left to merge in this "
        f"corpus. The tokenizer has vocab_size {size_before + num_learned:,} instead of {size_asked:,}.",
        EarlyStopWarning,
    )
