"""data: batches from token shards or Parquet files, each a pure function of (config, step, rank, world size).

In reading order:

    batch.py           Batch: what every model takes
    training_data.py   what a run needs to know of its data, whichever model it trains
    token_dataset.py   TokenDataset: windows over all tokens of shards
    token_source.py    where the tokens lie, and windows read from there
    checked_file.py    a file of known size, read while a run trains
    window_batches.py  batches from the numbers of their windows
    document_ids.py    which document each token of a window belongs to
    permutation.py     a shuffle that is computed, not stored
    read_ahead.py      a thread that makes the next batches
    sequences/         whole documents, one sequence each, in batches with little padding
"""
