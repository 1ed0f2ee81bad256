"""count: pieces -> words, the distinct pieces of a corpus with 64-bit counts.

| in reading order | contents |
|---|---|
| `words.py` | `Words`: a table of words; add, prune, save and load it |
| `counting.py` | `count_words`: corpus -> words, by the core |
| `tasks.py`, `distributed.py` | counting in parts by the workers of an executor: the tasks, the job and the table |
| `steps.py` | counting in steps that the caller runs: plan, tasks, finish |
| `regex_counting.py`, `regex_worker.py` | counting with patterns without a native matcher, in worker processes |
"""

from gristmill.count.counting import CountOptions, count, count_words
from gristmill.count.words import Words

__all__ = ["CountOptions", "Words", "count", "count_words"]
