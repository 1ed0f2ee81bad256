"""sequences: whole sequences, one per document, from shards or Parquet, in batches with little padding.

In reading order:

    opening.py        open_sequences: the supported kinds of data
    source.py         storage of sequences: shards, or flat files in the cache
    parquet.py        lists of ids and vectors in Parquet files
    cache.py          a cache folder that is built once, safely
    parquet_cache.py  conversion of Parquet files into the cache
    buckets.py        the few widths that sequences are padded to
    order.py          the sequences of each micro-batch
    workers.py        processes that write batches into shared memory
    loader.py         padded batches, made in this process or by workers
    dataset.py        SequenceDataset: the parts combined
"""

from gristmill.lm.data.sequences.buckets import choose_bounds
from gristmill.lm.data.sequences.dataset import SequenceDataset
from gristmill.lm.data.sequences.opening import SequenceData, open_sequences
from gristmill.lm.data.sequences.source import FlatSequences, SequenceSource, ShardSequences

__all__ = [
    "FlatSequences",
    "SequenceData",
    "SequenceDataset",
    "SequenceSource",
    "ShardSequences",
    "choose_bounds",
    "open_sequences",
]
