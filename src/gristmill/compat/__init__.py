"""compat: thin faces for code that people already have.

Each module has the names and call forms of something else, and the work is done by `gristmill`. What differs from the
original is said in the docstrings; docs/migration.md has the tables of old and new calls.

| instead of | import | has |
|---|---|---|
| minbpe | `gristmill.compat.minbpe` | `BasicTokenizer`, `RegexTokenizer`, `GPT4Tokenizer`, `OptimizedRegexTokenizer` |
| a solution of CS336 | `gristmill.compat.cs336` | `train_bpe`, `Tokenizer` |
| a pool that counts chunks | `gristmill.compat.chunked` | `find_chunk_boundaries`, `pretoken_chunk`, `train_bpe` |
| tiktoken | `gristmill.compat.tiktoken` | `Encoding`, `get_encoding` |
| transformers | `gristmill.compat.huggingface` | `PreTrainedTokenizerFast`, `StandInTokenizerFast`, `BatchEncoding` |

Nothing is imported until it is asked for, and none of the originals is needed. Where transformers is installed,
`PreTrainedTokenizerFast` returns an instance of its class.
"""
