"""compat: drop-in replacements for code that people already have.

Each module has the names and call signatures of another library, and `gristmill` does the work. The docstrings list
the differences from the original; docs/migration.md has tables of old and new calls.

| instead of | import | has |
|---|---|---|
| minbpe | `gristmill.compat.minbpe` | `BasicTokenizer`, `RegexTokenizer`, `GPT4Tokenizer`, `OptimizedRegexTokenizer` |
| a solution of CS336 | `gristmill.compat.cs336` | `train_bpe`, `Tokenizer` |
| a pool that counts chunks | `gristmill.compat.chunked` | `find_chunk_boundaries`, `pretoken_chunk`, `train_bpe` |
| tiktoken | `gristmill.compat.tiktoken` | `Encoding`, `get_encoding` |
| transformers | `gristmill.compat.huggingface` | `PreTrainedTokenizerFast`, `StandInTokenizerFast`, `BatchEncoding` |

Modules are imported on demand, and none of the originals is needed. Where transformers is installed,
`PreTrainedTokenizerFast` returns an instance of its class.
"""
