"""gigatoken: its trainer supports only the gpt2 pattern, and prints progress."""

import gigatoken

from gristmill.bench.rivals import SPECIAL, Follows, TrainJob, merges_digest

JOB = TrainJob
DISTRIBUTION = "gigatoken"
FOLLOWS = Follows()
THREADS = "`RAYON_NUM_THREADS`"
TIMED = "`train_bpe(path)`, which returns vocabulary and merges as Python objects"
SLOW = False

Trained = tuple[dict[int, bytes], list[tuple[bytes, bytes]]]


def run(job: TrainJob) -> Trained:
    """Train on the file."""
    trained: Trained = gigatoken.train_bpe(job.path, 256 + job.num_merges + 1, [SPECIAL])
    return trained


def describe(trained: Trained) -> dict[str, object]:
    """Merges, as returned."""
    return merges_digest(trained[1])
