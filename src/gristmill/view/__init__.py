"""View: local web pages for tokenizers, shards and runs (`gristmill view`).

| module | contents |
|---|---|
| `artefacts` | the tokenizers, shards and runs at the given paths |
| `security` | token, Host, Origin, body size and response headers of every request |
| `replies` | JSON requests and replies, and errors as replies |
| `events` | server-sent events |
| `playground` | the playground: its routes, and the events of a generation |
| `generations` | requests of the playground, and the events that answer them |
| `loaded_models` | the checkpoints that the playground has loaded |
| `turns` | one generation at a time, in order of arrival |
| `app` | the application: all rooms, protected by the token |
| `server` | `serve`: sockets, the printed address, shutdown |

A room is a module with `routes(artefacts)`, an HTML page and a JavaScript module of the same name in `static/`.
"""
