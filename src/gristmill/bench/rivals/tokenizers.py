"""Hugging Face tokenizers, trained on documents: `train(files)` would split the text at every line end."""

import json

from tokenizers import Tokenizer
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.trainers import BpeTrainer

from gristmill.bench.rivals import SPECIAL, Follows, TrainJob, documents, merges_digest, spelled_merges

JOB = TrainJob
DISTRIBUTION = "tokenizers"
FOLLOWS = Follows()
THREADS = "`RAYON_NUM_THREADS`"
TIMED = "reading the file, cutting it into documents, `train_from_iterator`"
SLOW = True


def run(job: TrainJob) -> Tokenizer:
    """Train on the documents of the file, from the full byte alphabet."""
    tok = Tokenizer(BPE())
    tok.pre_tokenizer = ByteLevel(add_prefix_space=False)
    trainer = BpeTrainer(
        vocab_size=256 + job.num_merges + 1,
        special_tokens=[SPECIAL],
        initial_alphabet=ByteLevel.alphabet(),
        show_progress=False,
    )
    tok.train_from_iterator(documents(job.path), trainer)
    return tok


def describe(tok: Tokenizer) -> dict[str, object]:
    """Merges, from the JSON that the tokenizer writes."""
    merges = json.loads(tok.to_str())["model"]["merges"]
    return merges_digest(spelled_merges((left, right) for left, right in merges))
