"""rustbpe: takes an iterator of texts; has no special tokens."""

import rustbpe

from gristmill.bench.rivals import GPT2_PATTERN, Follows, TrainJob, documents, merges_digest

JOB = TrainJob
DISTRIBUTION = "rustbpe"
FOLLOWS = Follows(tie_break="smallest-ids")
THREADS = "`RAYON_NUM_THREADS`"
TIMED = "reading the file, cutting it into documents, `train_from_iterator`"
SLOW = True


def run(job: TrainJob) -> rustbpe.Tokenizer:
    """Train on the documents of the file."""
    tok = rustbpe.Tokenizer()
    tok.train_from_iterator(documents(job.path), vocab_size=256 + job.num_merges, pattern=GPT2_PATTERN)
    return tok


def describe(tok: rustbpe.Tokenizer) -> dict[str, object]:
    """Return the merges, recovered from the tokens, because rustbpe returns only tokens."""
    ranks = {bytes(token): rank for token, rank in tok.get_mergeable_ranks()}
    made = sorted((rank, token) for token, rank in ranks.items() if rank >= 256)
    return merges_digest(_split(token, rank, ranks) for rank, token in made)


def _split(token: bytes, rank: int, ranks: dict[bytes, int]) -> tuple[bytes, bytes]:
    """Return the two parts that `token` was merged from: the tokens that remain of its bytes after all older merges."""
    parts = [token[i : i + 1] for i in range(len(token))]
    while len(parts) > 2:
        made = [ranks.get(parts[i] + parts[i + 1], rank) for i in range(len(parts) - 1)]
        first = min(range(len(made)), key=made.__getitem__)
        if made[first] >= rank:
            raise ValueError(f"rustbpe: token {token!r} (rank {rank}) is not the merge of two older ones")
        parts[first : first + 2] = [parts[first] + parts[first + 1]]
    return parts[0], parts[1]
