"""Report: runs, tokenizers and shards as HTML pages with plots.

The report of a run is made only from its recorded files. `write_comparison` puts several runs on one page, and
`write_tokenizer_comparison` several tokenizers.

| module | contents |
|---|---|
| `records` | config.json, machine.json and metrics.jsonl, read and checked |
| `options` | the configuration, without the options of other models |
| `validation` | losses on the subset and on the whole split, kept separate |
| `curves` | long records reduced to a size that can be drawn, without losing a spike |
| `figures` | numbers in readable form: 1.2M tokens, 1 min 52 s |
| `summary` | summary of the run as text and numbers |
| `drawing` | shared plot style |
| `plots` | one plot per metric |
| `posterior` | plots of a variational autoencoder, which the monitor also draws during training |
| `page` | the summary and the plots as HTML (page.html) and as Markdown |
| `comparison` | several runs side by side: numbers, the best of them, options that differ |
| `overlays` | the curves of several runs, one plot per metric |
| `writing` | `write_report`, `write_comparison` |
| `document` | the sections of a page about tokenizers or shards, and the page as HTML (document.html) |
| `token_plots` | token frequencies, lengths and compression; bars of named values |
| `profile_sections` | stage times, rates and memory of the training of a tokenizer, or of the encoding of a corpus |
| `tokenizer_pages` | one tokenizer: figures on texts, tokens, training |
| `tokenizer_comparison` | several tokenizers on the same texts |
| `shard_pages` | a folder of shards, and its encoding |
| `kinds` | whether a path is a run, shards or a tokenizer |
| `token_writing` | `write_tokenizer_report`, `write_tokenizer_comparison`, `write_shards_report` |

A new metric is a function in `plots` and a line in `all_plots`.
"""

from gristmill.report.token_writing import write_shards_report, write_tokenizer_comparison, write_tokenizer_report
from gristmill.report.writing import write_comparison, write_report

__all__ = [
    "write_comparison",
    "write_report",
    "write_shards_report",
    "write_tokenizer_comparison",
    "write_tokenizer_report",
]
