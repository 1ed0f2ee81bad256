"""gristmill, through the public Python function."""

from collections.abc import Iterable
from pathlib import Path

from gristmill.bench.rivals import SPECIAL, Follows, TrainJob, merges_digest
from gristmill.encode.tokenizer import Tokenizer
from gristmill.errors import EmptyCorpusError
from gristmill.train import train_tokenizer

JOB = TrainJob
DISTRIBUTION = "gristmill"
FOLLOWS = Follows()
THREADS = "`num_threads=`"
TIMED = (
    "`train_tokenizer(path)`, then `len(tok.merges)` and `len(tok.vocab)`, the Python objects that gigabpe returns too"
)
SLOW = False


def run(job: TrainJob) -> Tokenizer | None:
    """Train on the file, or on its lines to compare with a system that does so; None if the file has no text."""
    try:
        if job.feed == "lines":
            with Path(job.path).open("rb") as lines:
                return _train((line for line in lines), [], job)  # an open file is refused
        return _train(job.path, [SPECIAL], job)
    except EmptyCorpusError:
        return None


def _train(corpus: str | Iterable[bytes], special_tokens: list[str], job: TrainJob) -> Tokenizer:
    tok = train_tokenizer(
        corpus,
        vocab_size=256 + job.num_merges + len(special_tokens),
        special_tokens=special_tokens,
        pattern="gpt2",
        tie_break=job.tie_break,
        num_threads=job.num_threads,
        progress=None,
    )
    _ = len(tok.merges), len(tok.vocab)  # built on first use; other systems have built theirs at this point
    return tok


def describe(tok: Tokenizer | None) -> dict[str, object]:
    """Return the merges of the tokenizer."""
    return merges_digest([] if tok is None else tok.merges)
