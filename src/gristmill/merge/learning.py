"""merge: words -> merges in order, computed by the core."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gristmill import _core
from gristmill.count import Words
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
) -> tuple[MergeIds, NDArray[np.uint64], list[Stage]]:
    """Return up to `num_merges` merges that follow `given` on these words, their counts, and the profile of the stages.

    Returns fewer if no pair is left to merge. The count of a merge is that of its pair when it was chosen. "aaa" counts
    the pair (a, a) twice, as `gristmill.reference` does, although only one of the two can be merged.
    """
    run = _core.learn_merges(
        words.table,
        num_merges=num_merges,
        tie_break=tie_break,
        max_token_bytes=max_token_bytes,
        given=given,
        num_threads=num_threads,
        on_progress=on_progress,
    )
    stats, counts = run.stats, run.counts
    counts.flags.writeable = False
    return (
        run.merges,
        counts,
        [
            Stage(stage="setup", seconds=stats["setup_seconds"], num_symbols=stats["num_symbols"]),
            Stage(
                stage="merge",
                seconds=stats["loop_seconds"],
                num_pairs=stats["num_pairs"],
                num_rounds=stats["num_rounds"],
                num_merges=len(run.merges),
            ),
        ],
    )
