"""merge: words -> merges in order, computed by the core or on a GPU."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gristmill import _core
from gristmill.count import Words
from gristmill.count.words import device_table
from gristmill.errors import DeviceError
from gristmill.gpu.devices import CPU, Device, device_names
from gristmill.gpu.driver import Driver
from gristmill.gpu.merging import LearnedMerges, learn_merges_on
from gristmill.gpu.words import upload_words
from gristmill.merge.merges import MergeIds
from gristmill.profile import Stage
from gristmill.progress import OnProgress


def learn_merges(
    words: Words,
    *,
    num_merges: int,
    tie_break: str,
    max_token_bytes: int,
    given: MergeIds,
    num_threads: int,
    on_progress: OnProgress | None,
    device: Device = CPU,
) -> tuple[MergeIds, NDArray[np.uint64], list[Stage]]:
    """Return up to `num_merges` merges that follow `given` on these words, their counts, and the profile of the stages.

    Returns fewer if no pair is left to merge. The count of a merge is that of its pair when it was chosen. "aaa" counts
    the pair (a, a) twice, as `gristmill.reference` does, although only one of the two can be merged.
    """

    def on_cpu() -> LearnedMerges:
        run = _core.learn_merges(
            words.table,
            num_merges=num_merges,
            tie_break=tie_break,
            max_token_bytes=max_token_bytes,
            given=given,
            num_threads=num_threads,
            on_progress=on_progress,
        )
        return LearnedMerges(run.merges, run.counts, run.stats, 0)

    def on_gpu(driver: Driver) -> LearnedMerges:
        counted = device_table(words)
        with driver.active():
            return learn_merges_on(
                driver,
                counted.words if counted is not None else upload_words(driver, words.table),
                num_merges=num_merges,
                tie_break=tie_break,
                max_token_bytes=max_token_bytes,
                given=given,
                num_threads=num_threads,
                on_progress=on_progress,
                to_host=lambda: words.table,
            )

    driver = _driver_for(words, num_threads, device)
    if driver is None:
        learned = on_cpu()
    else:
        try:
            learned = on_gpu(driver)
        except DeviceError as error:
            device.give_up(error)
            learned = on_cpu()
    stats, counts = learned.stats, learned.counts
    counts.flags.writeable = False
    where = _where(driver, learned)
    return (
        learned.merges,
        counts,
        [
            Stage(stage="setup", seconds=stats["setup_seconds"], num_symbols=stats["num_symbols"], device=where),
            Stage(
                stage="merge",
                seconds=stats["loop_seconds"],
                num_pairs=stats["num_pairs"],
                num_rounds=stats["num_rounds"],
                num_merges=len(learned.merges),
                device=where,
            ),
        ],
    )


def _driver_for(words: Words, num_threads: int, device: Device) -> Driver | None:
    """Return the GPU that learns the merges, or None for the CPU."""
    counted = device_table(words)
    if counted is not None:
        return counted.driver
    drivers = device.for_words(len(words.table.data), num_threads=num_threads).drivers
    return drivers[0] if drivers else None


def _where(driver: Driver | None, learned: LearnedMerges) -> str:
    if driver is None or (learned.num_on_gpu == 0 and len(learned.merges)):
        return device_names(())
    return device_names((driver,)) + ", cpu" * (learned.num_on_gpu < len(learned.merges))
