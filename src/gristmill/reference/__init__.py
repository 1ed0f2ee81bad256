"""Byte-level BPE in plain Python: the algorithm as short, readable code, and the oracle of the tests.

    pipeline.py     the whole algorithm, from text to ids and back; read this first
    ablation/       seven programs that train BPE, each with one more optimization, for `gristmill bench ablation`

The functions of `pipeline.py` are imported from here: `gristmill.reference.train`, `gristmill.reference.encode`, ….
"""

from gristmill.reference.pipeline import HUGGINGFACE_BYTE_ORDER as HUGGINGFACE_BYTE_ORDER
from gristmill.reference.pipeline import (
    count_words,
    decode,
    encode,
    learn_merges,
    learn_merges_incrementally,
    pretokenize,
    split_at_specials,
    train,
)
from gristmill.reference.pipeline import merge_pair as merge_pair

__all__ = [
    "count_words",
    "decode",
    "encode",
    "learn_merges",
    "learn_merges_incrementally",
    "pretokenize",
    "split_at_specials",
    "train",
]
