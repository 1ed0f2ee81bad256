"""sequences: whole sequences, one a document, from shards or Parquet, in batches with little padding.

In reading order:

    source.py       where sequences lie: shards, or the flat files of the cache
    buckets.py      the few widths they are padded to
    order.py        which sequences make up each micro-batch
    loader.py       numbers of sequences -> padded batches, here or by workers
    dataset.py      SequenceDataset: all of it together
"""

from gristmill.lm.sequences.buckets import choose_bounds
from gristmill.lm.sequences.dataset import SequenceDataset
from gristmill.lm.sequences.source import FlatSequences, SequenceSource, ShardSequences

__all__ = ["FlatSequences", "SequenceDataset", "SequenceSource", "ShardSequences", "choose_bounds"]
