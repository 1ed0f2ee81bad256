"""Analysis: figures of tokenizers and shards, for reports, pages and the command line.

Every function here is pure: it takes a tokenizer, a text or a folder, and returns numbers. Drawing is in `report`.

| module | contents |
|---|---|
| `token_text` | tokens as readable text without ambiguity |
| `vocabulary` | lengths of tokens; longest, whitespace, partial UTF-8 and special tokens |
| `strangeness` | the tokens that are most unlike the rest of the vocabulary |
| `usage` | how often a text uses each token; bytes per token, fertility, Rényi efficiency, unused tokens |
"""
