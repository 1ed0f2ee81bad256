"""merge: words -> merges in order, computed by the core or on a GPU."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gristmill.count import Words
from gristmill.count.words import device_table
from gristmill.errors import DeviceError
from gristmill.gpu.devices import CPU, Choice, Device, device_names
from gristmill.gpu.driver import Driver
from gristmill.gpu.merge_run import MergeTask
from gristmill.gpu.merging import LearnedMerges, learn_merges_on, learn_on_cpu
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
    task = MergeTask(num_merges, tie_break, max_token_bytes, given, num_threads)
    choice = _choice_for(words, task, device)
    learned = None
    if choice.drivers:
        try:
            learned = _learn_on_gpu(choice.drivers[0], words, task, on_progress)
        except DeviceError as error:
            if not device.can_do_without(error):
                raise
            choice = device.for_words(0, num_threads=num_threads)
        else:
            choice = Choice((), learned.reason) if learned.reason else Choice(choice.drivers[:1], choice.reason)
    if learned is None:
        learned = learn_on_cpu(words.table, task, on_progress)
    stats, counts = learned.stats, learned.counts
    counts.flags.writeable = False
    where, reason = device_names(choice.drivers), choice.reason
    return (
        learned.merges,
        counts,
        [
            Stage(
                stage="setup",
                seconds=stats["setup_seconds"],
                num_symbols=stats["num_symbols"],
                device=where,
                device_reason=reason,
            ),
            Stage(
                stage="merge",
                seconds=stats["loop_seconds"],
                num_pairs=stats["num_pairs"],
                num_rounds=stats["num_rounds"],
                num_merges=len(learned.merges),
                device=where,
                device_reason=reason,
            ),
        ],
    )


def _choice_for(words: Words, task: MergeTask, device: Device) -> Choice:
    counted = device_table(words)
    if counted is not None:
        return Choice((counted.driver,), "it has counted the words")
    return device.for_words(len(words.table.data), num_threads=task.num_threads)


def _learn_on_gpu(driver: Driver, words: Words, task: MergeTask, on_progress: OnProgress | None) -> LearnedMerges:
    counted = device_table(words)
    with driver.active():
        on_device = counted.words if counted is not None else upload_words(driver, words.table)
        return learn_merges_on(driver, on_device, task, on_progress=on_progress, to_host=lambda: words.table)
