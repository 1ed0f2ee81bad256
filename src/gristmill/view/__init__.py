"""View: local web pages for tokenizers, shards and runs (`gristmill view`).

| module | contents |
|---|---|
| `artefacts` | the tokenizers, shards and runs at the given paths |
| `security` | token, Host, Origin, body size and response headers of every request |
| `replies` | JSON requests and replies, and errors as replies |
| `events` | server-sent events |
| `tokenizers` | the room of tokenizers: tokens of a text, merge trees, vocabularies |
| `token_index` | search, classes and merge trees of one vocabulary |
| `shards` | the page about shards |
| `shard_folder` | a folder of shards as the page reads it: opened once, and again when it is replaced |
| `shard_search` | documents that contain a text or ids, a bounded number of tokens per request |
| `token_texts` | the tokens of a text as the pages show them |
| `tokenizer_words` | example texts and explanations of the room of tokenizers |
| `playground` | the playground: its routes, and the events of a generation |
| `generations` | requests of the playground, and the events that answer them |
| `loaded_models` | the checkpoints that the playground has loaded |
| `turns` | one generation at a time, in order of arrival |
| `app` | the application: all rooms, protected by the token |
| `runs` | the room of runs: live curves, samples, alarms, configuration |
| `run_state` | whether a run trains, has finished or has stopped |
| `metrics_tail` | metrics.jsonl of a run, followed while it grows |
| `run_columns` | records as growing columns and as buckets that a page can draw |
| `server` | `serve`: sockets, the printed address, shutdown |

A room is a module with `routes(artefacts)`, an HTML page and a JavaScript module of the same name in `static/`.
"""
