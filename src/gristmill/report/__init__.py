"""Report: the folder of a run as one HTML page, PNG plots and a Markdown summary, from its recorded files alone.

`write_comparison` puts several runs on one page.

| module | holds |
|---|---|
| `records` | config.json, machine.json and metrics.jsonl, read and checked |
| `options` | the configuration, without the options of other models |
| `validation` | losses on the subset and on the whole split, kept apart |
| `curves` | long records made short enough to draw, without losing a spike |
| `figures` | numbers as people read them: 1.2M tokens, 1 min 52 s |
| `summary` | what there is to say about the run, in words and figures |
| `drawing` | the hand in which pictures are drawn |
| `plots` | one picture a measure |
| `posterior` | those of a variational autoencoder; the monitor draws the same ones while it trains |
| `page` | the summary and the pictures as HTML (page.html) and as Markdown |
| `comparison` | several runs side by side: figures, the best of them, options that differ |
| `overlays` | the curves of several runs in one picture a measure |
| `writing` | `write_report`, `write_comparison` |

A new measure is a function in `plots` and its line in `all_plots`.
"""

from gristmill.report.writing import write_comparison, write_report

__all__ = ["write_comparison", "write_report"]
