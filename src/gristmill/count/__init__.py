"""count: pieces -> words, the distinct pieces of a corpus with 64-bit counts.

| in reading order | holds |
|---|---|
| `words.py` | `Words`: a table of words, added, pruned, saved and loaded |
| `counting.py` | `count_words`: a corpus -> words, by the core |
| `tasks.py`, `distributed.py` | counting in parts, by the workers of any executor: the tasks, the job and the table |
| `steps.py` | counting in steps that the caller runs: plan, tasks, finish |
| `regex_counting.py`, `regex_worker.py` | the same for patterns without a native matcher, in worker processes |
"""

from gristmill.count.counting import CountOptions, count, count_words
from gristmill.count.words import Words

__all__ = ["CountOptions", "Words", "count", "count_words"]
