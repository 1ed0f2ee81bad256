"""merge on a GPU: words -> merges, the same as on the CPU, which learns what a GPU cannot."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gristmill import _core
from gristmill.gpu.checking import check_counts
from gristmill.gpu.driver import CHECK, Driver
from gristmill.gpu.merge_run import MergeRun, MergeTask, Outcome
from gristmill.gpu.words import DeviceWords, upload_words

# Rounds per launch: enough that its start costs little, and few enough for prompt Ctrl-C and progress.
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
    reason: str = ""  # why the CPU learned them; empty if the GPU did


def learn_merges_on(
    driver: Driver,
    words: DeviceWords,
    task: MergeTask,
    *,
    on_progress: _core.OnProgress | None = None,
    to_host: Callable[[], _core.WordTable],
) -> LearnedMerges:
    """Return the merges that the core learns from the table `to_host()`, which has the same words.

    The CPU learns them if the words are not for a GPU, if more pairs share a count than a block of the GPU can order,
    or if something grows beyond the memory of the GPU. It starts again: giving it the merges so far was measured to
    take more time (0.42 s for 16,000 merges of 300,000 words) than learning all of them (0.17 s).

    Raises DeviceMemoryError if the memory of the GPU is too small from the start, and all errors of the core.
    """
    began = time.perf_counter()
    task = replace(task, num_merges=min(task.num_merges, words.num_bytes))  # every merge shortens a word
    obstacle = _obstacle(words, task)
    if not obstacle:
        if task.tie_break == "first-seen" and not words.is_in_order:
            words = upload_words(driver, to_host())
        learned = _learn_on_gpu(driver, words, task, on_progress)
        if isinstance(learned, LearnedMerges):
            return learned
        obstacle = learned
    table = to_host()
    lost_seconds = time.perf_counter() - began
    learned = learn_on_cpu(table, task, on_progress)._replace(reason=obstacle)
    learned.stats["setup_seconds"] += lost_seconds
    return learned


def _learn_on_gpu(
    driver: Driver, words: DeviceWords, task: MergeTask, on_progress: _core.OnProgress | None
) -> LearnedMerges | str:
    """Return the merges, or why the GPU cannot learn all of them."""
    began = time.perf_counter()
    if on_progress is not None:
        on_progress("setup", words.num_bytes, words.num_bytes)
    run = MergeRun(driver, words, task)
    setup_seconds = time.perf_counter() - began
    obstacle = _make_rounds(driver, run, task, on_progress)
    if obstacle:
        return obstacle
    stats = {
        "num_symbols": run.num_symbols,
        "num_pairs": run.state["num_entries"],
        "num_rounds": run.state["round"],
        "num_rebuilds": run.state["num_refills"],
        "setup_seconds": setup_seconds,
        "loop_seconds": time.perf_counter() - began - setup_seconds,
    }
    return LearnedMerges(run.merges(), run.counts(), stats)


def _obstacle(words: DeviceWords, task: MergeTask) -> str:
    """Return why the GPU cannot learn the merges, or "". Its counts have 64 bits, and its cells numbers of 32 bits."""
    if words.longest > MOST_WORD_BYTES:
        return f"a word has {words.longest:,} bytes, and a GPU merges words of up to {MOST_WORD_BYTES:,}"
    if words.num_bytes + words.num_words >= 1 << 32:
        return f"the words have {words.num_bytes:,} bytes, and a GPU merges less than 4 GiB of distinct words"
    if words.num_pieces * words.longest >= 1 << 63:
        return "the counts of pairs may exceed 2^63, which only the CPU checks"
    if task.num_ids >= (1 << 32) - 2 or not _are_right(task.given):
        return "the CPU reports what is wrong with the merges"
    return ""


def _are_right(given: NDArray[np.uint32]) -> bool:
    """Return whether each merge uses earlier ids, and the tokens have few enough bytes. The core reports the others."""
    newest = given.max(axis=1, initial=0)
    if not bool((newest < 256 + np.arange(len(given))).all()):
        return False
    return _core.find_merge_past_limit(np.ascontiguousarray(given)) == len(given)


def _make_rounds(driver: Driver, run: MergeRun, task: MergeTask, on_progress: _core.OnProgress | None) -> str:
    """Learn until all merges are learned, or no pair is left. Otherwise return why the GPU cannot continue."""
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
            return ""
        if outcome == Outcome.TIES:
            return (
                f"after {run.num_learned:,} merges, more pairs share a count than a GPU can order, so the CPU learned "
                f"all of them"
            )
        if (outcome == Outcome.TABLE_FULL and not run.grow_table()) or (
            outcome == Outcome.BYTES_FULL and not run.grow_bytes()
        ):
            return f"after {run.num_learned:,} merges, the GPU has no room for more pairs or tokens"


def learn_on_cpu(table: _core.WordTable, task: MergeTask, on_progress: _core.OnProgress | None) -> LearnedMerges:
    """Return the merges that the core learns."""
    run = _core.learn_merges(
        table,
        num_merges=task.num_merges,
        tie_break=task.tie_break,
        max_token_bytes=task.max_token_bytes,
        given=task.given,
        num_threads=task.num_threads,
        on_progress=on_progress,
    )
    return LearnedMerges(run.merges, run.counts, run.stats)
