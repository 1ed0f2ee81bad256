"""gigabpe: trains like `tokenizers` from files, so each line is a text and the special token is not split off."""

import gigabpe

from gristmill.bench.rivals import SPECIAL, Follows, TrainJob, merges_digest, spelled_merges

JOB = TrainJob
DISTRIBUTION = "gigabpe"
FOLLOWS = Follows(feed="lines")
THREADS = "`threads=`"
TIMED = "`train_bpe([path])`, which returns vocabulary and merges as Python objects"
SLOW = False

Trained = tuple[dict[str, int], list[tuple[str, str]]]


def run(job: TrainJob) -> Trained:
    """Train on the file. The alphabet is the bytes that occur, so the vocabulary size differs for the same merges."""
    trained: Trained = gigabpe.train_bpe(
        [job.path],
        job.num_merges + job.num_byte_values + 1,
        special_tokens=[SPECIAL],
        pretokenizer="bytelevel",
        threads=job.num_threads,
    )
    return trained


def describe(trained: Trained) -> dict[str, object]:
    """Merges, from Hugging Face's spelling."""
    return merges_digest(spelled_merges(trained[1]))
