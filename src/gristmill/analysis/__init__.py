"""Analysis: figures of tokenizers and shards, for reports, pages and the command line.

Every function here is pure: it takes a tokenizer, a text or a folder, and returns numbers. Drawing is in `report`.

| module | contents |
|---|---|
| `token_text` | tokens as readable text without ambiguity |
| `vocabulary` | lengths of tokens; longest, whitespace, partial UTF-8 and special tokens |
| `strangeness` | the tokens that are most unlike the rest of the vocabulary |
| `usage` | how often a text uses each token; bytes per token, fertility, Rényi efficiency, unused tokens |
| `growth` | how often each merge is applied; bytes per token by vocabulary size; tokens rarer than expected |
| `scripts` | the writing systems of a text, and how well tokens cover them |
| `texts` | the text to measure on: the beginning of files, or the sample corpus |
| `named_tokenizers` | a tokenizer by path, or by a published name without a download |
| `comparing` | shared vocabularies, and places that tokenizers split differently |
| `shard_contents` | token counts, document lengths and samples of a folder of shards, in bounded time |
"""
