"""sequences: whole sequences, one per document, from shards or Parquet, in batches with little padding.

In reading order:

    opening.py        open_sequences: what data may be
    source.py         where sequences lie: shards, or the flat files of the cache
    parquet.py        lists of ids and vectors in Parquet files
    cache.py          a folder that is made once, whatever happens
    parquet_cache.py  what is made of Parquet files in it
    buckets.py        the few widths they are padded to
    order.py          which sequences make up each micro-batch
    loader.py         numbers of sequences -> padded batches, here or by workers
    dataset.py        SequenceDataset: all of it together
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
