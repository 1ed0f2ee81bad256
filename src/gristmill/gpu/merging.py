"""merge on a GPU: words -> merges, the same as on the CPU, which learns what a GPU cannot."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gristmill import _core
from gristmill.gpu.checking import check_counts
from gristmill.gpu.driver import CHECK, Driver
from gristmill.gpu.merge_run import MergeRun, MergeTask, Outcome
from gristmill.gpu.words import DeviceWords, upload_words

# A launch has so many rounds that Ctrl-C and the progress bar soon have their turn, and that its start costs little.
FIRST_ROUNDS = 64
LEAST_SECONDS, MOST_SECONDS = 0.05, 0.1
REPORT_SECONDS = 0.1
# One thread lays out a word, and half a warp merges it.
MOST_WORD_BYTES = 1 << 16


class LearnedMerges(NamedTuple):
    """Merges in order, as `_core.learn_merges` returns them."""

    merges: NDArray[np.uint32]  # (n, 2)
    counts: NDArray[np.uint64]
    stats: dict[str, Any]
    num_on_gpu: int  # the CPU learned the others


def learn_merges_on(
    driver: Driver,
    words: DeviceWords,
    *,
    num_merges: int,
    tie_break: str,
    max_token_bytes: int = 0,
    given: NDArray[np.uint32] | None = None,
    num_threads: int = 0,
    on_progress: _core.OnProgress | None = None,
    to_host: Callable[[], _core.WordTable],
) -> LearnedMerges:
    """Return the merges that `_core.learn_merges` returns for the table `to_host()`, which has the same words.

    The table is needed, and the CPU does the rest, if more pairs share a count than a block of the GPU can order, if
    the table of pairs no longer fits in the memory of the GPU, or if the words are not for a GPU at all.

    Raises DeviceMemoryError if the memory of the GPU is too small from the start, and all errors of the core.
    """
    began = time.perf_counter()
    task = MergeTask(
        num_merges=min(num_merges, words.num_bytes),  # every merge shortens a word
        tie_break=tie_break,
        max_token_bytes=max_token_bytes,
        given=np.empty((0, 2), np.uint32) if given is None else given,
        num_threads=num_threads,
    )
    if not _suits(words, task):
        return _learn_on_cpu(to_host(), task, on_progress)
    if tie_break == "first-seen" and not words.is_in_order:
        words = upload_words(driver, to_host())
    if on_progress is not None:
        on_progress("setup", words.num_bytes, words.num_bytes)
    run = MergeRun(driver, words, task)
    setup_seconds = time.perf_counter() - began
    is_complete = _make_rounds(driver, run, task, on_progress)
    learned = LearnedMerges(
        run.merges(),
        run.counts(),
        {
            "num_symbols": run.num_symbols,
            "num_pairs": run.state["num_entries"],
            "num_rounds": run.state["round"],
            "num_rebuilds": run.state["num_refills"],
            "setup_seconds": setup_seconds,
            "loop_seconds": time.perf_counter() - began - setup_seconds,
        },
        run.num_learned,
    )
    return learned if is_complete else _finish_on_cpu(to_host(), task, learned, on_progress)


def _suits(words: DeviceWords, task: MergeTask) -> bool:
    """Return whether the GPU can learn the merges: its counts have 64 bits, and its cells have numbers of 32 bits."""
    return (
        words.longest <= MOST_WORD_BYTES
        and words.num_bytes + words.num_words < 1 << 32
        and words.num_pieces * words.longest < 1 << 63  # no pair has a greater count
        and task.num_ids < (1 << 32) - 2
        and _are_right(task.given)
    )


def _are_right(given: NDArray[np.uint32]) -> bool:
    """Return whether each merge uses earlier ids, and the tokens have few enough bytes. The core reports the others."""
    newest = given.max(axis=1, initial=0)
    if not bool((newest < 256 + np.arange(len(given))).all()):
        return False
    return _core.find_merge_past_limit(np.ascontiguousarray(given)) == len(given)


def _make_rounds(driver: Driver, run: MergeRun, task: MergeTask, on_progress: _core.OnProgress | None) -> bool:
    """Learn until all merges are learned, or no pair is left. Returns False if the GPU cannot continue."""
    rounds = FIRST_ROUNDS
    reported = time.perf_counter()
    while True:
        began = time.perf_counter()
        outcome = run.advance(rounds)
        now = time.perf_counter()
        if now - began < LEAST_SECONDS:
            rounds = min(2 * rounds, 1 << 20)
        elif now - began > MOST_SECONDS:
            rounds = max(rounds // 2, 1)
        if os.environ.get(CHECK) == "1":
            check_counts(driver, run)
        is_last = outcome in (Outcome.COMPLETE, Outcome.NO_PAIR)
        if on_progress is not None and (is_last or now - reported >= REPORT_SECONDS):
            on_progress("merge", run.num_learned, task.num_merges)
            reported = now
        if is_last:
            return True
        if outcome == Outcome.TIES:
            return False
        if outcome == Outcome.TABLE_FULL and not run.grow_table():
            return False
        if outcome == Outcome.BYTES_FULL and not run.grow_bytes():
            return False


def _learn_on_cpu(table: _core.WordTable, task: MergeTask, on_progress: _core.OnProgress | None) -> LearnedMerges:
    run = _core.learn_merges(
        table,
        num_merges=task.num_merges,
        tie_break=task.tie_break,
        max_token_bytes=task.max_token_bytes,
        given=task.given,
        num_threads=task.num_threads,
        on_progress=on_progress,
    )
    return LearnedMerges(run.merges, run.counts, run.stats, 0)


def _finish_on_cpu(
    table: _core.WordTable, task: MergeTask, learned: LearnedMerges, on_progress: _core.OnProgress | None
) -> LearnedMerges:
    """Learn the rest. Merges that are given change words as merges that are learned do, so the rest is the same."""
    num = len(learned.merges)

    def report(stage: str, done: int, total: int) -> None:
        assert on_progress is not None
        on_progress(stage, *((done + num, total + num) if stage == "merge" else (done, total)))

    rest = _learn_on_cpu(
        table,
        MergeTask(
            num_merges=task.num_merges - num,
            tie_break=task.tie_break,
            max_token_bytes=task.max_token_bytes,
            given=np.concatenate([task.given, learned.merges]),
            num_threads=task.num_threads,
        ),
        None if on_progress is None else report,
    )
    stats = dict(learned.stats)
    for name in ("num_rounds", "num_rebuilds", "setup_seconds", "loop_seconds"):
        stats[name] += rest.stats[name]
    stats["num_pairs"] = max(stats["num_pairs"], rest.stats["num_pairs"])
    return LearnedMerges(
        np.concatenate([learned.merges, rest.merges]), np.concatenate([learned.counts, rest.counts]), stats, num
    )
