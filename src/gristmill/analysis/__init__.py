"""Analysis: figures of tokenizers and shards, for reports, pages and the command line."""
