"""merge: words -> merges, in the order of the naive algorithm under a named tie-break.

| in reading order | holds |
|---|---|
| `merges.py` | merges as arrays of ids: checked, turned into bytes and back |
| `learning.py` | `learn_merges`: words -> merges; the loops themselves are in `cpp/src/merge` |
"""

from gristmill.merge.learning import learn_merges
from gristmill.merge.merges import MergeIds, build_tokens, check_merges, find_ids

__all__ = ["MergeIds", "build_tokens", "check_merges", "find_ids", "learn_merges"]
