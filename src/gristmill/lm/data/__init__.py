"""data: batches from token shards or Parquet files, each a pure function of (config, step, rank, world size).

In reading order:

    batch.py            Batch: the input of every model
    options.py          the two kinds of data, windows and documents, and their options
    training_data.py    TrainingData: the interface between a run and its data
    identity.py         fingerprints by which a resumed run recognizes its data

    window_data.py      token shards as windows across all documents
    mixture.py          parsing of mixtures of several folders
    mixed_data.py       several folders of shards, mixed in fixed shares
    token_dataset.py    TokenDataset: batches of windows by step and rank
    torch_datasets.py   the same windows as torch datasets, for other training loops
    window_order.py     the order of windows, of one source or of a mixture
    permutation.py      a shuffle that is computed, not stored
    token_source.py     tokens in files or arrays, read in windows
    checked_file.py     a file of known size that is read during training
    window_batches.py   batches from the start positions of their windows
    document_ids.py     the document of each token of a window
    read_ahead.py       a thread that prepares the next batches

    conversations.py    conversations packed into rows, with responses as targets
    conversation_files.py  conversations from JSON lines
    chat_template.py    conversion of conversations to tokens with a chat template
    chat_jinja.py       the built-in chat templates, and the sandbox that renders templates
    packing.py          packing of items of different lengths into rows of one length

    document_data.py    shards or Parquet files as whole documents
    sequences/          whole documents, one sequence per document, in batches with little padding
"""
