"""data: batches from token shards or Parquet files, each a pure function of (config, step, rank, world size).

In reading order:

    batch.py            Batch: what every model takes
    options.py          the two kinds of data, windows and documents, and their options
    training_data.py    TrainingData: what a run needs to know of its data, whichever model it trains
    identity.py         fingerprints by which a resumed run recognizes its data

    window_data.py      token shards as windows across all documents
    mixture.py          a mixture of several folders, as people write it
    mixed_data.py       several folders of shards, mixed in fixed shares
    token_dataset.py    TokenDataset: batches of windows by step and rank
    torch_datasets.py   the same windows as datasets of torch, for the loops of other libraries
    window_order.py     which window comes when, of one source or of a mixture
    permutation.py      a shuffle that is computed, not stored
    token_source.py     where the tokens lie, and windows read from there
    checked_file.py     a file of known size, read while a run trains
    window_batches.py   batches from where their windows begin
    document_ids.py     the document each token of a window belongs to
    read_ahead.py       a thread that makes the next batches

    conversations.py    conversations packed into rows, with responses as targets
    conversation_files.py  conversations from JSON lines
    chat_template.py    a conversation as tokens, by a chat template
    chat_jinja.py       chat templates: the built-in ones, and the sandbox that renders them
    packing.py          items of different lengths into rows of one length

    document_data.py    shards or Parquet files as whole documents
    sequences/          whole documents, one sequence each, in batches with little padding
"""
